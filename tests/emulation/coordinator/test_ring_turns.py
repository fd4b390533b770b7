"""Turns by rings decide what turns by messages do, and leave what is not the core's."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import resource
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from emu.emulation.coordinator.membership import Membership
from emu.emulation.coordinator.outcome import Recorder
from emu.emulation.coordinator.ring_turns import RingTurns
from emu.emulation.coordinator.scheduler_driver import SchedulerDriver
from emu.emulation.coordinator.turns import TurnLog
from emu.emulation.network.clock import RunClock
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.network.rings import SMALLEST, Rings, create_rings, join_rings
from emu.emulation.wire.messages import FlowEnded, TaskEnded
from emu.emulation.wire.notes import pack_end
from emu.errors import NodeMisbehaved, RunError
from emu.host.this_host import this_host
from emu.prediction.core import lib
from emu.problem import Problem, Realization
from emu.testing import two_machine_example
from tests.emulation.coordinator.test_scheduler_driver import problems
from tests.emulation.coordinator.virtual import (
    SPEAKER,
    PerfectProcesses,
    begin,
    drive,
    driver_of,
)
from tests.fidelity.corpus import RULES

#: Longer than any drawn run.
LONG = 1e6


class RingedProcesses(PerfectProcesses):
    """Processes that nobody watches, and to which Python may send as well."""

    watches = False
    rings: Rings

    @override
    def order(self, speaker: str, notes: bytes) -> None:
        self.rings.write(notes)


class Stage:
    """A run whose processes stand behind one pair of rings."""

    def __init__(
        self,
        problem: Problem,
        realization: Realization,
        policy: str,
        stack: contextlib.ExitStack,
        *,
        watches: bool = False,
    ) -> None:
        self.problem = problem
        self.outlet = RingedProcesses(problem, realization)
        self.outlet.watches = watches
        self.online: SchedulerDriver
        self.recorder: Recorder
        parts = driver_of(problem, realization, policy, self.outlet)
        self.online, self.recorder, _ = parts
        board = stack.enter_context(
            contextlib.closing(RateBoard.create(max(1, len(problem.job.edges))))
        )
        self.far, numbers = create_rings(SMALLEST)
        stack.callback(self.far.close)
        self.near = join_rings(os.getpid(), numbers)
        stack.callback(self.near.close)
        self.outlet.rings = self.near
        begin(self.online, problem, [board])

        self.woken = 0
        self.refused: list[str] = []
        self.membership = SimpleNamespace(
            rings={SPEAKER: self.near},
            wake=self.wake,
            refuse_rings=lambda name, error: self.refused.append(f"{name}: {error}"),
        )
        self.turns = self.open_turns()
        stack.callback(self.turns.close)
        self.turns.go_on(this_host.monotonic(), is_watched=False)

    def open_turns(self) -> RingTurns:
        """Return turns; all that is reported has passed, and no more is due."""
        return RingTurns(
            self.online.turn,
            [SPEAKER],
            cast("Membership", self.membership),
            TurnLog(),
            clock=RunClock(this_host.monotonic() - LONG, 1.0),
            reported=math.inf,
            ahead=-math.inf,
            leaves_turns=False,
            leaves_notes=False,
        )

    def wake(self) -> None:
        """Count how often the coordinator is woken."""
        self.woken += 1

    async def report(self, *ends: TaskEnded | FlowEnded) -> None:
        """Report ends by the ring, and have the loop take a turn."""
        self.far.write(b"".join(map(pack_end, ends)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def obey(self) -> None:
        """Carry out what has come, and foresee ends by the rates that are new."""
        PerfectProcesses.order(self.outlet, SPEAKER, self.far.read())
        if self.online.turn.passage.count:
            self.outlet.foresee(self.online._desk.rates)

    async def drive(self) -> None:
        """Run to the end, as `drive` does."""
        self.obey()
        self.turns.go_on(this_host.monotonic(), is_watched=self.outlet.watches)
        wakes = any(task.gate for task in self.problem.job.tasks)
        while not self.online.finished:
            served = self.online.next_end
            if self.outlet.idle if not wakes else served < self.outlet.next_time():
                self.online.settle(served)
            else:
                await self.report(*self.outlet.next_events())
                self.see()
            self.obey()

    def see(self) -> None:
        """See what has settled, where somebody watches; nothing else is left."""
        left = self.turns.left
        assert left in {lib.NOTHING_LEFT, lib.ENDS_LEFT}
        assert self.outlet.watches or left == lib.NOTHING_LEFT
        if left:
            self.online.finish_turn(left, lib.DONE)
        is_watched = self.online.is_watched
        self.turns.go_on(this_host.monotonic(), is_watched=is_watched)


@contextlib.asynccontextmanager
async def staged(
    problem: Problem,
    realization: Realization,
    policy: str = "oes",
    *,
    watches: bool = False,
) -> AsyncIterator[Stage]:
    """Yield a run that has begun."""
    with contextlib.ExitStack() as stack:
        yield Stage(problem, realization, policy, stack, watches=watches)


def perform(play: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end."""
    asyncio.run(play)


