"""Means with their 95 % intervals, and differences draw by draw."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from emu.runs.result import relative_error

Draw = TypeVar("Draw", bound="Hashable")

#: Two-sided 95 % points of Student's t for 1, 2, ... degrees of freedom, then normal.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Interval:
    """A mean and half the width of its 95 % confidence interval, 0 for one value."""

    mean: float
    half: float
    count: int

    @property
    def tie(self) -> bool:
        """True where a difference of several values may as well be none."""
        return self.count > 1 and abs(self.mean) <= self.half


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of ``values`` and its 95 % interval.

    Student's t, which supposes that the values are independent and near to normal.
    A ValueError where there are none.
    """
    count = len(values)
    if not count:
        raise ValueError("no values, no mean")
    mean = float(np.mean(values))
    # Half of 0 is no certainty: `tie` asks for the count as well.
    if count == 1:
        return Interval(mean, 0.0, 1)
    quantile = student_quantile(count - 1)
    # Over one fewer than there are: the mean is of the same values, and near them.
    deviation = float(np.std(values, ddof=1))
    half = quantile * deviation / math.sqrt(count)
    return Interval(mean, half, count)


def student_quantile(freedom: int) -> float:
    """Return the two-sided 95 % point of Student's t of 1 degree of freedom or more."""
    # Behind the table the normal quantile is short by 11 % at most, at 11 degrees.
    if freedom > len(_T95):
        return 1.96
    return _T95[freedom - 1]


def pair(values: Mapping[Draw, float], beside: Mapping[Draw, float]) -> Interval | None:
    """Return the mean of value / other - 1 over what both know, with its interval.

    Of two ways to run the same draws, the difference of each draw varies much less than
    the draws do.

    Makespans are by draw (a seed), not negative. None when no draw is known of both.
    """
    errors = []
    for draw, value in values.items():
        if draw in beside:
            error = relative_error(value, beside[draw])
            errors.append(error)
    if not errors:
        return None
    return interval(errors)
