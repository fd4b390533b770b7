"""Arguments and options that several commands share, their output, and a witness."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from emu.cli.app import argument, option
from emu.errors import DataError, ExpectationMissed, ScenarioError
from emu.host.files import write_atomic
from emu.prediction.packets import (
    Control,
    Shares,
    check_packets,
    missing_ns3,
    packets_of,
)
from emu.units import DURATION, Quantity

if TYPE_CHECKING:
    from rich.console import Console

    from emu.experiment.run_result import RunResult
    from emu.runs.run_directory import RunDirectory
    from emu.scenario import Experiment


def _target(target: str | None) -> str | None:
    """Return the target of ``--json``; ``-`` for what standard output goes to."""
    try:
        there = os.stat(target or "")  # noqa: PTH116
        return "-" if os.path.samestat(there, os.fstat(sys.stdout.fileno())) else target
    except (OSError, ValueError):
        return target


ScenarioFile: TypeAlias = Annotated[
    Path,
    argument("FILE", "Scenario (YAML), workload (JSON), or NAME of a shipped one."),
]
Overrides: TypeAlias = Annotated[
    list[str] | None,
    option("--set KEY=VALUE", "Override a key, e.g. job.iterations=5."),
]
JsonTarget: TypeAlias = Annotated[
    str | None,
    option(
        "--json OUT",
        "Write the result to a file; - prints it instead.",
        callback=_target,
    ),
]
Jobs: TypeAlias = Annotated[
    int, option("N", "Processes at a time; 0 is one for each core.", min=0)
]
RunCode: TypeAlias = Annotated[
    bool, option("--run-code", "Run rules and models of others that a run names.")
]
BoundTime: TypeAlias = Annotated[
    str,
    option("TIME", "How long to look for a lower bound over all placements at most."),
]


def address(text: str, option: str, *, port: int | None = None) -> tuple[str, int]:
    """Return the host and port that an option states.

    Raises ScenarioError when it is no address.
    """
    from emu.emulation.network import parse_address  # noqa: PLC0415 - asyncio, uvloop

    try:
        return parse_address(text, port=port)
    except ValueError as error:
        raise ScenarioError(str(error), file=option) from error


def seconds(text: str, option: str, quantity: Quantity = DURATION) -> float:
    """Return the time that an option states, seconds; or another quantity.

    Raises ScenarioError when it is none.
    """
    try:
        return quantity.parse(text)
    except ValueError as error:
        raise ScenarioError(str(error), file=option) from error


def split_words(words: str) -> list[str]:
    """Return the words between the commas of an option."""
    return [word.strip() for word in words.split(",") if word.strip()]


def emit(target: str | None, content: object) -> bool:
    """Write ``content`` as JSON to the target of ``--json``.

    Returns
    -------
    bool
        Whether tables may still be printed: not beside JSON on standard output.

    Raises
    ------
    DataError
        When the file cannot be written.
    """
    if target is None:
        return True
    text = json.dumps(content, indent=None, allow_nan=False)
    if target == "-":
        typer.echo(text)
        return False
    write_atomic(target, text + "\n")
    return True


def judge_simulated(unchecked: str, missed: Sequence[str]) -> None:
    """Print what only a run can check; raise where a simulation missed an ``expect:``.

    ``unchecked``, ``missed``: of `emu.experiment.expectations`.

    Raises ExpectationMissed with ``missed``.
    """
    if unchecked:
        typer.echo(unchecked, err=True)
    if missed:
        raise ExpectationMissed("; ".join(missed))


class _Name(StrEnum):
    NS3 = "ns3"


Queues: TypeAlias = Annotated[
    Shares | None,
    option("--sharing fair|tcp", "Queues of ns-3: flows by turns, or one that drops."),
]
Tcp: TypeAlias = Annotated[
    Control | None, option("--congestion-control cubic|reno", "TCP of ns-3.")
]
Witness: TypeAlias = Annotated[
    _Name | None,
    option(
        "--witness ns3", "Then simulate it over packets, and say who agrees with whom."
    ),
]


def check_witness(
    witness: _Name | None, *, dry: bool, stated: tuple[object, ...]
) -> Callable[[Experiment], object]:
    """Return what refuses an experiment of which the witness can say nothing.

    ``dry``: whether nothing is to be run. ``stated``: options of the packets.

    Raises ScenarioError when these stand without a witness, or it without a run;
    DataError when it is not installed.
    """
    if witness is None:
        if any(one is not None for one in stated):
            problem = "are of packets: add --witness ns3"
            raise ScenarioError(problem, file="--sharing, --congestion-control")
        return lambda _: None
    if dry:
        problem = "follows a run: leave it out, or emu simulate FILE --network ns3"
        raise ScenarioError(problem, file="--witness")
    if missing := missing_ns3():
        raise DataError(missing, path="--witness ns3")
    return lambda experiment: check_packets(experiment.problem)


def over_packets(
    outcome: RunResult,
    sharing: Shares | None,
    control: Control | None,
    directory: RunDirectory,
    said: Console,
) -> RunResult:
    """Return a run with its third witness; say how many packets that takes."""
    # Through it come sockets and asyncio, which no simulation needs.
    from emu.experiment.witness import PacketNetwork, with_witness  # noqa: PLC0415

    experiment = outcome.experiment
    scale = experiment.scenario.emulation.stated_byte_scale
    count = packets_of(experiment.problem, experiment.realization, scale)
    said.print(f"run written to {directory.path}/; {count:,} packets, by ns-3 ...")
    network = PacketNetwork.of(experiment.scenario, sharing, control)
    return with_witness(outcome, network, directory)
