"""Steps of the search for an advice, on prospects that are only figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from emu.errors import ScenarioError
from emu.experiment import advice_search
from emu.experiment.advice_search import Search
from emu.experiment.learning_rates import Rates
from emu.experiment.prospects import Prospect, Terms
from emu.experiment.systems import Target
from emu.scenario.virtual_training import NotReached
from emu.systems.training_section import TrainingSection
from tests.experiment.search_doubles import (
    TARGET,
    Way,
    learning_of,
    prospect_of,
    search_of,
)


def test_passes_are_of_use_until_a_prospect_is_slower_than_the_best() -> None:
    """The best takes 40 s: 5 epochs of 8 s, and ten where twice as slow is of use."""
    terms = Terms(target=TARGET)
    search = search_of(terms, choices=[Way("a", 90.0), Way("b", 40.0)])
    prospect = prospect_of(8.0)
    assert search.useful_passes(prospect, 1.0) == 5.0
    assert search.useful_passes(prospect, 2.0) == 10.0
    search.hope = 16.0
    assert search.useful_passes(prospect, 1.0) == 2.0
    assert search_of(terms, hope=24.0).useful_passes(prospect, 1.0) == 3.0
    assert search_of(terms).useful_passes(prospect, 1.0) == inf
    assert search.useful_passes(prospect_of(0.0), 1.0) == inf


def test_where_nothing_keeps_to_the_limits_what_comes_nearer_is_of_use() -> None:
    """The best takes four times its deadline of 10 s; an epoch half of it."""
    terms = Terms(target=TARGET, deadline=10.0, budget=100.0)
    search = search_of(terms, choices=[Way("a", 40.0, 1.0, terms)], hope=1.0)
    assert search.useful_passes(prospect_of(5.0, cost=1.0), 1.5) == 12.0
    # A little beyond them is beyond them.
    search.choices = [Way("a", 15.0, 1.0, terms)]
    assert search.useful_passes(prospect_of(5.0, cost=1.0), 1.0) == 3.0
    # At its limits it keeps to them, and its time counts.
    search.choices = [Way("a", 10.0, 1.0, terms)]
    search.hope = inf
    assert search.useful_passes(prospect_of(5.0, cost=1.0), 1.5) == 3.0


def test_a_family_is_trained_again_where_more_passes_are_of_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []
    outcomes = iter([inf, inf, 7.0])

    def find_rates(_self: Any, _plain: Any, _of: Any, useful: float) -> Rates:
        asked.append(useful)
        return Rates({0.1: learning_of(next(outcomes))})

    monkeypatch.setattr(Search, "find_rates", find_rates)
    monkeypatch.setattr(advice_search, "family_of", lambda prospect: prospect.row)
    monkeypatch.setattr(Prospect, "plain", None)
    search = search_of(Terms(target=TARGET), hope=40.0)
    assert search.learn(prospect_of(8.0)).passes == inf
    # As many passes, and fewer, were trained already.
    search.learn(prospect_of(8.0))
    search.learn(prospect_of(10.0))
    assert asked == [5.0]
    assert search.learn(prospect_of(4.0)).passes == inf
    assert search.learn(prospect_of(1.0)).passes == 7.0
    # No more than the passes of the target, and none once it was reached.
    assert asked == [5.0, 10.0, 30.0]
    search.hope = inf
    assert search.learn(prospect_of(1.0)).passes == 7.0
    assert len(asked) == 3
    assert search_of(Terms()).learn(prospect_of(1.0)) is None


def test_a_family_that_has_arrived_is_trained_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(advice_search, "family_of", lambda prospect: prospect.row)
    rates = Rates({0.1: learning_of(4.0)})
    search = search_of(Terms(target=TARGET), rates={"p3": (rates, 5.0)})
    assert search.learn(prospect_of(1.0)) is rates.best


def test_trials_are_worth_it_from_a_hundredth_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(advice_search, "WORTHWHILE", 0.25)
    search = search_of(Terms())
    prospect = prospect_of(8.0)
    assert search.prefer(prospect, [], None) is prospect
    assert search.prefer(prospect, [prospect_of(6.0)], None) is prospect
    assert search.hope == inf
    trials = [prospect_of(7.0), prospect_of(5.5), prospect_of(6.5)]
    assert search.prefer(prospect, trials, None).timed is trials[1].timed
    assert search.hope == 5.5
    assert search.prefer(prospect, [prospect_of(5.75)], None).seconds == 5.75
    assert search.hope == 5.5
    assert len(search.pool) == 5


def test_beyond_the_limits_a_trial_is_better_by_coming_nearer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trial of 6 s is just not worth it where 8 s are twice the deadline."""
    monkeypatch.setattr(advice_search, "WORTHWHILE", 0.25)
    search = search_of(Terms(deadline=4.0))
    prospect = prospect_of(8.0, cost=1.0)
    assert search.prefer(prospect, [prospect_of(6.5, cost=0.5)], None) is prospect
    nearer = search.prefer(prospect, [prospect_of(5.5, cost=9.0)], None)
    assert nearer.seconds == 5.5
    # It is beyond them still: no hope for others.
    assert search.hope == inf
    kept = search.prefer(prospect, [prospect_of(4.0, cost=9.0)], None)
    assert (kept.seconds, search.hope) == (4.0, 9.0)


