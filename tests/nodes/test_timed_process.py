"""A process of timed tasks without peers: deliveries, refusals and deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.emulation.network.clock import RunClock
from emu.emulation.network.inbox import Delivery
from emu.emulation.network.pacer import Pacer
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.shaping import EmulationSettings
from emu.emulation.wire.messages import RunTask, TaskEnded
from emu.emulation.wire.notes import unpack_ends
from emu.emulation.wire.process_spec import HostSide
from emu.errors import DeadlineExceeded, NodeMisbehaved
from emu.prediction.core import ffi
from emu_nodes.program import task_brief
from emu_nodes.task_runner import EdgeEnds
from emu_nodes.timed import Timed
from emu_nodes.timed_layout import find_timed_programs
from emu_nodes.timed_process import TimedProcess
from emu_nodes.timed_selector import TimedSelector
from tests.emulation.launch.specs import edge_end, process_spec, process_task

TASK = process_task(
    "emu_nodes.timed:Timed",
    task=5,
    times=[0.02, 0.02, 0.02],
    inputs=(edge_end(3, lag=1, sent=2),),
)


class Stage:
    """Holds a process of one task, with what it reports and fails of."""

    def __init__(self, deadline: float) -> None:
        self.ends: list[TaskEnded] = []
        self.failures: list[BaseException] = []
        spec = process_spec("w0", TASK)
        settings = EmulationSettings(deadline=deadline)
        host = HostSide(certificate=b"", coordinator=("there", 1), bind="", board="")
        self.spec = replace(spec, settings=settings, first=10, host=host)
        self.board = RateBoard.create(8)
        self.pacer = Pacer(self.board)
        self.edges = EdgeEnds(self.spec, lambda _: None, self.failures.append)
        program = Timed(task_brief(TASK, {}, 10), {})
        programs: dict[int, Any] = {5: program}
        timed = find_timed_programs(self.spec, programs, self.edges, self.pacer)
        assert timed == {5: program}
        self.selector: TimedSelector = vars(asyncio.get_running_loop())["_selector"]
        self.process = TimedProcess(
            self.spec,
            timed,
            self.edges,
            self.pacer,
            RunClock(time.monotonic(), 1.0),
            self.selector,
            self._take_notes,
            self.failures.append,
        )

    def _take_notes(self, notes: bytes) -> None:
        self.ends += [end for end in unpack_ends(notes) if isinstance(end, TaskEnded)]

    def deliver(self, iteration: int) -> None:
        """Let an input arrive that Python has received."""
        payload = {"bytes": np.zeros(4, np.uint8)}
        delivery = Delivery(3, iteration, payload, time.monotonic())
        self.edges.inbox.deliver(delivery)

    async def run(self, iteration: int) -> None:
        """Order an iteration that is to have begun, and give the loop some turns."""
        self.process.carry_out(RunTask(5, iteration, -1.0))
        for _ in range(5):
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def staged(deadline: float = 30.0) -> AsyncIterator[Stage]:
    stage = Stage(deadline)
    try:
        yield stage
    finally:
        stage.process.close()
        await stage.edges.aclose()
        stage.pacer.close()
        stage.board.close()


async def test_what_came_before_the_start_is_there() -> None:
    async with staged() as stage:
        stage.deliver(0)
        stage.process.start()
        await stage.run(0)
        await stage.run(1)
        assert [end.iteration for end in stage.ends] == [0, 1]
        # On top of what Python has received by itself.
        server = stage.edges.server
        server.frames = 5
        server.header_bytes = 70
        inlet = stage.process._layout.inlets[0]
        inlet.frames, inlet.header_bytes, inlet.payload_bytes = 2, 30, 8
        stage.process.count()
        counts = stage.edges.inbox.statistics
        assert (counts.waiting, counts.high_water) == (0, 1)
        assert (counts.waiting_bytes, counts.high_water_bytes) == (0, 4)
        assert (server.frames, server.header_bytes) == (5 + 2, 70 + 30)
        assert server.payloads == {(3, "bytes"): 8}


async def test_what_comes_later_wakes_its_task() -> None:
    async with staged() as stage:
        stage.process.start()
        await stage.run(0)
        await stage.run(1)
        assert [end.iteration for end in stage.ends] == [0]
        assert stage.process.doing() == ["task w0, iteration 11"]
        stage.deliver(0)
        await asyncio.sleep(0.01)
        assert [end.iteration for end in stage.ends] == [0, 1]
        assert stage.process.doing() == []


async def test_no_iteration_comes_twice_or_beyond_the_last() -> None:
    async with staged() as stage:
        stage.process.start()
        stage.deliver(1)
        for iteration in (1, 0, 2):
            with pytest.raises(NodeMisbehaved, match=f"carry iteration {iteration}"):
                stage.deliver(iteration)


async def test_an_order_out_of_turn_names_the_iteration_of_the_job() -> None:
    async with staged() as stage:
        stage.process.start()
        with pytest.raises(NodeMisbehaved, match=r"task w0 .* iteration 12, which"):
            await stage.run(2)


async def test_who_waits_too_long_says_for_whom() -> None:
    async with staged(deadline=0.05) as stage:
        stage.process.start()
        begun = time.monotonic()
        await stage.run(0)
        await stage.run(1)
        for _ in range(200):
            if stage.failures:
                break
            await asyncio.sleep(0.01)
        (failure,) = stage.failures
        assert time.monotonic() - begun >= 0.05
        assert isinstance(failure, DeadlineExceeded)
        assert str(failure) == "task w0 waited 0.05 s for iteration 10 of p0"


def test_a_program_counts_from_the_first_iteration_of_the_job() -> None:
    """Ten are done, of an attempt before: 2 inputs and 3 iterations are to come."""
    brief = task_brief(TASK, {}, 10)
    assert (brief.iterations, brief.first) == (13, 10)
    (source,) = brief.inputs
    assert (source.edge, source.lag, source.sent) == (3, 1, 12)


async def test_a_connection_may_end_when_all_of_its_frames_have_come() -> None:
    """Edge 3 brings two, of which the core may have received some."""
    async with staged() as stage:
        ends = stage.edges
        gone = NodeMisbehaved("gone")
        ends._broke(3, gone)
        ends._on_arrival(3, 0, wall=1.0, size=4, shaped=False)
        ends._broke(3, gone)
        assert [str(failure) for failure in stage.failures] == ["flow edge 3: gone"] * 2

        ends.count_frames = lambda edge: int(edge == 3)
        ends._broke(3, gone)
        ends.count_frames = lambda _: 0
        ends._on_arrival(3, 1, wall=2.0, size=4, shaped=False)
        ends._broke(3, gone)
        assert len(stage.failures) == 2


async def test_a_process_that_is_closed_has_no_more_turns() -> None:
    async with staged() as stage:
        stage.process.start()
        process = stage.process
        number = process._core.number
        assert stage.selector._members[number] == process._core
        watching = process._watching
        assert watching is not None

        process.close()
        await asyncio.sleep(0)

        assert stage.selector._members[number] == ffi.NULL
        assert watching.cancelled()


@pytest.mark.parametrize(
    "change",
    [{"every": 2}, {"restores": ("w0",)}, {"times": None}],
)
async def test_what_keeps_state_or_computes_is_left_to_python(
    change: dict[str, Any],
) -> None:
    async with staged() as stage:
        spec = replace(stage.spec, tasks=(replace(TASK, **change),))
        programs: dict[int, Any] = {5: Timed(task_brief(TASK, {}, 10), {})}
        found = find_timed_programs(spec, programs, stage.edges, stage.pacer)
        assert found == {}
