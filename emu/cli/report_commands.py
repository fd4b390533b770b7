"""``emu report``: a run as a page, a trace, figures or tables."""

from __future__ import annotations

import contextlib
import math
import re
import webbrowser
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console

from emu.cli.app import app, argument, option
from emu.cli.options import RunCode, seconds, split_words
from emu.cli.progress import status_line
from emu.errors import ScenarioError
from emu.host.files import write_atomic
from emu.names import for_terminal
from emu.report.html.page import write_report
from emu.report.trace import write_trace
from emu.runs.recorded_run import RecordedRun, load_run
from emu.training.looks import Progress
from emu.units import format_count, format_duration

#: Figures of one run or several.
Figure = StrEnum("Figure", "GANTT PORTS LOSS CDF COMPARE PROGRESS")
#: The schedule of a run that is drawn.
Only = StrEnum("Only", "EMULATED SIMULATED")
#: Forms that a run is written in.
Form = StrEnum("Form", "HTML TRACE SVG PDF PNG CSV CHAKRA")
#: Forms of pictures.
OF_FIGURES = (Form.SVG, Form.PDF, Form.PNG)
#: Options that limit the contents of a figure.
_PARTS = {
    Figure.GANTT: ("since", "until", "machines", "only"),
    Figure.PORTS: ("since", "until", "machines", "only"),
    Figure.LOSS: ("since", "until"),
    Figure.CDF: ("only",),
    Figure.COMPARE: (),
    Figure.PROGRESS: ("since", "until", "only"),
}
#: Options whose parameter has another name: ``from`` is a word of Python.
_OPTIONS = {"since": "--from", "until": "--to"}
#: Inches: a wider figure is mistyped.
_WIDEST = 40
#: Inches of a unit of length.
_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}


def _parse_inches(text: str) -> float:
    """Return a length such as ``3.35in`` or ``85 mm`` in inches."""
    match = re.fullmatch(r"\s*(\d*\.?\d+)\s*(in|cm|mm|pt)\s*", text)
    inches = 0.0
    if match:
        number, unit = match.groups()
        inches = float(number) * _INCHES[unit]
    if not 1 <= inches <= _WIDEST:
        problem = f"found {text!r}, write 1in to {_WIDEST}in, such as 3.35in or 85 mm"
        raise ScenarioError(problem, file="--width")
    return inches


def draw(run: Path, console: Console) -> None:
    """Write report.html of ``run``; a failure to draw is only printed.

    The run itself is finished and written down. The page draws what the run knows:
    what would help, and a trace of 34 MB for 10,000 flows, are for who asks.
    """
    try:
        path = write_report(run)
    except Exception as error:  # noqa: BLE001 - a picture must not fail a run
        line = f"report.html could not be drawn: {type(error).__name__}: {error}"
        console.print(line, style="yellow")
    else:
        console.print(f"the picture is {path}", soft_wrap=True)


def _progress(runs: Sequence[RecordedRun]) -> list[Progress]:
    """Return the training of all runs, which may take minutes, and say how far it is.

    Nothing where one of them trains no model: bytes alone are drawn then.
    """
    from emu.report.plot_progress import TARGET, time_to  # noqa: PLC0415
    from emu.runs.retraining import progress_of, trains  # noqa: PLC0415 - torch

    for run in runs:
        if not trains(run):
            typer.echo(f"emu: {run.name} trains no model: bytes alone", err=True)
            return []
    with status_line("training in one process") as say:

        def watch(step: int, steps: int) -> None:
            say(f"training: step {step} of {steps}")

        curves = progress_of(runs, watch)

    for run, curve in zip(runs, curves, strict=True):
        seconds_to_target = time_to(TARGET, run, curve)
        if math.isnan(seconds_to_target):
            best = np.nanmax(curve.accuracy["valid"])
            outcome = f"at best {best:.1%}"
        else:
            length = format_duration(seconds_to_target)
            outcome = f"{TARGET:.0%} after {length}"
        typer.echo(f"{run.name}: validation accuracy {outcome}")
    return curves


