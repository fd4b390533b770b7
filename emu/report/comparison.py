"""One scenario in several ways, side by side: policies, placements, a sweep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from emu.experiment.question import reason
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
    names = {"placement": row.placement, "policy": row.policy}
    if row.refused:
        return {**names, "refused": reason(row.refused)}
    found = row.answer
    content = {
        **names,
        **compare(row.makespans, first.makespans),
        "placing": row.placing,
        "placement_kept": row.kept,
        "moved": found.share_between,
        "rounding": found.rounding,
        "moves": [asdict(move) for move in row.moves],
        "missed": list(row.missed),
        "premises": found.premises.line(),
    }
    if found.cost:
        content["cost"] = found.cost
    if found.coflows:
        content["coflows"] = found.coflows
    return content


class Comparison(list[Candidate]):
    """Candidates side by side, the first of which the others are compared with."""

    def _repr_html_(self) -> str:
        """Return the tables of `comparison_tables`, for notebooks."""
        return "".join(map(html_of, comparison_tables(self))) if self else repr(self)


def write_makespans(makespans: Mapping[Any, float]) -> tuple[str, str]:
    """Return the mean and half of its interval, nothing for one value alone."""
    if not makespans:
        return "refused", ""
    span = interval([*makespans.values()])
    half = format_duration(span.half) if span.half else ""
    return format_duration(span.mean, 6), half


#: Moves that are listed below the table; beyond, only their number is shown.
_LISTED = 6


def comparison_table(candidates: Sequence[Candidate], job: str = "") -> Table:
    """Return one row per candidate; the change is against the first, seed by seed.

    ``job`` says in a line what it was.
    """
    columns = *COLUMNS, ">bytes moved", ">tasks moved"
    title = f"Simulated, {job}" if job else "Simulated"
    table = plain_table(title, "placement", "policy", *columns)
    best = min((one.makespan for one in candidates), default=0.0)
    for one in candidates:
        cells = [one.placement, one.policy, *write_makespans(one.makespans)]
        cells.append(write_pair(pair(one.makespans, candidates[0].makespans)))
        if not one.refused:
            cells += [f"{one.answer.share_between:.0%}", str(len(one.moves))]
        table.add_row(*cells, style="bold" if one.makespan == best else "")
    table.caption = "\n".join(_notes_on(candidates))
    return table


def coflow_line(times: Mapping[str, float]) -> str:
    """Return `CoflowTimes.to_json` in a line."""
    mean, most = (format_duration(times[key], 4) for key in ("mean", "p95"))
    line = f"{times['count']:,} coflows: {mean} on average, 95 % within {most}"
    return f"{line}, {times['slowdown']:.4g} times as long as alone"


def comparison_tables(
    candidates: Sequence[Candidate], job: str = ""
) -> Iterator[Table]:
    """Yield `comparison_table`, costs, and how long coflows take that have a name."""
    yield comparison_table(candidates, job)
    there = [one for one in candidates if not one.refused]
    if paid := [one for one in there if one.answer.cost]:
        yield _cost_table(paid)
    columns = (">coflows", ">mean", ">95 % within", ">slowdown")
    title = "Coflows; slowdown: over the time that one takes alone"
    table = plain_table(title, "placement", "policy", *columns)
    rows = [(one, one.answer.coflows) for one in there if one.answer.coflows]
    least = min((times["mean"] for _, times in rows), default=0.0)
    for one, times in rows:
        seconds = (format_duration(times[key], 4) for key in ("mean", "p95"))
        cells = [f"{times['count']:,}", *seconds, f"{times['slowdown']:.3f}"]
        style = "bold" if times["mean"] == least else ""
        table.add_row(one.placement, one.policy, *cells, style=style)
    if rows:
        yield table


def _cost_table(candidates: Sequence[Candidate]) -> Table:
    """Return what each costs; the table of makespans has no room for it."""
    table = plain_table("Cost", "placement", "policy", *_PRICES.values())
    for one in candidates:
        cost = one.answer.cost or {}
        value = "" if cost["value"] is None else f"{cost['value']:.4g}"
        cells = format_money(cost["total"]), value
        table.add_row(one.placement, one.policy, *cells)
    return table


def _notes_on(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yield moves, ties by rounding, refusals, and the rule placements are by."""
    first = candidates[0]
    for one in candidates:
        if 0 < len(one.moves) <= _LISTED:
            yield f"{one.placement}: {', '.join(map(str, one.moves))}"
    for one in candidates:
        if one.refused:
            continue
        shift = max(one.answer.rounding, first.answer.rounding)
        if 0 < abs(one.makespan - first.makespan) < shift:
            least = f"rounding alone moves it by {format_duration(shift)}"
            yield f"{one.name}: as good as the first row, {least}"
    for one in candidates:
        if one.refused:
            yield f"{one.name}: {reason(one.refused)}"
    by_search = any(one.placing and one.placing["candidates"] for one in candidates)
    if any(one.kept for one in candidates):
        yield f"each placement is that of {first.policy}, for all policies"
    elif by_search and len({one.policy for one in candidates}) > 1:
        yield "each row is placed under its own policy"


