"""Steps of the search for an advice, on prospects that are only figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import ScenarioError
from emu.experiment import advice, advice_search
from emu.experiment.advice import Advice, _best_of_rows, _contradiction, _no_worse
from emu.experiment.advice_search import Search
from emu.experiment.learning_rates import Learning, Rates
from emu.experiment.levers import Lever
from emu.experiment.prospects import Choice, Prospect, Terms
from emu.experiment.question import Question
from emu.experiment.systems import Target
from emu.scenario.virtual_training import NotReached
from emu.systems.training_section import TrainingSection

TARGET = Target(0.5, within=30)


@dataclass(frozen=True, eq=False)
class Way:
    """Stands for a choice, or a prospect: its row, seconds and dollars."""

    row: str
    seconds: float
    cost: float | None = None
    terms: Terms = field(default_factory=Terms)
    draws: Any = None

    @property
    def judged(self) -> tuple[float, float]:
        """Return seconds and cost as the terms judge them."""
        return self.terms.judge(self.seconds, self.cost)

    @property
    def name(self) -> str:
        """Row and machines."""
        return f"{self.row} on all"


def search_of(terms: Terms, **fields: Any) -> Any:
    """Return a search that has not begun, of a scenario that it does not read."""
    search = object.__new__(Search)
    content: dict[str, Any] = {
        "scenario": None,
        "terms": terms,
        "watch": lambda _: None,
        "refused": {},
        "choices": [],
        "rates": {},
        "pool": [],
        "rows": {},
        "timed": {},
        "nearest": {},
        "cpu": 0.0,
        "stage": "",
        "trainings": 0,
        "hope": inf,
    }
    vars(search).update(content | fields)
    return search


def prospect_of(epoch: float, *, row: str = "p3", cost: float | None = None) -> Any:
    """Return a prospect of which an epoch takes some seconds, for some dollars."""
    dollars = None if cost is None else {"total": cost}
    timed: Any = SimpleNamespace(
        epoch_seconds=epoch,
        cost=dollars,
        simulated=SimpleNamespace(makespan=epoch),
        whole_graph=False,
        question=SimpleNamespace(row=row, settings={}, machines=("m0",)),
    )
    return Prospect(timed)


def learning_of(passes: float, level: float = 0.4, rate: float = 0.1) -> Learning:
    levels = np.array([level])
    return Learning(rate, levels, steps=10 * passes, passes=passes)


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


def test_no_choice_that_is_worse_than_the_file_is_left() -> None:
    """Choices at the limits of the terms stay; a file beyond them bounds nothing."""
    terms = Terms(deadline=10.0, budget=99.0)
    ways: Any = [Way("a", 4.0, 1.0, terms), Way("b", 10.0, 1.0, terms)]
    ways += [Way("c", 11.0, 1.0, terms), Way("d", 6.0, 1.0, terms)]
    search = search_of(terms, choices=ways)
    error = ScenarioError("no file")
    assert _no_worse(search, error) == [ways[0], ways[1], ways[3]]

    draw = SimpleNamespace(speed=SimpleNamespace(samples_per_second=1.0))
    answer: Any = SimpleNamespace(
        draws={0: draw},
        train=6,
        cost={"total": 1.0},
        simulated=SimpleNamespace(makespan=6),
    )
    stated = Choice(answer, terms)
    assert stated.judged == ways[3].judged
    assert _no_worse(search, stated) == [ways[0], ways[3]]


def test_rows_are_named_by_their_best_and_in_order() -> None:
    ways: Any = [
        Way("a", 4.0),
        Way("b", 3.0),
        Way("a", 2.0),
        Way("c", 9.0),
        Way("b", 8.0),
    ]
    assert _best_of_rows(ways) == [ways[2], ways[1], ways[3]]
    # What was drawn stands for its row, whatever else is there.
    drawn: Any = Way("a", 5.0)
    assert _best_of_rows(ways, [drawn]) == [ways[1], drawn, ways[3]]


@pytest.mark.parametrize(("limits", "nearness", "option"), [
    ({"budget": 2.0}, "the cheapest", "--budget 2 $"),
    ({"deadline": 3.0}, "the fastest", "--deadline 3 s"),
    ({"budget": 2.0, "deadline": 3.0}, "what comes nearest",
     "--budget 2 $ --deadline 3 s"),
])  # fmt: skip
def test_an_advice_that_cannot_be_names_its_limits(
    limits: dict[str, float], nearness: str, option: str
) -> None:
    terms = Terms(**limits)  # type: ignore[arg-type]
    way: Any = Way("p3", 7.0, 5.0, terms)
    error = _contradiction(search_of(terms), way)
    assert error.file == option
    text = f"{nearness} is p3 on all, 7 s and 5 $ per epoch"
    assert error.problem == f"nothing keeps to it: {text}"
    free: Any = Way("p3", 7.0, None, terms)
    assert "on all, 7 s per epoch" in _contradiction(search_of(terms), free).problem


def advice_of(best: Way, stated: Any, *others: Way, terms: Terms) -> Any:
    return Advice(
        terms=terms,
        best=best,  # type: ignore[arg-type]
        others=others,  # type: ignore[arg-type]
        stated=stated,
        rate=None,
        changes=(),
        refused={},
        tried=(),
    )


def test_margins_are_of_what_was_judged() -> None:
    """Margins are in dollars under a deadline alone, and in seconds otherwise."""
    terms = Terms(deadline=10.0)
    best = Way("a", 4.0, 2.0, terms)
    rival, late = Way("b", 8.0, 5.0, terms), Way("c", 11.0, 1.0, terms)
    found = advice_of(best, rival, rival, terms=terms)
    assert found._file_line().startswith("2.50 x as cheap as the file as it stands")
    assert advice_of(best, late, terms=terms)._file_line().startswith("which fits, un")
    same = advice_of(best, best, terms=terms)
    assert same._file_line().endswith("best that was tried")
    refusal = ScenarioError("no room", key="job")
    line = advice_of(best, refusal, terms=terms)._file_line()
    assert line == "not the file as it stands: no room"

    dear, free = Way("a", 4.0, None, terms), Way("b", 6.0, None, terms)
    assert advice_of(dear, free, terms=terms)._file_line().startswith("1.50 x as fast")
    nothing = advice_of(Way("a", 0.0), Way("b", 8.0), terms=Terms())
    assert nothing._file_line().startswith("which fits, unlike")

    fast, slow = Way("a", 4.0, 2.0), Way("b", 8.0, 5.0)
    found = advice_of(fast, slow, slow, terms=Terms())
    found = replace(found, best=replace(fast, draws={0: 4.0}))
    found = replace(found, others=[replace(slow, draws={0: 8.0})])
    assert found._next_line() == "2.00 x as fast as the next, b on all"
    alone = advice_of(fast, slow, terms=Terms())
    assert alone._next_line() == "no other system can be, or comes near"


def test_rivals_within_the_interval_of_the_seeds_are_ties() -> None:
    seeds = range(4)
    best = Way("a", 1.0, draws=dict(zip(seeds, (1.0, 1.2, 0.9, 1.1), strict=True)))
    near = Way("b", 1.0, draws=dict(zip(seeds, (1.1, 1.1, 1.0, 1.0), strict=True)))
    far = Way("c", 1.0, draws={seed: 9.0 + seed / 9 for seed in seeds})
    others = [Way("d", 1.0, draws={seed: 1.0}) for seed in (0, 9)]
    found = advice_of(best, best, far, near, *others, terms=Terms())
    assert [tie.row for tie in found.ties] == ["b"]
    line = found._next_line()
    assert line == "1.00 x as fast as the next, c on all; a tie within 95 %: b"


def test_a_change_is_named_from_where_the_winner_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rival that takes 8 s beats the best from a factor of 4 on, at 2 s each."""
    choices: Any = [SimpleNamespace(name=name) for name in "abc"]
    best, rival, _ = choices
    levers = advice._Levers(search_of(Terms()), choices)

    def judge(_: object, choice: Any, edit: Any) -> Any:
        factor = edit.get("x", 1.0)
        seconds = {"a": 2.0 * factor, "b": 8.0, "c": 9.0}[choice.name]
        return (1.0, seconds), f"{choice.name} at {factor:.1f}"

    monkeypatch.setattr(advice._Levers, "judge", judge)
    assert levers.find_winner({}) is best
    assert levers.find_winner({"x": 4.0}) is best  # of equals the present one
    assert levers.find_winner({"x": 4.1}) is rival
    lever = Lever("x", lambda value: {"x": value}, "{:.1f}".format)
    assert [*levers.find_change(lever, 1 / 16)] == []
    assert [*levers.find_change(lever, 16.0)] == ["x from 4.0: b at 4.0"]

    # Of equal seconds the present one stays the best: at 4 both take 8.
    whole = replace(lever, whole=True, write="{:.0f}".format)
    assert [*levers.find_change(whole, 16.0)] == ["x from 5: b at 5.0"]

    def fail(*_: Any, **__: Any) -> Any:
        raise ScenarioError("no such figure")

    broken = replace(lever, name="y", edit=fail)
    asked = []

    def list_levers(_: object, *, priced: bool) -> Any:
        asked.append(priced)
        return [broken, lever]

    monkeypatch.setattr(advice, "list_levers", list_levers)
    best.cost = 3.0
    assert levers.find_changes() == ["x from 4.0: b at 4.0"]
    assert [*levers.search.refused] == ["other y"]
    levers.search.terms = Terms(deadline=9.0)
    levers.find_changes()
    best.cost = None
    levers.find_changes()
    assert asked == [False, True, False]
    levers.choices = [rival, best]
    assert levers.find_changes() == []


