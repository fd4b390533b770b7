"""``emu clean``: what commands leave on this host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emu.cli.app import app
from emu.cli.options import JsonTarget, emit
from emu.files import left_behind, remove
from emu.names import for_terminal


@app.command()
def clean(
    runs: Annotated[
        Path, typer.Option("--runs", metavar="DIR", help="Run directories to look in.")
    ] = Path("runs"),
    json_target: JsonTarget = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is there; remove nothing.")
    ] = False,
) -> None:
    """Remove files that a killed process or a power cut left.

    These are folders of trials and of METIS in the temporary directory, and files half
    written in run directories: of this user, and of processes that are no more. Runs
    leave no process, port, namespace or shared memory, however they are killed.

    Raises
    ------
    DataError
        When something cannot be removed.
    """
    found = left_behind(runs)
    for path in [] if dry_run else found:
        remove(path)
    if emit(json_target, [str(path) for path in found]):
        for path in found:
            typer.echo(f"{'found' if dry_run else 'removed'} {for_terminal(str(path))}")
        if not found:
            typer.echo("nothing was left behind")
