"""Ways to train by hand: their terms, their time and dollars, and who is the better."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.experiment import prospects
from emu.experiment.learning_rates import Learning
from emu.experiment.prospects import Choice, Prospect, Terms, words_of
from emu.experiment.question import Answer, Question
from emu.experiment.systems import Target

TARGET = Target(0.5)


def test_both_limits_are_shares_and_the_larger_one_counts() -> None:
    """3 s are half of 6 s, and 8 $ are four times 2 $."""
    terms = Terms(budget=2.0, deadline=6.0)
    assert terms.measure(3.0, 8.0) == (4.0, 3.0)
    assert terms.measure(30.0, 8.0) == (5.0, 30.0)
    assert terms.measure(3.0, None) == (0.5, 3.0)
    # What keeps to its limits is alike in that, up to the limits themselves.
    assert terms.judge(3.0, 1.0) == (1.0, 3.0)
    assert terms.judge(6.0, 2.0) == (1.0, 6.0)
    assert terms.judge(9.0, 2.0) == (1.5, 9.0)
    assert terms.measure(inf, 1.0) == (inf, inf)
    assert Terms().measure(3.0, 8.0) == (0.0, 3.0)
    # Infinity over an infinite deadline is no number.
    assert Terms().measure(inf, None) == (inf, inf)


def test_dollars_are_what_a_deadline_alone_looks_for() -> None:
    saving = Terms(deadline=6.0)
    assert saving.saves
    assert saving.measure(3.0, 8.0) == (0.5, 8.0)
    assert saving.measure(3.0, None) == (0.5, 3.0)
    assert not Terms(deadline=6.0, budget=9.0).saves
    assert not Terms(budget=9.0).saves


def test_times_are_of_an_epoch_or_to_the_accuracy() -> None:
    assert Terms().words == "per epoch"
    assert Terms(target=Target(0.875)).words == "to accuracy 0.875"


def answer_of(**figures: Any) -> Any:
    """Return an answer of two seeds, whose epochs have 120 vertices."""
    makespans = {3: 40.0, 4: 60.0}
    draws = {
        3: SimpleNamespace(speed=SimpleNamespace(samples_per_second=12.0)),
        4: SimpleNamespace(
            speed=SimpleNamespace(samples_per_second=None, iteration_seconds=16.0)
        ),
    }
    content: dict[str, Any] = {
        "makespans": makespans,
        "draws": draws,
        "train": 120,
        "epochs": 7.5,
        "cost": {"total": 80.0, "machines": 5.0},
        "simulated": SimpleNamespace(makespan=40.0),
    }
    return SimpleNamespace(**content | figures)


def test_a_choice_takes_its_epoch_or_all_of_its_time() -> None:
    """12 vertices a second are 10 s for 120; a step on whole graphs is an epoch."""
    by_epoch = Choice(answer_of(), Terms())
    assert by_epoch.draws == {3: 10.0, 4: 16.0}
    assert by_epoch.seconds == 10.0
    # A quarter of the makespan costs a quarter of its dollars.
    assert by_epoch.cost == 20.0
    assert by_epoch.passes == 1.0
    assert by_epoch.mean_aim == 13.0
    assert by_epoch.sure.mean == 13.0

    to_target = Choice(answer_of(), Terms(target=TARGET))
    assert to_target.draws == {3: 40.0, 4: 60.0}
    assert (to_target.seconds, to_target.cost) == (40.0, 80.0)
    assert to_target.passes == 7.5
    assert to_target.judged == (1.0, 40.0)
    free = Choice(answer_of(cost=None), Terms(target=TARGET, deadline=99.0))
    assert free.cost is None
    assert free.mean_aim == 50.0
    # Dollars of the first seed, for 50 s in the mean where it takes 40.
    cheap = Choice(answer_of(), Terms(target=TARGET, deadline=99.0))
    assert cheap.judged == (1.0, 80.0)
    assert cheap.mean_aim == 100.0
    assert cheap.aims == {3: 80.0, 4: 120.0}


def test_what_takes_no_time_costs_nothing() -> None:
    instant = answer_of(simulated=SimpleNamespace(makespan=0.0), makespans={3: 0.0})
    choice = Choice(instant, Terms(target=TARGET))
    assert (choice.seconds, choice.cost, choice.mean_aim) == (0.0, 0.0, 0.0)
    nothing = SimpleNamespace(makespan=0.0)
    assert prospect_of(simulated=nothing, epoch_seconds=0.0).epoch_cost == 0.0
    asked: Any = SimpleNamespace(machines=None)
    assert prospect_of(question=asked).machines == ()


def test_a_choice_has_all_seeds_up_to_one_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fourth of five seeds misses the target, so that three seeds stay."""
    asked = []
    question = Question(None, "p3", seeds=1)  # type: ignore[arg-type]

    def answer(question: Question) -> Any:
        asked.append(question.seeds)
        refused = "too late" if question.seeds > 3 else None
        return Answer(question, held=True, refused=refused)  # type: ignore[arg-type]

    monkeypatch.setattr(prospects, "answer", answer)
    stated = Answer(question)
    choice = Choice(stated, Terms(target=TARGET, seeds=5))
    drawn = choice.drawn()

    assert asked == [5, 4, 3]
    assert drawn.answer.question.seeds == 3
    assert drawn.answer.question.target is TARGET
    assert (drawn.answer.chosen, drawn.answer.held) == (True, False)
    monkeypatch.setattr(
        prospects,
        "answer",
        lambda question: Answer(question, refused="never"),  # type: ignore[arg-type]
    )
    assert choice.drawn() is choice
    monkeypatch.setattr(prospects, "answer", answer)
    alone = Choice(stated, Terms(target=TARGET, seeds=1)).drawn()
    assert alone.answer.chosen


