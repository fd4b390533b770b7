"""Agents and ranks that are forked, where commands start interpreters of their own.

To import what an agent and its fork server need takes 0.7 s of CPU per run, 1.8 where
it trains, and is the same in all of them. Here a process imports it once per session
of tests: an agent is a copy of it, and the fork server of that agent a copy of this.
They get the descriptors, arguments and environment that the command would have got.

So it is with ranks of a virtual cluster, whose process imports torch for 1.7 s.

Tests that ask how agents or ranks are started, or what they import, are marked `cold`:
while they run, nothing of this is there.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from emu.host.this_host import module_command
from tests.warm_process import NUMBER, Forked, number_of

ROOT = Path(__file__).parents[1]
AGENT = module_command("emu.emulation.launch")
#: Room for the arguments of whom a copy becomes, which ps shows and tests read.
_ROOM = "." * 600
#: Wall seconds in which what forks them answers: to import takes 2, on a busy host 30.
_PATIENCE = 90.0
#: One compute thread, and what else agents give their fork servers.
_LIBRARIES = {
    "DGLBACKEND": "pytorch",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
#: All of this process: `cold` tests end them, and no test has left them behind.
WARM: list[WarmProcess] = []


class WarmProcess:
    """Who has copies forked; what forks them is started for the first.

    ``program``: what copies are, one of `tests.warm_process.PROGRAMS`.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        # Both ends before the first test: none of them leaves these behind.
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders, self._served = ends
        self._orders.settimeout(_PATIENCE)
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        WARM.append(self)

    @property
    def pid(self) -> int:
        """The id of what forks them; 0 while it has not been started."""
        return self._process.pid if self._process is not None else 0

    def fork(self, arguments: Sequence[str], options: Mapping[str, Any]) -> Forked:
        """Return a copy that has the arguments and options of a subprocess."""
        order = {
            "arguments": arguments,
            "environment": {**options["env"]},
            "folder": str(options.get("cwd", Path.cwd())),
        }
        streams = [options[name] for name in ("stdin", "stdout", "stderr")]
        files = [each if isinstance(each, int) else each.fileno() for each in streams]
        packed = json.dumps(order).encode()
        ended, has_ended = os.pipe()
        self.start()
        with self._turn:
            socket.send_fds(self._orders, [packed], [*files, has_ended])
            os.close(has_ended)
            pid = number_of(self._orders.recv(NUMBER))

        return Forked(pid, ended, lambda: number_of(os.read(ended, NUMBER)))

    def start(self) -> None:
        """Start what forks them, where it is not there; wait until it has imported.

        Raises RuntimeError where it has died: orders may be on their way to it.
        """
        if self._process is not None:
            if self._process.poll() is not None:
                raise RuntimeError(f"what forks {self._program} has died")
            return
        paths = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.warm_process", self._program, _ROOM],
            stdin=self._served.fileno(),
            env={**os.environ, **_LIBRARIES, "PYTHONPATH": paths},
            start_new_session=True,
        )
        self._orders.recv(NUMBER)

    def cool(self) -> None:
        """End what forks them; for the next it is started again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End what forks them, and the way to it."""
        self.cool()
        self._orders.close()
        self._served.close()
        WARM.remove(self)


@pytest.fixture(scope="session")
def warm_agents() -> Iterator[WarmProcess]:
    """Return who has the agents of this session forked."""
    agents = WarmProcess("agents")
    yield agents
    agents.close()


@pytest.fixture(autouse=True)
def agents_are_warm(
    request: pytest.FixtureRequest, warm_agents: WarmProcess
) -> Iterator[None]:
    """Fork agents, in tests that are not `cold`."""
    start = asyncio.create_subprocess_exec
    if request.node.get_closest_marker("cold") is not None:
        for process in WARM:
            process.cool()
        yield
        return
    if request.node.get_closest_marker("emulation") is not None:
        warm_agents.start()  # no run waits for its imports

    async def fork_or_start(*command: str, **options: Any) -> Any:
        if [*command[: len(AGENT)]] == AGENT:
            return warm_agents.fork(["-m", *command[3:]], options)
        return await start(*command, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "create_subprocess_exec", fork_or_start)
        yield
