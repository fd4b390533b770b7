"""Options of packets, and the witness of a run that they make."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from emu.errors import DataError, ScenarioError
from emu.packets import Control, Shares, check_packets, missing_ns3, packets_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from emu.experiment.run_result import RunResult
    from emu.runs.run_directory import RunDirectory
    from emu.scenario import Experiment


class _Name(StrEnum):
    NS3 = "ns3"


Queues: TypeAlias = Annotated[
    Shares | None,
    typer.Option(
        "--sharing",
        metavar="fair|tcp",
        help="Queues of ns-3: flows by turns, or one that drops.",
    ),
]
Tcp: TypeAlias = Annotated[
    Control | None,
    typer.Option("--congestion-control", metavar="cubic|reno", help="TCP of ns-3."),
]
Witness: TypeAlias = Annotated[
    _Name | None,
    typer.Option(
        "--witness",
        metavar="ns3",
        help="Then simulate it over packets, and say who agrees with whom.",
    ),
]


def witnessed(
    witness: _Name | None, *, dry: bool, stated: tuple[object, ...]
) -> Callable[[Experiment], object]:
    """Return what refuses an experiment of which the witness can say nothing.

    Parameters
    ----------
    dry
        Whether nothing is to be run.
    stated
        Options of the packets.

    Raises
    ------
    ScenarioError
        When these stand without a witness, or it without a run.
    DataError
        When it is not installed.
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
