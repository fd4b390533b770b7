"""One connection for all processes of a process of the system."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from emu.emulation.network.control import ControlConnection
from emu.emulation.network.rings import Rings, join_rings
from emu.emulation.wire.messages import (
    FlowEnded,
    Orders,
    RunTask,
    TaskEnded,
    WakeSender,
)
from emu.emulation.wire.notes import Order, pack_end, pack_order, unpack_ends
from emu.errors import MalformedFrame
from emu.prediction.core import lib
from emu_nodes.line import Line, may_have_rings
from tests.emulation.launch.specs import edge_end, process_spec, process_task


class Sent:
    """A connection that keeps what is sent."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        """Keep a message."""
        self.messages.append(message)


def line_of_two() -> Line:
    """Return the line of process a, of task 1 and edge 4, and b, of 2 and 5."""
    specs = []
    for name, task, edge in (("a", 1, 4), ("b", 2, 5)):
        outputs = (edge_end(edge), replace(edge_end(edge + 10), peer_process=name))
        runs = process_task("x:X", task=task, outputs=outputs)
        specs.append(process_spec(name, runs))
    return Line(specs)


def orders(*given: Order) -> Orders:
    return Orders(b"".join(map(pack_order, given)))


@contextlib.contextmanager
def line_with_rings() -> Iterator[tuple[Line, Rings, list[BaseException]]]:
    """Yield the line of two by rings, the coordinator's side, and what has failed."""
    failures: list[BaseException] = []
    with contextlib.closing(line_of_two()) as line:
        numbers = line.make_rings()
        with contextlib.closing(join_rings(os.getpid(), numbers)) as coordinator:
            line.speak_by_rings(failures.append)
            yield line, coordinator, failures


