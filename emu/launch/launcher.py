"""Launchers of agents: one interface, so that an engine has to do nothing else.

A launcher knows hosts and nothing of a run. Agents join the coordinator by themselves,
whoever has started them, and payload never passes through an engine.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path


class Launcher(Protocol):
    """Starts one agent per host."""

    @property
    def hosts(self) -> Sequence[str]:
        """Names of the hosts; none where they are known only as agents join."""
        ...

    @property
    def count(self) -> int:
        """Number of the hosts."""
        ...

    @property
    def patience(self) -> float:
        """Wall seconds that agents may take to join, beyond the run's deadline."""
        ...

    @property
    def embedded(self) -> bool:
        """True where the only host is this one, whose memory can be shared."""
        ...

    async def start(
        self, address: tuple[str, int], token: str, log: Path, allow: Collection[str]
    ) -> None:
        """Start an agent per host; it is to join at ``address``.

        Parameters
        ----------
        token
            Of the run; it must not show in an argument of a process.
        log
            File that takes what agents and their processes print.
        allow
            Programs that the agents may start beside the product's own.

        Raises
        ------
        OSError, RunError
            When one cannot be started.
        """
        ...

    async def ended(self) -> str:
        """Wait until an agent has ended and return how, in words.

        Where a launcher cannot see that, it waits for ever: a connection ends as well.
        """
        ...

    async def aclose(self, grace: float) -> None:
        """End what was started here; it has ``grace`` wall seconds to do so itself."""
        ...


class ExternalLauncher:
    """Starts nothing: srun, mpirun, torchrun, a pod or a person starts the agents."""

    hosts: Sequence[str] = ()
    embedded = False
    patience = 600.0  # a person logs in to each host, an engine has a queue

    def __init__(self, count: int) -> None:
        self.count = count

    async def start(
        self, address: tuple[str, int], token: str, log: Path, allow: Collection[str]
    ) -> None:
        """Do nothing."""

    async def ended(self) -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return ""

    async def aclose(self, grace: float) -> None:
        """Do nothing: agents end when the run does."""
