"""``emu fit``: from a run of a lab to a scenario."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from emu.atomic_file import write_atomic
from emu.cli.app import app
from emu.cli.options import JsonTarget, emit
from emu.fitting import Template  # noqa: TC001 - typer reads annotations
from emu.lab.fit_run import Fit, fit_run
from emu.report.terminal import plain_table, terminal
from emu.units import format_duration


@app.command()
def fit(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run directory of emu lab.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Scenario to write: YAML or JSON."
        ),
    ],
    skip: Annotated[
        int, typer.Option(min=0, metavar="N", help="Leave the first N iterations out.")
    ] = 0,
    template: Annotated[
        Template | None,
        typer.Option(
            metavar="distdgl|allreduce",
            help="What the job is: every iteration is then the mean one.",
        ),
    ] = None,
    json_target: JsonTarget = None,
) -> None:
    """Make a scenario of what crossed in a lab.

    Volumes are those that crossed, times the gaps between what a process received and
    what it sent next. Processes of one program sum by all-reduces round a ring, with
    which iterations end; those of two programs ask and answer.
    """
    found = fit_run(run, skip=skip, template=template)
    write_atomic(out, found.text(out.name))
    if emit(json_target, found.to_json()):
        terminal().print(_table(found))
        typer.echo(f"written to {out}")


def _table(found: Fit) -> object:
    table = plain_table(
        f"{found.iterations} iterations from number {found.first}: seconds of each",
        "",
        ">measured",
        ">simulated",
        ">error",
    )
    half = found.iterations // 2
    for title, measured, simulated, error in (
        ("of all, by all", found.measured, found.simulated, found.error),
        (
            f"of the last {found.iterations - half}, by the first {half}",
            found.held_out_measured,
            found.held_out_simulated,
            found.held_out_error,
        ),
    ):
        cells = [format_duration(seconds, 4) for seconds in (measured, simulated)]
        table.add_row(title, *cells, f"{error:+.2%}")
    return table
