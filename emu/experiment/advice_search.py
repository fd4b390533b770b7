"""Search for the system, machines and settings that are best for a job.

A prospect is timed over a few steps, and the passes that its training takes are those
of its family: trainings that differ in who holds which mini-batch. So every learning
is trained once for many prospects, and only as far as it can still be the best. What
seems the best is then settled: trained and simulated as a file of its own would be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import ceil, inf
from typing import Any, TypeAlias

from emu.errors import EmulatorError, ScenarioError
from emu.experiment.advice_knobs import family_of, list_knobs
from emu.experiment.learning_rates import KEY, Learning, Rates, find_rate, nearness
from emu.experiment.prospects import Choice, Prospect, Terms
from emu.experiment.question import Question, answer
from emu.experiment.row_figures import weights_of
from emu.experiment.row_machines import Machines
from emu.experiment.systems import list_variants, variant_named
from emu.prediction.placement.machine_sets import machine_sets
from emu.scenario import Scenario, build_job, load
from emu.scenario.edits import placement_edit
from emu.scenario.experiment import WORTHWHILE
from emu.scenario.virtual_training import NotReached
from emu.systems import Edit
from emu.systems.system import system_of
from emu.systems.training_section import TrainingSection
from emu.systems.whole_graph_section import WholeGraphSection
from emu.training.looks import HELD

#: Neighbours sampled per hop.
Fanouts: TypeAlias = tuple[int, ...]
#: Sets of machines that are tried; those on which batches and fan-outs are.
_SETS = 16
_NEAR_SETS = 3
#: Rows whose settings are tried, those with mini-batches among them at least, and
#: steps over which a prospect is timed.
_TUNED = 4
_SAMPLERS = 2
_STEPS = 40
#: A row is trained until it takes so many times as long as the best one.
_RIVAL = 2.0
#: Prospects that seem slower than the best by up to this share are settled as well, so
#: many at most: passes to a target differ by as much between trainings of one family.
_CHANCE = 0.2
_SETTLED = 48
#: Batches and fan-outs that are tried, times those of the file; where the last one is
#: the best, so many further ones.
_FACTORS = (1.0, 0.5, 0.25, 2.0)
_FURTHER = 3
#: Seconds of CPU, about, of trainings after which further batches and fan-outs are left
#: out: an advice is to take 120 s, and a third of them goes to timing.
_CPU = 60.0


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
    rows: dict[str, list[Prospect]] = field(default_factory=dict)
    """Every row with the file's settings, on the machines on which it is fastest."""
    timed: dict[str, Prospect | None] = field(default_factory=dict)
    nearest: dict[bool, Learning] = field(default_factory=dict)
    """By whether it sees the whole graph, the learning that held most of a target."""
    cpu: float = 0.0
    """Seconds of CPU that trainings have taken so far, about (`cpu_per_pass`)."""
    stage: str = ""
    trainings: int = 0
    """Trainings so far and the present trial, which ``watch`` gets in words."""
    hope: float = inf
    """Seconds or dollars of the best prospect that keeps to the terms."""

    def __post_init__(self) -> None:
        """List the machines that the file lets take part, and free what it places."""
        self.free = self.scenario
        if self.scenario.placement.is_explicit:
            edit = placement_edit(self.scenario, "best")
            self.free = load(self.scenario, edit)

        job = build_job(self.scenario)
        cluster = self.scenario.stated_cluster.build()
        names = getattr(self.scenario.job, "machines", None)
        if not names:
            names = cluster.names
        self.sets = machine_sets(job, cluster.only(names), _SETS)

        self.short = self.free
        if self.terms.target is not None and job.iterations > _STEPS:
            steps = self.free.job.of_steps(_STEPS)
            self.short = self.free.model_copy(update={"job": steps})

    def note(self, stage: str) -> None:
        """Say what is tried from now on."""
        self.stage = stage
        self._tell()

    def _tell(self) -> None:
        suffix = f"; trainings so far: {self.trainings}" if self.trainings else ""
        self.watch(f"{self.stage}{suffix}")

    @property
    def best(self) -> Choice | None:
        """The best choice that was settled."""
        return min(self.choices, key=lambda choice: choice.judged, default=None)

    def run(self) -> None:
        """Find the best of every row, tune those that lead, and settle the best."""
        leaders = self.list_tuned(self.lead_rows())
        for number, leader in enumerate(leaders, 1):
            self.note(f"settings of {leader.row}, {number} of {len(leaders)}")
            self.tune(leader)
        self.settle_best()
        for choice in self.choices:  # whose settings that cannot be are of no interest
            self.refused.pop(choice.row, None)

    def settle_file(self) -> Choice | EmulatorError:
        """Return the file as it stands, or why it cannot be."""
        self.note("the file as it stands")
        # Not `free`: what is compared with is the file with its own placement.
        question = Question(self.scenario, target=self.terms.target)
        file_answer = answer(question)
        try:
            self.check_staleness(file_answer.checked().scenario)
        except EmulatorError as error:
            return error
        choice = Choice(file_answer, self.terms)
        self.choices.append(choice)
        return choice

    def lead_rows(self) -> list[Prospect]:
        """Return the best prospect of every row, on machines of its own, in order.

        Whole graphs first: their trainings are short, and bound those of the others.
        """
        fastest = self._time_rows()
        if self.terms.target is None:
            fastest = [first for first in fastest if self.is_of_class(first)]
        fastest.sort(key=self.judge)
        # A stable sort keeps the order of speed within both classes.
        fastest.sort(key=lambda first: not first.timed.whole_graph)
        leaders = []
        for number, first in enumerate(fastest):
            self.note(f"rows trained: {number} of {len(fastest)}")
            learning = self.learn(first, slack=_RIVAL)
            leader = self.pick(self.rows[first.row], learning)
            # At once: the best so far bounds how far the rows that follow are trained.
            self.settle(leader, slack=_RIVAL)
            leaders.append(leader)
        return sorted(leaders, key=self.judge)

    def _time_rows(self) -> list[Prospect]:
        """Return every row on the machines on which it is fastest."""
        names = list_variants(["all"])
        fastest = []
        for number, row in enumerate(names):
            self.note(f"rows timed: {number} of {len(names)}")
            # Data_parallel on one machine is such a row already.
            if variant_named(row).alone:
                continue
            prospects = self.time_sets(row, self.sets, {})
            self.rows[row] = prospects
            fastest += prospects[:1]
        return fastest

    def list_tuned(self, leaders: Sequence[Prospect]) -> list[Prospect]:
        """Return the rows whose settings are tried, the best first.

        Among them the fastest with mini-batches: with smaller ones they may be several
        times as fast to an accuracy.
        """
        rows = [leader for leader in leaders[:_TUNED] if leader.passes < inf]
        if self.terms.target:
            samplers = [leader for leader in leaders if not leader.timed.whole_graph]
            samplers.sort(key=lambda leader: leader.judge(self.terms, passes=1.0))
            rows += samplers[:_SAMPLERS]
        return [*dict.fromkeys(rows)]

    def is_of_class(self, prospect: Prospect) -> bool:
        """Return True for a prospect that sees as much in a step as the file's job.

        Epochs of others say nothing about which is faster: they are refused.
        """
        is_whole = isinstance(self.free.job, WholeGraphSection)
        if prospect.timed.whole_graph == is_whole:
            return True
        problem = "epochs of whole graphs and of mini-batches differ: write --to"
        self.refused[prospect.row] = ScenarioError(problem)
        return False

    def judge(self, prospect: Prospect) -> tuple[float, float]:
        """Return what is least of the best prospect."""
        return prospect.judge(self.terms)

    def time_sets(
        self,
        row: str,
        sets: Sequence[Machines],
        settings: Edit,
    ) -> list[Prospect]:
        """Return a row on every set of machines on which it can be, the best first."""
        prospects = []
        for machines in sets:
            prospect = self.time(row, machines, settings)
            if prospect is not None:
                prospects.append(prospect)
        return sorted(prospects, key=self.judge)

    def time(self, row: str, machines: Machines, settings: Edit) -> Prospect | None:
        """Return a row on some machines, timed once; None where it cannot be."""
        # Lists and sections in settings are no keys of a dict: their text is.
        key = json.dumps([row, machines, settings], sort_keys=True, default=str)
        if key not in self.timed:
            question = Question(
                scenario=self.short,
                row=row,
                settings=settings,
                machines=machines,
                per_machine=True,
            )
            row_answer = answer(question)
            prospect = None
            try:
                self.check_staleness(row_answer.checked().scenario)
                prospect = Prospect(row_answer)
            except EmulatorError as error:
                # The first reason stays: later ones are
                # of settings that were only tried.
                self.refused.setdefault(row, error)
            self.timed[key] = prospect

        return self.timed[key]

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
        """Return the passes until a prospect is so many times as slow as the best."""
        terms = self.terms
        least_share = 1.0
        least_aim = self.hope
        if self.best is not None:
            least_share, aim = terms.measure(self.best.seconds, self.best.cost)
            least_aim = min(aim, self.hope)

        seconds = prospect.timed.epoch_seconds
        share, aim = terms.measure(seconds, prospect.epoch_cost)
        # Nothing keeps to the limits yet, so that what
        # comes nearer to them is the better one.
        if least_share > 1:
            return slack * least_share / share
        return slack * least_aim / aim if aim else inf

    def learn(self, prospect: Prospect, slack: float = 1.0) -> Learning | None:
        """Return the best learning of a prospect's family; None without a target.

        It takes infinitely many passes where the target is reached too late to be of
        use: not before the prospect is ``slack`` times as slow as the best choice.
        """
        target = self.terms.target
        if target is None:
            return None
        useful = self.useful_passes(prospect, slack)
        useful = min(useful, target.within)
        family = family_of(prospect)
        if family in self.rates:
            rates, passes = self.rates[family]
            # Trained as far as is of use: going on could not make it the best.
            if rates.best.passes < inf or passes >= useful:
                return rates.best

        rates = self.find_rates(prospect.plain, prospect, useful)
        self.rates[family] = rates, useful
        return rates.best

    def probe(self, prospect: Prospect) -> Learning | None:
        """Return the learning of a prospect with other batches, as `learn` does.

        While nothing has reached the target, the rate that came nearest is tried alone
        at first: all rates with each batch would take minutes for nothing.
        """
        nearest = self.nearest.get(prospect.timed.whole_graph)
        is_hopeless = self.best is None and self.hope == inf
        is_new = family_of(prospect) not in self.rates
        if nearest is not None and is_new and is_hopeless:
            plain = load(prospect.plain, {KEY: nearest.rate})
            useful = self.useful_passes(prospect, slack=1.0)
            learning = self.find_rates(plain, prospect, useful, keep=True).best
            if learning.passes == inf:
                return learning
        return self.learn(prospect)

    def find_rates(
        self,
        plain: Scenario,
        prospect: Prospect,
        useful: float,
        *,
        keep: bool = False,
    ) -> Rates:
        """Return the learning rates of a scenario, and note what they have shown.

        ``keep``: as of `find_rate`. Raises as that.
        """
        target = self.terms.target
        assert target is not None  # noqa: S101 - nothing is trained without one

        def count(_: float) -> None:
            self.trainings += 1
            self._tell()

        keep = keep or self.terms.keep_rate
        rates = find_rate(
            plain,
            target=target,
            most=useful,
            keep=keep,
            watch=count,
        )
        for learning in rates.tried.values():
            # `hold` returns fewer levels than there
            # were looks, and each look is a pass.
            passes = len(learning.levels) + HELD - 1
            self.cpu += passes * prospect.cpu_per_pass

        is_whole = prospect.timed.whole_graph
        learnings = [rates.best]
        if is_whole in self.nearest:
            learnings.append(self.nearest[is_whole])
        self.nearest[is_whole] = min(learnings, key=nearness)
        return rates

    def pick(
        self, prospects: Sequence[Prospect], learning: Learning | None
    ) -> Prospect:
        """Return the best of some prospects of one family; all may be settled later."""
        learnt = [replace(prospect, learning=learning) for prospect in prospects]
        self.pool += learnt
        return min(learnt, key=self.judge)

    def prefer(
        self,
        prospect: Prospect,
        trials: Sequence[Prospect],
        learning: Learning | None,
    ) -> Prospect:
        """Return the best of some trials where it is worth it, or the prospect."""
        if not trials:
            return prospect
        trial = self.pick(trials, learning)
        excess, aim = self.judge(prospect)
        bound = (1.0, aim * (1 - WORTHWHILE))
        # Beyond its limits it is better by coming nearer to them, whatever its aim.
        if excess > 1:
            bound = (excess * (1 - WORTHWHILE), inf)

        excess, aim = self.judge(trial)
        if (excess, aim) >= bound:
            return prospect
        if excess == 1:
            self.hope = min(self.hope, aim)
        return trial

    def tune(self, prospect: Prospect) -> None:
        """Try settings that may make a prospect better, one after the other.

        Batches and fan-outs are another training: they are tried where an accuracy
        tells what that is worth.
        """
        if self.terms.target:
            prospect = self.tune_batches(prospect)
        if prospect.passes == inf:
            return

        learning = prospect.learning
        for key, values in list_knobs(prospect).items():
            for value in values:
                # One key after the other: each choice stays for the next, where a grid
                # of all would multiply their numbers.
                settings = {**prospect.settings, key: value}
                trials = self.time_sets(prospect.row, [prospect.machines], settings)
                prospect = self.prefer(prospect, trials, learning)

        # Others may be better with these settings, or fast enough for a deadline.
        trials = self.time_sets(prospect.row, self.sets, prospect.settings)
        prospect = self.prefer(prospect, trials, learning)
        self.settle(self.drop_idle(prospect), slack=_RIVAL)

    def describe_failure(self) -> EmulatorError:
        """Return why nothing could be settled: what each class held at best."""
        target = self.terms.target
        levels = []
        for is_whole, learning in self.nearest.items():
            systems_of_class = "whole graphs" if is_whole else "mini-batches"
            level = f"hold {learning.level:.1%} at best"
            levels.append(f"{systems_of_class} {level}, with lr {learning.rate:g}")
        if target is None or not levels:
            return next(iter(self.refused.values()))

        problem = (
            f"no system reaches it within {target.within} passes: {'; '.join(levels)}; "
            "write a lower accuracy, or more passes with --within"
        )
        option = f"--to accuracy={target.accuracy:g},split={target.split}"
        return ScenarioError(problem, file=option)

    def near_sets(self, choice: Choice) -> list[Machines | None]:
        """Return the machines among which a choice chooses with other figures.

        Its own, all, and the set on which its row is the fastest; the file as it stands
        chooses as it does.
        """
        question = choice.answer.question
        if not question.row:
            return [None]
        sets = [question.machines, self.sets[0]]
        prospects = self.rows[question.row]
        if prospects:
            sets.append(prospects[0].machines)
        return [*dict.fromkeys(sets)]

    def list_rates(self) -> list[float]:
        """Return the learning rates that were tried."""
        tried_rates: set[float] = set()
        for rates, _ in self.rates.values():
            tried_rates.update(rates.tried)
        return sorted(tried_rates)

    def drop_idle(self, prospect: Prospect) -> Prospect:
        """Return a prospect without settings that are of no use beside the others."""
        for key in prospect.settings:
            if key in ("job.batch_size", "job.fanouts"):  # which are another training
                continue
            settings = {**prospect.settings}
            del settings[key]
            trials = self.time_sets(prospect.row, [prospect.machines], settings)
            if trials:
                trial = self.pick(trials, prospect.learning)
                # A tie as well: what changes nothing is no advice.
                if self.judge(trial) <= self.judge(prospect):
                    prospect = trial
        return prospect

    def try_batch(
        self,
        prospect: Prospect,
        batch_size: int,
        fanouts: Sequence[int],
    ) -> Prospect:
        """Return a prospect, or what is better with another batch and fan-outs.

        On the machines on which its row was fastest as the file has it.
        """
        job: Any = self.free.job
        settings = {**prospect.settings}
        # What the file has is no setting, so that premises name true changes alone.
        settings.pop("job.batch_size", None)
        settings.pop("job.fanouts", None)
        if batch_size != job.batch_size:
            settings["job.batch_size"] = batch_size
        if tuple(fanouts) != tuple(job.fanouts):
            settings["job.fanouts"] = [*fanouts]
        fastest = self.rows[prospect.row][:_NEAR_SETS]
        sets = [trial.machines for trial in fastest]
        trials = self.time_sets(prospect.row, sets, settings)
        if not trials:
            return prospect

        first = trials[0]
        if self.cpu > _CPU and family_of(first) not in self.rates:
            return prospect
        return self.prefer(prospect, trials, self.probe(first))

    def tune_batches(self, prospect: Prospect) -> Prospect:
        """Return a prospect with the best batch and fan-outs.

        Around those of the file, and further where the last ones are the best.
        """
        job = self.free.job
        if not isinstance(job, TrainingSection) or prospect.timed.whole_graph:
            return prospect

        sizes = {_scaled(job.batch_size, factor) for factor in _FACTORS}
        samples = {_scaled_fanouts(job.fanouts, factor) for factor in _FACTORS}
        # Few neighbours first: they cost the least, and bound the others.
        for fanouts, size in product(sorted(samples), sorted(sizes)):
            prospect = self.try_batch(prospect, size, fanouts)

        for _ in range(_FURTHER):
            batch = prospect.batch
            size, fanouts = batch
            further = []
            if size == min(sizes):
                further.append((_scaled(size, 0.5), fanouts))
            elif size == max(sizes):
                further.append((_scaled(size, 2.0), fanouts))
            if fanouts == min(samples):
                further.append((size, _scaled_fanouts(fanouts, 0.5)))
            for next_size, next_fanouts in further:
                sizes.add(next_size)
                samples.add(next_fanouts)
                prospect = self.try_batch(prospect, next_size, next_fanouts)
            if prospect.batch == batch:
                break
        return prospect

    def settle(self, prospect: Prospect, slack: float = 1.0) -> Choice | None:
        """Return a prospect trained and simulated; None, and why, where it fails."""
        target = self.terms.target
        # The whole job: what was timed is a few steps of it.
        question = replace(prospect.question, scenario=self.free)
        if target is not None:
            useful = self.useful_passes(prospect, slack)
            passes = target.within
            if useful < passes:  # looks that make it sure come after
                passes = min(passes, ceil(useful) + HELD - 1)
            bounded_target = replace(target, within=passes)
            question = replace(question, target=bounded_target)
        row_answer = answer(question)
        if row_answer.refused is not None:
            refusal = row_answer.refused
            # It was cut off at the bound: how near it came says nothing of the row.
            if isinstance(refusal, NotReached):
                problem = f"not there in {slack:g} x the time of the best so far"
                refusal = ScenarioError(problem)
            self.refused.setdefault(prospect.row, refusal)
            return None

        choice = Choice(row_answer, self.terms)
        self.choices.append(choice)
        return choice

    def settle_best(self) -> None:
        """Settle what seems the best, and what may be as good."""
        twins = set[tuple[object, ...]]()
        # Sorting is stable: of equal prospects the one
        # with the fewest settings is settled.
        plain_first = sorted(self.pool, key=lambda prospect: len(prospect.settings))
        for prospect in sorted(plain_first, key=self.judge):
            excess, aim = self.judge(prospect)
            if self.best is None or aim == inf or len(twins) == _SETTLED:
                break
            least_excess, least_aim = self.best.judged
            slack = 1 + _CHANCE
            if excess > least_excess * slack or aim > least_aim * slack:
                break

            # Settings that change nothing leave both as they are.
            rate = prospect.learning.rate if prospect.learning else None
            twin = (weights_of(prospect.plain), rate, prospect.timed.makespan)
            if twin not in twins:
                twins.add(twin)
                self.note(f"the best settled: {len(twins)}")
                self.settle(prospect)
                if self.terms.target:
                    self.cpu += prospect.passes * prospect.cpu_per_pass
            # As much again as tuning may take: an advice ends in about its time.
            if self.cpu > 2 * _CPU:
                break


def _scaled(count: int, factor: float) -> int:
    return max(round(count * factor), 1)


def _scaled_fanouts(fanouts: Sequence[int], factor: float) -> Fanouts:
    return tuple(_scaled(fanout, factor) for fanout in fanouts)
