"""``emu clean``: what commands leave on this host."""

from __future__ import annotations

import contextlib
from pathlib import Path

import typer

from emu.cli.app import app, option
from emu.cli.options import JsonTarget, emit
from emu.errors import DataError, RunError
from emu.host.files import find_remains, remove
from emu.lab.machines import cpu_groups
from emu.names import for_terminal

#: Looked in unless another directory is stated; it need not be there.
_RUNS = Path("runs")


@app.command()
def clean(
    runs: Path | None = option("--runs DIR", "Run directories to look in (runs)."),
    json_target: JsonTarget = None,
    *,
    dry_run: bool = option("--dry-run", "Say what is there; remove nothing."),
) -> None:
    """Remove files that a killed process or a power cut left.

    These are folders of trials and of METIS in the temporary directory, files half
    written in run directories, and control groups of labs with quotas: of this user,
    and of processes that are no more. Runs leave no process, port, namespace or shared
    memory, however they are killed.

    Raises
    ------
    DataError
        When something cannot be removed, or what is stated is no directory.
    """
    if runs is not None and not runs.is_dir():
        raise DataError("is not a directory", path=runs)
    files = find_remains(runs or _RUNS)
    groups = list[Path]()
    with contextlib.suppress(OSError, RunError):  # /proc is not there
        groups = cpu_groups.groups_left_behind(cpu_groups.Hierarchy.find())

    if not dry_run:
        for path in files:
            remove(path)
        if groups:
            _remove_groups()

    remains = [*files, *groups]
    if emit(json_target, [str(path) for path in remains]):
        verb = "found" if dry_run else "removed"
        for path in remains:
            typer.echo(f"{verb} {for_terminal(str(path))}")
        if not remains:
            typer.echo("nothing was left behind")


def _remove_groups() -> None:
    # The kernel removes no group that a process is in.
    remaining = cpu_groups.remove_left_behind(cpu_groups.Hierarchy.find())
    if remaining:
        problem = "cannot be removed: processes are in it, or it is another user's"
        raise DataError(problem, path=remaining[0])
