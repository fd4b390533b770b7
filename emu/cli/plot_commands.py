"""``emu plot``."""

from __future__ import annotations

import math
import re
import sys
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from emu.cli.app import app
from emu.cli.options import seconds
from emu.errors import ScenarioError
from emu.report.terminal import terminal
from emu.runs.recorded_run import load_run
from emu.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emu.runs.recorded_run import RecordedRun
    from emu.runs.validation import Progress


class Figure(StrEnum):
    """Figures that can be drawn."""

    GANTT = "gantt"
    PORTS = "ports"
    LOSS = "loss"
    CDF = "cdf"
    COMPARE = "compare"
    PROGRESS = "progress"


class Only(StrEnum):
    """Which schedule of a run is drawn."""

    EMULATED = "emulated"
    SIMULATED = "simulated"


#: Options that limit the contents of a figure.
_PARTS = {
    Figure.GANTT: ("since", "until", "machines", "only"),
    Figure.PORTS: ("since", "until", "machines", "only"),
    Figure.LOSS: ("since", "until"),
    Figure.CDF: ("only",),
    Figure.COMPARE: (),
    Figure.PROGRESS: ("since", "until", "only"),
}
_OPTIONS = {"since": "--from", "until": "--to"}
_WIDEST = 40
_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}


def _check(figure: Figure, stated: dict[str, Any], only: Only | None) -> None:
    asked = [name for name in ("since", "until", "machines") if stated.get(name)]
    for name in [*asked, *(["only"] if only else [])]:
        if name not in _PARTS[figure]:
            shown = ", ".join(figure for figure in Figure if name in _PARTS[figure])
            option = _OPTIONS.get(name, f"--{name}")
            problem = f"is of {shown}, the figure is {figure}"
            raise ScenarioError(problem, file=option)


def _inches(text: str) -> float:
    """Return a length such as ``3.35in`` or ``85 mm`` in inches."""
    found = re.fullmatch(r"\s*(\d*\.?\d+)\s*(in|cm|mm|pt)\s*", text)
    inches = float(found[1]) * _INCHES[found[2]] if found else 0.0
    if not 1 <= inches <= _WIDEST:
        problem = f"found {text!r}, write 1in to {_WIDEST}in, such as 3.35in or 85 mm"
        raise ScenarioError(problem, file="--width")
    return inches


def _progress(runs: Sequence[RecordedRun]) -> list[Progress]:
    """Return the training of all runs, which may take minutes, and say how far it is.

    Nothing where one of them trains no model: bytes alone are drawn then.
    """
    from emu.report.plot_progress import TARGET, time_to  # noqa: PLC0415
    from emu.runs.validation import progress_of, trains  # noqa: PLC0415 - torch

    for run in runs:
        if not trains(run):
            typer.echo(f"emu: {run.name} trains no model: bytes alone", err=True)
            return []
    console = terminal(sys.stderr)
    with console.status("training in one process") as status:
        found = progress_of(
            runs, lambda step, of: status.update(f"training: step {step} of {of}")
        )
    for run, made in zip(runs, found, strict=True):
        at = time_to(TARGET, run, made)
        best = f"at best {np.nanmax(made.accuracy):.1%}"
        when = best if math.isnan(at) else f"{TARGET:.0%} after {format_duration(at)}"
        typer.echo(f"{run.name}: validation accuracy {when}")
    return found


@app.command()
def plot(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories.")
    ],
    figure: Annotated[
        Figure,
        typer.Option(
            metavar="gantt|ports|loss|cdf|compare|progress",
            help="The first two show one run, the others several.",
        ),
    ] = Figure.GANTT,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Ends in .svg, .pdf or .png."),
    ] = None,
    *,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="As --figure progress: accuracy and bytes per second over time.",
        ),
    ] = False,
    dark: Annotated[bool, typer.Option("--dark", help="Light on dark.")] = False,
    width: Annotated[
        str, typer.Option(metavar="LENGTH", help="3.35in is a column, default 7.2in.")
    ] = "",
    since: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Where the time axis begins.")
    ] = "",
    until: Annotated[
        str, typer.Option("--to", metavar="TIME", help="And where it ends.")
    ] = "",
    machines: Annotated[
        str, typer.Option(metavar="NAMES", help="Show these only: fast0,slow0.")
    ] = "",
    only: Annotated[
        Only | None,
        typer.Option(metavar="emulated|simulated", help="One schedule of each run."),
    ] = None,
) -> None:
    """Draw runs for a paper."""
    from emu.report.plot_style import Window  # noqa: PLC0415 - matplotlib takes 0.5 s
    from emu.report.plots import plot as draw  # noqa: PLC0415

    figure = Figure.PROGRESS if compare else figure
    stated: dict[str, Any] = {"width": _inches(width)} if width else {}
    for name, option, text in (("since", "--from", since), ("until", "--to", until)):
        if text:
            stated[name] = seconds(text, option)
    stated["machines"] = tuple(name.strip() for name in machines.split(",") if name)
    _check(figure, stated, only)
    window = Window(only=str(only or ""), **stated)
    path = out or runs[0] / f"{figure}.svg"
    recorded = [load_run(run) for run in runs]
    progress = _progress(recorded) if figure is Figure.PROGRESS else []
    draw(recorded, str(figure), path, dark=dark, window=window, progress=progress)
    typer.echo(f"written to {path}")
    for run in recorded:
        notes = list(run.missing)
        if figure is Figure.LOSS and "loss" not in set(run.training["figure"]):
            notes.append("no loss reported")
        for part in notes:
            typer.echo(f"emu: {run.name}: {part}", err=True)
