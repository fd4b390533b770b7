"""Which scale is tried and taken, on hosts whose lateness is a formula."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.experiment.scale_search import ScaleChoice, ScaleSearch, ScaleTrial

SEARCH = ScaleSearch(makespan=100.0, max_error=0.01, max_late_flows=0.05)
FLOWS = 1000


def on_a_host(scale: float, needed: float, *, cost: float = 3.0) -> ScaleTrial:
    """Return the trial of a host that is late by as much as its time scale is short.

    Both aims are just met at ``needed``.
    """
    return ScaleTrial(
        time_scale=scale,
        iterations=2,
        cost=cost,
        wall=1.5,
        cpu_busy=0.5,
        error=0.005 * needed / scale,
        late_flows=math.floor(min(0.05 * needed / scale, 1.0) * FLOWS),
        flows=FLOWS,
    )


def found(
    search: ScaleSearch, needed: float, first: float, cost: float = 3.0
) -> list[ScaleTrial]:
    """Return the trials of a search without a budget."""
    scale: float | None = first
    trials: list[ScaleTrial] = []
    while scale is not None:
        trials.append(on_a_host(scale, needed, cost=cost))
        assert len(trials) < 40
        scale = search.next(trials)
    return trials


@given(st.floats(0.1, 1000.0), st.floats(0.05, 2000.0))
def test_the_scale_taken_holds_and_is_near_the_least_that_does(
    needed: float, first: float
) -> None:
    trials = found(SEARCH, needed, first)
    taken = SEARCH.choice(trials).taken

    assert taken is not None
    assert SEARCH.miss_factor(taken) <= 1
    assert taken.time_scale >= needed * (1 - 1e-9)
    # Half the scale was not worth two trials, or the next lower one misses the aims.
    worth = 2 * 3.0 / SEARCH.makespan
    assert taken.time_scale <= max(2.2 * needed, 2.2 * worth, needed + 2.2 * worth)


@given(st.floats(0.1, 100.0), st.floats(0.1, 100.0))
def test_no_scale_is_tried_twice(needed: float, first: float) -> None:
    scales = [trial.time_scale for trial in found(SEARCH, needed, first)]

    assert len(set(scales)) == len(scales)


def test_what_saves_less_than_it_costs_is_not_tried() -> None:
    """At scale 1 the run takes 100 s: half of it is saved, for twice 30 s."""
    assert len(found(SEARCH, 0.1, 1.0, cost=30.0)) == 1
    assert len(found(SEARCH, 0.1, 1.0, cost=20.0)) > 1


@pytest.mark.parametrize(("cost", "scale"), [(99.0, 2.0), (101.0, None)])
def test_what_the_last_trial_cost_decides_whether_the_next_one_pays(
    cost: float, scale: float | None
) -> None:
    """Half of scale 4 saves 200 s of wall time; the first trial cost far more."""
    trials = [on_a_host(8.0, 0.1, cost=900.0), on_a_host(4.0, 0.1, cost=cost)]
    assert SEARCH.next(trials) == scale


def test_an_aim_that_is_far_off_is_left_in_larger_steps() -> None:
    near, far = on_a_host(1.0, 1.5), on_a_host(1.0, 15.0)

    assert SEARCH.next([near]) == 2.0
    assert SEARCH.next([far]) == 8.0
    assert SEARCH.next([on_a_host(1.0, 4.0)]) == 4.0


def test_between_a_miss_and_a_hit_the_middle_of_factors_is_tried() -> None:
    """Scale 20 is five times 4, which misses, and a fifth of 100, which holds.

    The order of the two trials makes no difference.
    """
    trials = [on_a_host(4.0, 8.0), on_a_host(100.0, 8.0)]

    assert SEARCH.next(trials) == SEARCH.next(trials[::-1]) == 20.0


def test_no_run_is_shorter_than_two_seconds() -> None:
    assert SEARCH.first(ends=1, cores=2) == 0.02
    assert SEARCH.first(ends=100_000, cores=2) == 2.0


def test_late_flows_do_not_count_where_only_the_makespan_matters() -> None:
    careless = replace(SEARCH, max_late_flows=1.0)
    trial = replace(on_a_host(1.0, 0.5), late_flows=FLOWS)

    assert careless.miss_factor(trial) <= 1
    assert SEARCH.miss_factor(trial) > 1


def test_the_makespan_does_not_count_where_chance_decides_it() -> None:
    trial = replace(on_a_host(1.0, 0.5), error=0.3)

    assert SEARCH.miss_factor(trial) > 1
    assert replace(SEARCH, max_error=math.inf).miss_factor(trial) <= 1


def test_where_no_trial_holds_the_next_scale_is_taken_untried() -> None:
    trials = [on_a_host(scale, 24.0) for scale in (1.0, 8.0)]

    choice = SEARCH.choice(trials)

    assert (choice.time_scale, choice.taken) == (24.0, None)
    assert choice.to_json()["held"] is False


def test_a_lucky_trial_below_one_that_missed_is_not_believed() -> None:
    trials = [on_a_host(4.0, 1.0), on_a_host(2.0, 3.0), on_a_host(1.0, 0.5)]

    assert SEARCH.choice(trials).taken is trials[0]


def test_no_flows_are_no_late_flows() -> None:
    trial = replace(on_a_host(1.0, 0.5), late_flows=0, flows=0)

    assert trial.late_share == 0.0
    assert SEARCH.miss_factor(trial) <= 1


def test_a_trial_says_how_far_its_end_may_be_off() -> None:
    trial = ScaleTrial(2.0, 2, 1.5, 0.5, 0.1, error=0.004, late_flows=1, flows=9)

    assert trial.sentence() == (
        "trial at time scale 2: 1 of 9 flows late, end off by up to 0.4 % "
        "(1.5 s of wall time)"
    )


def test_what_was_predicted_stands_beside_what_came() -> None:
    trial = on_a_host(2.0, 1.0)
    choice = ScaleChoice((trial,), 2.0, trial)
    actual = {
        "wall_seconds": 201.0,
        "cpu_busy": 0.4,
        "late_flows": 0.03,
        "error": 0.001,
    }

    beside = choice.beside(200.0, actual)

    assert beside["predicted"]["wall_seconds"] == 200.0
    assert beside["predicted"]["late_flows"] == pytest.approx(0.025)
    assert beside["actual"] == actual


def test_aims_are_missed_by_the_worse_of_both() -> None:
    """Half of 1 % and 5 % of the flows are just met."""
    trial = replace(on_a_host(1.0, 0.5), error=0.002, late_flows=30)
    assert SEARCH.miss_factor(trial) == pytest.approx(0.6)
    assert SEARCH.miss_factor(replace(trial, error=0.006)) == pytest.approx(1.2)
    careless = replace(SEARCH, max_late_flows=1.0)
    all_late = replace(trial, late_flows=FLOWS)
    assert careless.miss_factor(all_late) == pytest.approx(0.4)
    strict = replace(SEARCH, max_late_flows=0.0)
    assert strict.miss_factor(replace(trial, late_flows=1)) == pytest.approx(1e6)
    assert strict.miss_factor(replace(trial, late_flows=0)) == pytest.approx(0.4)


def test_an_aim_that_is_just_met_is_met() -> None:
    met = on_a_host(2.0, 2.0)
    assert SEARCH.miss_factor(met) == 1.0
    assert SEARCH.choice([met]).taken is met
    # A trial at the scale of one that missed is no better than that.
    missed = replace(met, late_flows=FLOWS)
    assert SEARCH.choice([missed, met]).taken is None


def test_neighbours_are_taken_as_one_and_gains_have_to_pay_twice() -> None:
    missed = on_a_host(2.0, 2.5, cost=1.0)
    assert SEARCH.next([missed, on_a_host(3.0, 2.5, cost=1.0)]) is None
    assert SEARCH.next([missed, on_a_host(3.5, 2.5, cost=1.0)]) == 2.7
    # From scale 4 to 2 it saves 200 s, for twice 100.
    assert SEARCH.next([on_a_host(4.0, 0.1, cost=100.0)]) is None


@pytest.mark.parametrize("number", [0, 1, None])
def test_a_choice_is_read_back_with_its_trial(number: int | None) -> None:
    """A choice takes the trial of its scale where that trial met the aims."""
    trials = (on_a_host(2.0, 4.0), on_a_host(8.0, 4.0))
    taken = None if number is None else trials[number]
    scale = 8.0 if taken is None else taken.time_scale
    choice = ScaleChoice(trials, scale, taken)
    assert ScaleChoice.from_json(choice.to_json()) == choice
    if number is None:
        assert choice.sentence(30.0) == (
            "no trial met max_error and max_late_flows; time scale 8 is untried "
            "(emulation.trial_budget is 30 s)"
        )
        assert choice.beside(3.0, {"error": 1.0}) == {
            "predicted": {"wall_seconds": 3.0},
            "actual": {"error": 1.0},
        }
    else:
        assert choice.sentence(30.0) == ""
