"""The command that says what files of others are."""

from __future__ import annotations

from pathlib import Path

import typer

from emu.cli.app import app, argument
from emu.cli.options import JsonTarget, emit


@app.command()
def what(
    files: list[Path] = argument("FILE...", "Files or folders of any kind."),
    json_target: JsonTarget = None,
) -> None:
    """Say what files are, and which command takes or converts each.

    Nothing that a file holds is executed. All formats are in emu docs formats.

    Raises DataError when a file cannot be read.
    """
    from emu.interchange.known_formats import describe  # noqa: PLC0415 - seldom used

    rows = [describe(file) for file in files]
    if not emit(json_target, rows):
        return
    for row in rows:
        if not row["format"]:
            typer.echo(
                f"{row['file']}: of no known format; emu docs formats lists them"
            )
            continue
        typer.echo(f"{row['file']}: {row['format']}")
        typer.echo(f"  {row['way']}")
        if row["left_out"]:
            typer.echo(f"  left out: {row['left_out']}")