async def turn() -> None:
    """Let the loop see what is ready, and do what follows."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_ends_of_a_turn_leave_together() -> None:
    line, connection = line_of_two(), Sent()
    line.connect(cast("ControlConnection", connection))
    ends = [FlowEnded(edge, 0, 1.0, 2.0) for edge in range(4)]
    for end in ends[:3]:
        line.report(end)
    assert connection.messages == []
    await asyncio.sleep(0)
    line.report(ends[3])
    await asyncio.sleep(0)

    told = [[*unpack_ends(message["notes"])] for message in connection.messages]
    assert told == [ends[:3], ends[3:]]


async def test_what_is_too_much_for_one_message_goes_in_two_and_none_is_empty() -> None:
    line, connection = line_of_two(), Sent()
    line.connect(cast("ControlConnection", connection))
    notes = [bytes([number]) * (line._together // 2 + 1) for number in (1, 2)]
    for note in notes:
        line.add(note)
    for _ in range(3):
        await asyncio.sleep(0)

    assert [message["notes"] for message in connection.messages] == notes


async def test_ends_of_a_turn_leave_together_however_much_was_said_before() -> None:
    line, connection = line_of_two(), Sent()
    line.connect(cast("ControlConnection", connection))
    for number in (1, 2):
        line.add(bytes([number]) * (line._together // 2 + 1))
        await turn()
    for number in (3, 4):
        line.add(bytes([number]))
    await turn()

    assert len(connection.messages) == 3
    assert connection.messages[-1]["notes"] == bytes([3, 4])


async def test_ends_go_by_rings_where_there_are_any() -> None:
    """And not over the connection as well; what has no room goes later."""
    connection = Sent()
    ends = [FlowEnded(edge, 0, 1.0, 2.0) for edge in range(4)]
    with line_with_rings() as (line, coordinator, failures):
        line.connect(cast("ControlConnection", connection))
        for end in ends[:3]:
            line.report(end)
        await turn()
        assert [*unpack_ends(coordinator.read())] == ends[:3]

        filling = bytes(coordinator.size - 8)
        assert line._rings is not None
        line._rings.write(filling)
        line.report(ends[3])
        await turn()
        assert coordinator.read() == filling
        await turn()
        assert [*unpack_ends(coordinator.read())] == ends[3:]
    assert connection.messages == []
    assert failures == []


async def test_more_than_a_ring_holds_goes_in_parts_or_over_the_connection() -> None:
    connection = Sent()
    end = TaskEnded(
        task=1,
        iteration=0,
        start=0.0,
        end=1.0,
        edges=[],
        volumes=[],
        began=0.0,
        cpu=0.0,
        late=0.0,
        report={"a figure of a task": 0.5, "another one": 1.5},
    )
    long_end = replace(end, report={f"figure {n}": 0.5 for n in range(5_000)})
    with line_with_rings() as (line, coordinator, failures):
        line.connect(cast("ControlConnection", connection))
        count = 3 * coordinator.size // len(pack_end(end))
        for _ in range(count):
            line.report(end)
        found = []
        for _ in range(8):
            await turn()
            found += [*unpack_ends(coordinator.read())]
        assert found == [end] * count
        assert connection.messages == []

        line.report(long_end)
        await turn()
        (message,) = connection.messages
        assert [*unpack_ends(message["notes"])] == [long_end]
    assert failures == []


def test_processes_that_send_their_state_have_no_rings() -> None:
    """Nor do those whose connections are encrypted."""
    spec = process_spec("a", process_task("x:X"))
    keeper = process_spec(
        "b", replace(process_task("x:X"), every=2), process_task("x:X", task=1)
    )
    encrypted = replace(spec, settings=replace(spec.settings, tls="all"))
    assert may_have_rings([spec]) == (sys.platform == "linux")
    assert not may_have_rings([spec, keeper])
    assert not may_have_rings([spec, encrypted])


async def test_orders_that_come_by_rings_are_carried_out() -> None:
    came: list[Order] = []
    run, wake = RunTask(2, 0, 1.0), WakeSender(5, 2.0)
    with line_with_rings() as (line, coordinator, failures):
        line.join("b", came.append)
        coordinator.write(orders(run).notes)
        coordinator.write(orders(wake).notes)
        await turn()
        assert came == [run, wake]
        line.speak_by_rings(failures.append)  # in a further run of the same processes
        coordinator.write(orders(run).notes)
        await turn()
        assert came == [run, wake, run]
    assert failures == []


@pytest.mark.parametrize(
    ("notes", "why"),
    [
        (orders(RunTask(3, 0, 1.0)).notes, "task 3 is not run here"),
        (b"nonsense", "is no order"),
        (None, "the counters of its ring cannot be"),
    ],
)
async def test_nonsense_in_a_ring_fails_the_process_once(
    notes: bytes | None, why: str
) -> None:
    with line_with_rings() as (_line, coordinator, failures):
        if notes is None:
            begin = lib.RING_HEAD + coordinator.size
            coordinator._memory[begin : begin + 8] = (1 << 50).to_bytes(8, "little")
            os.write(coordinator._fds[2], b"x")
        else:
            coordinator.write(notes)
        await turn()
        (failure,) = failures
        assert why in str(failure)
        os.write(coordinator._fds[2], b"x")
        await turn()
        assert failures == [failure]


def test_orders_go_to_the_process_that_they_are_for_and_wait_for_it() -> None:
    line = line_of_two()
    assert line.lead == "a"
    came: dict[str, list[Order]] = {"a": [], "b": []}
    run, wake = RunTask(2, 0, 1.0), WakeSender(4, 2.0)
    line.join("a", came["a"].append)
    line.obey(orders(run, wake))
    assert came == {"a": [wake], "b": []}

    line.join("b", came["b"].append)
    assert came == {"a": [wake], "b": [run]}
    line.leave("b")
    line.obey(orders(run))
    assert came["b"] == [run]


@pytest.mark.parametrize("order", [RunTask(3, 0, 1.0), WakeSender(14, 2.0)])
def test_an_order_for_nobody_here_is_refused(order: Order) -> None:
    """Edge 14 goes to another task of its own process: nothing of it is sent."""
    with pytest.raises(MalformedFrame, match="here"):
        line_of_two().obey(orders(order))


def test_size_of_rings_counts_tasks_and_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def size(tasks: int, edges: int) -> int:
        asked.append((tasks, edges))
        return 4096

    monkeypatch.setattr("emu_nodes.line.ring_size", size)
    ends = tuple(edge_end(number) for number in range(5))
    task = process_task("x:X", inputs=ends[:2], outputs=ends[2:])
    assert Line([process_spec("w0", task)])._together == 4096
    assert asked == [(1, 5)]
