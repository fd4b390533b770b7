"""Several runs of one scenario: where a further one lies, groups, and the outcome."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.prediction.simulation import simulate
from emu.runs.repeats import (
    Agreement,
    Repeats,
    RunFigures,
    further,
    iteration_lengths,
    modes,
    spread_of_iterations,
)
from emu.testing import two_machine_example

SECONDS = st.floats(0.01, 100.0)


def repeats(*makespans: float, prediction: float | None = 1.0) -> Repeats:
    runs = []
    for number, makespan in enumerate(makespans):
        error = None if prediction is None else makespan / prediction - 1.0
        run = RunFigures(f"runs/{number}", makespan, error, "trusted", (makespan,))
        runs.append(run)
    return Repeats(tuple(runs), threshold=0.03)


def test_a_further_draw_lies_in_the_interval_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(4000):
        *seen, last = rng.normal(10.0, 0.3, size=4)
        span = further(seen)
        held += span.low <= last <= span.high
    assert held / 4000 == pytest.approx(0.95, abs=0.012)


def test_an_interval_by_hand() -> None:
    # Of 1, 2, 3 the deviation is 1, t of two degrees 4.303, and sqrt(1 + 1/3) 1.1547.
    span = further([1.0, 2.0, 3.0])
    assert span.low == pytest.approx(2 - 4.303 * 1.1547, abs=1e-3)
    assert span.high == pytest.approx(2 + 4.303 * 1.1547, abs=1e-3)


def test_one_draw_says_nothing_of_a_further_one() -> None:
    assert further([3.0]).half == math.inf
    assert repeats(1.001).outcome is Agreement.ONE_DRAW
    assert repeats(1.001).to_json()["further_error"] == {"low": None, "high": None}


@pytest.mark.parametrize(
    ("makespans", "outcome"),
    [
        ((1.001, 1.002, 1.003), Agreement.AGREES),
        ((1.10, 1.101, 1.102), Agreement.DIFFERS),
        ((0.90, 0.901, 0.902), Agreement.DIFFERS),
        # Each alone agrees with 3 %; a further one may not.
        ((0.99, 1.0, 1.02), Agreement.UNDECIDED),
        # Two of three agree: the case of the shuffle, +1.3, +2.8, +17 %.
        ((1.013, 1.028, 1.17), Agreement.UNDECIDED),
    ],
)
def test_the_outcome_is_that_of_a_further_run(
    makespans: tuple[float, ...], outcome: Agreement
) -> None:
    assert repeats(*makespans).outcome is outcome


def test_repeats_end_once_the_interval_is_narrow() -> None:
    assert not repeats(1.0).is_decided
    assert repeats(1.0, 1.0001, 1.0002).is_decided
    assert not repeats(1.013, 1.028, 1.17).is_decided
    assert repeats(1.0, 1.0001, 1.0002, prediction=None).is_decided
    assert repeats(1.0, 2.0, 3.0, prediction=None).outcome is Agreement.NOT_JUDGED
    # As a share: 0.02 s of 100 are as narrow as 0.0002 of one.
    assert repeats(100.0, 100.01, 100.02, prediction=None).is_decided


def test_the_median_and_not_the_mean_stands_for_the_runs() -> None:
    found = repeats(1.0, 1.01, 1.9)
    assert found.makespan == 1.01
    assert found.error == pytest.approx(0.01)


def test_two_states_are_told_apart() -> None:
    low = [0.512, 0.513, 0.511]
    high = [0.562, 0.563]
    assert modes([*high, *low]) == [sorted(low), sorted(high)]
    assert modes([0.51, 0.561, 0.511, 0.56]) == [[0.51, 0.511], [0.56, 0.561]]
    # One value far off is an accident, and three values no groups.
    assert len(modes([0.51, 0.511, 0.512, 0.9])) == 1
    assert len(modes([0.51, 0.56, 0.561])) == 1
    assert len(modes([1.0, 1.1, 1.2, 1.3])) == 1
    # The wider of two groups decides, whichever it is.
    for values in ([1.0, 1.01, 3.0, 4.0], [1.0, 2.0, 4.0, 4.01]):
        assert modes(values) == [values]


@given(st.lists(SECONDS, min_size=1, max_size=12))
def test_groups_hold_every_value_in_order(values: list[float]) -> None:
    groups = modes(values)
    assert [value for group in groups for value in group] == sorted(values)


@given(st.lists(SECONDS, min_size=2, max_size=8), st.floats(0.1, 10.0))
def test_the_interval_scales_with_values(values: list[float], factor: float) -> None:
    span = further(values)
    scaled = further([factor * value for value in values])
    assert scaled.low == pytest.approx(factor * span.low, rel=1e-6, abs=1e-9)
    assert scaled.high == pytest.approx(factor * span.high, rel=1e-6, abs=1e-9)


def test_the_spread_of_one_run_is_that_of_its_iterations() -> None:
    rng = np.random.default_rng(3)
    simulated = np.full(50, 0.1)
    ends = (simulated + rng.normal(0, 0.004, (2000, 50))).sum(axis=1)
    run = simulated + rng.normal(0, 0.004, 50)
    spread = spread_of_iterations(run, simulated)
    assert spread is not None
    # Half of a 95 % interval of the difference of two such runs.
    apart = np.abs(np.diff(ends))
    assert spread * 5.0 == pytest.approx(np.quantile(apart, 0.95), rel=0.3)


def test_few_iterations_suggest_no_spread() -> None:
    assert spread_of_iterations(np.array([0.1, 0.2]), np.array([0.1, 0.1])) is None
    assert spread_of_iterations(np.zeros(5), np.zeros(5)) is None
    # As late in every iteration: all share it, and no spread shows it.
    steady = spread_of_iterations(np.full(9, 0.12), np.full(9, 0.1))
    assert steady == pytest.approx(0.0, abs=1e-12)


def test_iterations_that_all_runs_have_are_in_the_table() -> None:
    lengths = ((1.0, 2.0, 9.0), (3.0, 4.0), (2.0, 6.0, 9.0, 9.0))
    runs = tuple(
        RunFigures(f"runs/{number}", sum(seconds), None, "trusted", seconds)
        for number, seconds in enumerate(lengths)
    )
    table = Repeats(runs, threshold=0.03).iteration_table()
    assert [row["median"] for row in table] == [2.0, 4.0]


def test_an_iteration_ends_with_the_last_of_its_tasks() -> None:
    schedule = simulate(*two_machine_example(3))
    ends = [schedule.task_end[:, n].max() for n in range(3)]
    lengths = iteration_lengths(schedule)
    assert lengths.tolist() == pytest.approx(np.diff([0.0, *ends]).tolist())
    assert lengths.sum() == pytest.approx(schedule.makespan)


def test_an_iteration_that_ends_after_the_next_one_leaves_it_no_time() -> None:
    """The first of two tasks has an iteration fewer, and ends its first at 5 s."""
    ends = [[5.0, 3.0, np.nan], [2.0, 4.0, 7.0]]
    schedule: Any = SimpleNamespace(task_end=np.array(ends))
    assert iteration_lengths(schedule).tolist() == [5.0, 0.0, 2.0]


def test_a_spread_by_hand() -> None:
    """Iterations are late by 0, 1, 2 and 5 s, a variance of 14/3, in a run of 4 s."""
    late = np.array([0.0, 1.0, 2.0, 5.0])
    half = 1.96 * math.sqrt(2 * 4) * math.sqrt(14 / 3)
    assert spread_of_iterations(1.0 + late, np.ones(4)) == pytest.approx(half / 4)
    # What only one of both has is left out; three iterations tell something.
    more = np.array([1.0, 2.0, 3.0, 99.0])
    found = spread_of_iterations(more, np.ones(3))
    assert found == pytest.approx(1.96 * math.sqrt(2 * 3) / 3)


def test_without_a_prediction_any_error_is_possible() -> None:
    span = repeats(1.0, 2.0, prediction=None).further_error
    assert (span.low, span.high) == (-math.inf, math.inf)


@pytest.mark.parametrize("sign", [-1, 1])
def test_runs_agree_up_to_the_threshold(sign: int) -> None:
    """Two equal runs leave an interval of no width, a quarter off the prediction."""
    runs = repeats(1 + sign * 0.25, 1 + sign * 0.25)
    assert Repeats(runs.runs, threshold=0.25).outcome is Agreement.AGREES
    assert Repeats(runs.runs, threshold=0.2499).outcome is Agreement.DIFFERS
    wide = repeats(1.5, 1.5 + 1e-9, 1.5)
    assert Repeats(wide.runs, threshold=0.5).outcome is Agreement.UNDECIDED


def test_the_run_nearest_to_the_median_stands_for_the_others() -> None:
    found = repeats(1.0, 4.0, 2.2, 1.9)
    assert found.makespan == pytest.approx(2.05)
    assert found.nearest.makespan in {2.2, 1.9}
    assert repeats(9.0, 1.0, 2.0).nearest.path == "runs/2"
    assert repeats(1.0, 2.0, prediction=None).error is None


def test_iterations_as_long_as_simulated_are_not_spread() -> None:
    """However unlike they are among each other: late by 0, 0 and 3 s of 6."""
    simulated = np.array([1.0, 2.0, 3.0])
    late = np.array([0.0, 0.0, 3.0])
    found = spread_of_iterations(simulated + late, simulated)
    assert found == pytest.approx(1.96 * math.sqrt(2 * 3) * math.sqrt(3.0) / 6.0)
