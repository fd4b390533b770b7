"""One scenario in several ways, side by side: policies, placements, a sweep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

import numpy as np
from rich.table import Table

from emu.experiment.refusal import reason
from emu.experiment.variants import Candidate
from emu.report.html.markup import table as html_of
from emu.report.many_runs import compare, write_pair
from emu.report.terminal import plain_table
from emu.runs.intervals import interval, pair
from emu.runs.result import Result, Row
from emu.units import format_duration, format_money, format_number, format_ratio


def candidate_json(row: Candidate, first: Candidate) -> Result:
    """Return the row of a variant by the names that JSON has, in seconds and shares.

    ``change`` is against the first one, the mean of the seeds' changes; with half the
    width of its 95 % interval, and whether that holds 0.
    """
    content: Result = {"placement": row.placement, "policy": row.policy}
    if row.refused:
        return {**content, "refused": reason(row.refused)}

    answer = row.answer
    content |= {
        **compare(row.makespans, first.makespans),
        "placing": row.placing,
        "placement_kept": row.kept,
        "moved": answer.share_between,
        "rounding": answer.rounding,
        "moves": [asdict(move) for move in row.moves],
        "missed": list(row.missed),
        "premises": answer.premises.line(),
    }
    if answer.cost:
        content["cost"] = answer.cost
    if answer.coflows:
        content["coflows"] = answer.coflows
    if answer.jobs:
        content["jobs"] = [job.to_json() for job in answer.jobs]
    return content


class Comparison(list[Candidate]):
    """Candidates side by side, the first of which the others are compared with."""

    def _repr_html_(self) -> str:
        """Return the tables of `comparison_tables`, for notebooks."""
        if not self:
            return repr(self)
        tables = comparison_tables(self)
        parts = [html_of(table) for table in tables]
        return "".join(parts)


def write_makespans(makespans: Mapping[Any, float]) -> tuple[str, str]:
    """Return the mean and half of its interval, nothing for one value alone."""
    if not makespans:
        return "refused", ""
    values = list(makespans.values())
    span = interval(values)
    mean = format_duration(span.mean, 6)
    if not span.half:
        return mean, ""
    return mean, format_duration(span.half)


#: Moves that are listed below the table; beyond, only their number is shown.
_LISTED = 6


def comparison_table(candidates: Sequence[Candidate], job: str = "") -> Table:
    """Return one row per candidate; the change is against the first, seed by seed.

    ``job`` says in a line what it was.
    """
    title = "Simulated"
    if job:
        title += f", {job}"
    columns = ["placement", "policy", *COLUMNS, ">bytes moved", ">tasks moved"]
    table = plain_table(title, *columns)

    first = candidates[0]
    # One that was refused has a makespan of infinity.
    best = min(row.makespan for row in candidates)
    for row in candidates:
        change = pair(row.makespans, first.makespans)
        cells = [
            row.placement,
            row.policy,
            *write_makespans(row.makespans),
            write_pair(change),
        ]
        if not row.refused:
            moved_share = f"{row.answer.share_between:.0%}"
            move_count = str(len(row.moves))
            cells += [moved_share, move_count]
        style = "bold" if row.makespan == best else ""
        table.add_row(*cells, style=style)

    notes = _notes_on(candidates)
    table.caption = "\n".join(notes)
    return table


def coflow_line(times: Mapping[str, float]) -> str:
    """Return `CoflowTimes.to_json` in a line."""
    mean = format_duration(times["mean"], 4)
    most = format_duration(times["p95"], 4)
    count = times["count"]
    slowdown = times["slowdown"]
    return (
        f"{count:,} coflows: {mean} on average, 95 % within {most}, "
        f"{slowdown:.4g} times as long as alone"
    )


def comparison_tables(
    candidates: Sequence[Candidate], job: str = ""
) -> Iterator[Table]:
    """Yield `comparison_table`, jobs, costs, and times of coflows that have a name."""
    yield comparison_table(candidates, job)
    answers = [row for row in candidates if not row.refused]
    if any(row.answer.jobs for row in answers):
        yield _job_table(answers)
    if any(row.answer.cost for row in answers):
        yield _cost_table(answers)
    if any(row.answer.coflows for row in answers):
        yield _coflow_table(answers)


#: Letters that columns of jobs take at most beside placement and policy.
_JOB_WIDTH = 60
#: Letters of a duration, and of the space before it.
_DURATION_WIDTH = 12


def _job_table(candidates: Sequence[Candidate]) -> Table:
    """Return how long each of several jobs takes; of many, how long all of them do.

    A makespan is that of the last job alone, which a rule may leave as it is. The row
    of the shortest mean is bold.
    """
    jobs_of = [row.answer.jobs for row in candidates]
    first_jobs, *_ = jobs_of
    names = [job.job for job in first_jobs]
    width = sum(max(len(name) + 2, _DURATION_WIDTH) for name in names)
    is_narrow = width <= _JOB_WIDTH
    columns = [f">{name}" for name in names] if is_narrow else [">95 % within"]
    title = "Jobs, each from its release to its end"
    if any(len(row.makespans) > 1 for row in candidates):
        title += ", first seed"
    table = plain_table(title, "placement", "policy", *columns, ">mean")

    seconds_of = [[job.seconds for job in jobs] for jobs in jobs_of]
    shortest = min(map(fmean, seconds_of))
    for row, seconds in zip(candidates, seconds_of, strict=True):
        mean = fmean(seconds)
        figures = seconds if is_narrow else [float(np.percentile(seconds, 95))]
        cells = [format_duration(figure, 4) for figure in (*figures, mean)]
        style = "bold" if mean == shortest else ""
        table.add_row(row.placement, row.policy, *cells, style=style)
    return table


def _coflow_table(candidates: Sequence[Candidate]) -> Table:
    """Return the times of named coflows, the shortest mean in bold."""
    title = "Coflows; slowdown: over the time that one takes alone"
    table = plain_table(
        title, "placement", "policy", ">coflows", ">mean", ">95 % within", ">slowdown"
    )

    rows = []
    for row in candidates:
        times = row.answer.coflows
        if times:
            rows.append((row, times))
    means = [times["mean"] for _, times in rows]
    shortest = min(means)
    for row, times in rows:
        mean = times["mean"]
        style = "bold" if mean == shortest else ""
        table.add_row(
            row.placement,
            row.policy,
            f"{times['count']:,}",
            format_duration(mean, 4),
            format_duration(times["p95"], 4),
            f"{times['slowdown']:.3f}",
            style=style,
        )
    return table


def _cost_table(candidates: Sequence[Candidate]) -> Table:
    """Return what each costs; the table of makespans has no room for it."""
    prices = _PRICES.values()
    table = plain_table("Cost", "placement", "policy", *prices)
    for row in candidates:
        cost = row.answer.cost
        if not cost:
            continue
        total = format_money(cost["total"])
        value = ""
        if cost["value"] is not None:
            value = f"{cost['value']:.4g}"
        table.add_row(row.placement, row.policy, total, value)
    return table


def _notes_on(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yield moves, ties by rounding, refusals, and the rule placements are by."""
    first = candidates[0]
    answers = [row for row in candidates if not row.refused]
    yield from _move_notes(answers)
    for row in answers:
        # The last digits move either row: the one that they move more decides.
        roundings = (row.answer.rounding, first.answer.rounding)
        shift = max(roundings)
        distance = abs(row.makespan - first.makespan)
        if 0 < distance < shift:
            length = format_duration(shift)
            yield (
                f"{row.name}: as good as the first row, rounding alone moves it by "
                f"{length}"
            )
    for row in candidates:
        if row.refused:
            cause = reason(row.refused)
            yield f"{row.name}: {cause}"

    policies = {row.policy for row in candidates}
    # Rates decide what a placement is worth: two rows may differ by both.
    if any(row.kept for row in candidates):
        yield f"each placement is that of {first.policy}, for all policies"
    elif len(policies) > 1:
        is_searched = any(row.placing and row.placing["candidates"] for row in answers)
        if is_searched:
            yield "each row is placed under its own policy"


