"""Means and their confidence intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from emu.units import format_ratio

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

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


def paired(
    values: Mapping[Draw, float], beside: Mapping[Draw, float]
) -> Interval | None:
    """Return the mean of value / other - 1 over what both know, with its interval.

    Of two ways to run the same draws, the difference of each draw varies much less than
    the draws do.

    Parameters
    ----------
    values, beside
        Makespan per draw (a seed), not negative.

    Returns
    -------
    Interval or None
        None when no draw is known of both.
    """
    shared = [draw for draw in values if draw in beside]
    apart = [
        values[draw] / beside[draw] - 1 if beside[draw] else float(values[draw] > 0)
        for draw in shared
    ]
    return interval(apart) if apart else None


def compared(
    values: Mapping[Draw, float], beside: Mapping[Draw, float]
) -> dict[str, Any]:
    """Return mean, interval and change of makespans by the names that JSON has."""
    spread, change = interval([*values.values()]), paired(values, beside)
    return {
        "makespan": spread.mean,
        "half": spread.half,
        "seeds": spread.count,
        "change": change.mean if change else None,
        "change_half": change.half if change else None,
        "tie": bool(change and change.tie),
    }


def paired_text(apart: Interval | None) -> str:
    """Return a paired difference in words: ``+2.1 ± 0.4 %``, or a tie within it."""
    if apart is None:
        return ""
    if not apart.half:
        return format_ratio(apart.mean)
    text = f"{100 * apart.mean:+.2g} ± {100 * apart.half:.2g} %"
    return f"tie ({text})" if apart.tie else text
