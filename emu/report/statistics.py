"""Means and their confidence intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Two-sided 95 % points of Student's t for 1, 2, ... degrees of freedom, then normal.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Interval:
    """A mean and half the width of its 95 % confidence interval, 0 for one value."""

    mean: float
    half: float
    count: int


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of ``values`` and its 95 % interval.

    Student's t, which supposes that the values are independent and near to normal.

    Raises
    ------
    ValueError
        When there are no values.
    """
    count = len(values)
    if not count:
        raise ValueError("no values, no mean")
    mean = float(np.mean(values))
    if count == 1:
        return Interval(mean, 0.0, 1)
    quantile = _T95[count - 2] if count - 2 < len(_T95) else 1.96
    half = quantile * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Interval(mean, half, count)
