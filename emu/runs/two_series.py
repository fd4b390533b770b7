"""Lengths of iterations of two runs, by distribution and along the runs.

Means hide what their values do: rows that are 50 % too long and too short by turns have
the mean of a steady run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emu.array_types import Floats
from emu.runs.intervals import Interval, student_quantile
from emu.runs.repeats import Agreement
from emu.runs.result import relative_error
from emu.units import format_ratio

#: Divisions of all lengths into two series, drawn to see what chance makes of one.
_DRAWS = 200


@dataclass(frozen=True)
class Likeness:
    """Outcome of a comparison; shares are of the mean of what was measured."""

    measured_quartiles: tuple[float, float, float]
    """First, median and third, seconds."""
    quartiles: tuple[float, float, float]
    """Those of the run."""
    median_error: float | None
    """Error of the run's median against the measured one, None where that is 0."""
    apart: float | None
    """Mean distance of iterations, each from that of its rank in the other series:
    Wasserstein's. None where the measured mean is 0."""
    chance: float | None
    """Distance that two series exceed in 5 % of all divisions of the same lengths."""
    largest_gap: float
    """Largest distance of the two distributions: of Kolmogorov and Smirnov, 0 to 1."""
    drift: Interval | None
    """Change, from beginning to end, of the run's lengths less those that were
    measured, with a 95 % interval; None of fewer than three rows."""

    def outcome(self, threshold: float) -> Agreement:
        """Return whether lengths differ by more than ``threshold``, beyond chance."""
        if not self.differences(threshold):
            return Agreement.AGREES
        if self._drifts(threshold) or self._is_beyond_chance():
            return Agreement.DIFFERS
        return Agreement.UNDECIDED

    def _is_beyond_chance(self) -> bool:
        if self.apart is None or self.chance is None:
            return True
        return self.apart > self.chance

    def differences(self, threshold: float) -> list[str]:
        """Return what differs by more than ``threshold``, in words; empty: nothing."""
        lines = []
        if self.drift is not None and self._drifts(threshold):
            moved = format_ratio(self.drift.mean)
            lines.append(f"lengths drift apart, by {moved} from beginning to end")
        error = self.median_error
        if error is not None and abs(error) > threshold:
            distance = format_ratio(error)
            lines.append(f"medians are {distance} apart")

        if self.apart is None:
            if self.quartiles != self.measured_quartiles:
                lines.append("iterations measured elsewhere take no time")
        elif self.apart > threshold:
            percent = 100 * self.apart
            lines.append(f"iterations are {percent:.3g} % apart on average")
        return lines

    def _drifts(self, threshold: float) -> bool:
        drift = self.drift
        if drift is None:
            return False
        least = max(threshold, drift.half)
        return abs(drift.mean) > least


def compare_lengths(measured: Sequence[float], lengths: Sequence[float]) -> Likeness:
    """Return how alike two series of seconds are, each of one or more."""
    expected = np.array(measured)
    found = np.array(lengths)
    expected_quartiles = _quartiles(expected)
    quartiles = _quartiles(found)
    _, expected_median, _ = expected_quartiles
    _, median, _ = quartiles
    median_error = None
    if expected_median:
        median_error = relative_error(median, expected_median)

    mean = float(expected.mean())
    seconds_apart, largest_gap = distances(expected, found)
    apart = None
    chance = None
    drift = None
    if mean:
        apart = seconds_apart / mean
        distance = _distance_by_chance(expected, found)
        chance = distance / mean
        drift = drift_of(expected, found)
    return Likeness(
        measured_quartiles=expected_quartiles,
        quartiles=quartiles,
        median_error=median_error,
        apart=apart,
        chance=chance,
        largest_gap=largest_gap,
        drift=drift,
    )


def _quartiles(seconds: Floats) -> tuple[float, float, float]:
    first, median, third = np.percentile(seconds, [25, 50, 75]).tolist()
    return first, median, third


def distances(values: Floats, others: Floats) -> tuple[float, float]:
    """Return how far two samples are apart, exactly.

    That is the area between their distribution functions, in the unit of the values
    (Wasserstein's distance: the mean over all ranks), and the largest height between
    them (the statistic of Kolmogorov and Smirnov).
    """
    steps = np.sort(np.append(values, others))
    share = _shares_up_to(steps, values)
    other_share = _shares_up_to(steps, others)
    heights = np.abs(share - other_share)
    widths = np.diff(steps)
    # Behind the last value both functions are 1.
    area = heights[:-1] @ widths
    return float(area), float(heights.max())


def _shares_up_to(steps: Floats, values: Floats) -> Floats:
    """Return the share of the values that are no larger than each step."""
    in_order = np.sort(values)
    counts = np.searchsorted(in_order, steps, side="right")
    return counts / values.size


def _distance_by_chance(values: Floats, others: Floats) -> float:
    """Return the area of `distances` that 5 % of the divisions of all values exceed."""
    rng = np.random.default_rng(0)
    steps = np.sort(np.append(values, others))
    widths = np.diff(steps)
    is_other = np.arange(steps.size) < others.size
    counts = np.arange(1, steps.size)

    areas = []
    for _ in range(_DRAWS):
        division = rng.permutation(is_other)
        other_counts = np.cumsum(division)[:-1]
        other_share = other_counts / others.size
        share = (counts - other_counts) / values.size
        heights = np.abs(other_share - share)
        area = float(heights @ widths)
        areas.append(area)
    return float(np.percentile(areas, 95))


def drift_of(measured: Floats, found: Floats) -> Interval | None:
    """Return how far ``found`` moves from ``measured`` along them, as a share of it.

    It is the slope of the difference by least squares, times the length of the shorter
    series; its interval supposes that what remains is independent from row to row. None
    of fewer than three rows.
    """
    count = min(measured.size, found.size)
    if count < 3:
        return None
    differences = found[:count] - measured[:count]
    last = count - 1
    centred = np.arange(count) - last / 2
    squares = float(centred @ centred)
    slope = float(centred @ differences) / squares
    remainder = differences - differences.mean() - slope * centred
    freedom = count - 2
    variance = float(remainder @ remainder) / freedom
    error = math.sqrt(variance / squares)

    length = last / float(measured.mean())
    half = student_quantile(freedom) * error * length
    return Interval(
        mean=slope * length,
        half=half,
        count=count,
    )
