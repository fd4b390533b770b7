"""Which rows of a table to a target have their learning rate chosen."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import ScenarioError
from emu.experiment import learning_rates
from emu.experiment.learning_rates import KEY, Learning, Rates
from emu.experiment.question import Question
from emu.experiment.row_rates import Planned, choose_rates
from emu.experiment.systems import Target
from emu.scenario.scenario_file import load, loads
from tests.experiment.test_target import FILE

#: Rates that a search has tried: at 0.2 the target is reached in fewer steps, and less
#: is held later.
TRIED = Rates(
    {
        0.05: Learning(0.05, np.array([0.6]), steps=70.0),
        0.2: Learning(0.2, np.array([0.5]), steps=30.0),
    }
)


def test_a_training_ends_with_the_first_of_the_looks_that_hold_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pass apart each, of 40 steps: the third one holds, and the first did not."""
    shown = [0.7, 0.5, 0.6, 0.8, 0.65]
    looks = [
        SimpleNamespace(accuracy=accuracy, step=40 * (place + 1))
        for place, accuracy in enumerate(shown)
    ]
    monkeypatch.setattr(learning_rates, "accuracy_curve", lambda *_: looks)
    plain = loads(json.dumps(FILE))

    learning = learning_rates._train(plain, Target(0.55, within=9), 0.5, 7)
    assert (learning.rate, learning.steps, learning.passes) == (0.5, 120, 3)
    np.testing.assert_array_equal(learning.levels, [0.5, 0.5, 0.6])
    missed = learning_rates._train(plain, Target(0.65, within=9), 0.5, 7)
    assert missed.passes == missed.steps == math.inf


def test_rows_that_train_at_no_rate_of_their_own_get_the_best_one(
    tmp_path: Path,
) -> None:
    """Steps that were recorded are of the file's rate; what states one keeps it."""
    (tmp_path / "steps.csv").write_text("step,accuracy\n20,0.8\n")
    file = tmp_path / "rates.json"
    file.write_text(json.dumps({**FILE, "accuracy": {"p3.none": "steps.csv"}}))
    scenario = load(file)
    searched: list[Any] = []

    def share(_what: str, _find: Callable[..., Any], items: Sequence[Any]) -> Any:
        searched.extend(items)
        return [TRIED for _ in items]

    def question_of(row: str, **settings: Any) -> Question:
        keys = {f"job.{key}": value for key, value in settings.items()}
        return Question(scenario, row, settings=keys, target=Target(0.5))

    by_key = question_of("data_parallel", **{"optimizer.lr": 0.3})
    by_section = question_of("data_parallel", optimizer={"name": "adam", "lr": 0.3})
    recorded = question_of("p3.none")
    refused = ScenarioError("it has no machine")
    kept: list[Planned] = [by_key, by_section, recorded, refused]

    assert choose_rates(kept, Target(0.5), share) == kept
    assert not searched
    (found,) = choose_rates([question_of("data_parallel")], Target(0.5), share)
    assert isinstance(found, Question)
    assert len(searched) == 1
    assert found.settings == {KEY: 0.2}
    assert found.grid == {KEY: [0.05, 0.2]}
    assert not found.exact


def learning_of(rate: float, levels: Sequence[float]) -> Learning:
    """Return a rate that holds these levels, one more pass each."""
    return Learning(rate, np.array(levels))


def test_a_rate_is_slow_where_it_stands_below_a_third_of_the_leaders_way() -> None:
    """The first two of the four levels of the leader lie in a third of its way."""
    leader = learning_of(0.1, [0.1, 0.2, 0.5, 0.6])
    assert not learning_of(0.3, [0.05, 0.2, 0.1]).is_slow(leader)
    assert learning_of(0.3, [0.05, 0.19, 0.1]).is_slow(leader)
    assert not learning_of(0.3, [0.1]).is_slow(learning_of(0.1, [0.1]))
    assert not learning_of(0.3, []).is_slow(learning_of(0.1, []))


