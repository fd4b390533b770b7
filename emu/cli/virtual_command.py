"""``emu virtual``: programs of torch.distributed on machines that are not there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from emu.cli.app import app, argument, option
from emu.cli.options import JsonTarget, Overrides, ScenarioFile, emit, seconds
from emu.errors import EmulatorError, ScenarioError
from emu.host.foreign_code import ask_to_run
from emu.names import for_terminal
from emu.report.terminal import plain_table, terminal
from emu.runs.run_directory import RunDirectory
from emu.scenario.scenario_file import load_lab
from emu.units import format_duration, format_size
from emu.virtual.launch import nodes_of_command, nodes_of_lab, plan_ranks
from emu.virtual.run_virtual import Settings, default_at_once, run_virtual
from emu.virtual.transports import read_algorithms


@app.command()
def virtual(
    file: ScenarioFile,
    command: list[str] | None = argument(
        "[-- COMMAND]",
        "torchrun ..., python -m MODULE, or a program; not the file's.",
        None,
    ),
    overrides: Overrides = None,
    *,
    ranks: int | None = option(
        "N", "Ranks of a program alone; one per machine.", None, min=1
    ),
    mark: str = option("LINE", "Steps begin where rank 0 printed this.", ""),
    charge: str = option(
        "TIME", "What a computation takes, in place of its CPU time.", ""
    ),
    threads: int = option(
        "N", "Cores that every rank has, for threads of its operations.", 1, min=1
    ),
    at_once: int = option(
        "N", "Ranks that compute at once; 0: one per core.", 0, min=0
    ),
    free_messages: bool = option(
        "--free-messages", "Leave the CPU that messages take out of the clock."
    ),
    real_clock: bool = option("--real-clock", "Show programs this computer's time."),
    algorithm: str = option(
        "NAME", "NCCL's messages for groups of nccl: ring, tree, or tree,ring.", ""
    ),
    runs: Path = option(
        "DIR", "Where the run directory goes.", Path("runs"), is_eager=True
    ),
    json_target: JsonTarget = None,
) -> None:
    """Run programs of torch.distributed in virtual time.

    The program is not changed, its ranks compute for real, and losses are its own.
    Computing takes its CPU time over the ``speed`` of a machine; calls take what gloo's
    messages, or NCCL's, take over the cluster's links. No root, no machines, two cores.
    """
    if free_messages and charge:
        problem = "changes nothing beside --charge, which no message adds to: leave it "
        raise ScenarioError(f"{problem}out", file="--free-messages")
    lab = load_lab(file, overrides or [])
    if command:
        nodes = nodes_of_command(command, lab.cluster.names, ranks)
    else:
        nodes = nodes_of_lab(lab)
        ask_to_run(str(file), f"program {lab.lab.programs[0].name}")
    prediction = lab.lab.prediction
    settings = Settings(
        at_once=at_once or max(1, default_at_once() // threads),
        threads=threads,
        charge=seconds(charge, "--charge") if charge else None,
        mark=mark or (prediction.mark if prediction and prediction.mark else ""),
        free_messages=free_messages,
        real_clock=real_clock,
        algorithms=read_algorithms(algorithm) if algorithm else (),
    )

    name = file.resolve().parent.name if file.name == "lab.yaml" else file.stem
    plans = plan_ranks(nodes, threads)
    directory = RunDirectory.create(f"{name}-virtual", runs)
    console = terminal(sys.stderr)

    def watch(rank: int, time: float, text: str) -> None:
        if rank == 0:
            console.print(f"{time:12.6f} s  {for_terminal(text)}", markup=False)

    try:
        result = run_virtual(lab, plans, directory, settings, watch)
    except EmulatorError:
        # What was refused before it began has left nothing.
        directory.remove_empty()
        raise
    if settings.mark and not result["steps"]["count"]:
        words = f"{settings.mark!r}, which --mark looks for"
        console.print(
            f"rank 0 printed no two lines with {words}: no steps", markup=False
        )
    if emit(json_target, result):
        _print(result, terminal())
    console.print(f"written to {directory.path}/; next: emu explain {directory.path}")


def _print(result: dict[str, Any], console: Console) -> None:
    table = plain_table(
        "", "rank", "machine", ">ended", ">computed", ">waited", ">calls"
    )
    for row in result["ranks"]:
        table.add_row(
            str(row["rank"]),
            row["machine"],
            format_duration(row["end"], 4),
            format_duration(row["computed"], 4),
            format_duration(row["waited"], 4),
            str(row["calls"]),
        )
    console.print(table)

    rows = result["bytes"].values()
    sent = sum(sum(row.values()) for row in rows)
    typer.echo(
        f"makespan {format_duration(result['makespan'], 4)}, {format_size(sent)} sent"
    )
    steps = result["steps"]
    if steps["count"]:
        typer.echo(
            f"{steps['count']} steps, median {format_duration(steps['median'], 4)} "
            f"({format_duration(steps['least'], 4)} to "
            f"{format_duration(steps['most'], 4)}), the first "
            f"{format_duration(steps['first'], 4)} apart"
        )
    for backend, messages in result["messages"].items():
        typer.echo(f"groups of {backend}: messages are {messages}")
    typer.echo(result["trust"])
    for reason in result["reasons"]:
        typer.echo(f"  {reason}")
