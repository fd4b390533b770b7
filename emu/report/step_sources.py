"""Where a table's steps to an accuracy come from, in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from emu.experiment.question import Answer
from emu.experiment.scaled_steps import Trend
from emu.training.looks import HELD


def describe_steps(rows: Sequence[Answer]) -> str | None:
    """Return what says which rows take steps from elsewhere; None where none does."""
    recorded = _list_recorded(rows)
    trends = _list_trends(rows)
    notes = [*recorded, *trends]
    if not notes:
        return None
    notes.append("time = steps x simulated step")
    return "; ".join(notes)


def list_source_cells(rows: Sequence[Answer]) -> dict[str, list[str]]:
    """Return row -> the 95 % interval of its steps, and what they are from.

    Empty where every row has trained the graph itself.
    """
    if not any(row.trend or row.question.curve_file for row in rows):
        return {}
    cells = {}
    for row in rows:
        cells[row.system] = _source_cells(row)
    return cells


def _source_cells(row: Answer) -> list[str]:
    """Return the interval of a row's steps, and their source in a word."""
    if trend := row.trend:
        distinct_scales = set(trend.scales)
        scales = len(distinct_scales)
        steps = f"{trend.low:,.0f} to {trend.high:,.0f}"
        return [steps, f"{scales} scales"]
    source = row.question.curve_file or "training"
    return ["", source]


def _list_recorded(rows: Sequence[Answer]) -> Iterator[str]:
    """Yield what says of which rows the steps are recorded, and by which file."""
    rows_of_file = defaultdict[str, list[str]](list)
    for row in rows:
        file = row.question.curve_file
        if file:
            rows_of_file[file].append(row.system)

    if rows_of_file:
        files = []
        for file, names in rows_of_file.items():
            systems = ", ".join(names)
            files.append(f"{systems} by {file}")
        text = "; ".join(files)
        yield f"steps recorded, not trained: {text}"
        yield f"up to the first of {HELD} looks in a row that hold it"


def _list_trends(rows: Sequence[Answer]) -> Iterator[str]:
    """Yield what says which rows take steps from smaller graphs, and how surely."""
    rows_of_trend = defaultdict[Trend, list[str]](list)
    for row in rows:
        if row.trend:
            rows_of_trend[row.trend].append(row.system)
    for trend, names in rows_of_trend.items():
        distinct_scales = dict.fromkeys(trend.scales)
        shares = [f"{scale:g}" for scale in distinct_scales]
        scales = ", ".join(shares)
        steps = f"{trend.low:,.0f} to {trend.high:,.0f} steps (95 %)"
        place = " on one machine" if trend.alone else ""
        systems = ", ".join(names)
        yield f"{systems}: {steps} by trainings{place} at {scales} of the graph"
