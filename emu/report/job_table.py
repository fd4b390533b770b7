"""The table of several jobs: when each ended, and what the others cost it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.report.terminal import plain_table
from emu.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

    from emu.analysis.job_times import JobTime


def job_table(jobs: Iterable[JobTime]) -> Table:
    """Return a row per job."""
    columns = (">released", ">ended", ">took", ">alone", ">slowdown")
    table = plain_table("Jobs", "job", *columns)
    for one in jobs:
        seconds = (one.release, one.end, one.seconds, one.alone)
        shown = [format_duration(value, 4) for value in seconds]
        table.add_row(one.job, *shown, f"{one.slowdown:.3f}")
    return table
