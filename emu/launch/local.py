"""The launcher of one host, this one: nothing has to be set up for it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from emu.launch.child_agents import ChildAgents
from emu.network import format_address

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

#: Name of the only host.
LOCALHOST = "localhost"
#: Wall seconds to reach the coordinator, which listens before the agent is started:
#: an agent whose coordinator was killed meanwhile must not linger.
_PATIENCE = 2.0


class LocalLauncher:
    """Starts ``python -m emu.launch`` as a child process."""

    hosts: Sequence[str] = (LOCALHOST,)
    count = 1
    embedded = True
    patience = 0.0

    def __init__(self) -> None:
        self._agents = ChildAgents()

    @property
    def pid(self) -> int:
        """Process id of the agent, also the id of its process group."""
        return self._agents.pids[0]

    async def start(
        self,
        address: tuple[str, int],
        token: str,
        log: Path,
        allow: Collection[str] = (),
    ) -> None:
        """Start the agent; the token is in its environment, which others cannot read.

        Raises
        ------
        OSError
            When the log cannot be written or the process cannot be started.
        """
        command = [sys.executable, "-m", "emu.launch", format_address(*address)]
        command += ["--name", LOCALHOST, "--patience", f"{_PATIENCE:g}"]
        command += [f"--allow={program}" for program in allow]
        environment = {**os.environ, "EMU_TOKEN": token}
        await self._agents.start(
            "the agent of this host", command, log, environment=environment
        )

    async def ended(self) -> str:
        """Wait until the agent has ended and return how, in words."""
        return await self._agents.ended()

    async def aclose(self, grace: float = 2.0) -> None:
        """End the agent: it has ``grace`` wall seconds to do so by itself."""
        await self._agents.aclose(grace)
