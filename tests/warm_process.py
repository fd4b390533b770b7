"""A process of which agents are copies, commands or ranks, as `tests.warm_agents` says.

Its standard input is a socket. An order is a JSON map and four descriptors: the three
streams of the copy, and where its exit status goes.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from emu.cli.app import COMMANDS
from emu.emulation.launch import __main__ as agent
from emu.emulation.launch import fork_server
from emu.emulation.launch.programs import RUNTIME
from emu.host.interruption import die_with_parent
from emu.host.this_host import version_of_emu
from emu.systems.system import systems
from emu.virtual.rank import rank_main

#: Largest order in bytes: the environment of an agent is most of it.
ORDER = 1 << 17
#: What a fork server says it is, in place of the command's -c.
FORK_SERVER = "from emu.emulation.launch.fork_server import main; main()"
#: What torch imports where a gradient is handed to it, in 0.45 s of CPU, and numpy in
#: `unique`: once here, and not in each process of a run.
_IMPORTED_LATE = ("torch.fx.experimental.symbolic_shapes", "numpy.ma")
#: Fields of /proc/self/stat, behind the name: where the arguments begin and end.
_ARGUMENTS = slice(45, 47)


def pack_number(number: int) -> bytes:
    """Return a number as sockets and pipes carry it here."""
    return array.array("i", [number]).tobytes()


def number_of(data: bytes) -> int:
    """Return the number that was packed."""
    return array.array("i", data)[0]


#: Bytes of a number.
NUMBER = len(pack_number(0))


class Forked:
    """A process that no loop has started, to be waited for as those of asyncio.

    ``ended``: a descriptor that is readable once it has ended.

    ``status``: returns its exit status then.
    """

    def __init__(self, pid: int, ended: int, status: Callable[[], int]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = ended
        self._status = status
        self._waiting: asyncio.Task[int] | None = None

    async def wait(self) -> int:
        """Wait until it has ended and return its status, negative for a signal."""
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._wait())
        return await asyncio.shield(self._waiting)

    async def _wait(self) -> int:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._ended, readable.set)
        try:
            await readable.wait()
            self.returncode = self._status()
        finally:
            loop.remove_reader(self._ended)
            os.close(self._ended)
        return self.returncode

    def wait_here(self) -> int:
        """Do as `wait`, without a loop."""
        if self.returncode is None:
            self.returncode = self._status()
            os.close(self._ended)
        return self.returncode

    def poll(self) -> int | None:
        """Return its exit status, or None while it has not ended."""
        if self.returncode is not None:
            return self.returncode
        has_ended, _, _ = select.select([self._ended], [], [], 0)
        return self.wait_here() if has_ended else None

    def kill(self) -> None:
        """Kill it. Raises ProcessLookupError where it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, signal.SIGKILL)


class _ForkServers:
    """The fork server of an agent: a copy of it, made before it has a loop.

    It begins when the agent starts it, as a command would.
    """

    def __init__(self) -> None:
        self._orders, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = os.fork()
        if not self._pid:
            self._orders.close()
            _leave_with(lambda: self._serve(served))
        served.close()

    def _serve(self, served: socket.socket) -> int:
        die_with_parent()
        order, descriptors, _, _ = socket.recv_fds(served, ORDER, 1)
        if order:
            _take_streams(descriptors)
            _become({**json.loads(order), "arguments": ["-c", FORK_SERVER]})
            fork_server.main()
        return 0

    async def start(self, *command: str, stdin: int, env: dict[str, str]) -> Forked:
        """Start it in place of a subprocess of these options."""
        if command[-1] != FORK_SERVER:
            raise ValueError(command)
        order = json.dumps({"environment": env}).encode()
        socket.send_fds(self._orders, [order], [stdin])
        self._orders.close()

        def status() -> int:
            _, ended = os.waitpid(self._pid, 0)
            return os.waitstatus_to_exitcode(ended)

        return Forked(self._pid, os.pidfd_open(self._pid), status)