def tasks_of_example() -> tuple[Problem, Realization, list[TaskEnded]]:
    """Return an example, and the ends of what it begins with."""
    problem, realization = two_machine_example(2)
    outlet = PerfectProcesses(problem, realization)
    online, _, _ = driver_of(problem, realization, "oes", outlet)
    begin(online, problem)
    ends = [end for end in outlet.next_events() if isinstance(end, TaskEnded)]
    return problem, realization, ends


@given(problems(), st.sampled_from(RULES))
def test_turns_by_rings_make_the_schedule_that_messages_make(
    drawn: tuple[Problem, Realization], policy: str
) -> None:
    problem, realization = drawn
    by_messages, _ = drive(problem, realization, policy)
    expected = by_messages.schedule()

    async def play() -> None:
        async with staged(problem, realization, policy) as stage:
            await stage.drive()
            found = stage.recorder.schedule()
            for name in ("task_start", "task_end", "flow_start", "flow_end"):
                assert np.array_equal(
                    getattr(found, name), getattr(expected, name), equal_nan=True
                )
            assert found.rates is not None
            assert expected.rates is not None
            for name in ("time", "edge", "iteration", "rate"):
                assert np.array_equal(
                    getattr(found.rates, name), getattr(expected.rates, name)
                )
            assert stage.woken <= 1  # for the end of the run

    perform(play())


def test_orders_without_room_are_left_and_go_in_their_turn() -> None:
    problem, realization, ends = tasks_of_example()

    async def play() -> None:
        async with staged(problem, realization) as stage:
            first = stage.far.read()
            filling = bytes(SMALLEST - 8)
            stage.near.write(filling)
            await stage.report(*ends)
            assert stage.turns.left == lib.ORDERS_LEFT
            assert stage.woken == 1
            assert stage.online.turn.desk.addressees == 1

            stage.online.finish_turn(stage.turns.left, lib.DONE)
            now = this_host.monotonic()
            stage.turns.go_on(now, is_watched=False)
            assert stage.near.writes.is_queued
            assert stage.far.read() == filling  # which wakes the coordinator
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert stage.turns.left == lib.NOTES_LEFT
            assert list(stage.turns.notes(now)) == []
            assert not stage.near.writes.is_queued
            assert len(stage.far.read()) > 0
            assert first

    perform(play())


def test_what_the_core_may_not_settle_is_taken_in_and_left() -> None:
    problem, realization, ends = tasks_of_example()

    async def play() -> None:
        async with staged(problem, realization) as stage:
            stage.turns.core.leaves_turns = True
            await stage.report(*ends)
            assert stage.turns.left == lib.TURN_LEFT
            assert stage.online.turn.desk.waiting == len(ends)
            assert list(stage.turns.notes(this_host.monotonic())) == []
            stage.online.settle(-math.inf)
            assert stage.online.turn.desk.waiting == 0

    perform(play())


