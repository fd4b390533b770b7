"""``emu trace``."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from emu.cli.app import app
from emu.report.trace import write_trace


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