def _move_notes(answers: Sequence[Candidate]) -> Iterator[str]:
    """Yield the moves to each placement once, with the policies that it is under."""
    policies_of = defaultdict[tuple[str, str], list[str]](list)
    for row in answers:
        if 0 < len(row.moves) <= _LISTED:
            move_texts = map(str, row.moves)
            moves = ", ".join(move_texts)
            policies_of[row.placement, moves].append(row.policy)
    for (placement, moves), policies in policies_of.items():
        yield f"{placement} under {', '.join(policies)}: {moves}"


#: Columns of simulated makespans.
COLUMNS = (">makespan", ">± (95 %)", ">change")
#: Figures of points on machines with prices, and their columns.
_PRICES = {"cost": ">cost", "value": ">value / (s $)"}
#: Figures of emulated points, and their columns.
_ERRORS = {"makespan_error": ">makespan error", "replay_error": ">replay error"}
#: The figure that unequal points are ranked by, and its column.
_PACE = {"samples_per_second": ">samples per s"}
#: Keys beside which a narrow terminal has room for a column of `_PACE`.
_KEYS_BESIDE_PACE = 1


def sweep_table(
    rows: Sequence[Row], keys: Sequence[str], *, by_makespan: bool = False
) -> Table:
    """Return mean, 95 % interval and number of seeds of the makespan, best in bold.

    Every combination is compared with the best, seed by seed: a difference within its
    own 95 % interval is a tie. Where not all train on as many samples, the best has
    most of them per second; unless ``by_makespan``, where all train to an accuracy.
    Of several keys, `sweep_figure_tables` has these figures.

    ``rows`` are those of a `SweepRecord`, at least one; ``keys`` vary.
    """
    groups = defaultdict[tuple[str, ...], dict[Any, Row]](dict)
    for row in rows:
        values = row["values"]
        # As text, since a value may be a list, which is no key.
        group = tuple(str(values[key]) for key in keys)
        seed = values["seed"]
        groups[group][seed] = row["figures"]

    uneven = ranks_by_pace(rows, by_makespan=by_makespan)
    measure = _makespan
    if uneven:
        measure = _seconds_per_sample
    seconds = {}
    means = {}
    for group, by_seed in groups.items():
        lengths = {seed: measure(figures) for seed, figures in by_seed.items()}
        seconds[group] = lengths
        means[group] = interval([*lengths.values()]).mean
    best = min(seconds, key=lambda group: means[group])

    columns = [*keys, ">makespan", ">± (95 %)", ">seeds", ">against the best"]
    has_pace = uneven and len(keys) <= _KEYS_BESIDE_PACE
    if has_pace:
        columns += _PACE.values()
    table = plain_table("", *columns)
    for group, by_seed in groups.items():
        makespans = {seed: _makespan(figures) for seed, figures in by_seed.items()}
        change = pair(seconds[group], seconds[best]) if group != best else None
        cells = [
            *group,
            *write_makespans(makespans),
            str(len(by_seed)),
            write_pair(change),
        ]
        if has_pace:
            cells.append(_write_pace_of(by_seed.values()))
        style = "bold" if group == best else ""
        table.add_row(*cells, style=style)
    if uneven:
        table.caption = "by seeds per second: not all train on as many seeds"
    return table