@given(problems(), st.sampled_from(RULES))
def test_who_watches_sees_what_the_core_has_settled(
    drawn: tuple[Problem, Realization], policy: str
) -> None:
    """Each end and each moment once, in the order of a run by messages."""
    problem, realization = drawn
    by_messages = PerfectProcesses(problem, realization)
    drive(problem, realization, policy, processes=by_messages)

    async def play() -> None:
        async with staged(problem, realization, policy, watches=True) as stage:
            await stage.drive()
            assert stage.outlet.ended == by_messages.ended
            assert len(stage.outlet.heard) == len(by_messages.heard)
            for found, expected in zip(
                stage.outlet.heard, by_messages.heard, strict=True
            ):
                assert found.time == expected.time
                assert found.tasks == expected.tasks
                assert found.flows == expected.flows
                assert np.array_equal(found.lines.rate, expected.lines.rate)

    perform(play())


def test_what_coordinators_read_themselves_is_left_as_it_came() -> None:
    problem, realization, ends = tasks_of_example()

    async def play() -> None:
        async with staged(problem, realization) as stage:
            stage.turns.core.leaves_notes = True
            await stage.report(*ends)
            assert stage.turns.left == lib.NOTES_LEFT
            assert stage.online.turn.desk.waiting == 0
            notes = b"".join(map(pack_end, ends))
            left = stage.turns.notes(this_host.monotonic())
            assert list(left) == [(SPEAKER, notes)]

    perform(play())


def test_figures_of_a_task_are_left_and_its_end_is_taken() -> None:
    problem, realization, ends = tasks_of_example()
    ends[-1].report = {"loss": 0.25}

    async def play() -> None:
        async with staged(problem, realization) as stage:
            await stage.report(*ends)
            assert stage.turns.left == lib.NOTES_LEFT
            assert stage.online.turn.desk.waiting == len(ends)
            for speaker, notes in stage.turns.notes(this_host.monotonic()):
                stage.online.file(speaker, notes, stage.turns.core.fault)
            assert stage.recorder.has_reports
            assert stage.online.is_watched  # until they are filed
            stage.online.settle(-math.inf)
            assert stage.recorder.loss == 0.25
            assert not stage.recorder.has_reports

    perform(play())


def test_ends_that_cannot_be_are_left_with_their_fault() -> None:
    problem, realization, ends = tasks_of_example()
    ends[0].iteration = 99

    async def play() -> None:
        async with staged(problem, realization) as stage:
            await stage.report(*ends)
            assert stage.turns.left == lib.NOTES_LEFT
            assert stage.turns.core.fault == lib.UNKNOWN_ITERATION
            ((speaker, notes),) = stage.turns.notes(this_host.monotonic())
            with pytest.raises(NodeMisbehaved, match="no such iteration"):
                stage.online.file(speaker, notes, stage.turns.core.fault)

    perform(play())


def test_an_end_that_does_not_fit_is_left_with_its_instants() -> None:
    """A task that has not begun cannot have ended."""
    problem, realization, ends = tasks_of_example()
    begun = {end.task for end in ends}
    other = next(n for n in range(len(problem.job.tasks)) if n not in begun)
    ends[0].task = other
    ends[0].edges, ends[0].volumes = [], []

    async def play() -> None:
        async with staged(problem, realization) as stage:
            await stage.report(ends[0])
            assert stage.turns.left == lib.INSTANTS_LEFT
            assert stage.turns.core.outcome == lib.IMPOSSIBLE
            with pytest.raises(NodeMisbehaved, match="the impossible"):
                stage.online.finish_turn(lib.INSTANTS_LEFT, lib.IMPOSSIBLE)

    perform(play())


