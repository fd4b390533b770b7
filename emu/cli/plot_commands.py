"""``emu plot``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from emu.cli.app import app
from emu.runs.recorded_run import load_run


class Figure(StrEnum):
    """What can be drawn."""

    GANTT = "gantt"
    PORTS = "ports"
    LOSS = "loss"
    CDF = "cdf"
    COMPARE = "compare"


@app.command()
def plot(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories.")
    ],
    figure: Annotated[
        Figure,
        typer.Option(
            metavar="gantt|ports|loss|cdf|compare",
            help="The first two show one run, the others several.",
        ),
    ] = Figure.GANTT,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Ends in .svg, .pdf or .png."),
    ] = None,
    *,
    dark: Annotated[bool, typer.Option("--dark", help="Light on dark.")] = False,
) -> None:
    """Draw runs for a paper."""
    from emu.report.plots import plot as draw  # noqa: PLC0415 - matplotlib takes 0.5 s

    path = out or runs[0] / f"{figure}.svg"
    recorded = [load_run(run) for run in runs]
    draw(recorded, str(figure), path, dark=dark)
    typer.echo(f"written to {path}")
    for run in recorded:
        notes = list(run.missing)
        if figure is Figure.LOSS and "loss" not in set(run.training["figure"]):
            notes.append("no loss reported")
        for part in notes:
            typer.echo(f"emu: {run.name}: {part}", err=True)
