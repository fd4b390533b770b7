"""The process that has imported what others need, and forks them.

Its standard input is a socket from a worker of pytest: an order is a map in JSON, with
descriptors for an answer and for the input and output of the new process.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.warm.commands import AGENT, IMPORTS, is_fork_server, run_main
from tests.warm.process import exec_by

#: Bytes of an order.
LONGEST = 1 << 17
#: An argument of the server, over which command lines of those that it forks go.
ROOM = " " * 4000
#: What a shell's ``exec`` leaves to a process of how signals are met.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Environment of the server.
_given = dict(os.environ)


def main() -> None:
    """Fork what is ordered until the worker has ended."""
    orders = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        while True:
            content, descriptors, _, _ = socket.recv_fds(orders, LONGEST, 4)
            if not content:
                return
            order = json.loads(content)
            _import_for(order["module"])
            child = os.fork()
            if child == 0:
                # An orphan is the worker's: it asked the kernel for those below it.
                if os.fork():
                    os._exit(0)
                orders.close()
                _enter(order, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            os.waitpid(child, 0)


def _import_for(module: str) -> None:
    for name in IMPORTS[module]:
        # What is not installed would not be there in a process of its own either.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _enter(order: Mapping[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Become the process that was ordered, once it is a child of the worker."""
    answer = socket.socket(fileno=descriptors[0])
    while os.getppid() != order["parent"]:
        time.sleep(1e-4)
    if order["is_leader"]:
        os.setsid()
    _meet_signals(order["ignored"])
    _set_streams(descriptors[1:])
    os.chdir(order["folder"])
    _set_environment(order["environment"], order["paths"])
    _set_command_line(order["command"])
    if order["module"] == AGENT:
        cold = asyncio.create_subprocess_exec
        asyncio.create_subprocess_exec = exec_by(_fork_here, _fits_here, cold)
    answer.send(b"%d" % os.getpid())
    answer.recv(1)  # the worker has set its limits
    answer.close()
    _run(order["command"])


def _meet_signals(ignored: Sequence[int]) -> None:
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in _SIGNALS:
        if number in ignored:
            signal.signal(number, signal.SIG_IGN)
        elif number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
        else:
            signal.signal(number, signal.SIG_DFL)


def _set_streams(descriptors: Sequence[int]) -> None:
    """Make descriptors the standard ones, in their order."""
    # Some may be numbers below 3 themselves.
    copies = [os.dup(descriptor) for descriptor in descriptors]
    for number, copy in enumerate(copies):
        os.dup2(copy, number)
    for descriptor in {*copies, *descriptors}:
        if descriptor > 2:
            os.close(descriptor)


def _set_environment(environment: Mapping[str, str], paths: Sequence[str]) -> None:
    """Have an environment, and folders of modules beside those of the server."""
    # Imports note there where torch keeps what it compiles.
    noted = os.environ.items() - _given.items()
    os.environ.clear()
    os.environ.update(environment)
    os.environ.update(noted)
    sys.path[:0] = paths
    importlib.invalidate_caches()


def _set_command_line(command: Sequence[str]) -> None:
    """Write a command where the kernel reads that of this process."""
    stat = Path("/proc/self/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    begin, end = map(int, fields[45:47])  # arg_start, arg_end
    text = b"\0".join(word.encode() for word in command)
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, text, min(len(text), end - begin - 1))


def _fits_here(command: Sequence[str], _environment: Mapping[str, str]) -> bool:
    return is_fork_server(command)


def _fork_here(
    command: Sequence[str],
    descriptors: Sequence[int],
    environment: Mapping[str, str],
    *,
    is_leader: bool,
) -> int:
    """Fork the fork server of this agent."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _become_fork_server(command, descriptors, environment, is_leader=is_leader)
    return child


def _become_fork_server(
    command: Sequence[str],
    descriptors: Sequence[int],
    environment: Mapping[str, str],
    *,
    is_leader: bool,
) -> NoReturn:
    asyncio.events._set_running_loop(None)
    _meet_signals([n for n in _SIGNALS if signal.getsignal(n) is signal.SIG_IGN])
    if is_leader:
        os.setsid()
    _set_streams(descriptors)
    os.closerange(3, 1 << 16)
    os.environ.clear()
    os.environ.update(environment)
    _set_command_line(command)
    _run(command)


def _run(command: Sequence[str]) -> NoReturn:
    code = 1
    try:
        code = run_main(command)
    except BaseException:  # noqa: BLE001 - as an interpreter does at its end
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            atexit._run_exitfuncs()
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
