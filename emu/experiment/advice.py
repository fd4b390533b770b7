"""Which system, on which machines, with which settings: chosen by simulation.

Every system on every set of machines first, with its default settings; then the four
best, one setting after the other. What is simulated is what the file that is left says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, sqrt
from typing import Any, TypeAlias

from emu.errors import EmulatorError, ScenarioError
from emu.experiment.system_rows import limits_of
from emu.experiment.systems import Target, chosen_system, list_variants, variant_named
from emu.graph_data import open_for
from emu.prediction.analysis.throughput import speed_of
from emu.prediction.placement.machine_sets import machine_sets
from emu.problem import Schedule
from emu.problem.fields.cluster_section import Latency
from emu.problem.fields.quantities import combine, write_times
from emu.report.comparison import reason
from emu.runs.intervals import interval, pair
from emu.scenario import Experiment, Scenario, build_job, load, prepare
from emu.scenario.edits import ScenarioEdits, placement_edit, write_nic
from emu.scenario.experiment import WORTHWHILE, cost_of, with_deaths
from emu.scenario.machine_choice import machines_words
from emu.systems import Edit
from emu.systems.system import system_of, systems
from emu.training.looks import epoch_of
from emu.units import DURATION, PRICE, RATE, format_duration, format_money

#: Sets of machines that are tried; rows whose settings are tried; of how many others it
#: is said when they are the better ones.
_SETS, _TUNED, _RIVALS = 16, 4, 2


@dataclass(frozen=True, eq=False)
class Choice:
    """One way to train what a file says."""

    system: str
    """Row of a table of systems."""
    plain: Scenario
    """Scenario of it, whatever it is trained to."""
    ready: Experiment
    schedule: Schedule
    target: Target | None = None
    keys: Edit = field(default_factory=dict)
    """Keys of ``job`` that it has otherwise than by default."""

    @classmethod
    def simulate(cls, system: str, plain: Scenario, target: Target | None) -> Choice:
        """Return a scenario simulated, until a target is reached where there is one.

        Raises ScenarioError, PlacementError, DataError as `prepare`, which a target
        that is not reached does as well.
        """
        ready = prepare(plain if target is None else target.end(plain))
        schedule = with_deaths(ready, ready.simulate())
        return cls(system, plain, ready, schedule, target)

    @property
    def scenario(self) -> Scenario:
        """The scenario of which ``emu simulate`` finds the same makespan."""
        return self.ready.stated or self.ready.scenario

    @cached_property
    def epoch_seconds(self) -> float:
        """Seconds of a pass over the training set at its speed."""
        job = self.schedule.problem.job
        train = open_for(job.settings).train_count
        epoch = epoch_of(job.settings)
        seconds = self.schedule.length
        speed = speed_of(job, self.schedule.task_end, seconds, epoch)
        rate = speed.samples_per_second
        return speed.iteration_seconds if rate is None else train / rate

    @property
    def seconds(self) -> float:
        """Seconds to the target; without one those of an epoch."""
        return self.schedule.makespan if self.target else self.epoch_seconds

    @cached_property
    def cost(self) -> float | None:
        """Dollars of as much; None where nothing has a price."""
        bill = cost_of(self.ready.scenario, self.schedule)
        share = self.seconds / (self.schedule.makespan or 1.0)
        return None if bill is None else bill.total * share

    @property
    def machines(self) -> tuple[str, ...]:
        """Machines on which it has tasks."""
        return tuple(self.ready.placing["machines"])

    @property
    def name(self) -> str:
        """System, machines and settings, in words."""
        where = f"{self.system} {machines_words(self.ready.placing)}"
        return ", ".join([where, *(f"{key} {v}" for key, v in self.keys.items())])

    @cached_property
    def limit(self) -> str:
        """The largest part of its critical path."""
        limits = limits_of(self.ready, self.schedule).items()
        return next((f"{name}, {share:.0%}" for name, share in limits), "nothing")

    def to_json(self) -> dict[str, Any]:
        """Return the documented form; seconds and dollars."""
        names = ("system", "machines", "keys", "seconds", "cost", "limit")
        makespan = {"makespan": self.schedule.makespan}
        return {name: getattr(self, name) for name in names} | makespan


#: Returns what is least of the better choice, with other figures.
Judge: TypeAlias = Callable[[Choice, Edit], tuple[bool, float]]
#: Figures are tried from a sixteenth to sixteen times as much, until both sides of a
#: crossover differ by less than this factor; latencies from one where none is stated.
_WIDE, _NEAR, _LATENCY = 16.0, 1.05, 1e-6


@dataclass(frozen=True)
class Terms:
    """Terms of an advice."""

    target: Target | None = None
    """Accuracy to train to; None judges by the time of an epoch."""
    budget: float = inf
    deadline: float = inf
    """Dollars and seconds, at most: to the target, else of an epoch."""
    staleness: int | None = None
    """Most updates that weights may lack."""
    seeds: int = 3
    """Seeds that say how sure it is: the file's and those that follow it."""

    def judge(self, choice: Choice) -> tuple[bool, float]:
        """Return what is least of the best choice: it fits, and is fast.

        Where a deadline is all that is asked for and machines have prices, cheap.
        """
        seconds, cost = choice.seconds, choice.cost
        misfit = seconds > self.deadline or (cost or 0.0) > self.budget
        return misfit, cost if self.saves and cost is not None else seconds

    @property
    def saves(self) -> bool:
        """True where the cheapest is looked for that is fast enough."""
        return self.deadline < inf and self.budget == inf

    @property
    def words(self) -> str:
        """Unit of all times, in words."""
        target = self.target
        return f"to accuracy {target.accuracy:g}" if target else "per epoch"