class Race:
    """Trainings that were asked for, each of which holds so much more after a pass.

    Parameters
    ----------
    gains
        Accuracy of a pass, by rate.
    arrivals
        Pass in which a rate reaches the target.
    """

    def __init__(self, gains: dict[float, float], arrivals: dict[float, int]) -> None:
        self.gains = gains
        self.arrivals = arrivals
        self.asked: list[tuple[float, int]] = []

    def train(self, _: Any, __: Target, rate: float, passes: int) -> Learning:
        """Return a rate as far as it was asked for."""
        self.asked.append((rate, passes))
        levels = np.arange(1, passes + 1, dtype=np.float64) * self.gains[rate]
        arrival = self.arrivals.get(rate, math.inf)
        if arrival > passes:
            return Learning(rate, levels)
        return Learning(rate, levels, steps=3.0 * arrival, passes=arrival)


def race(
    monkeypatch: pytest.MonkeyPatch,
    gains: Sequence[float],
    steps_per_pass: int = 3,
    **arrivals: int,
) -> Race:
    """Return trainings at 0.01, 0.003, 0.03, 0.1, 0.3, ... in place of real ones."""
    rates = [0.01, 0.003, 0.03, 0.1, 0.3, 1.0, 0.001]
    passes = {float(rate.replace("_", ".")): count for rate, count in arrivals.items()}
    trainings = Race(dict(zip(rates, gains, strict=False)), passes)
    monkeypatch.setattr(learning_rates, "_train", trainings.train)
    monkeypatch.setattr(learning_rates, "count_steps", lambda _: steps_per_pass)
    monkeypatch.setattr(learning_rates, "rate_of", lambda _: 0.01)
    return trainings


PLAIN: Any = None


def test_rates_that_are_far_behind_are_trained_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After 4, 12 and 36 passes; nobody reaches the target in the 40 that there are."""
    found = race(monkeypatch, [0.002, 0.001, 0.01, 0.004])
    learning_rates.find_rate(PLAIN, Target(0.9, within=40))
    first = [(rate, 4) for rate in (0.01, 0.003, 0.03, 0.1)]
    assert found.asked == [*first, (0.03, 12), (0.03, 36), (0.03, 40)]

    # A rung has 12 steps at least, and is none where it is the whole length.
    few = race(monkeypatch, [0.002, 0.001, 0.01, 0.004], steps_per_pass=2)
    learning_rates.find_rate(PLAIN, Target(0.9, within=12))
    assert few.asked == [(rate, 12) for rate in (0.01, 0.003, 0.03, 0.1)]


def test_a_leader_that_stands_still_brings_the_others_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Less than 0.5 % from 4 to 12 passes: all are trained again, and go on."""
    found = race(monkeypatch, [0.0, 0.0001, 0.0, 0.0])
    found.gains = dict.fromkeys(found.gains, 0.0)
    levels = {0.01: [0.2], 0.003: [0.1], 0.03: [0.3], 0.1: [0.25]}

    def train(_: Any, __: Target, rate: float, passes: int) -> Learning:
        found.asked.append((rate, passes))
        most = levels[rate][0]
        return Learning(rate, np.linspace(0.9 * most, most, passes))

    monkeypatch.setattr(learning_rates, "_train", train)
    learning_rates.find_rate(PLAIN, Target(0.9, within=20))
    first = [(rate, 4) for rate in (0.01, 0.003, 0.03, 0.1)]
    leader = [(0.03, 12), (0.01, 12), (0.003, 12), (0.1, 12)]
    # The best one leads the next rung, and nobody is left out of it.
    last = [(0.03, 20), (0.1, 20), (0.01, 20), (0.003, 20)]
    assert found.asked == [*first, *leader, *last]


