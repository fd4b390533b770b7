"""Launchers of agents: one interface, so that an engine has to do nothing else.

A launcher knows hosts and nothing of a run. Agents join the coordinator by themselves,
whoever has started them, and payload never passes through an engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from typing_extensions import override

from emu.emulation.launch.fork import describe_end
from emu.emulation.network.authentication import format_address
from emu.host.this_host import module_command

#: Name of the only host.
LOCALHOST = "localhost"
#: Wall seconds to reach the coordinator, which listens before the agent is started:
#: an agent whose coordinator was killed meanwhile must not linger.
_PATIENCE = 2.0


class Launcher:
    """Starts one agent per host; here none: an engine or a person does."""

    hosts: Sequence[str] = ()
    """Names of the hosts, where they are known before agents join."""
    unnamed = 0
    """Number of the others."""
    patience = 0.0
    """Wall seconds that agents may take to join, beyond the run's deadline."""
    deadline: float | None = None
    """Wall seconds that they may take at most; None without a limit."""
    embedded = False
    """True where the only host is this one, whose memory can be shared."""

    @property
    def count(self) -> int:
        """Number of the hosts."""
        return len(self.hosts) + self.unnamed

    async def start(
        self,
        address: tuple[str, int],
        token: str,
        log: Path,
        allow: Collection[str],
    ) -> None:
        """Start an agent per host; it is to join at ``address``.

        The token must not show in an argument of a process. The log takes what agents
        and their processes print; ``allow`` names programs that they may start beside
        the product's own.

        Raises OSError or RunError when one cannot be started.
        """

    async def wait_for_end(self) -> str:
        """Wait until an agent has ended and return how, in words.

        Where a launcher cannot see that, it waits for ever: a connection ends as well.
        """
        await asyncio.Event().wait()
        return ""

    async def aclose(self, grace: float) -> None:
        """End what was started here; it has ``grace`` wall seconds to do so itself."""


def agent_arguments(
    address: tuple[str, int],
    patience: float,
    allow: Collection[str],
    name: str = "",
) -> list[str]:
    """Return the arguments of an agent that is to join at an address."""
    arguments = [format_address(*address), "--patience", f"{patience:g}"]
    arguments += [f"--allow={program}" for program in allow]
    if name:
        arguments += ["--name", name]
    return arguments


class ExternalLauncher(Launcher):
    """Starts nothing: srun, mpirun, torchrun, a pod or a person starts the agents."""

    patience = 600.0  # a person logs in to each host, an engine has a queue

    def __init__(self, count: int, deadline: float | None = None) -> None:
        self.unnamed = count
        self.deadline = deadline


class ChildAgents(Launcher):
    """Agents that are child processes, each with the name that messages give it.

    Each is a session of its own, so that Ctrl-C at the terminal reaches the coordinator
    alone, and everything that it starts can be ended as one group.
    """

    def __init__(self) -> None:
        self._children: dict[str, Process] = {}

    async def start_child(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str],
        said: bytes = b"",
    ) -> None:
        """Start one, with its output in ``log`` and ``said`` at its standard input.

        Raises OSError when a pipe does not hold that, the log cannot be written, or the
        process cannot be started.
        """
        # Written before the child is there: a pipe of the loop is closed where it has
        # ended at once, and its writes raise what only uvloop knows.
        read_end, write_end = os.pipe()
        try:
            with os.fdopen(write_end, "wb", buffering=0) as pipe:
                os.set_blocking(write_end, False)
                if (pipe.write(said) or 0) < len(said):
                    raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
            with log.open("ab") as output:
                try:
                    self._children[name] = await asyncio.create_subprocess_exec(
                        *command,
                        stdin=read_end,
                        stdout=output,
                        stderr=output,
                        env=environment,
                        start_new_session=True,
                    )
                except OSError as error:
                    # uvloop leaves out which program that was.
                    raise OSError(error.errno, error.strerror, command[0]) from error
        finally:
            os.close(read_end)

    @override
    async def wait_for_end(self) -> str:
        """Wait until one has ended and return which and how, in words."""
        loop = asyncio.get_running_loop()
        waits: dict[asyncio.Task[int], str] = {}
        for name, child in self._children.items():
            waits[loop.create_task(child.wait())] = name
        try:
            ends, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

        # Of several that have ended at once, the one that was started first.
        first = next(wait for wait in waits if wait in ends)
        return f"{waits[first]} {describe_end(first.result())}"

    @override
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
            # Also where this is interrupted: the loop may end now, with their pipes.
            await asyncio.gather(*waits)


class LocalLauncher(ChildAgents):
    """Starts ``python -m emu.emulation.launch`` as a child process."""

    hosts = (LOCALHOST,)
    embedded = True

    @override
    async def start(
        self,
        address: tuple[str, int],
        token: str,
        log: Path,
        allow: Collection[str],
    ) -> None:
        """Start the agent; the token is in its environment, which others cannot read.

        Raises OSError when the log cannot be written or the process cannot be started.
        """
        arguments = agent_arguments(address, _PATIENCE, allow, LOCALHOST)
        command = module_command("emu.emulation.launch", *arguments)
        environment = {**os.environ, "EMU_TOKEN": token}
        name = "the agent of this host"
        await self.start_child(name, command, log, environment=environment)
