"""Agents that are children of this process, or whose engine's clients are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

from emu.launch.fork import describe_end

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class ChildAgents:
    """Child processes, each with the name that messages give it.

    Each is a session of its own, so that Ctrl-C at the terminal reaches the coordinator
    alone, and everything that it starts can be ended as one group.
    """

    def __init__(self) -> None:
        self._children: dict[str, Process] = {}

    @property
    def pids(self) -> list[int]:
        """Process ids, each also the id of a process group."""
        return [child.pid for child in self._children.values()]

    async def start(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str],
        said: bytes = b"",
    ) -> None:
        """Start one, with its output in ``log`` and ``said`` at its standard input.

        Raises
        ------
        OSError
            When the log cannot be written or the process cannot be started.
        """
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        with log.open("ab") as output:
            child = await asyncio.create_subprocess_exec(
                *command,
                stdin=pipe if said else nothing,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        self._children[name] = child
        if child.stdin is not None:
            child.stdin.write(said)
            child.stdin.close()

    async def ended(self) -> str:
        """Wait until one has ended and return which and how, in words."""
        waits = {
            asyncio.create_task(child.wait()): name
            for name, child in self._children.items()
        }
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        first = next(wait for wait in waits if wait in done)
        return f"{waits[first]} {describe_end(first.result())}"

    async def aclose(self, grace: float) -> None:
        """End all: they have ``grace`` wall seconds to do so by themselves."""
        children = list(self._children.values())
        waits = [asyncio.create_task(child.wait()) for child in children]
        try:
            if waits:
                await asyncio.wait(waits, timeout=grace)
        finally:
            # Also what an already dead agent left in its group (kill -9 of the agent).
            for child in children:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
        await asyncio.gather(*waits)
