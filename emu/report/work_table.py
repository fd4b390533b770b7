"""Counts by rates of a row of a table of systems."""

from __future__ import annotations

from rich.table import Table

from emu.experiment.question import Answer
from emu.report.terminal import plain_table
from emu.units import DURATION, format_duration, format_number


def work_table(row: Answer) -> Table:
    """Return what a row's tasks and flows take, so that it can be worked by hand."""
    steps = row.experiment.problem.job.iterations
    table = plain_table(
        f"{row.system}: counts by rates, per iteration of {steps}",
        "work",
        "on",
        "takes",
        ">counts",
        "of",
        ">rate",
        ">alone",
        ">waited for",
    )
    for work in row.work:
        name = work.what if work.tasks == 1 else f"{work.what} ({work.tasks})"
        cells = [name, work.machine, work.pool]
        waited = format_duration(work.waited / steps) if work.waited else ""
        for term in work.terms:
            count = format_number(term.count / steps, 7)
            # Rates are as a file states them: 20 ps is 0 us in a table of times.
            rate = DURATION.exact(float(f"{term.rate:.4g}"))
            seconds = format_duration(term.seconds / steps)
            table.add_row(*cells, count, term.operation, rate, seconds, waited)
            cells = ["", "", ""]
            waited = ""

    path = sum(work.waited for work in row.work)
    table.caption = (
        f"waited for: {format_duration(path / steps)} of "
        f"{format_duration(row.simulated.length / steps)}, the critical path; what is "
        "alone longer than that is done beside it, by other processes and links"
    )
    return table
