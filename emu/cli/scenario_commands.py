"""``emu init``, ``emu validate`` and ``emu schema``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from emu.atomic_file import write_atomic
from emu.cli.app import app
from emu.cli.options import JsonTarget, Overrides, emit
from emu.errors import ScenarioError
from emu.scenario import find_errors, json_schema, load
from emu.scenario.realize import model_programs
from emu.scenario.shipped import shipped_scenarios
from emu.scenario.suggestion import nearest


@app.command()
def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of the scenario; default: golden.")
    ] = "golden",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write; default: NAME.yaml."),
    ] = None,
) -> None:
    """Copy a shipped scenario into this directory, to edit.

    A shipped scenario also runs without a copy, by its name: emu simulate golden.

    Raises
    ------
    ScenarioError
        When no scenario is called so, or the file is there already.
    """
    known = shipped_scenarios()
    if name not in known:
        raise ScenarioError(f"{nearest(name, known)}", file=f"no scenario {name!r}")
    target = out or Path(f"{name}.yaml")
    if target.exists():
        raise ScenarioError("is there already; choose another --out", file=str(target))
    write_atomic(target, known[name].read_text(encoding="utf-8"))
    for model in model_programs(load(known[name])):
        program = Path(model.program.rpartition(":")[0])
        beside = target.parent / program.relative_to(known[name].parent)
        beside.parent.mkdir(parents=True, exist_ok=True)
        if not beside.exists():
            write_atomic(beside, program.read_text(encoding="utf-8"))
    typer.echo(f"written to {target}; next: emu simulate {target}")


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scenarios.")],
    overrides: Overrides = None,
    json_target: JsonTarget = None,
) -> None:
    """Check scenario files; print every error in them.

    An error names the file, the line, the key, and what would be right.
    """
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