def test_a_name_has_settings_but_no_section_of_theirs() -> None:
    settings = {"job.cache": {"policy": "degree", "size": "3 MB"}, "job.workers": 4}
    answer = answer_of(
        system="p3",
        question=SimpleNamespace(settings=settings),
        placing={"machines": ["m0"], "machines_in_all": 2},
    )
    choice = Choice(answer, Terms())
    assert choice.name == "p3 on m0 alone, cache degree 3 MB, workers 4"
    assert [*choice.settings] == ["cache", "workers"]
    assert words_of(0.5) == "0.5"


def prospect_of(*, learning: Learning | None = None, **figures: Any) -> Prospect:
    """Return a prospect of which an epoch takes 6 s of 24, which cost 8 $."""
    timed: dict[str, Any] = {
        "cost": {"total": 8.0},
        "simulated": SimpleNamespace(makespan=24.0),
        "epoch_seconds": 6.0,
        "train": 50,
        "whole_graph": False,
    }
    timed |= figures
    return Prospect(SimpleNamespace(**timed), learning)  # type: ignore[arg-type]


def test_a_prospect_takes_as_many_epochs_as_its_learning_has_passes() -> None:
    learning = Learning(0.1, np.zeros(1), steps=40.0, passes=5.0)
    prospect = prospect_of(learning=learning)
    assert prospect.epoch_cost == 2.0
    assert (prospect.passes, prospect.seconds) == (5.0, 30.0)
    assert prospect.judge(Terms()) == (1.0, 30.0)
    assert prospect.judge(Terms(deadline=15.0)) == (2.0, 10.0)
    assert prospect.judge(Terms(budget=5.0), passes=4.0) == (1.6, 24.0)
    # Of no passes at all nothing is asked, and not of its own.
    assert prospect.judge(Terms(), passes=0.0) == (1.0, 0.0)

    alone = prospect_of(cost=None)
    assert alone.epoch_cost is None
    assert (alone.passes, alone.seconds) == (1.0, 6.0)
    assert alone.judge(Terms(budget=1e-9)) == (1.0, 6.0)


def test_cpu_of_a_pass_is_that_of_its_edges_and_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A seed aggregates 4 edges and 4 x 20 more, of which the graph has 60."""
    settings = {"fanouts": [4, 20]}
    job = SimpleNamespace(settings=settings)
    experiment = SimpleNamespace(problem=SimpleNamespace(job=job))
    monkeypatch.setattr(prospects, "open_for", lambda _: SimpleNamespace(edges=60))
    monkeypatch.setattr(prospects, "count_steps", lambda _: 9)

    batches = prospect_of(experiment=experiment, scenario=None)
    assert batches.cpu_per_pass == pytest.approx(50 * (4 + 60) * 1e-6 + 9 * 1e-3)
    whole = prospect_of(experiment=experiment, whole_graph=True)
    assert whole.cpu_per_pass == pytest.approx(1e-3 + 60 * 1e-6 / 8)


def test_a_prospect_states_its_rate_where_that_is_not_the_files() -> None:
    job = SimpleNamespace(
        optimizer=SimpleNamespace(lr=0.1), batch_size=24, fanouts=(3, 5)
    )
    scenario: Any = SimpleNamespace(job=job)
    question = Question(scenario, "p3", {"job.pipeline": "A"})
    other = Learning(0.3, np.zeros(1), passes=2.0)
    same = Learning(0.1, np.zeros(1), passes=2.0)

    timed = {"question": question, "scenario": scenario}
    assert prospect_of(**timed).question.settings == {"job.pipeline": "A"}
    stated = prospect_of(learning=same, **timed)
    assert stated.question.settings == {"job.pipeline": "A"}
    changed = prospect_of(learning=other, **timed)
    assert changed.question.settings == {
        "job.pipeline": "A",
        "job.optimizer.lr": 0.3,
    }
    assert stated.batch == (24, (3, 5))
    smaller = Question(scenario, "p3", {"job.batch_size": 6, "job.fanouts": [2, 9]})
    assert prospect_of(question=smaller).batch == (6, (2, 9))
