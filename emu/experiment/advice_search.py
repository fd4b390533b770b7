"""Search for the system, machines and settings that are best for a job.

A prospect is timed over a few steps, and the passes that its training takes are those
of its family: trainings that differ in who holds which mini-batch. So every learning
is trained once for many prospects, and only as far as it can still be the best. What
seems the best is then settled: trained and simulated as a file of its own would be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import ceil, inf

from emu.errors import EmulatorError, ScenarioError
from emu.experiment.learning_rates import KEY, Learning, Rates, find_rate, rate_of
from emu.experiment.question import Answer, Question, answer, weights_of
from emu.experiment.systems import Target, list_variants, variant_named
from emu.graph_data import open_for
from emu.prediction.placement.machine_sets import machine_sets
from emu.scenario import Scenario, build_job, load
from emu.scenario.edits import placement_edit
from emu.scenario.experiment import WORTHWHILE
from emu.scenario.machine_choice import machines_words
from emu.systems import Edit
from emu.systems.system import system_of, systems
from emu.systems.training_section import TrainingSection
from emu.training.looks import HELD
from emu.units import SIZE

#: Sets of machines that are tried; those on which batches and fan-outs are.
_SETS = 16
_NEAR_SETS = 3
#: Rows whose settings are tried, and steps over which a prospect is timed.
_TUNED = 4
_STEPS = 40
#: A row is trained until it takes so many times as long as the best one.
_RIVAL = 2.0
#: Prospects that seem slower than the best by up to this share are settled as well, so
#: many at most: passes to a target differ by as much between trainings of one family.
_CHANCE = 0.2
_SETTLED = 48
#: Shares of all features that a cache holds.
_CACHES = (0.1, 0.3)
#: Settings of a training that its family does not depend on.
_WHO_HOLDS = ("workers", "samplers_per_worker", "batch_size", "epoch", "partitioner")


@dataclass(frozen=True)
class Terms:
    """Terms of an advice."""

    target: Target | None = None
    """Accuracy to train to; None judges by the time of an epoch."""
    budget: float = inf
    """Dollars at most: to the target, else of an epoch."""
    deadline: float = inf
    """Seconds at most, likewise."""
    staleness: int | None = None
    """Updates that weights may lack at most."""
    seeds: int = 3
    """Seeds that say how sure it is: the file's and those that follow it."""
    keep_rate: bool = False
    """True where no other learning rate than the file's is tried."""

    @property
    def saves(self) -> bool:
        """True where the cheapest is looked for that is fast enough."""
        return self.deadline < inf and self.budget == inf

    def judge(self, seconds: float, cost: float | None) -> tuple[float, float]:
        """Return what is least of the best: how far it is beyond its terms, and time.

        Where a deadline is all that is asked for and machines have prices, dollars.
        """
        if seconds == inf:
            return inf, inf
        dollars = cost or 0.0
        excess = max(seconds / self.deadline, dollars / self.budget, 1.0)
        return excess, dollars if self.saves and cost is not None else seconds

    @property
    def words(self) -> str:
        """Unit of all times, in words."""
        target = self.target
        return f"to accuracy {target.accuracy:g}" if target else "per epoch"


@dataclass(frozen=True, eq=False)
class Choice:
    """One way to train what a file says, simulated."""

    answer: Answer
    terms: Terms

    @cached_property
    def seconds(self) -> float:
        """Seconds to the target with the first seed; without one those of an epoch."""
        _, schedule = self.answer.first
        return schedule.makespan if self.terms.target else self.answer.epoch_seconds

    @cached_property
    def cost(self) -> float | None:
        """Dollars of as much; None where nothing has a price."""
        dollars = self.answer.cost
        if dollars is None:
            return None
        _, schedule = self.answer.first
        share = self.seconds / (schedule.makespan or 1.0)
        return float(dollars["total"]) * share

    @property
    def judged(self) -> tuple[float, float]:
        """What is least of the best choice."""
        return self.terms.judge(self.seconds, self.cost)

    @property
    def row(self) -> str:
        """Row of a table of systems."""
        return self.answer.row

    @property
    def settings(self) -> dict[str, object]:
        """Keys of the job that it has otherwise than the file."""
        settings = self.answer.question.settings
        return {key.removeprefix("job."): value for key, value in settings.items()}

    @property
    def name(self) -> str:
        """System, machines and settings, in words."""
        settings = [f"{key} {words_of(value)}" for key, value in self.settings.items()]
        place = f"{self.row} {machines_words(self.answer.placing)}"
        return ", ".join([place, *settings])


def words_of(value: object) -> str:
    """Return a value of a setting in words."""
    if isinstance(value, Mapping):
        return " ".join(map(str, value.values()))
    return str(value)


