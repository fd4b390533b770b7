"""A process that was forked for a caller, as asyncio has processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: Starts a process of a command with three descriptors; returns its id.
Start = Callable[..., int]
Exec = Callable[..., Any]
#: Tells whether it does so for a command in an environment.
Fits = Callable[[Sequence[str], Mapping[str, str]], bool]


class ForkedProcess:
    """What callers use of `asyncio.subprocess.Process`: id, end, signals.

    Parameters
    ----------
    pid
        Of a child of this process.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(pid)
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._descriptor, self._reap)

    def _reap(self) -> None:
        _, status = os.waitpid(self.pid, 0)
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set_result(self.returncode)

    async def wait(self) -> int:
        """Wait for its end; return its exit status, of a signal negative."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        """Send it a signal; raises ProcessLookupError once it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it; raises ProcessLookupError once it has ended."""
        self.send_signal(signal.SIGKILL)


def exec_by(start: Start, fits: Fits, cold: Exec) -> Exec:
    """Return `asyncio.create_subprocess_exec` with ``start`` for commands that fit.

    ``cold`` is that of asyncio, which has all others.
    """

    async def create_subprocess_exec(*command: str, **options: Any) -> Any:
        streams = [options.get(name) for name in ("stdin", "stdout", "stderr")]
        has_pipes = asyncio.subprocess.PIPE in streams
        environment = options.get("env") or os.environ
        if has_pipes or not fits(command, environment):
            return await cold(*command, **options)
        descriptors = [
            number if stream is None else _descriptor(stream)
            for number, stream in enumerate(streams)
        ]
        is_leader = options.get("start_new_session", False)
        pid = start(command, descriptors, environment, is_leader=is_leader)
        return ForkedProcess(pid)

    return create_subprocess_exec


def _descriptor(stream: Any) -> int:
    return stream if isinstance(stream, int) else int(stream.fileno())
