"""Capacities and speeds that change, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from emu.problem.changes import (
    CapacityChange,
    CapacitySteps,
    SpeedChange,
    SpeedSteps,
    end_of_work,
)

#: Link x has 8 B/s, 2 from 1 s on, none from 3 s, 5 from 4 s; y has 3, none from 2 s.
CHANGES = [
    CapacityChange(3.0, "x", 0.0),
    CapacityChange(1.0, "x", 2.0),
    CapacityChange(2.0, "y", 0.0),
    CapacityChange(4.0, "x", 5.0),
]
X, Y, Z = range(3)


def steps() -> CapacitySteps:
    """Return the capacities of three links, of which the last stays as it is."""
    ports = {"x": X, "y": Y, "z": Z}
    return CapacitySteps(np.array([8.0, 3.0, 7.0]), CHANGES, ports)


def test_rows_go_by_time_however_changes_are_listed() -> None:
    assert steps().rows.tolist() == [[1, X, 2], [2, Y, 0], [3, X, 0], [4, X, 5]]
    times, capacity = steps().of(X)
    assert times.tolist() == [0, 1, 3, 4]
    assert capacity.tolist() == [8, 2, 0, 5]


def test_a_change_loses_what_its_link_had_until_then() -> None:
    losses = [[1, X, 6], [2, Y, 3], [3, X, 2], [4, X, -5]]
    assert steps().losses.tolist() == losses


def test_a_link_has_its_most_at_first_or_later_and_may_stay_cut() -> None:
    assert steps().most.tolist() == [8.0, 3.0, 7.0]
    assert steps().cut_for_good == [Y]


def test_a_change_of_the_same_instant_is_made_but_for_rounding() -> None:
    """A ten-millionth of a second sooner it is not made yet, 1e-13 s sooner it is."""
    before = 1.0 - np.array([1e-7, 1e-13, 0.0, -0.5])
    assert steps().at(X, before).tolist() == [8, 2, 2, 2]
    assert steps().at(X, np.array([-1.0])).tolist() == [8]


def test_bytes_are_those_that_fit_by_then() -> None:
    """By 1 s 8 B, by 3 s 4 more, none till 4 s, then 5 a second."""
    times = np.array([-0.5, 0.0, 0.5, 1.0, 2.0, 3.5, 4.0, 6.0])
    assert steps().carry(X, times).tolist() == [-4, 0, 4, 8, 10, 12, 12, 22]


@pytest.mark.parametrize(
    ("port", "volume", "seconds"),
    [
        (X, 0.0, 0.0),
        (X, 4.0, 0.5),
        (X, 8.0, 1.0),
        (X, 10.0, 2.0),
        # As the link is cut it has carried 12 B, and goes on a second later.
        (X, 12.0, 3.0),
        (X, 22.0, 6.0),
        (Y, 6.0, 2.0),
        (Y, 6.5, math.inf),
        (Z, 21.0, 3.0),
    ],
)
def test_a_volume_has_been_carried_when_its_last_byte_has(
    port: int, volume: float, seconds: float
) -> None:
    assert steps().when(port, volume) == seconds


@pytest.mark.parametrize(
    ("start", "work", "end"),
    [
        (0.0, 0.0, 0.0),
        (0.5, 0.25, 0.75),
        # A second at full speed, then one of half of it, a pause, and half again.
        (0.0, 1.5, 2.0),
        (0.0, 2.0, 4.0),
        (1.0, 0.75, 3.5),
        (2.0, 0.25, 3.5),
        (5.0, 1.0, 7.0),
        # What is done as the machine stops, but for rounding, is done.
        (0.0, 1.5 + 1e-13, 2.0),
    ],
)
def test_work_waits_while_its_machine_stands_still(
    start: float, work: float, end: float
) -> None:
    found = end_of_work([0.0, 1.0, 2.0, 3.0], [1.0, 0.5, 0.0, 0.5], start, work)
    assert found == pytest.approx(end, abs=1e-9)


def test_work_on_a_machine_that_stops_for_good_never_ends() -> None:
    assert end_of_work([0.0, 2.0], [1.0, 0.0], 1.0, 2.0) == math.inf
    assert end_of_work([0.0, 2.0], [1.0, 0.0], 1.0, 1.0) == 2.0


def test_a_machine_does_what_its_share_allows() -> None:
    """Half of its speed from 1 s on, none from 2 s, all from 4 s; the other always."""
    changes = [
        SpeedChange(4.0, "a", 1.0),
        SpeedChange(1.0, "a", 0.5),
        SpeedChange(2.0, "a", 0.0),
    ]
    speeds = SpeedSteps(changes, {"a": 0, "b": 1})
    begin, end = np.array([0.0, 1.5, 2.5]), np.array([1.0, 3.0, 5.0])

    assert speeds.of(0) == ([0, 1, 2, 4], [1, 0.5, 0, 1])
    assert speeds.work(0, begin, end).tolist() == [1.0, 0.25, 1.0]
    assert speeds.work(1, begin, end).tolist() == [1.0, 1.5, 2.5]
    first, times, shares = speeds.flat
    assert first.tolist() == [0, 4, 5]
    assert times.tolist() == [0, 1, 2, 4, 0]
    assert shares.tolist() == [1, 0.5, 0, 1, 1]

    with pytest.raises(ValueError, match=r"a stands still from 4.0 s on for good"):
        SpeedSteps([SpeedChange(4.0, "a", 0.0)], {"a": 0})
