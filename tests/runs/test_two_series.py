"""Two series of lengths: distances by brute force, drift beside polyfit, outcomes."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.runs.intervals import Interval
from emu.runs.repeats import Agreement
from emu.runs.two_series import compare_lengths, distances, drift_of

SERIES = st.lists(st.floats(0.01, 100), min_size=1, max_size=12)
RNG = np.random.default_rng(7)


@given(values=SERIES, others=SERIES)
def test_distances_are_those_of_brute_force(
    values: list[float], others: list[float]
) -> None:
    """Rank by rank of as many copies, and value by value of the distributions."""
    area, height = distances(np.array(values), np.array(others))

    count = math.lcm(len(values), len(others))
    copies = np.repeat(np.sort(values), count // len(values))
    other_copies = np.repeat(np.sort(others), count // len(others))
    assert area == pytest.approx(np.abs(copies - other_copies).mean(), abs=1e-9)
    heights = [
        abs(
            sum(value <= limit for value in values) / len(values)
            - sum(other <= limit for other in others) / len(others)
        )
        for limit in values + others
    ]
    assert height == pytest.approx(max(heights))


@given(
    rows=st.lists(st.tuples(st.floats(1, 9), st.floats(1, 9)), min_size=3, max_size=30),
    more=st.integers(0, 3),
)
def test_drift_is_the_slope_of_the_difference(
    rows: list[tuple[float, float]], more: int
) -> None:
    measured, found = np.array(rows).T
    slope = np.polyfit(np.arange(len(rows)), found - measured, 1)[0]
    drift = drift_of(measured, np.append(found, [50.0] * more))
    assert drift is not None
    expected = slope * (len(rows) - 1) / measured.mean()
    assert drift.mean == pytest.approx(expected, abs=1e-9)


def test_a_drift_by_hand() -> None:
    """Differences 0, 1, 5: slope 2.5, what remains 0.5, -1, 0.5, t of one freedom."""
    drift = drift_of(np.array([10.0, 10.0, 10.0]), np.array([10.0, 11.0, 15.0]))
    assert drift is not None
    assert drift.mean == pytest.approx(0.5)
    assert drift.half == pytest.approx(12.706 * math.sqrt(1.5 / 2) * 2 / 10)
    assert drift_of(np.array([1.0, 2.0]), np.array([1.0, 2.0, 3.0])) is None


def test_rows_that_are_too_long_and_too_short_by_turns() -> None:
    likeness = compare_lengths([1.5, 0.5] * 10, [1.0] * 20)
    assert likeness.measured_quartiles == (0.5, 1.0, 1.5)
    assert likeness.quartiles == (1.0, 1.0, 1.0)
    assert likeness.median_error == 0
    assert likeness.apart == 0.5
    assert likeness.largest_gap == 0.5
    assert likeness.outcome(0.03) is Agreement.DIFFERS
    assert likeness.differences(0.03) == ["iterations are 50 % apart on average"]
    assert likeness.outcome(0.5) is Agreement.AGREES


def test_lengths_that_drift_differ_though_all_of_them_occur_in_both() -> None:
    falling = np.linspace(1.2, 0.8, 40)
    likeness = compare_lengths(falling[::-1].tolist(), falling.tolist())
    assert likeness.apart == pytest.approx(0, abs=1e-12)
    assert likeness.drift is not None
    assert likeness.drift.mean == pytest.approx(-0.8)
    assert likeness.outcome(0.03) is Agreement.DIFFERS
    assert likeness.differences(0.03)[0].startswith("lengths drift apart, by -80 %")


def test_draws_of_one_distribution_seldom_differ() -> None:
    """A wide one, so that few draws are far apart by chance alone."""
    outcomes = []
    for _ in range(60):
        measured, found = 1 + 0.2 * RNG.uniform(-1, 1, (2, 25))
        outcomes.append(
            compare_lengths(measured.tolist(), found.tolist()).outcome(0.01)
        )
    # Both tests miss 5 % of them.
    assert outcomes.count(Agreement.DIFFERS) <= 12
    assert Agreement.UNDECIDED in outcomes


def test_chance_divides_all_lengths_into_as_many_as_there_are() -> None:
    """Compare series of unequal lengths with the distances of all divisions."""
    measured = [1.0, 1.4, 2.5]
    found = [1.1, 1.2, 1.9, 2.2, 3.0, 3.9]
    lengths = np.array(measured + found)
    areas = []
    for places in combinations(range(9), 3):
        others = np.delete(lengths, places)
        area, _ = distances(lengths[[*places]], others)
        areas.append(area)
    likeness = compare_lengths(measured, found)
    assert likeness.chance is not None
    exact = np.percentile(areas, 95) / np.mean(measured)
    assert likeness.chance == pytest.approx(exact, rel=0.2)


def test_a_shift_beyond_chance_differs() -> None:
    measured = 1 + 0.02 * RNG.uniform(-1, 1, 40)
    likeness = compare_lengths(measured.tolist(), (1.1 * measured).tolist())
    assert likeness.median_error == pytest.approx(0.1)
    assert likeness.apart == pytest.approx(0.1)
    assert likeness.outcome(0.03) is Agreement.DIFFERS


def test_no_time_at_all() -> None:
    likeness = compare_lengths([0.0, 0.0], [0.0])
    assert likeness.outcome(0.03) is Agreement.AGREES
    likeness = compare_lengths([0.0, 0.0], [1.0])
    assert (likeness.apart, likeness.median_error) == (None, None)
    assert likeness.outcome(0.03) is Agreement.DIFFERS


def test_what_chance_makes_differs_by_no_chance() -> None:
    """Lengths as far apart as 5 % of all divisions are may be of one distribution."""
    likeness = compare_lengths([1.0, 2.0], [2.0, 3.5])
    assert likeness.apart is not None
    for chance, outcome in ((0.5, Agreement.DIFFERS), (1.0, Agreement.UNDECIDED)):
        judged = replace(likeness, chance=chance * likeness.apart)
        assert judged.outcome(0.03) is outcome
    # A drift as large as what it may be off by, or as the threshold, is none.
    drift = Interval(-0.25, 0.25, 9)
    for half, threshold, is_told in (
        (0.25, 0.125, False),
        (0.125, 0.25, False),
        (0.125, 0.125, True),
    ):
        drifting = replace(likeness, drift=replace(drift, half=half))
        lines = drifting.differences(threshold)
        assert any(line.startswith("lengths drift") for line in lines) == is_told


def test_medians_and_distances_differ_beyond_the_threshold() -> None:
    likeness = compare_lengths([1.0, 2.0, 3.0], [1.5, 2.5, 3.5])
    assert likeness.median_error == likeness.apart == 0.25
    assert likeness.differences(0.25) == []
    assert likeness.differences(0.24) == [
        "medians are +25 % apart",
        "iterations are 25 % apart on average",
    ]


def test_quartiles_are_those_of_a_hundred_steps() -> None:
    likeness = compare_lengths([*map(float, range(101))], [1.0])
    assert likeness.measured_quartiles == (25.0, 50.0, 75.0)
    assert likeness.drift is None


def test_what_chance_makes_is_drawn_alike_each_time() -> None:
    """200 divisions of a seed: the same two series are the same share apart."""
    measured = [1.0, 1.1, 1.3, 1.6, 2.0, 2.5]
    likeness = compare_lengths(measured, [1.05, 1.2, 1.45, 1.8, 2.3, 3.1, 4.0])
    assert likeness.chance == pytest.approx(0.5777443609022556, rel=1e-9)
