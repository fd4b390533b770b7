"""The agent that ``emu run`` starts on its own host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

from emu.launch.fork import describe_end
from emu.network import format_address

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

#: Wall seconds to reach the coordinator, which listens before the agent is started:
#: an agent whose coordinator was killed meanwhile must not linger.
_PATIENCE = 2.0


class LocalAgent:
    """A child process that runs ``python -m emu.launch``.

    It is a session of its own, so that Ctrl-C at the terminal reaches the coordinator
    alone, and everything it starts can be ended as one group.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(
        cls,
        address: tuple[str, int],
        token: str,
        log: Path,
        allow: Collection[str] = (),
    ) -> LocalAgent:
        """Start an agent that joins the coordinator at ``address``.

        Parameters
        ----------
        token
            Handed over in the environment, where other users cannot read it.
        log
            File that takes the standard output and error of the agent and of all its
            node processes.
        allow
            Programs that it may start beside the product's own.

        Raises
        ------
        OSError
            When the log cannot be written or the process cannot be started.
        """
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "emu.launch",
                format_address(*address),
                "--patience",
                f"{_PATIENCE:g}",
                *(f"--allow={program}" for program in allow),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "EMU_TOKEN": token},
                start_new_session=True,
            )
        return cls(process)

    @property
    def pid(self) -> int:
        """Process id of the agent, also the id of its process group."""
        return self._process.pid

    async def ended(self) -> str:
        """Wait until the agent has ended and return how, in words."""
        return describe_end(await self._process.wait())

    async def aclose(self, grace: float = 2.0) -> None:
        """End the agent: it has ``grace`` wall seconds to do so by itself."""
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), grace)
        finally:
            # Also what an already dead agent left in its group (kill -9 of the agent).
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