@dataclass(frozen=True)
class Advice:
    """The best choice, and how sure that is."""

    terms: Terms
    best: Choice
    others: Sequence[Choice]
    """The best of every other system, in order."""
    stated: Choice | EmulatorError
    """The file as it stands, or why it cannot be."""
    seeds: Mapping[Choice, Mapping[int, float]]
    """Seconds by seed of those that may be the best."""
    rate: tuple[str, float] | None
    """Rate or time that decides most, and the share that half of it saves."""
    changes: Sequence[tuple[str, Choice]]
    """Figures of the file from which on another choice is better, and that."""
    refused: Mapping[str, EmulatorError]
    """Systems that cannot be, and figures that cannot be tried, and why."""

    @property
    def ties(self) -> list[Choice]:
        """Others that differ from the best within the 95 % interval of the seeds."""
        mine = self.seeds[self.best]
        pairs = {c: pair(self.seeds.get(c, {}), mine) for c in self.others}
        return [choice for choice, apart in pairs.items() if apart and apart.tie]

    def lines(self) -> Iterator[str]:
        """Yield five lines: what, against the file, its limit, the next, what if."""
        best, own = self.best, interval([*self.seeds[self.best].values()])
        line = f"use {best.name}: {format_duration(best.seconds)}"
        line += f" ± {format_duration(own.half, 2)}" if own.count > 1 else ""
        line += f" {self.terms.words}"
        line += "" if best.cost is None else f", {format_money(best.cost)}"
        whole, base = format_duration(best.schedule.makespan, 10), self.stated
        yield f"{line}; {whole} for {best.ready.scenario.job.length}"
        if isinstance(base, EmulatorError):
            yield f"not the file as it stands: {reason(base)}"
        elif base is best:
            yield "the file as it stands is the best that was tried"
        else:
            yield f"{self._margin(base)} the file as it stands, {base.name}"
        line = f"limited by {best.limit}"
        if self.rate is not None:
            name, share = self.rate
            line += f"; {name} decides most, twice as fast it saves {share:.1%}"
        yield line
        line = "no other system can be"
        if self.others:
            line = f"{self._margin(self.others[0])} the next, {self.others[0].name}"
        ties = ", ".join(choice.system for choice in self.ties)
        yield line + (f"; a tie within 95 %: {ties}" if ties else "")
        changes = [f"{what}: {other.system}" for what, other in self.changes]
        line = "; ".join(changes) or "nothing within 16 times"
        yield f"what would change it: {line}"

    def _margin(self, other: Choice) -> str:
        """Return the margin to another choice in words, by what was judged."""
        (_, mine), (misfit, aim) = map(self.terms.judge, (self.best, other))
        if misfit or not mine:
            return "which fits, unlike"
        by_cost = self.terms.saves and self.best.cost is not None
        return f"{aim / mine:.2f} x as {'cheap' if by_cost else 'fast'} as"

    def remarks(self) -> Iterator[str]:
        """Yield what cannot be, and why."""
        yield from (f"not {name}: {reason(e)}" for name, e in self.refused.items())

    def to_json(self) -> dict[str, Any]:
        """Return the documented form; seconds and dollars."""
        base = None if isinstance(self.stated, EmulatorError) else self.stated
        changes = [{"what": w, "then": one.to_json()} for w, one in self.changes]
        return {
            "best": self.best.to_json() | {"seeds": {**self.seeds[self.best]}},
            "unit": self.terms.words,
            "stated": base and base.to_json(),
            "others": [one.to_json() for one in self.others],
            "ties": [one.system for one in self.ties],
            "rate": self.rate and dict(zip(("key", "saves"), self.rate, strict=True)),
            "changes": changes,
            "refused": {name: reason(error) for name, error in self.refused.items()},
        }