def test_a_ring_with_counters_that_cannot_be_is_heard_no_more() -> None:
    problem, realization, ends = tasks_of_example()

    async def play() -> None:
        async with staged(problem, realization) as stage:
            stage.near._memory[:8] = (1 << 50).to_bytes(8, "little")
            os.write(stage.far._fds[2], b"x")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert stage.turns.left == lib.NOTES_LEFT
            now = this_host.monotonic()
            assert list(stage.turns.notes(now)) == []
            assert stage.refused == [
                f"{SPEAKER}: the counters of its ring cannot be",
            ]
            stage.turns.go_on(now, is_watched=False)
            await stage.report(*ends)
            assert stage.online.turn.desk.waiting == 0

    perform(play())


def test_what_is_left_is_not_looked_at_again_and_again() -> None:
    """Whatever else comes meanwhile is taken once there is nothing left."""
    problem, realization, ends = tasks_of_example()

    async def play() -> None:
        async with staged(problem, realization) as stage:
            stage.turns.core.leaves_turns = True
            await stage.report(ends[0])
            assert stage.turns.left == lib.TURN_LEFT
            watching = [stage.turns._is_watching]
            await stage.report(ends[1])
            watching.append(stage.turns._is_watching)
            assert watching == [True, False]
            assert stage.online.turn.desk.waiting == 1

            stage.turns.go_on(this_host.monotonic(), is_watched=False)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert stage.online.turn.desk.waiting == 2

    perform(play())


def open_descriptors() -> set[int]:
    """Return the descriptors of this process, without that of the question."""
    numbers = {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}
    return {number for number in numbers if Path(f"/proc/self/fd/{number}").exists()}


@contextlib.contextmanager
def room_for_descriptors(count: int) -> Iterator[None]:
    """Leave room for so many descriptors in this process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(open_descriptors())
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1 + count, limits[1]))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for descriptor in taken[len(taken) - count :]:
            os.close(descriptor)
        del taken[len(taken) - count :]
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)


@pytest.mark.parametrize("room", [0, 1])
def test_turns_that_lack_descriptors_say_so_and_leave_none(room: int) -> None:
    """Two are needed: of what wakes the coordinator, and of its alarm."""
    problem, realization, _ = tasks_of_example()

    async def play() -> None:
        async with staged(problem, realization) as stage:
            before = open_descriptors()
            with (
                room_for_descriptors(room),
                pytest.raises(RunError, match="cannot be watched: Too many open files"),
            ):
                stage.open_turns()
            assert open_descriptors() == before

    perform(play())


@pytest.mark.parametrize("scale", [1e9, 1e300])
def test_an_alarm_for_a_time_beyond_its_count_rings_in_an_hour(scale: float) -> None:
    problem, realization, ends = tasks_of_example()

    async def play() -> None:
        async with staged(problem, realization) as stage:
            await stage.report(*ends)
            assert 0.0 < stage.online.next_end < math.inf
            core = stage.turns.core
            core.reported = 0.0
            core.ahead = 0.0
            core.scale = scale
            now = this_host.monotonic()
            stage.turns.go_on(now, is_watched=False)
            assert core.due == now + 3600.0

    perform(play())


def test_an_alarm_wakes_for_what_is_due() -> None:
    """A fluid ends although nobody says anything, by the alarm alone."""
    problem, realization, ends = tasks_of_example()

    async def play() -> None:
        async with staged(problem, realization) as stage:
            await stage.report(*ends)
            core = stage.turns.core
            served = stage.online.next_end
            assert served < math.inf
            core.reported = 0.0
            core.ahead = 0.0
            core.start = this_host.monotonic() - served + 0.05
            stage.turns.go_on(this_host.monotonic(), is_watched=False)
            for _ in range(2000):
                await asyncio.sleep(0.01)
                if stage.online.next_end > served:
                    break
            assert stage.online.next_end > served

    perform(play())
