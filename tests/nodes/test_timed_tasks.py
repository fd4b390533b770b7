"""Timed tasks of the core, without sockets: when they begin, end, and wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from emu.emulation.wire.messages import TaskEnded
from emu.emulation.wire.notes import unpack_ends
from emu.host.this_host import this_host
from emu.prediction.core import ffi, lib, pointer
from emu.problem.changes import end_of_work

SCALE = 2.0  # wall seconds per second of the run
TASK = 5  # position in the job
ITERATIONS = 4


@dataclass
class Bench:
    """One task with inputs, which begins and ends in memory alone."""

    lags: Sequence[int] = ()
    latest: bool = False
    latency: float = 0.0
    times: Sequence[float] = (0.5, 0.25, 0.75, 1.0)
    steps: Sequence[float] = (0.0,)
    shares: Sequence[float] = (1.0,)
    notes_room: int = 4096
    kept: list[NDArray[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = this_host.monotonic()
        self.memory = ffi.new("PayloadMemory *", {"limit": 1 << 30})
        self.pacing = ffi.new(
            "Pacing *",
            {
                "started": True,
                "start": self.began,
                "time_scale": SCALE,
                "byte_scale": 1.0,
                "due": math.inf,
                "alarm": -1,
            },
        )
        self.inlets = ffi.new("Inlet[]", max(len(self.lags), 1))
        for place, lag in enumerate(self.lags):
            self._fill_inlet(self.inlets[place], 10 + place, lag)
        self.task = ffi.new("TimedTask[]", 1)
        self._fill_task(self.task[0])
        self.notes = np.zeros(self.notes_room, np.uint8)
        self.core = ffi.new(
            "TimedProcess *",
            {
                "epoll": -1,
                "due": math.inf,
                "pacing": self.pacing,
                "task": self.task,
                "tasks": 1,
                "inlet": self.inlets,
                "inlets": len(self.lags),
                "memory": self.memory,
                "notes": pointer(self.notes),
                "notes_room": self.notes_room,
            },
        )

    def _keep(self, values: object, dtype: type[Any] = np.float64) -> Any:
        array = np.array(values, dtype)
        self.kept.append(array)
        return pointer(array)

    def _fill_inlet(self, inlet: Any, edge: int, lag: int) -> None:
        inlet.edge = edge
        inlet.lag = lag
        inlet.latest = self.latest
        inlet.latency = self.latency
        inlet.sent = ITERATIONS
        inlet.arrived = self._keep(np.full(ITERATIONS, np.nan))
        inlet.volume = self._keep(np.zeros(ITERATIONS), np.int64)
        inlet.waits = self._keep(np.zeros(ITERATIONS), np.bool_)
        inlet.newest = -1
        inlet.needed = -1

    def _fill_task(self, task: Any) -> None:
        task.task = TASK
        task.iterations = ITERATIONS
        task.time = self._keep(self.times)
        task.inlets = len(self.lags)
        task.since = math.nan
        task.next = math.inf
        task.speeds.count = len(self.steps)
        task.speeds.start = self._keep([0, len(self.steps)], np.int64)
        task.speeds.time = self._keep(self.steps)
        task.speeds.share = self._keep(self.shares)

    def order(
        self,
        iteration: int,
        start: float = -1.0,
        reads: Sequence[tuple[int, int]] = (),
    ) -> bool:
        """Order an iteration, by default one that is to have begun."""
        rows = np.array(reads, np.int32).reshape(-1)
        pairs = pointer(rows)
        return bool(lib.order_task(self.core, 0, iteration, start, pairs, len(reads)))

    def deliver(self, place: int, iteration: int, volume: int = 7) -> float:
        """Have a payload come now; return the wall time of its last byte."""
        now = this_host.monotonic()
        inlet = ffi.addressof(self.inlets, place)
        is_shaped = False
        lib.deliver_payload(self.core, inlet, iteration, now, volume, is_shaped)
        return now

    def turn(self) -> list[TaskEnded]:
        """Return the ends of a turn."""
        lib.take_turn(self.core)
        notes = self.notes[: self.core.notes_size].tobytes()
        self.core.notes_size = 0
        ends = [*unpack_ends(notes)]
        return [end for end in ends if isinstance(end, TaskEnded)]


def test_ends_are_reported_ahead_of_their_times() -> None:
    bench = Bench(times=(100.0, 0.0, 0.0, 0.0))
    assert bench.order(0, start=-1.0)
    (end,) = bench.turn()
    assert (end.task, end.iteration, end.start, end.end) == (TASK, 0, -1.0, 99.0)
    assert end.late == 0.0
    assert -1.0 < end.began < 99.0


def test_what_is_done_too_late_says_by_how_much() -> None:
    bench = Bench(times=(0.25, 0.0, 0.0, 0.0))
    assert bench.order(0, start=-9.0)
    (end,) = bench.turn()
    assert end.end == pytest.approx(-8.75 + end.late, abs=1e-9)
    assert end.late > 8.0


def test_a_start_to_come_is_waited_for() -> None:
    bench = Bench()
    assert bench.order(0, start=1000.0)
    assert bench.turn() == []
    assert bench.core.due == pytest.approx(bench.began + 1000.0 * SCALE)
    assert math.isnan(bench.task[0].since)  # not for an input


def test_inputs_are_those_of_their_lags() -> None:
    """The first edge brings iteration n - 1, the second n - 2."""
    bench = Bench(lags=(1, 2))
    assert bench.order(0)
    assert len(bench.turn()) == 1  # nothing is that old
    assert bench.order(1)
    assert bench.turn() == []
    assert not math.isnan(bench.task[0].since)
    bench.deliver(1, 0)  # not the one that it needs
    assert bench.turn() == []
    bench.deliver(0, 0)
    assert [end.iteration for end in bench.turn()] == [1]
    assert bench.core.waiting == 1  # for iteration 2
    assert bench.order(2)
    assert bench.turn() == []
    bench.deliver(0, 1)
    assert [end.iteration for end in bench.turn()] == [2]
    assert bench.core.waiting == 0
    assert (bench.core.most_waiting, bench.core.most_waiting_bytes) == (1, 7)


def test_an_input_is_held_back_until_it_has_landed() -> None:
    """Its latency is of the run, its arrival of the wall."""
    bench = Bench(lags=(0,), latency=500.0)
    assert bench.order(0)
    came = bench.deliver(0, 0)
    assert bench.turn() == []
    assert bench.core.due == pytest.approx(came + 500.0 * SCALE)
    assert math.isnan(bench.task[0].since)  # no deadline is for a latency
    bench.inlets[0].latency = 0.0
    bench.task[0].next = -math.inf
    assert len(bench.turn()) == 1


@pytest.mark.parametrize(
    ("iteration", "reads"),
    [(1, []), (0, [(99, 0)]), (0, [(10, ITERATIONS)]), (0, [(10, -2)])],
)
def test_what_cannot_be_next_is_refused(
    iteration: int,
    reads: list[tuple[int, int]],
) -> None:
    bench = Bench(lags=(1,), latest=True)
    assert not bench.order(iteration, reads=reads)
    assert not bench.task[0].ordered


def test_an_order_comes_once_and_none_after_the_last() -> None:
    bench = Bench()
    for iteration in range(ITERATIONS):
        assert bench.order(iteration)
        assert not bench.order(iteration)
        assert len(bench.turn()) == 1
    assert not bench.order(ITERATIONS)


def test_the_newest_is_kept_and_older_ones_are_given_back() -> None:
    """Payloads have 7, 70 and 700 bytes; memory comes by classes of 4096."""
    bench = Bench(lags=(1,), latest=True)
    bench.inlets[0].receiver = ffi.new("Receiver *")
    for iteration, volume in enumerate((7, 70, 700)):
        assert lib.lend(bench.memory, volume)
        bench.deliver(0, iteration, volume)
    classes = bench.memory.in_use // 3

    assert bench.order(0, reads=[(10, -1)])
    assert len(bench.turn()) == 1
    assert bench.core.waiting == 3
    assert bench.order(1, reads=[(10, 1)])
    assert len(bench.turn()) == 1
    assert bench.core.waiting == 1  # the third
    assert bench.memory.in_use == 2 * classes  # it, and the one that was read
    assert bench.order(2, reads=[(10, 1)])  # again
    assert len(bench.turn()) == 1
    assert bench.order(3, reads=[(10, 2)])
    assert len(bench.turn()) == 1
    assert bench.core.waiting == 0
    assert bench.core.waiting_bytes == 0
    assert bench.memory.in_use == 0  # after the last iteration


def test_notes_without_room_wait_for_the_next_turn() -> None:
    bench = Bench(notes_room=63)
    assert bench.order(0)
    assert bench.turn() == []
    assert bench.core.is_full
    assert bench.task[0].ended == 0
    bench.core.notes_room = 64
    bench.notes = np.zeros(64, np.uint8)
    bench.core.notes = pointer(bench.notes)
    assert len(bench.turn()) == 1
    assert not bench.core.is_full


@st.composite
def slowdowns(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    """Return times from 0 on, and shares, the last of which is not 0."""
    gaps = draw(st.lists(st.floats(0.125, 3.0), max_size=4))
    times = np.cumsum([0.0, *gaps]).tolist()
    shares = draw(
        st.lists(
            st.sampled_from([0.0, 0.25, 0.5, 1.0]),
            min_size=len(gaps),
            max_size=len(gaps),
        )
    )
    return times, [*shares, draw(st.sampled_from([0.5, 1.0]))]


@given(slowdowns(), st.floats(0.0, 8.0), st.floats(100.0, 108.0))
def test_slow_machines_end_as_the_problem_says(
    steps: tuple[list[float], list[float]],
    start: float,
    work: float,
) -> None:
    times, shares = steps
    bench = Bench(times=(work, 0.0, 0.0, 0.0), steps=times, shares=shares)
    bench.pacing.start = this_host.monotonic() - 10.0 * SCALE
    assert bench.order(0, start=start)
    (end,) = bench.turn()
    assert end.end == end_of_work(times, shares, start, work)
