"""Settings of an emulated run, apart from the problem itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from emu.launch import Launcher
    from emu.network import RunClock
    from emu.scheduling import RateSegments
    from emu.shaping import FlowEnds

from emu.network import SILENCE

ComputeMode = Literal["timed", "real", "padded"]
Tls = Literal["control", "all"]


class KernelNics(Protocol):
    """NICs of the kernel, which limit what crosses: senders keep to no rate."""

    def begin(self, clock: RunClock) -> None:
        """Hear when run time 0 is."""
        ...

    def decided(self, lines: RateSegments) -> None:
        """Hear of the lines of one instant, in order, up to 50 ms ahead of it."""
        ...

    def told(self, lines: RateSegments) -> RateSegments:
        """Return the lines that senders get in place of some lines."""
        ...


@dataclass(frozen=True)
class EmulationSettings:
    """Settings that relate the emulated run to this host.

    Raises
    ------
    ValueError
        When a scale, the deadline, the silence or the limit is not positive and finite,
        or ``catch_up`` is negative.
    """

    time_scale: float = 1.0
    """Wall seconds per emulated second."""
    byte_scale: float = 1.0
    """Real bytes per emulated byte."""
    compute: ComputeMode = "timed"
    """``timed``: a task holds its profiled time; ``real``: it computes, and holds the
    CPU time of that over the speed of its machine; ``padded``: it computes, then holds
    until its profiled time."""
    flow_ends: FlowEnds = "arrival"
    """``arrival``: a flow ends when its last byte is in the receiver's memory, and
    senders do not lead their fluid; ``fluid``: with its fluid if its bytes have come by
    then, and senders lead."""
    catch_up: float = math.inf
    """Emulated seconds of its rates that a sender which stood still may catch up."""
    deadline: float = 30.0
    """Wall seconds that anything may be overdue before the run is given up."""
    silence: float = SILENCE
    """Wall seconds that agent and coordinator may hear nothing of each other."""
    memory_limit: float = 4e9
    """Real bytes of received payload that one process may hold at a time."""
    launcher: Launcher | None = None
    """Launcher of the agents; None starts one on this host."""
    host_of: Mapping[str, str] = field(default_factory=dict)
    """Host of an emulated machine by the names of both; the others go where payload and
    processes are balanced."""
    tls: Tls = "control"
    """Encrypted links: ``control`` ones, where the coordinator listens beyond
    loopback, or ``all`` of them and data."""
    listen: str = "127.0.0.1"
    """Address on which agents and processes reach the coordinator."""
    port: int = 0
    """Its port, 0 for any free one."""
    token: str = ""
    """Secret that agents from elsewhere must know; empty draws one."""
    allow: tuple[str, ...] = ()
    """Programs, ``module:Class``, that the agent of this host may start beside the
    product's own; agents elsewhere have a list of their own."""
    listening: socket.socket | None = None
    """Socket on which agents reach the coordinator, in another network maybe; None
    opens one at ``listen`` and ``port``."""
    kernel_nics: KernelNics | None = None
    """Receives the rates where NICs of the kernel limit what crosses, not senders:
    every edge is sent from a port of its own then."""

    @property
    def hosts(self) -> int:
        """Number of hosts that take part."""
        return 1 if self.launcher is None else self.launcher.count

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
        if not self.catch_up >= 0:
            raise ValueError(f"catch_up is {self.catch_up}; it must not be negative")
