"""``emu exec``: something beside the programs of a lab."""

from __future__ import annotations

import os
import sys
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from emu.cli.app import app
from emu.errors import ScenarioError
from emu.runs.lab_file import holder_of


@app.command("exec")
def run_beside(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run directory of emu lab.")
    ],
    machine: Annotated[
        str, typer.Argument(metavar="MACHINE", help="Where the command runs.")
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="With its arguments."),
    ] = None,
) -> None:
    """Run a command beside a lab that is running.

    It runs in a machine's namespaces, with this terminal and in this directory, and
    its exit code is the one of this command. It ends when the lab does. What it sends
    crosses the machine's NIC.
    """
    holder = holder_of(run, machine)
    if not command:
        raise ScenarioError("there is no command: emu exec RUN MACHINE -- COMMAND")
    os.environ["EMU_MACHINE"] = machine
    beside = [sys.executable, "-m", "emu.machines.exec", str(holder), *command]
    os.execv(sys.executable, beside)  # noqa: S606 - the command is the user's own