def _take_streams(descriptors: list[int]) -> None:
    """Have descriptors lead where standard input and its like do."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _become(order: dict[str, Any]) -> None:
    """Take over the arguments, environment and folder of an order."""
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order.get("folder", "."))
    tempfile.tempdir = None  # it may have been looked for in another environment
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    sys.argv = order["arguments"]
    _write_arguments([sys.executable, "-P", *sys.argv])


def _write_arguments(arguments: list[str]) -> None:
    """Write the arguments that /proc shows, over those that it showed."""
    _, _, fields = Path("/proc/self/stat").read_text().rpartition(") ")
    begin, end = map(int, fields.split()[_ARGUMENTS])
    line = "\0".join([*arguments, ""]).encode()[: end - begin - 1]
    ctypes.memmove(begin, line.ljust(end - begin, b"\0"), end - begin)


def _leave_with(main: Callable[[], int]) -> NoReturn:
    """Run what a forked process is, and end it."""
    status = 1
    try:
        status = main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 -- whatever it is, its trace goes to the log
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


class _Copy(NamedTuple):
    """A process that was forked, until it is known how it has ended."""

    pid: int
    status: int
    """Descriptor that its exit status is written to."""


class _WarmProcess:
    """Forks copies as ordered, each of which runs a program; reports how they ended."""

    def __init__(self, orders: socket.socket, program: Callable[[], int]) -> None:
        self._orders = orders
        self._program = program
        self._copies: dict[int, _Copy] = {}  # by the descriptors of their processes

    def serve(self) -> None:
        """Do as ordered until who orders has ended."""
        # Not by SIGCHLD, whose handler may run within itself: both wait for one copy.
        while True:
            awaited = [self._orders.fileno(), *self._copies]
            ready, _, _ = select.select(awaited, [], [])
            for descriptor in ready:
                if descriptor in self._copies:
                    self._report_end(descriptor)
                elif not self._take_order():
                    return

    def _take_order(self) -> bool:
        """Fork the copy of the next order; return False where there will be none."""
        order, descriptors, _, _ = socket.recv_fds(self._orders, ORDER, 4)
        if not order:
            return False
        _import_for_command(json.loads(order)["arguments"])
        has_become, becomes = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(has_become)
            _leave_with(partial(self._run, order, descriptors, becomes))
        os.close(becomes)
        os.read(has_become, 1)  # a command has its arguments as soon as it has an id
        os.close(has_become)
        *streams, status = descriptors
        for stream in streams:
            os.close(stream)
        self._copies[os.pidfd_open(pid)] = _Copy(pid, status)
        self._orders.sendall(pack_number(pid))
        return True

    def _run(self, order: bytes, descriptors: list[int], becomes: int) -> int:
        """Be what an order asks for; close ``becomes`` once this is."""
        os.setsid()
        self._orders.close()
        for descriptor, copy in self._copies.items():
            os.close(descriptor)
            os.close(copy.status)
        *streams, status = descriptors
        os.close(status)
        _take_streams(streams)
        content = json.loads(order)
        _become(content)
        if content["arguments"][:2] == ["-m", "emu"]:
            # It takes over signals at once: before it has an id, and only in a copy.
            importlib.import_module("emu.__main__")
        os.close(becomes)
        return self._program()

    def _report_end(self, descriptor: int) -> None:
        """Report how a copy has ended."""
        copy = self._copies.pop(descriptor)
        os.close(descriptor)
        _, ended = os.waitpid(copy.pid, 0)
        with contextlib.suppress(BrokenPipeError):
            os.write(copy.status, pack_number(os.waitstatus_to_exitcode(ended)))
        os.close(copy.status)


def _import_for_agents() -> None:
    """Import what agents and those whom they fork need."""
    runtime, _, _ = RUNTIME.partition(":")
    modules = [runtime, *fork_server._LOADED_LATE]
    for system in systems().values():
        modules += [path.partition(":")[0] for path in system.programs.values()]
    for module in ("torch", *_IMPORTED_LATE, "emu.graph_data", *modules):
        with contextlib.suppress(ImportError):  # who needs it says so
            importlib.import_module(module)
    version_of_emu()  # asks git once, and not in each agent


def _import_for_command(arguments: Sequence[str]) -> None:
    """Import what a command needs, for all copies that will carry it out."""
    match arguments:
        case ["-m", "emu", str(name), *_] if name in COMMANDS:
            importlib.import_module(f"emu.cli.{COMMANDS[name].module}")


def _run_agent_or_command() -> int:
    _, module, *arguments = sys.argv  # behind -m
    if module == "emu":
        command = importlib.import_module("emu.__main__")
        sys.argv = [str(command.__file__), *arguments]
        sys.modules["__main__"] = command
        command.main()
        return 0
    start: Any = _ForkServers().start
    asyncio.create_subprocess_exec = start
    return agent.main(arguments)


def _run_ranks() -> int:
    _, *sys.argv = sys.argv  # behind -m
    return rank_main.main()


#: What is imported once, and what copies run, by name.
PROGRAMS = {
    "agents": (_import_for_agents, _run_agent_or_command),
    "ranks": (rank_main.import_torch, _run_ranks),
}


def main() -> None:
    """Import what copies need, and serve standard input."""
    die_with_parent()
    orders = socket.socket(fileno=os.dup(0))
    import_all, program = PROGRAMS[sys.argv[1]]
    import_all()
    gc.freeze()
    orders.sendall(pack_number(os.getpid()))
    _WarmProcess(orders, program).serve()


if __name__ == "__main__":
    main()
