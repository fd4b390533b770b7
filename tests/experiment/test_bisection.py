"""Bisection by ratios: where it stops, and which neighbours it returns."""

from __future__ import annotations

import math

import pytest

from emu.experiment.bisection import CLOSE, bisect, middle


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(3, 4, None), (3, 5, 4), (1, 3, 2), (4, 100, 20), (5, 46, 15), (7, 7, None)],
)
def test_whole_numbers_are_parted_near_the_root_of_their_product(
    low: int, high: int, expected: int | None
) -> None:
    assert middle(low, high, whole=True) == expected


def test_numbers_are_neighbours_by_their_ratio() -> None:
    """Numbers are compared by their ratio, whether they are small or large."""
    for low in (1e-6, 1.0, 1e6):
        assert middle(low, low * (1 + CLOSE), whole=False) is None
        high = low * 1.04
        assert middle(low, high, whole=False) == math.sqrt(low * high)


@pytest.mark.parametrize("last", [1, 2, 50, 98, 99])
def test_neighbours_of_whole_numbers_part_what_is_low_from_what_is_not(
    last: int,
) -> None:
    asked: list[float] = []

    def is_low(value: float) -> bool:
        asked.append(value)
        return value <= last

    assert bisect(1, 100, is_low, whole=True) == (last, last + 1)
    assert len({*asked}) == len(asked) < 14


def test_neighbours_of_numbers_are_around_the_change() -> None:
    low, high = bisect(0.5, 128.0, lambda value: value < 3.0)

    assert low < 3.0 <= high
    assert high / low <= 1 + CLOSE