@dataclass(frozen=True)
class Lever:
    """A figure that may be another one."""

    name: str
    edit: Callable[[float], Edit]
    write: Callable[[float], str]
    now: float = 1.0
    whole: bool = False
    """True where only whole numbers are meant."""

    def middle(self, one: float, other: float) -> float | None:
        """Return a value between two; None where they are as good as neighbours."""
        low, high = sorted((one, other))
        if self.whole:
            return max(round(sqrt(low * high)), low + 1) if high - low > 1 else None
        return sqrt(low * high) if high / low > _NEAR else None

    def find_changes(
        self, best: Choice, rivals: Sequence[Choice], judge: Judge
    ) -> Iterator[tuple[str, Choice]]:
        """Yield, on either side, the value from which a rival is better, and that.

        The choices stay on their machines. Raises EmulatorError when a value cannot be.
        """
        edit, low, high = self.edit(self.now), self.now / _WIDE, self.now * _WIDE
        # By one seed a tie may be ahead as it is, which no value changes.
        rivals = [one for one in rivals if judge(one, edit) >= judge(best, edit)]
        for end in {max(round(low), 1) if self.whole else low, high} - {self.now}:
            edit = self.edit(end)
            ahead = min((best, *rivals), key=lambda one: judge(one, edit))
            near, far = self.now, end
            while ahead is not best and (middle := self.middle(near, far)) is not None:
                edit = self.edit(middle)
                wins = judge(ahead, edit) < judge(best, edit)
                near, far = (near, middle) if wins else (middle, far)
            if ahead is not best:
                beyond = "from" if end > self.now else "down to"
                yield f"{self.name} {beyond} {self.write(far)}", ahead


def list_levers(scenario: Scenario, *, priced: bool) -> Iterator[Lever]:
    """Yield the figures of a file that may change an advice.

    Latency and rates of its network, features, hidden width, what collecting takes;
    where ``priced``, the price of its dearest machines.
    """
    yield from _list_network(scenario)
    settings = scenario.to_job(train_vertices=1, pins=False).settings
    hidden = getattr(getattr(scenario.job, "model", None), "hidden", None)
    length = open_for(settings).feature_length
    for name, key, now in (
        ("features", "job.dataset.feature_length", length),
        ("hidden width", "job.model.hidden", hidden),
    ):
        if now is not None:

            def count(value: float, key: str = key) -> Edit:
                return {key: int(value)}

            yield Lever(name, count, "{:.0f}".format, now, whole=True)
    if (rates := scenario.job.operation_rates) is not None:

        def collect(by: float) -> Edit:
            each = combine(lambda seconds: seconds / by, rates.collect)
            return {"job.rates.collect": write_times(each)}

        yield Lever("collecting", collect, "{:.2g} x as fast".format)
    if priced:
        prices = [m.price or 0.0 for m in scenario.stated_cluster.machines]
        at = prices.index(max(prices))

        def price(by: float) -> Edit:
            return {f"cluster.machines[{at}].price": PRICE.exact(prices[at] * by)}

        yield Lever("the dearest machines", price, "{:.2g} x their price".format)


