"""Ways to train a job: choices that were simulated, and prospects that were timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import inf
from operator import mul
from statistics import fmean
from typing import Any

from emu.experiment.learning_rates import KEY, Learning, count_steps, rate_of
from emu.experiment.question import Answer, Question, answer
from emu.experiment.row_machines import Machines
from emu.experiment.systems import Target
from emu.graph_data import open_for
from emu.runs.intervals import Interval, interval
from emu.scenario import Scenario
from emu.scenario.machine_choice import machines_words
from emu.systems import Edit

#: Seconds of CPU of one step of a training, whatever it computes, and of one edge
#: that it aggregates: 260 edges of 767 columns, those of a seed with fan-outs of 10
#: and 25, took 0.25 ms.
_CPU_PER_STEP = 1e-3
_CPU_PER_EDGE = 1e-6


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

    def measure(self, seconds: float, cost: float | None) -> tuple[float, float]:
        """Return the share of its limits that a choice takes, and what is looked for.

        That is seconds; dollars where a deadline is all that is asked for and machines
        have prices.
        """
        # Infinity over an infinite deadline would be NaN, which compares to nothing.
        if seconds == inf:
            return inf, inf
        dollars = cost or 0.0
        # 1 or less where both limits are kept; infinite ones add nothing.
        share = max(seconds / self.deadline, dollars / self.budget)
        is_cost = self.saves and cost is not None
        return share, dollars if is_cost else seconds

    def judge(self, seconds: float, cost: float | None) -> tuple[float, float]:
        """Return what is least of the best: beyond its limits, then the least aim."""
        share, aim = self.measure(seconds, cost)
        # Whatever keeps to its limits is alike in that, and only the aim decides.
        return max(share, 1.0), aim

    @property
    def words(self) -> str:
        """Unit of all times, in words."""
        target = self.target
        if target is None:
            return "per epoch"
        return f"to accuracy {target.accuracy:g}"


@dataclass(frozen=True, eq=False)
class Choice:
    """One way to train what a file says, simulated."""

    answer: Answer
    terms: Terms

    @cached_property
    def draws(self) -> dict[int, float]:
        """Seconds by seed: to the target; without one those of an epoch."""
        if self.terms.target:
            return self.answer.makespans
        seconds = {}
        for seed, draw in self.answer.draws.items():
            rate = draw.speed.samples_per_second
            if rate is None:
                seconds[seed] = draw.speed.iteration_seconds
            else:
                seconds[seed] = self.answer.train / rate
        return seconds

    @property
    def seconds(self) -> float:
        """Seconds likewise, with the first seed."""
        first, *_ = self.draws.values()
        return first

    @property
    def sure(self) -> Interval:
        """Mean of the seconds over the seeds, with its 95 % interval."""
        return interval([*self.draws.values()])

    @cached_property
    def cost(self) -> float | None:
        """Dollars of as much; None where nothing has a price."""
        dollars = self.answer.cost
        if dollars is None:
            return None
        # Machines cost by the hour: an epoch costs its share of the makespan.
        share = self.seconds / (self.answer.simulated.makespan or 1.0)
        return float(dollars["total"]) * share

    @property
    def judged(self) -> tuple[float, float]:
        """Excess over the terms, and aim: least of the best choice."""
        return self.terms.judge(self.seconds, self.cost)

    @property
    def aims(self) -> dict[int, float]:
        """Aims, seconds or dollars, by seed."""
        _, aim = self.judged
        # Dollars go with time, so that seconds over the seeds scale either aim.
        scale = aim / (self.seconds or 1.0)
        return {seed: seconds * scale for seed, seconds in self.draws.items()}

    @property
    def mean_aim(self) -> float:
        """Aim, seconds or dollars, in the mean over the seeds."""
        return fmean(self.aims.values())

    @property
    def passes(self) -> float:
        """Passes over the training set to the target; without one a single pass."""
        return self.answer.epochs if self.terms.target else 1.0

    def drawn(self) -> Choice:
        """Return it with all seeds, or with those up to one with which it cannot be."""
        question = replace(self.answer.question, target=self.terms.target)
        # A later seed may not reach the target: fewer seeds are better than none.
        for seeds in range(self.terms.seeds, 0, -1):
            drawn_answer = answer(replace(question, seeds=seeds))
            if drawn_answer.refused is None:
                # The search chose the machines; the
                # question holds them for the seeds alone.
                drawn_answer = replace(drawn_answer, chosen=True, held=False)
                return replace(self, answer=drawn_answer)
        return self

    @property
    def row(self) -> str:
        """Row of a table of systems."""
        return self.answer.system

    @property
    def settings(self) -> dict[str, object]:
        """Keys of the job that it has otherwise than the file."""
        settings = self.answer.question.settings
        return {key.removeprefix("job."): settings[key] for key in settings}

    @property
    def name(self) -> str:
        """System, machines and settings, in words."""
        return self.name_on(self.answer.placing)

    def name_on(self, placing: Mapping[str, Any]) -> str:
        """Return its name on the machines of another placement."""
        words = [f"{self.row} {machines_words(placing)}"]
        for key, value in self.settings.items():
            words.append(f"{key} {words_of(value)}")
        return ", ".join(words)

    def to_json(self) -> dict[str, object]:
        """Return the documented form; seconds and dollars."""
        return {
            "system": self.row,
            "machines": [*self.answer.machines],
            "keys": self.settings,
            "seconds": self.sure.mean,
            "cost": self.cost,
            "limit": self.answer.limit,
            "makespan": self.answer.simulated.makespan,
        }


def words_of(value: object) -> str:
    """Return a value of a setting in words."""
    if isinstance(value, Mapping):
        return " ".join(map(str, value.values()))
    return str(value)


@dataclass(frozen=True, eq=False)
class Prospect:
    """A way to train that was timed over a few steps."""

    timed: Answer
    """Answer at the learning rate of the file, without a target."""
    learning: Learning | None = None
    """Best learning of its family; None where an epoch is what counts."""

    @property
    def row(self) -> str:
        """Row of a table of systems."""
        return self.timed.question.row

    @property
    def machines(self) -> Machines:
        """Machines that were asked for."""
        return self.timed.question.machines or ()

    @property
    def settings(self) -> Edit:
        """Keys otherwise than in the file, but for its learning rate."""
        return self.timed.question.settings

    @property
    def plain(self) -> Scenario:
        """Scenario that was timed."""
        return self.timed.scenario

    @property
    def batch(self) -> tuple[int, tuple[int, ...]]:
        """Batch and fan-outs that its settings state, else those of the file."""
        job: Any = self.timed.question.scenario.job
        settings: Any = self.settings
        size = settings.get("job.batch_size", job.batch_size)
        fanouts = settings.get("job.fanouts", job.fanouts)
        return int(size), tuple(fanouts)

    @cached_property
    def cpu_per_pass(self) -> float:
        """Seconds of CPU, about, in which a pass over the training set is trained.

        Edges of a whole graph are aggregated at once, in an eighth of the CPU.
        """
        settings = self.timed.experiment.problem.job.settings
        edges = open_for(settings).edges
        if self.timed.whole_graph:
            return _CPU_PER_STEP + _CPU_PER_EDGE / 8 * edges

        hops = accumulate(settings["fanouts"], mul)
        # Fan-outs may ask for more neighbours than a small graph has.
        edges_per_seed = sum(min(hop, edges) for hop in hops)
        of_edges = _CPU_PER_EDGE * edges_per_seed * self.timed.train
        of_steps = _CPU_PER_STEP * count_steps(self.plain)
        return float(of_edges + of_steps)

    @cached_property
    def epoch_cost(self) -> float | None:
        """Dollars of an epoch; None where nothing has a price."""
        dollars = self.timed.cost
        if dollars is None:
            return None
        rate = float(dollars["total"]) / (self.timed.simulated.makespan or 1.0)
        return rate * self.timed.epoch_seconds

    @property
    def passes(self) -> float:
        """Passes over the training set to the target; without one a single pass."""
        return self.learning.passes if self.learning else 1.0

    @property
    def seconds(self) -> float:
        """Seconds that these passes take."""
        return self.timed.epoch_seconds * self.passes

    def judge(self, terms: Terms, passes: float | None = None) -> tuple[float, float]:
        """Return what is least of the best prospect, after so many passes.

        By default its own.
        """
        if passes is None:
            passes = self.passes
        seconds = self.timed.epoch_seconds * passes
        cost = self.epoch_cost
        return terms.judge(seconds, None if cost is None else cost * passes)

    @property
    def question(self) -> Question:
        """Question of it at the learning rate of its learning."""
        settings = {**self.settings}
        # The file's own rate is no setting.
        if self.learning and self.learning.rate != rate_of(self.plain):
            settings[KEY] = self.learning.rate
        return replace(self.timed.question, settings=settings)