@app.command()
def report(
    runs: list[Path] = argument("RUN...", "Run directories; several in a figure."),
    form: Form = option(
        "--as html|trace|svg|pdf|png|csv|chakra",
        "A page, a trace for ui.perfetto.dev, a figure, tables, Chakra traces.",
        Form.HTML,
    ),
    out: Path | None = option(
        "FILE",
        "File to write, of a figure .svg, .pdf or .png; of tables a directory. "
        "Default: in RUN.",
    ),
    figure: Figure | None = option(
        "gantt|ports|loss|cdf|compare|progress",
        "Default is gantt; it and ports show one run, the others several.",
    ),
    *,
    dark: bool = option("--dark", "Light on dark."),
    width: str = option("LENGTH", "3.35in is a column, default 7.2in.", ""),
    since: str = option("--from TIME", "Where the time axis begins.", ""),
    until: str = option("--to TIME", "And where it ends.", ""),
    machines: str = option("NAMES", "Show these only: fast0,slow0.", ""),
    only: Only | None = option("emulated|simulated", "One schedule of each run."),
    explain: bool = option("--explain", "Look for what would help, on the page."),
    open_it: bool = option("--open", "Open it in the browser afterwards."),
    run_code: RunCode = False,  # noqa: ARG001 - see emu.cli.app.Command
) -> None:
    """Write a run as a page, a trace, a figure or tables.

    The page opens offline; it shows what ran when, why the run took so long and, with
    --explain, what would help. Options from --figure to --only are of figures.
    """
    if explain and form is not Form.HTML:
        raise ScenarioError("is of the page: add --as html", file="--explain")
    if form in OF_FIGURES:
        kind = figure or Figure.GANTT
        parts = {
            # What is not stated stays an empty text, and leaves `Window` its default
            # below.
            "width": width and _parse_inches(width),
            "since": since and seconds(since, "--from"),
            "until": until and seconds(until, "--to"),
            "machines": tuple(split_words(machines)),
            "only": str(only or ""),
        }
        _check_parts(kind, parts)
        path = out or runs[0] / f"{kind}.{form}"
        # svg asks for any figure, whose form --out may name; pdf and png name theirs.
        if form is not Form.SVG and path.suffix != f".{form}":
            raise ScenarioError(f"--as {form} is written as .{form}", file=str(out))
        window = {name: value for name, value in parts.items() if value != ""}
        _draw_figure(
            runs,
            figure=kind,
            path=path,
            window=window,
            dark=dark,
        )
    else:
        if len(runs) > 1:
            raise ScenarioError(f"--as {form} is of one run", file=str(runs[1]))
        # A file named .svg says what was meant, though no figure was asked for.
        is_picture = out is not None and out.suffix[1:] in OF_FIGURES
        limits = (width, since, until, machines, only)
        if figure or dark or any(limits) or is_picture:
            raise ScenarioError("draws no figure: add --as svg", file=f"--as {form}")
        path = _write(form, runs[0], out, helpful=explain)

    typer.echo(path if form is Form.HTML else f"written to {path}")
    if open_it:
        # Only an absolute path has a URI.
        address = path.resolve().as_uri()
        webbrowser.open(address)


def _check_parts(figure: Figure, parts: Mapping[str, Any]) -> None:
    """Raise ScenarioError where an option is stated that is of other figures."""
    for name in ("since", "until", "machines", "only"):
        if not parts[name] or name in _PARTS[figure]:
            continue
        figures = [kind for kind in Figure if name in _PARTS[kind]]
        problem = f"is of {', '.join(figures)}, the figure is {figure}"
        stated_as = _OPTIONS.get(name, f"--{name}")
        raise ScenarioError(problem, file=stated_as)


def _write(
    form: Form,
    run: Path,
    out: Path | None,
    *,
    helpful: bool,
) -> Path:
    """Write what is no figure and return its path; print what the run lacks."""
    write = partial(write_report, helpful=True) if helpful else _WRITERS[form]
    path = write(run, out)
    if form is not Form.CSV:  # which has said so
        say_missing(load_run(run))
    return path


def _draw_figure(
    runs: Sequence[Path],
    figure: Figure,
    path: Path,
    window: Mapping[str, Any],
    *,
    dark: bool,
) -> None:
    """Draw a figure; print what the runs lack."""
    from emu.report.plot_style import Window  # noqa: PLC0415 - matplotlib takes 0.5 s
    from emu.report.plots import plot  # noqa: PLC0415

    records = [load_run(run) for run in runs]
    progress = _progress(records) if figure is Figure.PROGRESS else []
    plot(
        records,
        str(figure),
        path,
        dark=dark,
        window=Window(**window),
        progress=progress,
    )
    for run in records:
        say_missing(run)
        if figure is not Figure.LOSS:
            continue
        reported = set(run.training["figure"])
        if "loss" not in reported:
            typer.echo(f"emu: {run.name}: no loss reported", err=True)


def say_missing(*runs: RecordedRun) -> None:
    """Print what run directories lack, a line each."""
    for run in runs:
        for part in run.missing:
            line = for_terminal(f"{run.name}: {part}")
            typer.echo(f"emu: {line}", err=True)


def _write_tables(run: Path, out: Path | None = None) -> Path:
    """Write tasks.csv, flows.csv and ports.csv; return their directory."""
    record = load_run(run)
    folder = out or run
    say_missing(record)
    with contextlib.suppress(OSError):  # writing into it names what is wrong
        folder.mkdir(parents=True, exist_ok=True)
    for name in ("tasks", "flows", "ports"):
        table = getattr(record, name)
        text = table.to_csv(index=False)
        write_atomic(folder / f"{name}.csv", text)
    return folder


def _write_chakra(run: Path, out: Path | None = None) -> Path:
    """Write a Chakra trace of every task; return their directory."""
    from emu.interchange.chakra_out import write_traces  # noqa: PLC0415 - seldom used

    record = load_run(run)
    folder = out or run / "chakra"
    left_out = write_traces(
        record.best.problem,
        taken=record.realization,
        folder=folder,
        rule=record.policy,
    )
    for operation, count in left_out.items():
        typer.echo(f"left out: {operation}, {format_count(count, 'time')}")
    return folder


#: Writers of what is no figure, by form.
_WRITERS = {
    Form.CHAKRA: _write_chakra,
    Form.HTML: write_report,
    Form.TRACE: write_trace,
    Form.CSV: _write_tables,
}
