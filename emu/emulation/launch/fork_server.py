"""The fork server: forks node processes for its agent.

A process of its own, so that what all of them need is imported once (torch and dgl take
seconds) and copied by the kernel when they are forked. Its standard input is one end of
a socket pair whose other end only its agent has: it has no address that anybody could
find or take first, and leaves nothing behind however it ends. Over it come orders and
go notes, msgpack maps behind their lengths:

    {"preload": [module, ...]}       import these beside the runtime's
    {"late": [module, ...]}          import those of these that are there
    {"fork": [specification, ...]}   fork a process that is all of these, once what it
                                     shares with others is made
    {"kill": name}                   kill the process that is this one, of these
    {"ended": name, "code": status}  how it ended; negative is the number of a signal
    {"broken": reason}               what does not import; nothing is forked after it
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import selectors
import signal
import socket
import struct
import sys
import traceback
from typing import NoReturn

import msgpack

from emu.emulation.launch.programs import RUNTIME
from emu.emulation.shaping import EmulationSettings
from emu.emulation.wire.frame_layout import Fields
from emu.host.interruption import StopWatch, die_with_parent

LENGTH = struct.Struct(">Q")
_PR_SET_NAME = 15
#: Modules that are imported where they are first used: each of 20 processes took 12 ms
#: of CPU and 2 MB for that, after the fork.
_LOADED_LATE = ("encodings.idna", "numpy.random")


def pack(message: Fields) -> bytes:
    """Return a message behind its length; dataclasses are maps of their fields."""
    body = bytes(msgpack.packb(message, default=vars))
    return LENGTH.pack(len(body)) + body


class _ForkServer:
    def __init__(self, agent: socket.socket) -> None:
        self._agent = agent
        self._names: dict[int, list[str]] = {}  # of what a process is, by its id
        self._broken = False
        patience = EmulationSettings.heartbeat_timeout
        self._watch = StopWatch(os.getppid(), patience)
        # A signal writes into it what select wakes up of.
        self._woken, self._wakes = socket.socketpair()
        self._woken.setblocking(False)
        self._wakes.setblocking(False)

    def serve(self) -> None:
        """Do as ordered until the agent goes or is stopped, and end everybody."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        runtime, _, _ = RUNTIME.partition(":")
        self._obey({"preload": [runtime, *_LOADED_LATE]})

        with selectors.DefaultSelector() as selector:
            selector.register(self._agent, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            with contextlib.suppress(OSError, EOFError):
                while True:
                    events = selector.select(StopWatch.PAUSE)
                    # An agent that is stopped closes nothing.
                    if not events and self._watch.look():
                        break
                    ready = {key.fileobj for key, _ in events}
                    if self._woken in ready:
                        self._woken.recv(4096)
                        self._reap()
                    if self._agent in ready:
                        (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
                        self._obey(msgpack.unpackb(self._exactly(length)))

        for pid in self._names:
            os.kill(pid, signal.SIGKILL)

    def _exactly(self, length: int) -> bytearray:
        data = bytearray(length)
        end = 0
        while end < length:
            count = self._agent.recv_into(memoryview(data)[end:])
            if not count:
                raise EOFError
            end += count
        return data

    def _obey(self, order: Fields) -> None:
        for module in order.get("preload", ()):
            try:
                importlib.import_module(module)
            except Exception as error:  # noqa: BLE001 -- torch raises OSError too
                traceback.print_exc()
                cause = f"{module} does not import: {type(error).__name__}: {error}"
                self._agent.sendall(pack({"broken": cause}))
                self._broken = True
                return
        for module in order.get("late", ()):
            # A process imports it later, or a version of torch has another.
            with contextlib.suppress(Exception):
                importlib.import_module(module)
        if "fork" in order and not self._broken:
            self._watch.patience = order["fork"][0]["settings"]["heartbeat_timeout"]
            self._fork(order["fork"])
        for pid, names in self._names.items():
            if order.get("kill") in names:
                os.kill(pid, signal.SIGKILL)

    def _fork(self, specs: list[Fields]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        module, _, _ = RUNTIME.partition(":")
        runtime = importlib.import_module(module)
        runtime.prepare(specs)
        pid = os.fork()
        if pid:
            self._names[pid] = [spec["process"] for spec in specs]
            return
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self._agent, self._woken, self._wakes):
            descriptor.close()
        _enter(specs)

    def _reap(self) -> None:
        while self._names:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            code = os.waitstatus_to_exitcode(status)
            for name in self._names.pop(pid, ()):
                self._agent.sendall(pack({"ended": name, "code": code}))


def _enter(specs: list[Fields]) -> None:
    """Run the runtime in the forked process, and end it."""
    code = 1
    try:
        # What the fork server imported is never garbage. To look through it takes
        # 100 ms where torch is, at any moment of the run, and copies every page.
        gc.freeze()
        die_with_parent()  # the fork server, which in turn dies with its agent
        with contextlib.suppress(OSError, AttributeError):  # for ps and top: 15 bytes
            name = f"emu:{specs[0]['process']}".encode()[:15]
            ctypes.CDLL(None).prctl(_PR_SET_NAME, name, 0, 0, 0)

        module, function = RUNTIME.split(":")
        runtime = getattr(importlib.import_module(module), function)
        code = runtime(specs)
    except Exception:  # noqa: BLE001 -- whatever it is, its trace goes to the log
        traceback.print_exc()
    finally:
        leave(code)


def leave(code: int) -> NoReturn:
    """End without taking the interpreter down: that takes 0.7 s where torch is.

    Nor does it wait for a program that still computes.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Serve the agent at standard input."""
    die_with_parent()
    # Ctrl-C is for the coordinator, which then ends its processes one by one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    agent = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    _ForkServer(agent).serve()
    leave(0)
