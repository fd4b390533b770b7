"""A loop of processes whose tasks are timed, which waits in the core.

A loop of asyncio waits in its selector. This one does meanwhile all that timed
processes have to (timed_loop.c): bytes that come or go, tasks that are due, orders and
ends wake no line of Python, and all processes of a machine wake once for what has come
to several of them. A run of 200 tasks and 3,600 flows called it 24 times per machine.
"""

from __future__ import annotations

import asyncio
import math
import os
import selectors
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from typing_extensions import override

from emu.array_types import Ints
from emu.emulation.network.rings import Rings, create_rings, ring_size
from emu.emulation.wire.process_spec import ProcessSpec
from emu.errors import NodeMisbehaved
from emu.host.this_host import this_host
from emu.prediction.core import ffi, lib, pointer
from emu.problem.job import TIMED

#: What a selector finds: files that are ready, and for what.
_Ready = list[tuple[selectors.SelectorKey, int]]


def may_be_timed(specs: Sequence[ProcessSpec]) -> bool:
    """Return True where one of some processes may run without Python."""
    if sys.platform != "linux":
        return False
    for spec in specs:
        is_encrypted = spec.settings.tls == "all"
        if not is_encrypted and all(task.program == TIMED for task in spec.tasks):
            return True
    return False


class TimedSelector(selectors.DefaultSelector):
    """Waits for files, and gives timed processes their turns until one is ready.

    Parameters
    ----------
    specs
        Of the processes that may join.

    Raises OSError where there are no descriptors for it.
    """

    def __init__(self, specs: Sequence[ProcessSpec]) -> None:
        super().__init__()
        self._members = ffi.new("TimedProcess *[]", len(specs))
        self._numbers = {spec.process: place for place, spec in enumerate(specs)}
        self._after_turns: dict[str, Callable[[], None]] = {}
        self._on_orders: Callable[[bytes], None] = _refuse
        self._fail: Callable[[BaseException], None] = _refuse
        self._rings: Rings | None = None
        tasks = [task for spec in specs for task in spec.tasks]
        edges = sum(len(task.inputs) + len(task.outputs) for task in tasks)
        self._ring_size = ring_size(len(tasks), edges)

        owners = _owners_of(specs)
        self._kept = [*owners.values()]  # the core has no more than their addresses
        fields = {
            "member": self._members,
            "members": len(specs),
            "woken": -1,
            "tasks": len(owners["task_owner"]),
            "edges": len(owners["edge_owner"]),
            **{name: pointer(column) for name, column in owners.items()},
        }
        self._core = ffi.new("TimedLoop *", fields)
        if not lib.open_loop(self._core, self.fileno()):
            raise OSError(ffi.errno, os.strerror(ffi.errno))

    def join(self, name: str, process: Any, after_turn: Callable[[], None]) -> None:
        """Give turns to a `TimedProcess` of the core; its inlets may be watched then.

        ``after_turn`` is called by the loop after turns that left it something to do.
        """
        self._after_turns[name] = after_turn
        process.epoll = self._core.epoll
        process.number = self._numbers[name]
        process.stirred = True
        # All notes of a turn find room in a ring.
        process.notes_room = min(process.notes_room, self._ring_size)
        self._members[process.number] = process

    def leave(self, name: str, process: Any) -> None:
        """Give no more turns to one that has joined."""
        lib.leave_all(process)
        self._members[process.number] = ffi.NULL
        del self._after_turns[name]

    def make_rings(self) -> list[int]:
        """Make rings for all processes; return the numbers by which others join them.

        Raises OSError where there is no memory for them, or no descriptor.
        """
        self._rings, numbers = create_rings(self._ring_size)
        self._orders = np.empty((2, self._ring_size), np.uint8)
        core = self._core
        core.order = pointer(self._orders[0])
        core.left = pointer(self._orders[1])
        core.woken = self._rings.woken
        return numbers

    def speak_by_rings(
        self,
        on_orders: Callable[[bytes], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Report ends and take orders through the rings from now on.

        ``on_orders`` is called with orders that are not for who has joined, or that the
        core would not carry out, and ``fail`` with what is wrong with the rings. Raises
        OSError where they cannot be watched.
        """
        rings = cast("Rings", self._rings)
        self._on_orders = on_orders
        self._fail = fail
        core = self._core
        core.ends = rings.writes
        if not core.orders:  # else they are watched, since a run before
            core.orders = rings.reads
            if not lib.watch_orders(core):
                raise OSError(ffi.errno, os.strerror(ffi.errno))

    @override
    def select(self, timeout: float | None = None) -> _Ready:
        if not self._core.orders and not self._after_turns:
            return super().select(timeout)

        wall = math.inf
        if timeout is not None:
            wall = this_host.monotonic() + timeout
        lib.turn_until(self._core, wall)
        if self._core.is_asked:
            asyncio.get_running_loop().call_soon(self._look)
        return super().select(0)

    def _look(self) -> None:
        """Do what the core has left to Python."""
        core = self._core
        if core.is_broken:
            core.is_broken = False
            core.ends = ffi.NULL
            error = NodeMisbehaved("the counters of the coordinator's rings cannot be")
            self._fail(error)
        if core.left_size:
            orders = self._orders[1, : core.left_size].tobytes()
            core.left_size = 0
            self._on_orders(orders)
        for after_turn in [*self._after_turns.values()]:  # one may leave
            after_turn()

    @override
    def close(self) -> None:
        os.close(self._core.epoll)
        os.close(self._core.timer)
        if self._rings is not None:
            self._rings.close()
        super().close()


class TimedLoop(asyncio.SelectorEventLoop):
    """A loop of asyncio that looks numeric addresses up without a thread.

    uvloop neither does; a thread for each was a fifth of what it takes to connect.
    """

    @override
    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        numeric = flags | socket.AI_NUMERICHOST
        try:
            return socket.getaddrinfo(host, port, family, type, proto, numeric)
        except socket.gaierror:
            return await super().getaddrinfo(
                host,
                port,
                family=family,
                type=type,
                proto=proto,
                flags=flags,
            )


def _refuse(thing: object) -> None:
    """Raise RuntimeError: there are no rings from which something could come."""
    raise RuntimeError(f"there are no rings, and {thing!r} came by one")


def _owners_of(specs: Sequence[ProcessSpec]) -> dict[str, Ints]:
    """Return the process of each task and edge that leaves, and places of tasks."""
    tasks = []
    edges = []
    for spec in specs:
        for task in spec.tasks:
            tasks.append(task.task)
            edges += [end.edge for end in task.outputs]

    task_owner = np.full(max(tasks) + 1, -1)
    task_place = np.full(max(tasks) + 1, -1)
    edge_owner = np.full(max(edges, default=0) + 1, -1)
    for number, spec in enumerate(specs):
        for place, task in enumerate(spec.tasks):
            task_owner[task.task] = number
            task_place[task.task] = place
            for end in task.outputs:
                if end.peer_process != spec.process:
                    edge_owner[end.edge] = number
    return {
        "task_owner": task_owner,
        "task_place": task_place,
        "edge_owner": edge_owner,
    }
