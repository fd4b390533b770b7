"""Ends come in order, none before its time, and none behind what has been heard of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.coordinator.event_queue import EventQueue
from emu.coordinator.scheduler_driver import event_time
from emu.errors import NodeMisbehaved
from emu.wire.messages import FlowEnded, RunTask, TaskEnded


def task(end: float) -> TaskEnded:
    """Return the end of a task."""
    return TaskEnded(0, 0, 0.0, end, [], [], 0.0, 0.0, 0.0, {})


def flow(time: float) -> FlowEnded:
    """Return the end of a flow."""
    return FlowEnded(0, 0, time, 1.0)


def test_an_end_told_ahead_waits_for_its_time() -> None:
    event_queue = EventQueue()
    event_queue.add([task(5.0)], now=1.0)

    assert event_queue.next == 5.0
    assert event_queue.due(4.9) == []
    assert event_queue.due(5.0) == [task(5.0)]
    assert event_queue.next == math.inf


def test_what_has_passed_brings_all_that_was_before_it() -> None:
    event_queue = EventQueue()
    event_queue.add([task(2.0), task(4.0)], now=1.0)
    event_queue.add([flow(3.0)], now=3.5)

    assert event_queue.heard(1.5) == 3.0
    assert event_queue.heard(3.2) == 3.2
    assert event_queue.due(event_queue.heard(1.5)) == [task(2.0), flow(3.0)]
    assert event_queue.due(3.9) == []


def test_nothing_is_unknown_before_the_least_time_of_what_runs_untold() -> None:
    event_queue = EventQueue(np.array([[2.0, 3.0], [9.0, 9.0]]))
    assert event_queue.lookahead_bound == math.inf
    event_queue.begun(RunTask(0, 0, 1.0))
    event_queue.begun(RunTask(1, 0, 1.0))
    assert event_queue.lookahead_bound == 3.0
    event_queue.add([task(3.0)], now=1.5)
    assert event_queue.lookahead_bound == 10.0
    event_queue.begun(RunTask(0, 1, 3.0))
    assert event_queue.lookahead_bound == 6.0


def test_without_profiled_times_a_task_may_end_at_any_time() -> None:
    event_queue = EventQueue()
    event_queue.begun(RunTask(0, 0, 1.0))
    assert event_queue.lookahead_bound == -math.inf
    event_queue.add([task(3.0)], now=3.5)
    assert event_queue.lookahead_bound == math.inf


def test_ends_of_one_time_keep_the_order_in_which_they_were_told() -> None:
    event_queue = EventQueue()
    event_queue.add([flow(2.0), task(2.0)], now=1.0)

    assert event_queue.due(2.0) == [flow(2.0), task(2.0)]


@pytest.mark.parametrize("time", [math.nan, math.inf])
def test_a_time_that_is_none_is_refused(time: float) -> None:
    with pytest.raises(NodeMisbehaved, match="impossible"):
        EventQueue().add([flow(time)], now=1.0)


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.floats(-2, 3), st.floats(0, 0.5)), max_size=30
    )
)
def test_every_end_is_given_once_in_order_and_not_before_its_time(
    told: list[tuple[float, float, float]],
) -> None:
    """Time goes on by some, an end ahead of or behind it is told, some is asked for."""
    event_queue, now, given_ends, expected = EventQueue(), 0.0, [], []
    for step, ahead, grace in told:
        now += step
        expected.append(flow(now + ahead))
        event_queue.add(expected[-1:], now)
        due = event_queue.due(event_queue.heard(now - grace))
        times = [event_time(end) for end in due]
        assert times == sorted(times)
        assert all(time <= now for time in times)
        assert event_queue.next > now - grace
        given_ends += due
    given_ends += event_queue.due(math.inf)

    assert sorted(map(event_time, given_ends)) == sorted(map(event_time, expected))
