"""Means and their intervals, of values whose spread is known."""

from __future__ import annotations

import math

import pytest

from emu.runs.intervals import Interval, interval, pair, student_quantile


def test_an_interval_is_of_the_spread_of_its_values() -> None:
    """The mean of 1, 3 and 8 is 4, their variance (9 + 1 + 16) / 2 = 13."""
    found = interval([1.0, 8.0, 3.0])
    assert (found.mean, found.count) == (4.0, 3)
    assert found.half == pytest.approx(4.303 * math.sqrt(13 / 3))
    assert interval([7.0]) == Interval(7.0, 0.0, 1)
    with pytest.raises(ValueError, match="no values, no mean"):
        interval([])


def test_points_of_student_are_those_of_tables() -> None:
    points = [student_quantile(freedom) for freedom in (1, 2, 9, 10, 11, 500)]
    assert points == [12.706, 4.303, 2.262, 2.228, 1.96, 1.96]


def test_a_difference_of_several_values_within_its_interval_is_a_tie() -> None:
    assert Interval(-2.0, 2.0, 5).tie
    assert not Interval(-2.1, 2.0, 5).tie
    assert not Interval(2.1, 2.0, 5).tie
    assert not Interval(0.0, 0.0, 1).tie
    assert Interval(0.0, 0.0, 2).tie


def test_draws_are_compared_where_both_are_known() -> None:
    """Twice and half as long: 100 % more, and 50 % less."""
    found = pair({1: 4.0, 2: 3.0, 5: 9.0}, {2: 6.0, 1: 2.0, 7: 1.0})
    assert found is not None
    assert (found.mean, found.count) == (0.25, 2)
    assert pair({1: 4.0}, {2: 6.0}) is None
