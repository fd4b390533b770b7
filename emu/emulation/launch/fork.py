"""Node processes forked from a server that has torch and dgl imported."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence

import msgpack

from emu.emulation.launch.fork_server import LENGTH, pack
from emu.emulation.launch.host_report import usable_cores
from emu.emulation.launch.programs import share_processes
from emu.emulation.shaping import EmulationSettings
from emu.emulation.wire.process_spec import ProcessSpec
from emu.host.interruption import StopWatch

# One compute thread per process: they share two or four cores with dozens of others,
# and an OpenMP pool cannot be forked. Read by the libraries when they are imported.
_LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_ENVIRONMENT = dict.fromkeys(_LIBRARIES, "1")
_LEAVE = 0.5  # wall seconds that the server has to end when it is let go


class ForkServer:
    """The fork server of an agent, and the processes that it has forked.

    ``on_end`` is called with the name of a process that has ended and its exit status,
    negative as the number of the signal that killed it; ``on_lost`` when the server
    forks nothing more, with how it ended, or what does not import on this host.
    """

    def __init__(
        self,
        on_end: Callable[[str, int], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._on_end = on_end
        self._on_lost = on_lost
        self._alive: set[str] = set()
        self._ordered = False
        self._lost = ""
        self._changed = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._following: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.patience = EmulationSettings.heartbeat_timeout
        """Wall seconds for which the server may be stopped."""
        self._writer: asyncio.StreamWriter | None = None

    async def start(self) -> None:
        """Start the server, which at once imports what every process needs (0.4 s).

        Raises OSError when it cannot be started.
        """
        agent_end, server_end = socket.socketpair()
        with server_end:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-c",  # with -m its module was there twice, and runpy warned of it
                "from emu.emulation.launch.fork_server import main; main()",
                stdin=server_end.fileno(),
                env={"DGLBACKEND": "pytorch", **os.environ, **_ENVIRONMENT},
            )
        reader, self._writer = await asyncio.open_unix_connection(sock=agent_end)
        self._following = asyncio.create_task(self._follow(reader))
        self._watching = asyncio.create_task(self._watch(self._process))

    async def fork(
        self,
        specs: Sequence[ProcessSpec],
        preload: list[str],
        late: Sequence[str] = (),
    ) -> None:
        """Order one process per specification, or some of them in one.

        The server imports the modules of ``preload`` first, 1.5-4 s where torch and dgl
        are needed, and those of ``late`` that are there. Raises OSError when it was not
        started, or has ended, and RunError when some cannot share a process.
        """
        if self._writer is None or self._lost:
            raise BrokenPipeError(self._lost or "the fork server was not started")

        self._ordered = True
        self._alive = {spec.process for spec in specs}
        if specs:
            self.patience = specs[0].settings.heartbeat_timeout
        try:
            self._writer.write(pack({"preload": preload, "late": [*late]}))
            for members in share_processes(specs, usable_cores()):
                self._writer.write(pack({"fork": members}))
                await self._writer.drain()
        except OSError as error:  # the kernel tells of its end a little later
            if self._following is not None:
                await asyncio.wait([self._following], timeout=_LEAVE)
            raise BrokenPipeError(str(self._lost) or str(error)) from error

    def kill(self, process: str) -> None:
        """Have the server kill a process, where it is one of its own."""
        if self._writer is not None and process in self._alive:
            self._writer.write(pack({"kill": process}))

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                note = msgpack.unpackb(await reader.readexactly(length))
                if "broken" in note:
                    self._lose(note["broken"])
                    continue
                self._alive.discard(note["ended"])
                self._changed.set()
                self._on_end(note["ended"], note["code"])
        if self._process is not None:
            code = await self._process.wait()
            self._lose(f"the fork server {describe_end(code)}")

    async def _watch(self, server: asyncio.subprocess.Process) -> None:
        """End the server once it has been stopped for as long as a peer may be silent.

        It would fork nothing, and tell of no end.
        """
        watch = StopWatch(server.pid, self.patience)
        while not watch.look():
            await asyncio.sleep(StopWatch.PAUSE)
            watch.patience = self.patience
        self._lose(f"the fork server was stopped for {self.patience:g} s of wall time")
        with contextlib.suppress(ProcessLookupError):
            server.kill()

    def _lose(self, end: str) -> None:
        if self._lost:  # the first end is the cause of what follows
            return
        self._alive.clear()  # never forked, or they die with the server
        self._changed.set()
        self._lost = end
        self._on_lost(end)

    async def aclose(self, grace: float) -> None:
        """End everybody: processes have ``grace`` wall seconds to do so by themselves.

        The server takes those along that it has left; the kernel does so where the
        server is killed.
        """
        if self._process is None:
            return
        if not self._ordered and not self._lost:
            self._process.kill()  # what it imports serves no process
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self._alive:
                    self._changed.clear()
                    await self._changed.wait()

        tasks = [task for task in (self._following, self._watching) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._writer is not None:
            self._writer.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _LEAVE)
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()  # it imports, or is stopped
        await self._process.wait()


def describe_end(code: int) -> str:
    """Return in words how a process ended: by a signal (negative), or by itself."""
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
