"""Orders and ends of timed tasks by rings: what Python sees of them, and what not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import pytest

from emu.emulation.network.rings import SMALLEST, Rings, join_rings
from emu.emulation.wire.messages import RunTask, TaskEnded, WakeSender
from emu.emulation.wire.notes import Order, pack_order, unpack_ends
from emu.emulation.wire.process_spec import ProcessSpec
from emu.errors import NodeMisbehaved
from emu.prediction.core import lib
from emu.problem.job import TIMED
from emu_nodes.timed_selector import TimedSelector, _owners_of, may_be_timed
from tests.emulation.launch.specs import edge_end, process_spec, process_task
from tests.nodes.test_timed_process import Stage, staged

#: What only Python knows what to do with: tasks and edges that are not of who has
#: joined, an iteration out of turn, and what is no order or cut short.
LEFT = [
    pack_order(RunTask(6, 0, -1.0)),
    pack_order(RunTask(7, 0, -1.0, [[3, 0]])),
    pack_order(RunTask(-1, 0, -1.0)),
    pack_order(RunTask(5, 2, -1.0)),
    pack_order(RunTask(5, 0, -1.0, [[99, 0]])),
    pack_order(WakeSender(3, 0.0)),
    pack_order(WakeSender(-1, 0.0)),
    struct.pack("<2id", 9, 4, 0.0),
    struct.pack("<4id", 3, 5, 0, -1, 0.0),
    pack_order(RunTask(5, 0, -1.0, [[3, 0]]))[:-4],
    b"\x03\x00",
]


@dataclass
class Coordinator:
    """The other side of the rings of a stage."""

    process: Rings
    rings: Rings
    left: list[bytes] = field(default_factory=list)
    ends: list[TaskEnded] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def order(self, *orders: Order) -> None:
        """Write orders that come at once."""
        self.rings.write(b"".join(map(pack_order, orders)))

    async def hear(self, count: int) -> list[int]:
        """Return the iterations that have ended, once so many have, or a second on."""
        for _ in range(100):
            notes = self.rings.read()
            self.rings.go_on()
            for end in unpack_ends(notes):
                assert isinstance(end, TaskEnded)
                self.ends.append(end)
            if len(self.ends) >= count:
                break
            await asyncio.sleep(0.01)
        return [end.iteration for end in self.ends]


@contextlib.asynccontextmanager
async def spoken_to(*first: Order) -> AsyncIterator[tuple[Stage, Coordinator]]:
    """Yield a process of one task that speaks by rings, and whom it speaks to.

    Orders that are stated are there before it begins.
    """
    async with staged() as stage:
        numbers = stage.selector.make_rings()
        with contextlib.closing(join_rings(os.getpid(), numbers)) as rings:
            process = cast("Rings", stage.selector._rings)
            far = Coordinator(process, rings)
            far.order(*first)
            stage.process.start()
            stage.selector.speak_by_rings(far.left.append, far.failures.append)
            yield stage, far


async def test_orders_and_ends_pass_python_by() -> None:
    async with spoken_to() as (stage, far):
        far.order(RunTask(5, 0, -1.0))
        assert await far.hear(1) == [0]
        stage.deliver(0)
        far.order(RunTask(5, 1, -1.0))
        assert await far.hear(2) == [0, 1]
        assert stage.ends == []
        assert far.left == []
        assert far.failures == []


async def test_orders_that_were_there_before_are_carried_out() -> None:
    async with spoken_to(RunTask(5, 0, -1.0)) as (_, far):
        assert await far.hear(1) == [0]


@pytest.mark.parametrize("notes", LEFT)
async def test_python_gets_what_the_core_has_no_words_for(notes: bytes) -> None:
    """It comes as it was, and what was before it is done."""
    async with spoken_to() as (_, far):
        far.order(RunTask(5, 0, -1.0))
        assert await far.hear(1) == [0]
        far.rings.write(notes)
        for _ in range(100):
            if far.left:
                break
            await asyncio.sleep(0.01)
        assert far.left == [notes]
        assert far.failures == []


async def test_ends_wait_for_room() -> None:
    async with spoken_to() as (_, far):
        full = bytes(SMALLEST - 8)
        far.process.write(full)
        far.order(RunTask(5, 0, -1.0))
        await asyncio.sleep(0.05)
        far.order(RunTask(5, 1, -1.0))  # one that waits for its input meanwhile
        assert far.rings.read() == full
        assert await far.hear(1) == [0]


async def wait_for(things: list[Any]) -> None:
    """Wait until there is one, a second at most."""
    for _ in range(100):
        if things:
            return
        await asyncio.sleep(0.01)


async def test_more_orders_than_fit_fail_the_process() -> None:
    async with spoken_to() as (_, far):
        begin = lib.RING_HEAD + SMALLEST
        far.rings._memory[begin : begin + 8] = (1 << 40).to_bytes(8, "little")
        far.process.write(bytes(8))
        os.write(far.rings.writes.wake, b"w")
        await wait_for(far.failures)
        assert isinstance(far.failures[0], NodeMisbehaved)
        assert "rings cannot be" in str(far.failures[0])


async def test_more_ends_read_than_written_fail_the_process() -> None:
    async with spoken_to() as (_, far):
        far.rings._memory[64:72] = (1 << 40).to_bytes(8, "little")
        far.order(RunTask(5, 0, -1.0))
        await wait_for(far.failures)
        assert isinstance(far.failures[0], NodeMisbehaved)


@pytest.mark.parametrize(
    ("programs", "tls", "expected"),
    [
        ([[TIMED], [TIMED, TIMED]], "control", True),
        ([[TIMED, "x:X"], [TIMED]], "control", True),  # the second
        ([[TIMED, "x:X"]], "control", False),
        ([[TIMED]], "all", False),
    ],
)
def test_who_may_be_timed(
    programs: list[list[str]],
    tls: Literal["control", "all"],
    *,
    expected: bool,
) -> None:
    specs: list[ProcessSpec] = []
    for number, names in enumerate(programs):
        tasks = [process_task(name, task=number) for name in names]
        spec = process_spec(f"w{number}", *tasks)
        settings = replace(spec.settings, tls=tls)
        specs.append(replace(spec, settings=settings))
    assert may_be_timed(specs) is expected


def test_an_order_that_names_thousands_of_reads_has_room() -> None:
    inputs = tuple(edge_end(edge) for edge in range(9_000))
    outputs = tuple(edge_end(edge) for edge in range(9_000, 17_000))
    task = process_task(TIMED, task=1, inputs=inputs, outputs=outputs)
    spec = process_spec("w0", task)
    reads = [[edge, 0] for edge in range(9_000)]
    order = pack_order(RunTask(task=1, iteration=0, start=0.0, reads=reads))
    with contextlib.closing(TimedSelector([spec])) as selector:
        numbers = selector.make_rings()
        with contextlib.closing(join_rings(os.getpid(), numbers)) as rings:
            rings.write(order)
            assert cast("Rings", selector._rings).read() == order


def test_edges_within_a_process_are_no_one_s_to_wake() -> None:
    """Edge 4 leaves w0, edge 5 stays there: who wakes it misbehaves."""
    outputs = (edge_end(4), replace(edge_end(5), peer_process="w0"))
    spec = process_spec("w0", process_task(TIMED, task=1, outputs=outputs))
    selector = TimedSelector([spec])
    with contextlib.closing(selector):
        owners = [selector._core.edge_owner[edge] for edge in range(6)]
        assert owners == [-1, -1, -1, -1, 0, -1]
        assert [selector._core.task_owner[task] for task in range(2)] == [-1, 0]


def test_owners_are_found_by_tasks_and_by_edges_that_leave() -> None:
    """Tasks 1 and 6 are of the first process, task 3 of the second."""
    stays = replace(edge_end(5), peer_process="w0")
    first = process_spec(
        "w0",
        process_task(TIMED, task=1, outputs=(edge_end(4),)),
        process_task(TIMED, task=6, outputs=(edge_end(2), stays)),
    )
    second = process_spec("w1", process_task(TIMED, task=3))

    owners = _owners_of([first, second])

    assert owners["task_owner"].tolist() == [-1, 0, -1, 1, -1, -1, 0]
    assert owners["task_place"].tolist() == [-1, 0, -1, 0, -1, -1, 1]
    assert owners["edge_owner"].tolist() == [-1, -1, 0, -1, 0, -1]
    assert _owners_of([second])["edge_owner"].tolist() == [-1]


async def test_numbers_are_resolved_at_once_and_names_by_the_host() -> None:
    loop = asyncio.get_running_loop()
    for host in ("127.0.0.1", "localhost"):
        found = await loop.getaddrinfo(host, 9, type=socket.SOCK_STREAM)
        assert ("127.0.0.1", 9) in [address for *_, address in found]
