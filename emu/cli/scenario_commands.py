"""``emu validate`` and ``emu schema``."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from emu.cli.app import app
from emu.cli.options import JsonTarget, Overrides, emit
from emu.errors import ScenarioError
from emu.scenario import find_errors, json_schema


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...")],
    overrides: Overrides = None,
    json_target: JsonTarget = None,
) -> None:
    """Check scenario files; print every error with file, line and key."""
    errors: dict[str, list[ScenarioError]] = {}
    for file in files:
        try:
            errors[str(file)] = find_errors(file, overrides or [])
        except ScenarioError as error:
            errors[str(file)] = [error]
    found = [error for of_file in errors.values() for error in of_file]
    report = {
        file: [
            {"file": e.file, "line": e.line, "key": e.key, "problem": e.problem}
            for e in of_file
        ]
        for file, of_file in errors.items()
    }
    if emit(json_target, report):
        for good in [file for file, of_file in errors.items() if not of_file]:
            typer.echo(f"{good}: good")
    for wrong in found:
        typer.echo(f"emu: {wrong}", err=True)
    if found:
        raise typer.Exit(ScenarioError.exit_code)


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    typer.echo(json.dumps(json_schema(), indent=2))