def test_the_best_line_has_the_interval_of_several_seeds() -> None:
    """4 and 6 s: t of one degree is 12.7, and 1 s the error of their mean."""
    job = SimpleNamespace(length="5 iterations")
    answer = SimpleNamespace(
        simulated=SimpleNamespace(makespan=40.0),
        experiment=SimpleNamespace(scenario=SimpleNamespace(job=job)),
    )
    best: Any = SimpleNamespace(
        name="p3 on all", seconds=4.0, draws={0: 4.0, 1: 6.0}, cost=2.0, answer=answer
    )
    found = advice_of(best, best, terms=Terms())
    line = "use p3 on all: 4 s ± 13 s per epoch, 2 $; 40 s for 5 iterations"
    assert found._best_line() == line
    best.draws = {0: 4.0}
    best.cost = None
    line = "use p3 on all: 4 s per epoch; 40 s for 5 iterations"
    assert found._best_line() == line


def test_other_figures_may_make_other_machines_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first of three sets is refused, and an epoch takes 2 s on the last set."""
    errors: dict[Any, Any] = {("a",): ScenarioError("no a")}
    epochs = {("b",): 3.0, ("c",): 2.0}
    asked = []

    def answer(question: Any) -> Any:
        asked.append((question.scenario, question.target, question.seeds))
        machines = question.machines
        timed = prospect_of(epochs.get(machines, 9.0)).timed
        timed.refused = errors.get(machines)
        timed.placing = machines

        def check() -> None:
            raise errors[machines]

        timed.checked = check
        return timed

    monkeypatch.setattr(advice, "answer", answer)
    monkeypatch.setattr(advice, "load", lambda short, edit: (short, edit["x"]))
    monkeypatch.setattr(Search, "near_sets", lambda *_: [("a",), ("b",), ("c",)])
    search = search_of(Terms(), short="short")
    levers = advice._Levers(search, [])
    question = Question(None, "p3", target=TARGET, seeds=3)  # type: ignore[arg-type]
    choice: Any = SimpleNamespace(
        answer=SimpleNamespace(question=question),
        passes=5.0,
        name_on=lambda placing: f"on {placing[0]}",
    )
    assert levers.judge(choice, {"x": 7}) == ((1.0, 10.0), "on c")
    assert asked == [(("short", 7), None, 1)] * 3
    errors |= {("b",): ScenarioError("no b"), ("c",): ScenarioError("no c")}
    with pytest.raises(ScenarioError, match="no a"):
        levers.judge(choice, {"x": 7})


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
