"""``emu report`` and ``emu trace``: the pictures of a run."""

from __future__ import annotations

import webbrowser
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from emu.cli.app import app
from emu.report.html import write_report
from emu.report.trace import write_trace


@app.command()
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write; default: RUN/report.html."),
    ] = None,
    *,
    open_it: Annotated[
        bool, typer.Option("--open", help="Open it in the browser afterwards.")
    ] = False,
) -> None:
    """Write report.html, which opens offline.

    It shows what ran when, why the run took so long, and what would help.
    """
    path = write_report(run, out)
    typer.echo(path)
    if open_it:
        webbrowser.open(path.resolve().as_uri())


@app.command()
def trace(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write; default: RUN/trace.json."),
    ] = None,
) -> None:
    """Write trace.json, for ui.perfetto.dev."""
    typer.echo(f"written to {write_trace(run, out)}; open it at ui.perfetto.dev")
