"""``emu lab``: the user's own programs on emulated machines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emu.cli.app import app
from emu.cli.options import JsonTarget, Overrides, ScenarioFile, emit
from emu.cli.running import draw
from emu.errors import RunError
from emu.lab.run import run_lab
from emu.lab.setup import open_lab
from emu.machines import missing_needs
from emu.names import for_terminal
from emu.report.lab_tables import lab_tables
from emu.report.terminal import terminal
from emu.runs.run_directory import RunDirectory
from emu.scenario.scenario_file import load_lab

if TYPE_CHECKING:
    from rich.console import Console

    from emu.machines import Lab

#: Bytes at the end of a program's output of which the last line is shown.
_SHOWN = 300


@app.command()
def lab(
    file: ScenarioFile,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND]", help="Runs on every machine; not the file's."
        ),
    ] = None,
    overrides: Overrides = None,
    *,
    runs: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the run directory goes.")
    ] = Path("runs"),
    shell: Annotated[
        str, typer.Option(metavar="MACHINE", help="Open a shell there instead.")
    ] = "",
    pcap: Annotated[
        bool,
        typer.Option("--pcap", help="Write traffic.pcap: all headers, for Wireshark."),
    ] = False,
    json_target: JsonTarget = None,
) -> None:
    """Run your own programs on emulated machines with kernel NICs.

    Every machine is a host of its own: address, host name, processes, shared memory.
    Its NIC carries the payload rate that the file states, in real time.
    """
    described = load_lab(file, overrides or [])
    if needs := missing_needs():
        raise RunError("; ".join(needs))
    if shell:
        raise typer.Exit(_shell(open_lab(described), shell))
    path = Path(file)  # FOLDER/lab.yaml, as `emu init` writes it: by its folder
    name = path.resolve().parent.name if path.name == "lab.yaml" else path.stem
    directory = RunDirectory.create(f"{name}-lab", runs)
    console = terminal(sys.stderr)
    result = run_lab(
        described, directory, command or [], pcap=pcap, watch=console.print
    )
    draw(directory.path, console, ["report.html"])
    if emit(json_target, result):
        terminal().print(lab_tables(result))
    console.print(f"written to {directory.path}/")
    if result["failed"]:
        raise typer.Exit(_say_what_failed(result["failed"], directory.path, console))


def _say_what_failed(failed: dict[str, Any], run: Path, console: Console) -> int:
    """Print which program failed, and the end of its output; return its exit code."""
    code: int = failed["code"] if failed["code"] > 0 else 128 - failed["code"]
    log = run / f"{failed['program']}-{failed['machine']}.log"
    console.print(
        f"{failed['program']} failed first, on {failed['machine']}, with exit code "
        f"{code}: its output is {log}"
    )
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _SHOWN))
        lines = file.read().decode(errors="replace").split("\n")
    for line in [line for line in lines if line.strip()][-1:]:
        console.print(f"which ends: {for_terminal(line)}", markup=False)
    return code


def _shell(machines: Lab, name: str) -> int:
    """Open a shell in a machine; return its exit code."""
    with machines as opened:
        if name not in {machine.name for machine in opened.machines}:
            known = ", ".join(machine.name for machine in opened.machines)
            raise RunError(f"{name} is no machine; there are {known}")
        program = opened.start(name, ["sh", "-i"], stdin=0, output=1)
        while program.code is None:
            opened.wait(1.0)
        return program.code
