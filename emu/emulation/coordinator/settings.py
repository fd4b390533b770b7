"""Settings of an emulated run, apart from the problem itself."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Protocol

from emu.emulation.coordinator.cuts import CutPlan
from emu.emulation.launch.launcher import Launcher
from emu.emulation.network.clock import RunClock
from emu.emulation.shaping import EmulationSettings
from emu.host.this_host import loopback_address
from emu.prediction.scheduling import RateSegments
from emu.problem import Kill


class KernelNics(Protocol):
    """NICs of the kernel, which limit what crosses: senders keep to no rate."""

    def begin(self, clock: RunClock) -> None:
        """Take the clock of the run."""

    def on_decisions(self, segments: RateSegments, /) -> None:
        """Take the segments of one instant, in order, up to 50 ms ahead of it."""

    def for_senders(self, segments: RateSegments, /) -> RateSegments:
        """Return the segments that senders get in place of some segments."""

    def path_in(self, machine: str, path: str) -> str:
        """Return how this process opens what an agent there opens at a path."""


class Keeper(Protocol):
    """Keeps members of a run for the next one (`emu.emulation.coordinator.company`)."""

    async def dismiss_former(self) -> None:
        """End those of the run before, where this one has others."""


@dataclass(frozen=True, kw_only=True)
class RunSettings(EmulationSettings):
    """Settings of one run: those of the scenario, and how its hosts are reached."""

    launcher: Launcher | None = None
    """Launcher of the agents; None starts one on this host."""
    host_of: Mapping[str, str] = field(default_factory=dict)
    """Host of an emulated machine by the names of both; the others go where payload and
    processes are balanced."""
    listen: str = field(default_factory=loopback_address)
    """Address on which agents and processes reach the coordinator."""
    port: int = 0
    """Its port, 0 for any free one."""
    token: str = ""
    """Secret that agents from elsewhere must know; empty draws one."""
    allow: tuple[str, ...] = ()
    """Programs, ``module:Class``, that the agent of this host may start beside the
    product's own; agents elsewhere have a list of their own."""
    any_version: bool = False
    """True where hosts may run another version of emu than this one."""
    listening: socket.socket | None = None
    """Socket on which agents reach the coordinator, in another network maybe; None
    opens one at ``listen`` and ``port``."""
    kernel_nics: KernelNics | None = None
    """Receives the rates where NICs of the kernel limit what crosses, not senders:
    every edge is sent from a port of its own then."""

    company: Keeper | None = None
    """Keeps agents and processes for a further run; None ends them with the run."""
    cuts: CutPlan | None = None
    """State that the job keeps, and begins with; None for neither."""
    kills: tuple[Kill, ...] = ()
    """Kills of the scenario that have not come yet."""
    meanwhile: Callable[[], object] | None = None
    """Done in a thread while processes load, for the end of the run: what it imports
    no user waits for then, and the other core is idle."""
    began: float = 0.0
    """Seconds since the whole job began when this attempt does."""

    @property
    def first(self) -> int:
        """Number in the whole job of what is iteration 0 in this attempt."""
        if self.cuts is None:
            return 0
        return self.cuts.start.iteration

    @property
    def of_processes(self) -> EmulationSettings:
        """Settings that every process gets: nothing of hosts, no secret."""
        values = {}
        for setting in fields(EmulationSettings):
            values[setting.name] = getattr(self, setting.name)
        values["processes"] = self.grouping(has_kills=bool(self.kills))
        return EmulationSettings(**values)

    @property
    def hosts(self) -> int:
        """Number of hosts that take part."""
        return 1 if self.launcher is None else self.launcher.count
