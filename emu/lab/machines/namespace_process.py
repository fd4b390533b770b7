"""Processes of a lab's namespaces: ``python -m emu.lab.machines.namespace_process``.

The keeper forks a process for the switch and two for every machine: the outer one
waits, the inner one is process 1 of the machine. Every process dies with its parent,
and the kernel removes namespaces with their last process, so ``kill -9`` of anything
leaves nothing. Requests come over one socket each (`emu.lab.machines.namespace_rpc`).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from emu.lab.machines import namespaces
from emu.lab.machines.namespace_rpc import Responder, report, set_tcp


def main() -> int:
    """Hold what the first argument describes until standard input ends."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    namespaces.die_with_parent(spec["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command
    sockets = [socket.socket(fileno=number) for number in spec["sockets"]]
    switch, *machines = sockets
    try:
        if spec["user"]:
            namespaces.become_root()
    except OSError as error:
        report(switch, error=f"no user namespace: {error.strerror}")
        return 1

    def hold_switch() -> None:
        namespaces.unshare(namespaces.NEW_NET)
        report(switch, pid=os.getpid())
        Responder(switch).serve()

    _fork(sockets, switch, hold_switch)
    for (name, sysctl), mine in zip(spec["machines"].items(), machines, strict=True):
        hold = functools.partial(_hold_machine, mine, name, spec["hosts"], sysctl)
        _fork(sockets, mine, hold)
    for each in sockets:
        each.close()
    sys.stdin.buffer.read()
    return 0


def _fork(
    sockets: list[socket.socket], mine: socket.socket, work: Callable[[], None]
) -> None:
    """Do some work in a child of its own that has only its own socket."""
    parent = os.getpid()
    if os.fork():
        return
    namespaces.die_with_parent(parent)
    os.setpgid(0, 0)
    os.close(0)
    for other in sockets:
        if other is not mine:
            other.close()
    _leave_after(mine, work)


def _leave_after(mine: socket.socket, work: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        work()
        code = 0
    except OSError as error:
        with contextlib.suppress(OSError):
            report(mine, error=str(error))
    finally:
        os._exit(code)


def _hold_machine(
    mine: socket.socket, name: str, hosts: str, sysctl: dict[str, str]
) -> None:
    namespaces.unshare(namespaces.OF_MACHINES)
    # Process 1 sees its parent as process 0, so it cannot check who that is.
    ready, go = os.pipe()
    inner = os.fork()
    if inner:
        os.close(ready)
        report(mine, pid=inner)
        mine.close()
        os.write(go, b"1")
        os.waitpid(inner, 0)
        return
    os.close(go)
    namespaces.die_with_parent(0)
    os.read(ready, 1)
    os.close(ready)

    def serve() -> None:
        namespaces.furnish(name, hosts)
        Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
        set_tcp(sysctl)
        Responder(mine).serve()

    _leave_after(mine, serve)


if __name__ == "__main__":
    sys.exit(main())
