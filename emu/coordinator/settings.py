"""How a problem is emulated, apart from the problem itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path

    from emu.shaping import FlowEnds

from emu.network import SILENCE

ComputeMode = Literal["timed", "real", "padded"]


class Hosts(Protocol):
    """Hosts that are emulated machines: their NICs limit what crosses, not senders."""

    #: Host names in the order of the machines, as the agents there report them.
    names: Sequence[str]
    #: Socket on which agents reach the coordinator.
    listening: socket.socket

    def start_agents(self, address: tuple[str, int], token: str, log: Path) -> None:
        """Start an agent on every host."""
        ...


@dataclass(frozen=True)
class EmulationSettings:
    """How the emulated run relates to this host.

    Parameters
    ----------
    time_scale
        Wall seconds per emulated second.
    byte_scale
        Real bytes per emulated byte.
    compute
        ``timed``: a task holds its profiled time; ``real``: it computes, and holds the
        CPU time of that over the speed of its machine; ``padded``: it computes, then
        holds until its profiled time.
    flow_ends
        ``arrival``: a flow ends when its last byte is in the receiver's memory, and
        senders do not lead their fluid; ``fluid``: with its fluid if its bytes have
        come by then, and senders lead.
    deadline
        Wall seconds that anything may be overdue before the run is given up.
    silence
        Wall seconds that agent and coordinator may hear nothing of each other.
    memory_limit
        Real bytes of received payload that one process may hold at a time.
    agents
        Number of agents to wait for; 0 starts one on this host.
    listen
        Address on which agents and processes reach the coordinator.
    port
        Its port, 0 for any free one.
    token
        What agents from elsewhere must know; empty draws one.
    allow
        Programs, ``module:Class``, that the agent of this host may start beside the
        product's own; agents elsewhere have a list of their own.
    hosts
        One host per emulated machine, each with a NIC of its own; None where agents
        join as they come.

    Raises
    ------
    ValueError
        When a scale, the deadline, the silence or the limit is not positive and finite.
    """

    time_scale: float = 1.0
    byte_scale: float = 1.0
    compute: ComputeMode = "timed"
    flow_ends: FlowEnds = "arrival"
    deadline: float = 30.0
    silence: float = SILENCE
    memory_limit: float = 4e9
    agents: int = 0
    listen: str = "127.0.0.1"
    port: int = 0
    token: str = ""
    allow: tuple[str, ...] = ()
    hosts: Hosts | None = None

    def __post_init__(self) -> None:
        for name in (
            "time_scale",
            "byte_scale",
            "deadline",
            "silence",
            "memory_limit",
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value}; it must be positive and finite")
        if self.agents < 0:
            raise ValueError(f"agents is {self.agents}; it must be 0 or more")
