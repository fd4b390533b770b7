"""Tables of what was measured, trained and checked, of at most 100 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rich.table import Table
from rich.text import Text

from emu.array_types import Floats
from emu.report.terminal import plain_table
from emu.trust.violation import AuditReport
from emu.units import format_duration, format_ratio

#: Ranges of a trace that are listed.
_RANGES = 12


def ranges_table(ranges: Mapping[str, Floats]) -> Table:
    """Return the ranges of a trace in its order, each with a bar of its time in all."""
    grid = plain_table("ranges of the trace", "range", ">times", ">mean", "in all")
    sums = [seconds.sum() for seconds in ranges.values()]
    # Bars are shares of the longest: ranges may nest, so that their sum is none.
    longest = max(sums, default=0.0) or 1.0
    first_ranges = islice(ranges.items(), _RANGES)
    for name, seconds in first_ranges:
        count = f"{len(seconds):,}"
        mean_seconds = float(seconds.mean())
        mean = format_duration(mean_seconds)
        share = float(seconds.sum() / longest)
        signs = round(30 * share)
        bar = Text("█" * signs, style="blue")
        grid.add_row(name, count, mean, bar)

    # The trace has them by their time in all, so that the rest is short.
    rest = len(ranges) - _RANGES
    if rest > 0:
        grid.caption = f"and {rest} shorter ones"
    return grid


def times_lines(
    times: Iterable[tuple[str, Any]], rest: Mapping[str, float]
) -> list[str]:
    """Return the keys of ``job.times`` above 0, and kinds of task that have none."""
    lines = []
    for key, time in times:
        parts = time
        if not isinstance(time, tuple):
            parts = (time or 0.0,)
        if any(parts):
            texts = [format_duration(seconds) for seconds in parts]
            durations = ", ".join(texts)
            lines.append(f"  {key}: {durations}")

    for kind, seconds in rest.items():
        if seconds:
            duration = format_duration(seconds)
            lines.append(f"  ({kind}: {duration}, no key takes it)")
    return lines


def rates_lines(
    rates: Mapping[str, Any], residuals: Mapping[str, float]
) -> Iterator[str]:
    """Yield ``job.rates``, and how far times by them are from what was measured."""
    for name, rate in rates.items():
        yield f"  {name}: {rate}"
    for kind, share in residuals.items():
        furthest = format_ratio(share)
        yield f"  ({kind}: {furthest} at the furthest)"


def training_table(training: Sequence[Mapping[str, float]]) -> Table:
    """Return loss and validation accuracy over time, where that was looked at."""
    grid = plain_table("training", ">step", ">time", ">loss", ">validation accuracy")
    looks = [row for row in training if "accuracy" in row]
    # Without vertices to validate on, the last step says what was reached.
    for row in looks or training[-1:]:
        step = f"{row['iteration']:.0f}"
        time = format_duration(row["time"], 5)
        loss = f"{row['loss']:.4g}"
        accuracy = "no such vertices"
        if looks:
            accuracy = f"{row['accuracy']:.2%}"
        grid.add_row(step, time, loss, accuracy)
    return grid


def audit_table(report: AuditReport) -> Table:
    """Return one row per constraint: comparisons, violations, the first of them."""
    table = plain_table("Audit", "constraint", ">checked", ">broken", "first")
    for name, count in report.checked.items():
        constraints = name.split(",")
        broken = [
            str(violation)
            for violation in report.violations
            if violation.constraint in constraints
        ]
        checked_count = f"{count:,}"
        broken_count = f"{len(broken):,}"
        table.add_row(name, checked_count, broken_count, *broken[:1])
    return table


def accuracy_table(found: Mapping[str, Mapping[str, float]]) -> Table:
    """Return one row per job and split; one job alone has no name."""
    columns = ["split", ">accuracy"]
    has_names = [*found] != [""]
    if has_names:
        columns.insert(0, "job")
    table = plain_table("", *columns)
    for job, splits in found.items():
        for split, share in splits.items():
            cells = [split, f"{share:.2%}"]
            if has_names:
                cells.insert(0, job)
            table.add_row(*cells)
    return table
