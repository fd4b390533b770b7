"""What a worker of pytest asks of its server: processes in place of started ones."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.warm.commands import module_of
from tests.warm.process import exec_by
from tests.warm.server import ROOM

_PROGRAM = "from tests.warm.server import main; main()"
_PR_SET_CHILD_SUBREAPER = 36
#: What an interpreter and its libraries read as they start, by how its name begins.
_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "OPENBLAS_", "MKL_")
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LIMITS = (
    resource.RLIMIT_AS,
    resource.RLIMIT_CPU,
    resource.RLIMIT_DATA,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_NPROC,
)

_servers: set[int] = set()


def started(*, recursive: bool = False) -> list[psutil.Process]:
    """Return the children of this process that tests have started."""
    children = psutil.Process().children(recursive=recursive)
    return [child for child in children if not _is_of_a_server(child)]


def _is_of_a_server(process: psutil.Process) -> bool:
    """Return True of a server, and of what is between it and what it has forked."""
    try:
        return not _servers.isdisjoint((process.pid, process.ppid()))
    except psutil.NoSuchProcess:
        return True


class WarmServer:
    """The server of this process, which forks what fits."""

    def __init__(self) -> None:
        self.is_cold = False
        self._worker, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # An OpenMP pool cannot be forked; agents set this for their processes, too.
        libraries = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        settings = {"OMP_WAIT_POLICY": "PASSIVE"}
        with server:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, ROOM],
                stdin=server.fileno(),
                env={**os.environ, **dict.fromkeys(libraries, "1"), **settings},
            )
        _servers.add(self._process.pid)
        # Of the tree under test, which may be a copy with a planted fault.
        self._paths = _paths(os.environ)
        self._read_at_start = _settings_at_start(os.environ)

    def close(self) -> None:
        """Let the server end."""
        self._worker.close()
        self._process.wait()

    def fits(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Return True where a process can be forked that would not differ."""
        if self.is_cold or not module_of(command):
            return False
        paths = _paths(environment)
        first = len(paths) - len(self._paths)
        if first < 0 or paths[first:] != self._paths:
            return False
        return _settings_at_start(environment) == self._read_at_start

    def start(
        self,
        command: Sequence[str],
        descriptors: Sequence[int],
        environment: Mapping[str, str],
        *,
        is_leader: bool,
        folder: str = "",
    ) -> int:
        """Have a child of this process forked; return its id.

        Raises OSError when the server has none.
        """
        paths = _paths(environment)
        order = {
            "paths": paths[: len(paths) - len(self._paths)],
            "module": module_of(command),
            "command": [*command],
            "environment": {**environment},
            "folder": folder or str(Path.cwd()),
            "is_leader": is_leader,
            "ignored": [n for n in _IGNORED if signal.getsignal(n) is signal.SIG_IGN],
            "parent": os.getpid(),
        }
        content = json.dumps(order).encode()
        answer, end = socket.socketpair()
        with answer, _taking_orphans():
            with end:
                descriptors = [end.fileno(), *descriptors]
                socket.send_fds(self._worker, [content], descriptors)
            said = answer.recv(16)
            if not said:
                raise OSError("no process was forked")
            pid = int(said)
            for limit in _LIMITS:
                resource.prlimit(pid, limit, resource.getrlimit(limit))
            os.sched_setaffinity(pid, os.sched_getaffinity(0))
            answer.send(b"!")
        return pid


def _paths(environment: Mapping[str, str]) -> list[str]:
    paths = environment.get("PYTHONPATH", "")
    return [*filter(None, paths.split(os.pathsep))]


def _settings_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_START) and name != "PYTHONPATH"
    }


@contextmanager
def _taking_orphans() -> Iterator[None]:
    """Be the parent of what those below orphan, within the block."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _popen_by(server: WarmServer) -> type[subprocess.Popen[Any]]:
    """Return a class of processes that are forked where they can be."""
    plain: Any = subprocess.Popen
    parameters = inspect.signature(plain._execute_child)

    class WarmPopen(plain):  # type: ignore[misc] # it is Any
        def _execute_child(self, *given: Any) -> None:
            asked = parameters.bind(self, *given).arguments
            command = asked["args"]
            environment = os.environ if asked["env"] is None else asked["env"]
            unusual = asked["pass_fds"] or asked["preexec_fn"] or asked["shell"]
            is_plain = not unusual and isinstance(command, list)
            if not is_plain or not server.fits(command, environment):
                plain._execute_child(self, *given)
                return
            ends = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
            self.pid = server.start(
                command,
                [number if end == -1 else end for number, end in enumerate(ends)],
                environment,
                is_leader=asked["start_new_session"],
                folder=os.fspath(asked["cwd"] or ""),
            )
            self._child_created = True
            pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread")
            self._close_pipe_fds(*[asked[name] for name in (*pipes, "errwrite")])

    return WarmPopen


@pytest.fixture(scope="session", autouse=True)
def warm_server() -> Iterator[WarmServer | None]:
    """Fork what tests start; None where all of it starts anew."""
    if os.environ.get("EMU_COLD") or not hasattr(os, "pidfd_open"):
        yield None
        return
    server = WarmServer()
    cold = asyncio.create_subprocess_exec
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", _popen_by(server))
        warm = exec_by(server.start, server.fits, cold)
        patch.setattr(asyncio, "create_subprocess_exec", warm)
        yield server
    server.close()


@pytest.fixture(autouse=True)
def cold_start(
    request: pytest.FixtureRequest, warm_server: WarmServer | None
) -> Iterator[None]:
    """Start anew what tests with the mark ``cold`` start."""
    if warm_server is None:
        yield
        return
    warm_server.is_cold = request.node.get_closest_marker("cold") is not None
    yield
    warm_server.is_cold = False