#: Columns of simulated makespans.
COLUMNS = (">makespan", ">± (95 %)", ">change")
#: Figures of points on machines with prices, and their columns.
_PRICES = {"cost": ">cost", "value": ">value / (s $)"}
#: Figures of emulated points, and their columns.
_ERRORS = {"makespan_error": ">makespan error", "replay_error": ">replay error"}
_FIGURES = {"samples_per_second": ">samples per s", **_ERRORS, **_PRICES}


def sweep_table(
    rows: Sequence[Row], keys: Sequence[str], *, by_makespan: bool = False
) -> Table:
    """Return mean, 95 % interval and number of seeds of the makespan, best in bold.

    Every combination is compared with the best, seed by seed: a difference within its
    own 95 % interval is a tie. Where not all train on as many samples, the best has
    most of them per second; unless ``by_makespan``, where all train to an accuracy.

    ``rows`` are those of a `SweepRecord`, at least one; ``keys`` vary.
    """
    groups = defaultdict[tuple[str, ...], dict[Any, Row]](dict)
    for row in rows:
        group = tuple(str(row["values"][key]) for key in keys)
        groups[group][row["values"]["seed"]] = row["figures"]
    uneven = not by_makespan and _is_uneven([row["figures"] for row in rows])
    seconds = {
        group: {seed: _seconds(one, uneven) for seed, one in by_seed.items()}
        for group, by_seed in groups.items()
    }
    best = min(seconds, key=lambda group: interval([*seconds[group].values()]).mean)

    figures = _figure_columns([row["figures"] for row in rows], uneven=uneven)
    columns = [*keys, ">makespan", ">± (95 %)", ">seeds", ">against the best"]
    table = plain_table("", *columns, *(_FIGURES[key] for key in figures))
    for group, by_seed in groups.items():
        makespans = {seed: float(one["makespan"]) for seed, one in by_seed.items()}
        apart = None if group == best else pair(seconds[group], seconds[best])
        cells = [
            *group,
            *write_makespans(makespans),
            str(len(by_seed)),
            write_pair(apart),
        ]
        for key, write in figures.items():
            values = [float(one[key]) for one in by_seed.values() if key in one]
            cells.append(write(interval(values).mean) if values else "")
        table.add_row(*cells, style="bold" if group == best else "")
    if uneven:
        table.caption = "by seeds per second: not all train on as many seeds"
    return table


def _is_uneven(figures: Sequence[Row]) -> bool:
    """Return True where points train on other numbers of samples."""
    known = all("samples_per_second" in one for one in figures)
    return known and len({one["samples"] for one in figures}) > 1


def _seconds(figures: Row, uneven: bool) -> float:  # noqa: FBT001 - one call
    """Return what is least of the best: the makespan, or the seconds of a sample."""
    if uneven:
        return 1 / float(figures["samples_per_second"])
    return float(figures["makespan"])


def _figure_columns(
    figures: Sequence[Row], *, uneven: bool
) -> dict[str, Callable[[float], str]]:
    """Return the figures that have a column, by how their mean is written."""
    columns: dict[str, Callable[[float], str]] = {}
    if uneven:
        columns["samples_per_second"] = lambda mean: format_number(mean, 4)
    for key in _ERRORS:
        if all(key in one for one in figures):
            columns[key] = format_ratio
    if any("cost" in one for one in figures):
        columns |= {"cost": format_money, "value": "{:.4g}".format}
    return columns