def test_a_rate_that_arrives_bounds_the_others_by_the_looks_that_make_it_sure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rate 0.01 arrives in pass 9, 0.03 in 7; 0.1 is no faster, 0.3 is not tried."""
    found = race(monkeypatch, [0.01] * 4, **{"0_01": 9, "0_03": 7, "0_1": 8})
    rates = learning_rates.find_rate(PLAIN, Target(0.9, within=40))
    first = [(rate, 4) for rate in (0.01, 0.003, 0.03, 0.1)]
    # All are as near after 4 passes, in the order in which they were tried.
    second = [(0.01, 12), (0.003, 11), (0.03, 11), (0.1, 9)]
    assert found.asked == [*first, *second]
    assert rates.best.rate == 0.03


def test_rates_beyond_the_best_one_are_tried_for_a_pass_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rate 0.1 arrives in pass 4 and rate 0.3 in pass 3; rate 1 is no faster."""
    found = race(monkeypatch, [0.01] * 6, **{"0_1": 4, "0_3": 3})
    rates = learning_rates.find_rate(PLAIN, Target(0.9, within=40))
    first = [(rate, 4) for rate in (0.01, 0.003, 0.03, 0.1)]
    assert found.asked == [*first, (0.3, 4), (1.0, 4)]
    assert rates.best.rate == 0.3

    # A later one is of use up to 6 passes: two looks more make that sure.
    later = race(monkeypatch, [0.01] * 5, **{"0_1": 7, "0_3": 9})
    learning_rates.find_rate(PLAIN, Target(0.9, within=40))
    assert later.asked[-2:] == [(0.1, 12), (0.3, 8)]

    short = race(monkeypatch, [0.01])
    learning_rates.find_rate(PLAIN, Target(0.9, within=40), most=0.4, keep=True)
    assert short.asked == [(0.01, 3)]

    kept = race(monkeypatch, [0.01], **{"0_01": 30})
    learning_rates.find_rate(PLAIN, Target(0.9, within=40), most=9.7, keep=True)
    # 9 passes are of use, and two looks make it sure.
    assert kept.asked == [(0.01, 4), (0.01, 11)]


def test_no_more_than_three_rates_beyond_the_grid_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = [0.01, 0.003, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]
    trainings = Race(dict.fromkeys(rates, 0.0), {})
    trainings.gains = {rate: rate / 100 for rate in rates}
    monkeypatch.setattr(learning_rates, "_train", trainings.train)
    monkeypatch.setattr(learning_rates, "count_steps", lambda _: 3)
    monkeypatch.setattr(learning_rates, "rate_of", lambda _: 0.01)
    learning_rates.find_rate(PLAIN, Target(0.9, within=4))
    assert [rate for rate, _ in trainings.asked] == rates[:7]


@pytest.mark.parametrize(
    ("steps_per_pass", "gain", "last"),
    [(13, 0.0, 12), (12, 0.0, 36), (9, 0.0, 36), (26, 0.0, 12), (13, 0.001, 40)],
)
def test_what_gains_nothing_in_a_hundred_steps_is_given_up(
    steps_per_pass: int, gain: float, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes 5 to 12 are 8 times the steps of a pass, and passes 13 to 36 are 24."""
    found = race(monkeypatch, [gain] * 4, steps_per_pass)
    learning_rates.find_rate(PLAIN, Target(0.9, within=40))
    assert found.asked[-1][1] == last


def test_a_gain_of_half_a_percent_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader goes from 25 to 25.5 %: those that were left out stay out."""
    asked = []

    def train(_: Any, __: Target, rate: float, passes: int) -> Learning:
        asked.append((rate, passes))
        if rate != 0.03:
            return Learning(rate, np.full(passes, 0.1))
        return Learning(rate, np.full(passes, 0.25 if passes < 12 else 0.255))

    race(monkeypatch, [])
    monkeypatch.setattr(learning_rates, "_train", train)
    learning_rates.find_rate(PLAIN, Target(0.9, within=12))
    assert asked[4:] == [(0.03, 12)]


def test_rates_that_were_tried_are_named_where_there_are_several() -> None:
    assert [*learning_rates.rates_words([0.03, 0.3, 0.01])] == ["lr tried 0.01 to 0.3"]
    assert [*learning_rates.rates_words([0.3, 0.1])] == ["lr tried 0.1 to 0.3"]
    assert [*learning_rates.rates_words([0.03])] == []
    assert [*learning_rates.rates_words([])] == []


def test_powers_of_ten_are_places_of_their_own() -> None:
    """Logarithms of some are a hair below their whole numbers."""
    for exponent in range(-9, 4):
        rate = float(f"1e{exponent}")
        assert learning_rates._place_of(rate) == 2 * exponent
        assert learning_rates._place_of(3 * rate) == 2 * exponent + 1
        assert learning_rates._place_of(2.9 * rate) == 2 * exponent