def _list_network(scenario: Scenario) -> Iterator[Lever]:
    cluster = scenario.stated_cluster
    nics = {i: one.nic for i, one in enumerate(cluster.machines) if one.nic.inward}

    def late(seconds: float) -> Edit:
        both = {way: DURATION.exact(seconds) for way in ("in", "out")}
        latency = Latency.model_validate(both)
        return {
            f"cluster.machines[{i}].nic": write_nic(nic.inward, nic.outward, latency)
            for i, nic in nics.items()
        }

    def faster(by: float) -> Edit:
        edit: Edit = {}
        for i, nic in nics.items():
            rates = nic.inward * by, nic.outward * by
            edit[f"cluster.machines[{i}].nic"] = write_nic(*rates, nic.latency)
        for i, link in enumerate(cluster.links):
            edit[f"cluster.links[{i}].bandwidth"] = RATE.exact(link.bandwidth * by)
        for i, rack in enumerate(cluster.racks):
            rates = rack.uplink.inward * by, rack.uplink.outward * by
            edit[f"cluster.racks[{i}].uplink"] = write_nic(*rates, Latency())
        return edit

    if nics:
        both = (nic.latency for nic in nics.values())
        latest = max(max(one.inward, one.outward) for one in both)
        yield Lever("latency of NICs", late, format_duration, latest or _LATENCY)
    if nics or cluster.links:
        yield Lever("network", faster, "{:.2g} x as fast".format)