@dataclass(frozen=True, eq=False)
class Prospect:
    """A way to train that was timed over a few steps."""

    question: Question
    timed: Answer
    passes: float = 1.0
    """Passes over the training set to the target, of its family."""

    @cached_property
    def epoch_cost(self) -> float | None:
        """Dollars of an epoch; None where nothing has a price."""
        dollars = self.timed.cost
        if dollars is None:
            return None
        _, schedule = self.timed.first
        rate = float(dollars["total"]) / (schedule.makespan or 1.0)
        return rate * self.timed.epoch_seconds

    def judge(self, terms: Terms) -> tuple[float, float]:
        """Return what is least of the best prospect."""
        cost = self.epoch_cost
        dollars = None if cost is None else cost * self.passes
        return terms.judge(self.timed.epoch_seconds * self.passes, dollars)

    def learning_as(self, learning: Learning | None) -> Prospect:
        """Return the prospect at the learning rate of its family, and its passes."""
        if learning is None:
            return self
        settings = {**self.question.settings}
        if self.timed.plain is None or learning.rate != rate_of(self.timed.plain):
            settings[KEY] = learning.rate
        question = replace(self.question, settings=settings)
        return replace(self, question=question, passes=learning.passes)


@dataclass
class Search:
    """Search for the best choice of one file."""

    scenario: Scenario
    terms: Terms
    watch: Callable[[str], None]
    refused: dict[str, EmulatorError] = field(default_factory=dict)
    """Rows that cannot be, and why."""
    choices: list[Choice] = field(default_factory=list)
    """All that was settled."""
    rates: dict[str, tuple[Rates, float]] = field(default_factory=dict)
    """Learning rates by family, and the passes that were of use then."""
    pool: list[Prospect] = field(default_factory=list)
    """All that may be settled."""

    def __post_init__(self) -> None:
        """List the machines that the file lets take part, and free what it places."""
        free = self.scenario
        if free.placement.is_explicit:
            free = load(free, placement_edit(free, "best"))
        self.free = free

        stated = getattr(self.scenario.job, "machines", None)
        cluster = self.scenario.stated_cluster.build()
        names = stated or [machine.name for machine in cluster.machines]
        job = build_job(self.scenario)
        self.sets = machine_sets(job, cluster.only(names), _SETS)

        self.short = free
        if self.terms.target is not None and job.iterations > _STEPS:
            self.short = free.model_copy(update={"job": free.job.of_steps(_STEPS)})
        self._timed: dict[str, Prospect | None] = {}
        self._settled = set[str]()

    @property
    def best(self) -> Choice | None:
        """The best choice that was settled."""
        return min(self.choices, key=lambda choice: choice.judged, default=None)

    def run(self) -> None:
        """Find the best of every row, tune those that lead, and settle the best."""
        leaders = self.lead_rows()
        for number, leader in enumerate(leaders[:_TUNED], 1):
            count = min(len(leaders), _TUNED)
            self.watch(f"settings of {leader.question.row}, {number} of {count}")
            self.tune(leader)
        self.settle_best()

    def settle_file(self) -> Choice | EmulatorError:
        """Return the file as it stands, or why it cannot be."""
        self.watch("the file as it stands")
        target = self.terms.target
        found = answer(Question(self.scenario, target=target))
        if found.refused is not None:
            return found.refused
        try:
            self.check_staleness(found.scenario)
        except ScenarioError as error:
            return error
        choice = Choice(found, self.terms)
        self.choices.append(choice)
        return choice

    def lead_rows(self) -> list[Prospect]:
        """Return the best prospect of every row, on machines of its own, in order.

        Whole graphs first: their trainings are short, and bound those of the others.
        """
        rows: dict[str, list[Prospect]] = {}
        names = [name for name in list_variants(["all"]) if not variant_named(name).alone]
        for number, row in enumerate(names):
            self.watch(f"rows timed: {number} of {len(names)}")
            timed = [self.time(row, machines, {}) for machines in self.sets]
            if prospects := [prospect for prospect in timed if prospect]:
                rows[row] = sorted(prospects, key=self.judge)
                self.refused.pop(row, None)

        def is_later(prospects: Sequence[Prospect]) -> tuple[bool, tuple[float, float]]:
            first = prospects[0]
            return not first.timed.whole_graph, self.judge(first)

        leaders = []
        for number, prospects in enumerate(sorted(rows.values(), key=is_later)):
            self.watch(f"rows trained: {number} of {len(rows)}")
            row = prospects[0].question.row
            learning = self.learn(prospects[0], slack=_RIVAL)
            learnt = [prospect.learning_as(learning) for prospect in prospects]
            leader = min(learnt, key=self.judge)
            self.pool += learnt
            if self.settle(leader, slack=_RIVAL):
                leaders.append(leader)
            elif row not in self.refused:
                problem = f"does not reach it in {_RIVAL:g} x the time of the best"
                self.refused[row] = ScenarioError(problem)
        return sorted(leaders, key=self.judge)

    def judge(self, prospect: Prospect) -> tuple[float, float]:
        """Return what is least of the best prospect."""
        return prospect.judge(self.terms)

    def is_better(self, prospect: Prospect, other: Prospect) -> bool:
        """Return True where a prospect is worth being taken for another."""
        excess, aim = self.judge(other)
        margin = 1 - WORTHWHILE
        if excess > 1:
            return self.judge(prospect) < (excess * margin, inf)
        return self.judge(prospect) < (excess, aim * margin)

    def time(
        self, row: str, machines: tuple[str, ...], settings: Edit
    ) -> Prospect | None:
        """Return a row on some machines, timed once; None where it cannot be."""
        key = json.dumps([row, machines, settings], sort_keys=True, default=str)
        if key not in self._timed:
            question = Question(
                scenario=self.short,
                row=row,
                settings=settings,
                machines=machines,
                per_machine=True,
            )
            found = answer(question)
            try:
                self.check_staleness(found.checked().scenario)
                self._timed[key] = Prospect(question, found)
            except EmulatorError as error:
                self.refused.setdefault(row, error)
                self._timed[key] = None
        return self._timed[key]

    def check_staleness(self, scenario: Scenario) -> None:
        """Raise ScenarioError where weights may lack more updates than is allowed."""
        most = self.terms.staleness
        settings = scenario.to_job(train_vertices=1, pins=False).settings
        system = system_of(settings)
        if most is None or system is None:
            return
        misses = system.updates_missed(settings)
        if system.asynchronous(settings):  # S of Dorylus, on top of an epoch
            misses = 1 + int(settings.get("staleness", 0))
        if misses > most:
            problem = f"its weights may lack {misses} updates"
            raise ScenarioError(problem, file=f"--max-staleness {most}")

    def useful_passes(self, prospect: Prospect, slack: float) -> float:
        """Return the passes in which a prospect may be so much slower than the best."""
        if self.best is None:
            return inf
        excess, aim = self.best.judged
        _, per_pass = self.judge(replace(prospect, passes=1.0))
        return inf if excess > 1 or not per_pass else slack * aim / per_pass

    def learn(self, prospect: Prospect, slack: float = 1.0) -> Learning | None:
        """Return the best learning rate of a prospect's family; None without a target.

        It is infinitely slow where it reaches the target in no passes that are of use.
        """
        target, plain = self.terms.target, prospect.timed.plain
        if target is None or plain is None:
            return None
        useful = min(self.useful_passes(prospect, slack), target.within)
        if useful < 1:
            return Learning(rate_of(plain), levels=_NOTHING)
        family = family_of(plain, self.terms)
        rates, tried = self.rates.get(family, (None, 0.0))
        if rates is None or (rates.best.passes == inf and tried < useful):
            try:
                keep = self.terms.keep_rate
                rates = find_rate(plain, target, useful, keep=keep)
            except EmulatorError as error:
                self.refused.setdefault(prospect.question.row, error)
                return Learning(rate_of(plain), levels=_NOTHING)
            self.rates[family] = rates, useful
        return rates.best

    def tune(self, prospect: Prospect) -> None:
        """Try settings that may make a prospect better, one after the other.

        Batches and fan-outs are another training: they are tried where an accuracy
        tells what that is worth.
        """
        row = prospect.question.row
        for batch in list_batches(prospect, self.terms):
            settings = {**prospect.question.settings, **batch}
            settings.pop(KEY, None)
            near = [machines for machines in self.near_sets(row)]
            timed = [self.time(row, machines, settings) for machines in near]
            if trials := [trial for trial in timed if trial]:
                learning = self.learn(min(trials, key=self.judge))
                prospect = self.prefer(trials, learning, prospect)

        learning = self.learn(prospect)
        for key, values in list_knobs(prospect).items():
            for value in values:
                settings = {**prospect.question.settings, key: value}
                trial = self.time(row, prospect.question.machines or (), settings)
                if trial:
                    prospect = self.prefer([trial], learning, prospect)

        # Others may be better with these settings, or fast enough for a deadline.
        settings = {**prospect.question.settings}
        timed = [self.time(row, machines, settings) for machines in self.sets]
        trials = [trial for trial in timed if trial]
        self.prefer(trials, learning, prospect)
