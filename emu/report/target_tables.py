"""Systems side by side by the time to an accuracy, and who is first, how surely."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import inf

from rich.table import Table

from emu.experiment.question import Answer
from emu.report.many_runs import write_pair
from emu.report.step_sources import describe_steps, list_source_cells
from emu.report.system_tables import rank
from emu.report.terminal import plain_table
from emu.runs.intervals import pair
from emu.scenario.virtual_training import NotReached
from emu.units import format_duration, format_money


def target_table(results: Sequence[Answer], target: str) -> Table:
    """Return one row per system that was trained to a target, the fastest first.

    Differences are taken seed by seed. ``target`` is in words.
    """
    rows = rank(results)
    columns = [">on", ">time", ">to the first", ">on all", ">epochs", ">steps"]
    sources = list_source_cells(rows)
    if sources:
        columns += [">95 %", "steps by"]
    columns.append(">per epoch")
    if any(row.cost for row in rows):
        columns.append(">cost")

    table = plain_table(f"Simulated, to {target}", "system", *columns)
    for row in rows:
        cells = _cells_of(row, rows[0])
        cells += sources.get(row.system, [])
        cells.append(format_duration(row.epoch_seconds, 3))
        if row.cost:
            cells.append(format_money(row.cost["total"]))
        table.add_row(row.system, *cells)

    for row in results:
        # It was trained as long as allowed: how near it came tells what it lacks.
        if isinstance(row.refused, NotReached):
            seconds = format_duration(row.refused.seconds)
            nearest = f"{row.refused.nearest:.1%} at best"
            table.add_row(row.system, "", seconds, nearest)

    table.caption = describe_steps(rows)
    return table


def _cells_of(row: Answer, first: Answer) -> list[str]:
    """Return the cells of a row that reaches a target, from its machines to steps."""
    placing = row.placing
    change = ""
    if row is not first:
        difference = pair(row.makespans, first.makespans)
        change = write_pair(difference)
    everywhere = ""
    if row.everywhere is not None:
        everywhere = format_duration(row.everywhere, 3)

    return [
        f"{len(placing['machines'])} of {placing['machines_in_all']}",
        format_duration(row.makespan),
        change,
        everywhere,
        f"{row.epochs:.3g}",
        f"{row.steps:,.0f}",
    ]


def target_lines(results: Sequence[Answer]) -> Iterator[str]:
    """Yield which system reaches a target first, how sure that is, and its settings.

    Differences are taken seed by seed: one within its own 95 % interval is a tie.
    """
    rows = rank(results)
    if len(rows) > 1:
        yield from _say_first(rows)

    # Systems that exchange otherwise but update alike train the same weights, and one
    # training serves them all.
    names_by_weights = defaultdict[str, list[str]](list)
    for row in rows:
        if row.question.has_steps:
            continue
        names_by_weights[row.weights].append(row.system)
    for names in names_by_weights.values():
        if len(names) > 1:
            yield f"Equal weights, trained once: {', '.join(names)}."

    for row in results:
        # One alone is the file's own setting.
        if len(row.tried) > 1:
            yield _say_settings(row)


def _say_first(rows: Sequence[Answer]) -> Iterator[str]:
    """Yield which of several rows is first, and which of the others tie with it."""
    best, *slower = rows
    machines = ", ".join(best.placing["machines"])
    # A makespan of 0 is of a job whose times and volumes are all 0.
    ratio = slower[0].makespan / best.makespan if best.makespan else inf
    yield (
        f"{best.system} on {machines} is first, {ratio:.2f} x as fast as the next, "
        f"{slower[0].system}."
    )

    ties = []
    for row in slower:
        change = pair(row.makespans, best.makespans)
        # Seed by seed: seeds differ more than systems, and would hide who is first.
        if change and change.tie:
            ties.append(row.system)
    if ties:
        yield f"A tie with {best.system} within 95 %: {', '.join(ties)}."
    if unsure := [row.system for row in slower if _may_be_first(row, best)]:
        yield (
            f"Steps followed from smaller graphs do not part {best.system} from "
            f"{', '.join(unsure)}: their 95 % intervals overlap."
        )


def _may_be_first(row: Answer, best: Answer) -> bool:
    """Return True where the steps of two rows may be such that the other is first."""
    if row.trend == best.trend:
        return False
    least = row.makespan
    if row.trend:
        least *= row.trend.low / row.trend.estimate
    most = best.makespan
    if best.trend:
        most *= best.trend.high / best.trend.estimate
    return least < most


def _say_settings(row: Answer) -> str:
    """Return the settings of a system that were tried, and those that are best."""
    grid = defaultdict[str, dict[str, None]](dict)  # each value once, in order
    for settings, _ in row.tried:
        for key, value in settings.items():
            grid[key.removeprefix("job.")][str(value)] = None

    options = [f"{key} {' | '.join(values)}" for key, values in grid.items()]
    best = [
        f"{key.removeprefix('job.')} {value}"
        for key, value in row.question.settings.items()
    ]
    return (
        f"{row.system}: the best of {len(row.tried)}, {', '.join(options)}: "
        f"{', '.join(best)}"
    )
