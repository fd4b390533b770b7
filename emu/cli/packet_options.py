"""Options of the commands that send packets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypeAlias

from emu.cli.app import option
from emu.errors import ScenarioError
from emu.prediction.packets import Control, Shares

Queues: TypeAlias = Annotated[
    Shares | None,
    option(
        "--sharing fair|tcp", "Queues of ns-3: flows by turns, or one that drops.", ...
    ),
]
Tcp: TypeAlias = Annotated[
    Control | None, option("--congestion-control cubic|reno", "TCP of ns-3.", ...)
]


def refuse_packet_options(stated: Iterable[object], remedy: str) -> None:
    """Raise ScenarioError where options of packets are ``stated``, and none are sent.

    ``remedy``: the option that has packets sent.
    """
    if any(choice is not None for choice in stated):
        problem = f"are of packets: add {remedy}"
        raise ScenarioError(problem, file="--sharing, --congestion-control")