@dataclass
class _Search:
    scenario: Scenario
    terms: Terms
    watch: Callable[[str], None]
    refused: dict[str, EmulatorError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """List the machines that the file lets take part, and free what it places."""
        self.free, cluster = self.scenario, self.scenario.stated_cluster.build()
        if self.free.placement.is_explicit:
            self.free = load(self.free, placement_edit(self.free, "best"))
        stated = getattr(self.scenario.job, "machines", None)
        cluster = cluster.only(stated or [one.name for one in cluster.machines])
        self.sets = machine_sets(build_job(self.scenario), cluster, _SETS)

    def simulate(self, system: str, plain: Scenario, *, trained: bool = True) -> Choice:
        """Return a scenario as a choice.

        Raises ScenarioError where its weights may lack more updates than is allowed;
        else as `Choice.simulate`.
        """
        settings = plain.to_job(train_vertices=1, pins=False).settings
        record, most = system_of(settings), self.terms.staleness
        if record is not None and most is not None:
            misses = record.updates_missed(settings)
            if record.asynchronous(settings):  # S of Dorylus, on top of an epoch
                misses = 1 + int(settings.get("staleness", 0))
            if misses > most:
                problem = f"its weights may lack {misses} updates"
                raise ScenarioError(problem, file=f"--max-staleness {most}")
        return Choice.simulate(system, plain, self.terms.target if trained else None)

    def attempt(
        self, row: str, names: Sequence[str], keys: Edit, *, trained: bool = True
    ) -> Choice | None:
        """Return a row on some machines; None, and why in `refused`, where it fails."""
        edit = {f"job.{key}": value for key, value in keys.items()}
        try:
            plain = chosen_system(self.free, row, None, names, spread=True)
            plain = load(plain, edit) if edit else plain
            one = self.simulate(row, plain, trained=trained)
        except EmulatorError as error:
            self.refused[row] = error
            return None
        return replace(one, keys=keys)

    def rows(self) -> dict[str, Choice]:
        """Return the best of every system, with its default settings.

        Machines are chosen by the time of an epoch, so that each is trained once.
        """
        best: dict[str, Choice] = {}
        for row in list_variants(["all"]):
            self.watch(row)
            if variant_named(row).alone:  # among the sets of data_parallel
                continue
            for names in self.sets:
                one = self.attempt(row, names, {}, trained=False)
                if one and (row not in best or self.is_better(one, best[row])):
                    best[row] = one
            if row in best and self.terms.target:
                one = self.attempt(row, best.pop(row).machines, {})
                best |= {row: one} if one else {}
        self.refused = {r: e for r, e in self.refused.items() if r not in best}
        return best

    def is_better(self, one: Choice, other: Choice) -> bool:
        """Return True where a choice is worth being taken for another."""
        misfit, least = self.terms.judge(other)
        return self.terms.judge(one) < (misfit, least * (1 - WORTHWHILE))

    def tune(self, choice: Choice) -> Choice:
        """Return a choice with settings that make it better, one after the other.

        Batches and fan-outs are another training: they are tried where an accuracy
        tells what that is worth.
        """
        job = choice.plain.job
        knobs: dict[str, Sequence[object]] = {**systems()[job.system].knobs}
        size, fanouts = (getattr(job, key, None) for key in ("batch_size", "fanouts"))
        if self.terms.target and size and fanouts:
            knobs["batch_size"] = [n for n in (size // 4, size // 2, size * 2) if n]
            knobs["fanouts"] = [[max(1, n // by) for n in fanouts] for by in (2, 4)]
        for key, values in knobs.items():
            for value in values:
                if getattr(job, key) != value:
                    keys = {**choice.keys, key: value}
                    choice = self.prefer(choice, choice.machines, keys)
        # Others may be better with these settings, or fast enough for a deadline.
        for names in self.sets if choice.keys or self.terms.judge(choice)[0] else ():
            if {*names} != {*choice.machines}:
                choice = self.prefer(choice, names, choice.keys)
        for key in choice.keys if len(choice.keys) > 1 else ():  # one may idle another
            fewer = {k: value for k, value in choice.keys.items() if k != key}
            one = self.attempt(choice.system, choice.machines, fewer)
            if one and self.terms.judge(one) <= self.terms.judge(choice):
                choice = one
        return choice

    def prefer(self, choice: Choice, names: Sequence[str], keys: Edit) -> Choice:
        """Return a choice, or the same system on other machines, if that is better.

        Where a step sees the same, what has no shorter epochs is not trained.
        """
        training = ("batch_size", "fanouts")
        same = all(keys.get(key) == choice.keys.get(key) for key in training)
        one = self.attempt(choice.system, names, keys, trained=not same)
        if one and same and self.terms.target:
            if one.epoch_seconds >= choice.epoch_seconds * (1 - WORTHWHILE):
                return choice
            one = self.attempt(choice.system, names, keys)
        return one if one and self.is_better(one, choice) else choice

    def by_seed(self, choice: Choice) -> dict[int, float]:
        """Return the seconds of a choice by seed, of those with which it can be."""
        first = self.scenario.seed
        seconds = {first: choice.seconds}
        for seed in range(first + 1, first + self.terms.seeds):
            with suppress(EmulatorError):
                again = self.simulate(choice.system, load(choice.plain, {"seed": seed}))
                seconds[seed] = again.seconds
        return seconds

    def deciding(self, best: Choice) -> tuple[str, float] | None:
        """Return the rate of operations, or time, whose half saves most, and share."""
        job, share_saved = best.ready.scenario.job, dict[str, float]()
        at = "rates" if job.operation_rates else "times"
        for name, value in getattr(job, at, ()):
            if value and isinstance(value, float | dict):
                half = write_times(combine(lambda seconds: seconds / 2, value))
                one = self.edit(best, {f"job.{at}.{name}": half})
                share_saved[name] = 1 - one.seconds / (best.seconds or 1.0)
        return max(share_saved.items(), key=lambda item: item[1], default=None)

    def edit(self, choice: Choice, edit: Edit) -> Choice:
        """Return a choice with other figures, at as many steps, standing as it does."""
        scenario, problem = choice.ready.scenario, choice.ready.problem
        if not problem.job.fixed:
            edit = ScenarioEdits(scenario).standing(problem) | edit
        one = Choice.simulate(choice.system, load(scenario, edit), None)
        return replace(one, target=choice.target)

    def find_changes(
        self, best: Choice, rivals: Sequence[Choice]
    ) -> list[tuple[str, Choice]]:
        """Return from which figures of the file on another choice is better."""
        self.watch("what would change it")
        changes, terms = list[tuple[str, Choice]](), self.terms
        prices = terms.saves and best.cost is not None
        for lever in list_levers(self.scenario, priced=prices):
            try:
                changes += lever.find_changes(
                    best, rivals, lambda one, edit: terms.judge(self.edit(one, edit))
                )
            except EmulatorError as error:
                self.refused[f"other {lever.name}"] = error
        return changes


def advise(
    scenario: Scenario, terms: Terms, watch: Callable[[str], None] = lambda _: None
) -> Advice:
    """Return what to use for a file's training, never worse than the file itself.

    ``watch`` is called with what is tried. Raises ScenarioError when nothing keeps to
    budget and deadline, or a budget is stated without prices; where no system can be,
    the error of the first.
    """
    prices = [machine.price for machine in scenario.stated_cluster.machines]
    if terms.budget < inf and not any(price is not None for price in prices):
        problem = "no machine has a price, write for example price: 0.34 $/h"
        raise scenario.origin.error(("cluster", "machines"), problem)
    scenario = load(scenario, {"expect": None, "until": None})
    search = _Search(scenario, terms, watch)
    rows, base = search.rows(), list[Choice]()
    if not rows:
        raise next(iter(search.refused.values()))
    order, refusals = sorted(rows.values(), key=terms.judge), {**search.refused}
    for place, choice in enumerate(order[:_TUNED]):
        watch(choice.name)
        order[place] = search.tune(choice)
    search.refused = refusals  # settings that cannot be are none to speak of
    order.sort(key=terms.judge)
    as_stated: Choice | EmulatorError
    try:
        as_stated = search.simulate(scenario.job.system, scenario)
        base = [as_stated]
    except EmulatorError as error:
        as_stated = error
    # The file's own seed is the one that is printed: no worse there, either.
    least = min(map(terms.judge, base), default=(False, inf))
    finalists = [one for one in order[:_TUNED] if terms.judge(one) <= least]
    finalists = [one for one in [*finalists, *base] if not terms.judge(one)[0]]
    if not finalists:
        raise _contradiction(terms, [*order, *base])
    seeds = {one: search.by_seed(one) for one in {*finalists, *order[:_TUNED]}}

    def mean(one: Choice) -> float:
        """Return what was judged, in the mean over the seeds."""
        share = sum(seeds[one].values()) / len(seeds[one]) / (one.seconds or 1.0)
        return terms.judge(one)[1] * share

    best = min(finalists, key=mean)
    others = [one for one in order if one.system != best.system]
    changes = search.find_changes(best, others[:_RIVALS])
    how = as_stated, seeds, search.deciding(best), changes, search.refused
    return Advice(terms, best, others, *how)


def _contradiction(terms: Terms, choices: Sequence[Choice]) -> ScenarioError:
    """Return the error that nothing fits, with what comes nearest."""

    def words(choice: Choice) -> str:
        cost = "" if choice.cost is None else f" and {format_money(choice.cost)}"
        return f"{choice.name}, {format_duration(choice.seconds)}{cost}"

    fastest = min(choices, key=lambda one: one.seconds)
    cheapest = min(choices, key=lambda one: one.cost or 0.0)
    problem = f"nothing keeps to it {terms.words}: the fastest is {words(fastest)}"
    if fastest.cost is not None:
        problem += f", the cheapest {words(cheapest)}"
    limits = [f"--budget {format_money(terms.budget)}"] * (terms.budget < inf)
    limits += [f"--deadline {format_duration(terms.deadline)}"] * (terms.deadline < inf)
    return ScenarioError(problem, file=" ".join(limits))
