"""``emu init``, ``emu validate``, ``emu schema`` and ``emu docs``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.markdown import Markdown

from emu.atomic_file import write_atomic
from emu.cli.app import app
from emu.cli.options import JsonTarget, Overrides, emit
from emu.errors import ScenarioError
from emu.fields.suggestion import nearest
from emu.lab.setup import find_lab_errors
from emu.report.terminal import terminal
from emu.scenario import find_errors, load
from emu.scenario.realize import model_programs
from emu.scenario.scenario import file_schema
from emu.scenario.scenario_file import is_lab
from emu.scenario.shipped import LAB, shipped_documents, shipped_labs, shipped_scenarios


@app.command()
def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of the scenario; default: golden.")
    ] = "golden",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="To write; default: NAME.yaml, folder NAME of a lab."
        ),
    ] = None,
) -> None:
    """Copy a shipped scenario or lab into this directory, to edit.

    It also runs without a copy, by its name: emu simulate golden, emu lab all_reduce.

    Raises
    ------
    ScenarioError
        When no scenario is called so, or the file is there already.
    """
    scenarios, labs = shipped_scenarios(), shipped_labs()
    known = scenarios | labs
    if name not in known:
        raise ScenarioError(f"{nearest(name, known)}", file=f"no scenario {name!r}")
    target = out or Path(name if name in labs else f"{name}.yaml")
    if target.exists():
        raise ScenarioError("is there already; choose another --out", file=str(target))
    if name in labs:
        unneeded = shutil.ignore_patterns("__pycache__")
        try:
            shutil.copytree(labs[name].parent, target, ignore=unneeded)
        except OSError as error:
            raise ScenarioError(
                f"cannot be written: {error.strerror}", file=str(target)
            ) from error
        typer.echo(f"written to {target}/; next: emu lab {target}/{LAB}")
        return
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
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Scenarios and labs.")
    ],
    overrides: Overrides = None,
    json_target: JsonTarget = None,
) -> None:
    """Check scenario and lab files; print every error in them.

    An error names the file, the line, the key, and what would be right.
    """
    errors: dict[str, list[ScenarioError]] = {}
    for file in files:
        try:
            find = find_lab_errors if is_lab(file, overrides or []) else find_errors
            errors[str(file)] = find(file, overrides or [])
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
    """Print the JSON Schema of scenario and lab files, for editors."""
    typer.echo(json.dumps(file_schema(), indent=2))


@app.command()
def docs(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Of the document; default: a list.")
    ] = "",
) -> None:
    """Show a document of emu, or list them.

    Raises
    ------
    ScenarioError
        When no document is called so.
    """
    known = shipped_documents()
    if not name:
        width = max(map(len, known)) + 2
        for title, path in known.items():
            heading = path.read_text(encoding="utf-8").split("\n", 1)[0]
            typer.echo(f"{title:{width}}{heading.removeprefix('# ')}")
        return
    if name not in known:
        raise ScenarioError(nearest(name, known), file=f"no document {name!r}")
    text = known[name].read_text(encoding="utf-8")
    console = terminal()
    console.print(Markdown(text)) if console.is_terminal else typer.echo(text)