def test_rows_that_lead_are_tuned_and_the_fastest_of_mini_batches() -> None:
    """Five leaders, the fourth of which has no passes; two by a pass on batches."""

    def leader(row: str, epoch: float, passes: float, *, whole: bool) -> Any:
        prospect = prospect_of(epoch, row=row)
        prospect.timed.whole_graph = whole
        return replace(prospect, learning=learning_of(passes))

    leaders = [
        leader("a", 1.0, 2.0, whole=True),
        leader("b", 9.0, 1.0, whole=False),
        leader("c", 2.0, 9.0, whole=True),
        leader("d", 1.0, inf, whole=True),
        leader("e", 3.0, 9.0, whole=False),
        leader("f", 2.0, inf, whole=False),
        leader("g", 5.0, 9.0, whole=False),
    ]
    tuned = search_of(Terms(target=TARGET)).list_tuned(leaders)
    assert [prospect.row for prospect in tuned] == ["a", "b", "c", "f", "e"]
    by_epoch = search_of(Terms()).list_tuned(leaders)
    assert [prospect.row for prospect in by_epoch] == ["a", "b", "c"]


@pytest.mark.parametrize(("misses", "is_late", "stated", "found"), [
    (2, False, 0, 2), (0, True, 0, 1), (2, True, 3, 4),
])  # fmt: skip
def test_updates_that_weights_lack_are_held_against_the_most(
    misses: int,
    is_late: bool,  # noqa: FBT001
    stated: int,
    found: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = SimpleNamespace(
        updates_missed=lambda _: misses, asynchronous=lambda _: is_late
    )
    monkeypatch.setattr(advice_search, "system_of", lambda _: system)
    settings = {"staleness": stated} if stated else {}
    job = SimpleNamespace(settings=settings)
    scenario: Any = SimpleNamespace(to_job=lambda **_: job)

    search_of(Terms(staleness=found)).check_staleness(scenario)
    search_of(Terms()).check_staleness(scenario)
    with monkeypatch.context() as alone:
        # A job of no system has no weights that are late.
        alone.setattr(advice_search, "system_of", lambda _: None)
        search_of(Terms(staleness=0)).check_staleness(scenario)
    with pytest.raises(ScenarioError, match=f"may lack {found} updates") as error:
        search_of(Terms(staleness=found - 1)).check_staleness(scenario)
    assert error.value.file == f"--max-staleness {found - 1}"


class Settled:
    """Stands for `answer`: notes the passes of each question, and what it has."""

    def __init__(self, refused: Any = None) -> None:
        self.refused = refused
        self.asked: list[Any] = []

    def __call__(self, question: Any) -> Any:
        """Return an answer, refused or not."""
        self.asked.append(question.target)
        return SimpleNamespace(refused=self.refused, question=question)


def test_what_is_settled_is_trained_as_far_as_it_may_be_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """12 s of the best are 4.8 epochs: 5 with two looks behind, 30 at most."""
    settled = Settled()
    monkeypatch.setattr(advice_search, "answer", settled)
    question = SimpleNamespace(target=None, scenario=None)
    monkeypatch.setattr(advice_search, "replace", lambda of, **keys: _with(of, keys))
    monkeypatch.setattr(Prospect, "question", question)
    search = search_of(Terms(target=TARGET), free=None)
    for epoch, slack in ((2.5, 1.0), (2.5, 2.0), (0.25, 1.0)):
        search.choices = [Way("a", 12.0)]
        assert search.settle(prospect_of(epoch), slack) is search.choices[1]
    search.choices = [Way("a", 12.0)]
    assert [target.within for target in settled.asked] == [7, 12, 30]

    settled.refused = NotReached("no")
    assert search.settle(prospect_of(2.5), slack=1.5) is None
    assert "not there in 1.5 x the time" in str(search.refused["p3"])
    settled.refused = ScenarioError("another reason")
    search.settle(prospect_of(2.5))
    assert "not there in 1.5 x" in str(search.refused["p3"])


def _with(of: Any, keys: dict[str, Any]) -> Any:
    """Return a namespace, or a target, with other fields."""
    if isinstance(of, Target):
        return replace(of, **keys)
    return SimpleNamespace(**vars(of) | keys)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of `way_of` that a search settles, as it does so."""
    numbers: list[int] = []

    def settle(_: object, prospect: Any) -> None:
        numbers.append(prospect.timed.number)

    monkeypatch.setattr(Search, "settle", settle)
    monkeypatch.setattr(advice_search, "weights_of", lambda plain: plain)
    return numbers


def way_of(number: int, epoch: float, settings: int = 0, weights: str = "a") -> Any:
    """Return a prospect with so many settings, and with these weights."""
    way = prospect_of(epoch, cost=1.0)
    way.timed.number = number
    way.timed.makespan = epoch
    way.timed.scenario = weights
    way.timed.question.settings = dict.fromkeys(range(settings))
    return way


def test_what_may_be_as_good_is_settled_and_its_twins_are_not(
    settled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a fifth of 10 s; of two that are alike that with fewer settings."""
    pool = [way_of(0, 12.5), way_of(1, 12.0), way_of(2, 9.0, 2), way_of(3, 9.0, 1)]
    pool += [way_of(4, 9.0, 3, "b"), way_of(5, inf)]
    search = search_of(Terms(), pool=pool, choices=[Way("x", 10.0)])
    search.settle_best()
    assert settled == [3, 4, 1]

    settled.clear()
    with monkeypatch.context() as few:
        few.setattr(advice_search, "_SETTLED", 2)
        search.settle_best()
    assert settled == [3, 4]
    settled.clear()
    search.choices = []
    search.settle_best()
    assert settled == []
    # Of two limits the one that is missed by more ends it.
    search.terms = Terms(deadline=10.0)
    search.choices = [Way("x", 8.0, 9.0, search.terms)]
    search.pool = [way_of(6, 12.5), way_of(7, 11.5, 0, "b")]
    search.settle_best()
    assert settled == [7]


def test_what_is_settled_takes_two_minutes_of_cpu_at_most(
    settled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another rate is no twin; a pass takes 10 s where an accuracy is asked for."""
    monkeypatch.setattr(Prospect, "cpu_per_pass", 10.0)
    twin = way_of(8, 5.0)
    pool = [
        replace(twin, learning=learning_of(passes, rate=rate))
        for passes, rate in ((1.0, 0.1), (1.0, 0.3), (2.0, 1.0))
    ]
    terms = Terms(target=TARGET)
    search = search_of(terms, pool=pool, choices=[Way("x", 10.0)], cpu=100.0)
    search.settle_best()
    assert settled == [8, 8, 8]
    assert search.cpu == 140.0
    settled.clear()
    search.cpu = 111.0
    search.settle_best()
    assert settled == [8]

    search.terms = Terms()
    search.pool = [way_of(9, 9.0), way_of(10, 9.0, 0, "b")]
    settled.clear()
    search.cpu = 121.0
    search.settle_best()
    assert (settled, search.cpu) == ([9], 121.0)


def test_machines_near_a_choice_are_its_own_all_and_the_fastest_of_its_row() -> None:
    search = search_of(Terms(), sets=[("a", "b", "c"), ("a",)])
    near = [SimpleNamespace(machines=("b",)), SimpleNamespace(machines=("c",))]
    search.rows = {"p3": near, "dgcl": []}

    def near_sets(row: str, machines: Any) -> Any:
        question = SimpleNamespace(row=row, machines=machines)
        answer = SimpleNamespace(question=question)
        return search.near_sets(SimpleNamespace(answer=answer))

    assert near_sets("p3", ("a", "b")) == [("a", "b"), ("a", "b", "c"), ("b",)]
    assert near_sets("p3", ("a", "b", "c")) == [("a", "b", "c"), ("b",)]
    assert near_sets("dgcl", ("a",)) == [("a",), ("a", "b", "c")]
    assert near_sets("", None) == [None]


class Batches:
    """Stands for `Search.try_batch`: a batch is better if its seconds are fewer."""

    def __init__(self, seconds: dict[tuple[int, tuple[int, ...]], float]) -> None:
        self.seconds = seconds
        self.asked: list[tuple[int, tuple[int, ...]]] = []

    def __call__(self, prospect: Any, size: int, fanouts: Sequence[int]) -> Any:
        """Return the prospect with the better batch."""
        batch = (size, tuple(fanouts))
        self.asked.append(batch)
        if self.seconds.get(batch, 99.0) < self.seconds.get(prospect.batch, 99.0):
            return SimpleNamespace(batch=batch, timed=prospect.timed)
        return prospect


def test_batches_are_tried_around_the_files_and_beyond_where_the_last_is_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job: Any = TrainingSection.model_construct(batch_size=16, fanouts=(8, 2))
    timed = SimpleNamespace(whole_graph=False)
    start = SimpleNamespace(batch=(16, (8, 2)), timed=timed)
    grid = [
        (size, fanouts)
        for fanouts in ((2, 1), (4, 1), (8, 2), (16, 4))
        for size in (4, 8, 16, 32)
    ]

    def tune(seconds: dict[Any, float]) -> list[Any]:
        batches = Batches(seconds)
        monkeypatch.setattr(Search, "try_batch", lambda _, *asked: batches(*asked))
        search = search_of(Terms(target=TARGET), free=SimpleNamespace(job=job))
        search.tune_batches(start)
        assert batches.asked[:16] == grid
        return batches.asked[16:]

    assert tune({(16, (8, 2)): 1.0}) == []
    assert tune({(8, (8, 2)): 1.0}) == []
    # The smallest one, and the half of it, which is better: three more at most.
    smaller = {(4, (8, 2)): 5.0, (2, (8, 2)): 4.0, (1, (8, 2)): 3.0}
    assert tune(smaller) == [(2, (8, 2)), (1, (8, 2)), (1, (8, 2))]
    assert tune({(32, (8, 2)): 5.0}) == [(64, (8, 2))]
    further = [(64, (16, 4)), (128, (16, 4)), (256, (16, 4))]
    growing = {(size, (16, 4)): 1 / size for size in (32, 64, 128, 256)}
    assert tune(growing) == further
    assert tune({(16, (2, 1)): 5.0}) == [(16, (1, 1))]
    both = tune({(4, (2, 1)): 5.0})
    assert both == [(2, (2, 1)), (4, (1, 1))]

    # A batch of one has no half: it is asked for once more, and no further.
    job = TrainingSection.model_construct(batch_size=1, fanouts=(1,))
    start = SimpleNamespace(batch=(1, (1,)), timed=timed)
    ones = [(size, (fanout,)) for fanout in (1, 2) for size in (1, 2)]
    batches = Batches({(1, (1,)): 1.0})
    monkeypatch.setattr(Search, "try_batch", lambda _, *asked: batches(*asked))
    search_of(Terms(), free=SimpleNamespace(job=job)).tune_batches(start)
    assert batches.asked == [*ones, (1, (1,)), (1, (1,))]
    other = search_of(Terms(), free=SimpleNamespace(job=None))
    assert other.tune_batches(start) is start

    whole = SimpleNamespace(batch=None, timed=SimpleNamespace(whole_graph=True))
    search = search_of(Terms(), free=SimpleNamespace(job=job))
    assert search.tune_batches(whole) is whole


def test_settings_of_no_use_are_dropped_but_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The epoch takes as long without `b`, longer without `a`; `c` has no trial."""
    seconds = {"job.a": 9.0, "job.b": 5.0, "job.c": None, "job.batch_size": 1.0}

    def time_sets(_: object, row: str, sets: Any, settings: Any) -> Any:
        assert (row, sets) == ("p3", [("m0",)])
        (missing,) = {*seconds} - {*settings} or {"none"}
        epoch = seconds.get(missing)
        if epoch is None:
            return []
        way = prospect_of(epoch)
        way.timed.question.settings = settings
        return [way]

    monkeypatch.setattr(Search, "time_sets", time_sets)
    prospect = prospect_of(5.0)
    prospect.timed.question.settings = dict.fromkeys(
        ["job.a", "job.batch_size", "job.c", "job.b"], 1
    )
    found = search_of(Terms()).drop_idle(prospect)
    assert [*found.settings] == ["job.a", "job.batch_size", "job.c"]


def test_what_each_class_held_at_best_is_said_where_nothing_reaches_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = iter([learning_of(inf, 0.3), learning_of(inf, 0.2), learning_of(inf, 0.35)])

    keeps = []

    def find_rate(*_: Any, keep: bool, watch: Any, **__: Any) -> Rates:
        keeps.append(keep)
        watch(0.1)
        learning = next(found)
        return Rates({0.1: learning})

    monkeypatch.setattr(advice_search, "find_rate", find_rate)
    monkeypatch.setattr(Prospect, "cpu_per_pass", 2.0)
    told: list[str] = []
    search = search_of(Terms(target=TARGET), stage="x", watch=told.append)
    prospect = prospect_of(1.0)
    search.find_rates(None, prospect, 5.0)
    search.find_rates(None, prospect, 5.0, keep=True)
    assert search.nearest[False].level == 0.3
    search.terms = Terms(target=TARGET, keep_rate=True)
    search.find_rates(None, prospect, 5.0)
    assert keeps == [False, True, True]
    assert search.nearest[False].level == 0.35
    # A level that three looks hold took three passes.
    assert search.cpu == 3 * 3 * 2.0
    assert told == [f"x; trainings so far: {number}" for number in (1, 2, 3)]

    search.nearest[True] = learning_of(inf, 0.125, rate=0.03)
    error = search.describe_failure()
    assert "mini-batches hold 35.0% at best, with lr 0.1" in str(error)
    assert "whole graphs hold 12.5% at best, with lr 0.03" in str(error)
    refusal = ScenarioError("a reason")
    without = search_of(Terms(), refused={"a": refusal, "b": ScenarioError("b")})
    assert without.describe_failure() is refusal
    without.terms = Terms(target=TARGET)
    assert without.describe_failure() is refusal


@pytest.mark.parametrize(
    ("fields", "passes", "alone"),
    [
        ({}, inf, True),
        ({}, 4.0, True),
        ({"hope": 9.0}, inf, False),
        ({"choices": [Way("a", 9.0)]}, inf, False),
        ({"nearest": {}}, inf, False),
        ({"rates": {"p3": None}}, inf, False),
    ],
)
def test_the_rate_that_came_nearest_is_tried_alone_where_nothing_has_arrived(
    fields: dict[str, Any],
    passes: float,
    alone: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    learning = learning_of(passes)

    def find_rates(
        _self: Any, plain: Any, _prospect: Any, useful: float, *, keep: bool
    ) -> Rates:
        asked.append((plain, useful, keep))
        return Rates({0.1: learning})

    monkeypatch.setattr(Search, "find_rates", find_rates)
    monkeypatch.setattr(Search, "learn", lambda *_: "all rates")
    monkeypatch.setattr(advice_search, "load", lambda _, edit: edit)
    monkeypatch.setattr(advice_search, "family_of", lambda prospect: prospect.row)
    monkeypatch.setattr(Prospect, "plain", None)
    nearest = {False: learning_of(inf, rate=0.25)}
    content: dict[str, Any] = {"nearest": nearest, **fields}
    search = search_of(Terms(target=TARGET), **content)
    found: Any = search.probe(prospect_of(2.0))
    # A rate that arrives is no reason to leave the others out.
    assert found == (learning if alone and passes == inf else "all rates")
    assert asked == ([({"job.optimizer.lr": 0.25}, inf, True)] if alone else [])
