"""The command that says what files of others are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from emu.cli.app import app, argument
from emu.cli.options import JsonTarget, emit
from emu.errors import DataError


@app.command()
def what(
    files: list[Path] = argument("FILE...", "Files or folders of any kind."),
    json_target: JsonTarget = None,
) -> None:
    """Say what files are, and which command takes or converts each.

    Nothing that a file holds is executed. All formats are in emu docs formats.

    Raises
    ------
    DataError
        When a file cannot be read, after what the others are.
    """
    from emu.interchange.known_formats import describe  # noqa: PLC0415 - seldom used

    rows = []
    errors = []
    for file in files:
        try:
            rows.append(describe(file))
        except DataError as error:
            errors.append(error)

    if emit(json_target, rows):
        for row in rows:
            _show(row)
    # The first of them is raised below, and printed by that.
    for problem in errors[1:]:
        typer.echo(f"emu: {problem}", err=True)
    if errors:
        raise errors[0]


def _show(row: Mapping[str, Any]) -> None:
    """Print what a file is."""
    if not row["format"]:
        typer.echo(f"{row['file']}: of no known format; emu docs formats lists them")
        return
    typer.echo(f"{row['file']}: {row['format']}")
    typer.echo(f"  {row['way']}")
    if row["left_out"]:
        typer.echo(f"  left out: {row['left_out']}")