def sweep_figure_tables(
    rows: Sequence[Row], keys: Sequence[str], *, by_makespan: bool = False
) -> Iterator[Table]:
    """Yield how fast each combination trains, how far off it was, and what it costs.

    Each where it is known and, as of `sweep_table`, counts. Tables of their own: beside
    the makespans they would not fit into 80 columns.
    """
    uneven = ranks_by_pace(rows, by_makespan=by_makespan)
    if uneven and len(keys) > _KEYS_BESIDE_PACE:
        pace_writers = {"samples_per_second": _write_pace}
        yield _figure_table("Pace", rows, keys, _PACE, pace_writers)
    # A column of errors says nothing of points that were not emulated.
    figures_of_all = [row["figures"] for row in rows]
    if all(_ERRORS.keys() <= figures.keys() for figures in figures_of_all):
        writers = dict.fromkeys(_ERRORS, format_ratio)
        yield _figure_table("Emulated", rows, keys, _ERRORS, writers)
    # Prices may be what varies: points without any leave their cells empty.
    if any("cost" in figures for figures in figures_of_all):
        prices = {"cost": format_money, "value": "{:.4g}".format}
        yield _figure_table("Cost", rows, keys, _PRICES, prices)


def _figure_table(
    title: str,
    rows: Sequence[Row],
    keys: Sequence[str],
    columns: Mapping[str, str],
    writers: Mapping[str, Callable[[float], str]],
) -> Table:
    """Return the means over seeds of some figures, a row per combination."""
    groups = defaultdict[tuple[str, ...], list[Row]](list)
    for row in rows:
        group = tuple(str(row["values"][key]) for key in keys)
        groups[group].append(row["figures"])

    table = plain_table(title, *keys, *columns.values())
    for group, points in groups.items():
        cells = []
        for key, write in writers.items():
            values = [float(figures[key]) for figures in points if key in figures]
            cells.append(_write_mean(values, write))
        table.add_row(*group, *cells)
    return table


def _write_mean(values: Sequence[float], write: Callable[[float], str]) -> str:
    """Return the mean of a figure; empty where no run has it."""
    if not values:
        return ""
    mean = interval(values).mean
    return write(mean)


def _write_pace_of(figures: Iterable[Row]) -> str:
    """Return the mean of samples per second."""
    paces = [row["samples_per_second"] for row in figures]
    return _write_mean(paces, _write_pace)


def _write_pace(samples_per_second: float) -> str:
    return format_number(samples_per_second, 4)


def _makespan(figures: Row) -> float:
    return float(figures["makespan"])


def _seconds_per_sample(figures: Row) -> float:
    return 1 / float(figures["samples_per_second"])


def ranks_by_pace(rows: Sequence[Row], *, by_makespan: bool = False) -> bool:
    """Return True where points train on other numbers of samples.

    By makespan four workers that train on twice as many samples as two looked 97 %
    slower, at as many samples per second. ``by_makespan``: all train to an accuracy.
    """
    figures = [row["figures"] for row in rows]
    # The makespan is the one measure that all points have then.
    if by_makespan or not all("samples_per_second" in row for row in figures):
        return False
    sample_counts = {row["samples"] for row in figures}
    return len(sample_counts) > 1
