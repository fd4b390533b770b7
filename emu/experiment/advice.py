"""Which system, on which machines, with which settings: chosen by simulation.

Every system on every set of machines first, with its default settings; then the three
best, one setting after the other. What is simulated is what the file that is left says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from emu.errors import EmulatorError, ScenarioError
from emu.experiment.choice import Choice
from emu.experiment.levers import Change, list_levers, try_levers
from emu.experiment.systems import chosen_system, list_variants, variant_named
from emu.experiment.target import Target
from emu.prediction.placement.machine_sets import machine_sets
from emu.problem.fields.quantities import combine
from emu.report.comparison import reason
from emu.report.many_runs import interval, pair
from emu.scenario import Scenario, build_job, load
from emu.scenario.edits import ScenarioEdits, placement_edit
from emu.scenario.experiment import WORTHWHILE
from emu.systems import Edit
from emu.systems.system import system_of, systems
from emu.systems.whole_graph_section import write_time
from emu.units import format_duration, format_money

#: Sets of machines that are tried; systems whose settings are tried; of how many
#: others it is said when they are the better ones.
_SETS, _TUNED, _RIVALS = 16, 3, 2


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

    def fits(self, choice: Choice) -> bool:
        """Return True where a choice keeps to budget and deadline."""
        return choice.seconds <= self.deadline and (choice.cost or 0.0) <= self.budget

    def judge(self, choice: Choice) -> tuple[bool, float]:
        """Return what is least of the best choice: it fits, and is fast.

        Where a deadline is all that is asked for and machines have prices, cheap.
        """
        by_cost = self.saves and choice.cost is not None
        aim = choice.cost if by_cost else choice.seconds
        return not self.fits(choice), aim or 0.0

    @property
    def saves(self) -> bool:
        """True where the cheapest is looked for that is fast enough."""
        return self.deadline < inf and self.budget == inf

    def check(self, scenario: Scenario) -> None:
        """Raise ScenarioError where a budget is stated without prices."""
        prices = [machine.price for machine in scenario.stated_cluster.machines]
        if self.budget < inf and not any(price is not None for price in prices):
            problem = "no machine has a price, write for example price: 0.34 $/h"
            raise scenario.origin.error(("cluster", "machines"), problem)

    @property
    def words(self) -> str:
        """Unit of all times, in words."""
        if self.target is None:
            return "per epoch"
        return f"to accuracy {self.target.accuracy:g}"


@dataclass(frozen=True)
class Advice:
    """What to use, and how sure that is."""

    terms: Terms
    best: Choice
    others: Sequence[Choice]
    """The best of every other system, in order."""
    stated: Choice | None
    """The file as it stands; None where it cannot be."""
    why_not: EmulatorError | None
    seeds: Mapping[Choice, Mapping[int, float]]
    """Seconds by seed of those that may be the best."""
    rate: tuple[str, float] | None
    """Rate or time that decides most, and the share that half of it saves."""
    changes: Sequence[Change]
    untried: Sequence[str]
    refused: Mapping[str, EmulatorError]
    """Systems that cannot be, and why."""

    @property
    def ties(self) -> list[Choice]:
        """Others that differ from the best within the 95 % interval of the seeds."""
        mine = self.seeds[self.best]
        pairs = {c: pair(self.seeds.get(c, {}), mine) for c in self.others}
        return [choice for choice, apart in pairs.items() if apart and apart.tie]

    def lines(self) -> Iterator[str]:
        """Yield five lines: what, against the file, its limit, the next, what if."""
        best, own = self.best, interval([*self.seeds[self.best].values()])
        sure = f" ± {format_duration(own.half, 2)}" if own.count > 1 else ""
        cost = "" if best.cost is None else f", {format_money(best.cost)}"
        yield (
            f"use {best.name}: {format_duration(best.seconds)}{sure} "
            f"{self.terms.words}{cost}; {format_duration(best.schedule.makespan, 10)} "
            f"for {best.ready.scenario.job.length}"
        )
        if self.stated is None:
            why = reason(self.why_not) if self.why_not else "it cannot be simulated"
            yield f"not the file as it stands: {why}"
        elif self.stated is best:
            yield "the file as it stands is the best that was tried"
        else:
            margin = self._beside(self.stated)
            yield f"{margin} the file as it stands, {self.stated.name}"
        line = f"limited by {best.limit}"
        if self.rate is not None:
            name, share = self.rate
            line += f"; {name} decides most, twice as fast it saves {share:.1%}"
        yield line
        yield self._next_line()
        line = "; ".join(map(str, self.changes)) or "nothing within 16 times"
        yield f"what would change it: {line}"

    def _next_line(self) -> str:
        if not self.others:
            return "no other system can be"
        line = f"{self._beside(self.others[0])} the next, {self.others[0].name}"
        if ties := ", ".join(choice.name for choice in self.ties):
            line += f"; a tie within 95 %: {ties}"
        return line

    def _beside(self, other: Choice) -> str:
        """Return the margin to another choice in words, by what was judged."""
        if self.terms.judge(self.best)[1] > 0 and self.terms.fits(other):
            ratio = self.terms.judge(other)[1] / self.terms.judge(self.best)[1]
            by_cost = self.terms.saves and self.best.cost is not None
            return f"{ratio:.2f} x as {'cheap' if by_cost else 'fast'} as"
        return "which fits, unlike"

    def remarks(self) -> Iterator[str]:
        """Yield what cannot be, or could not be tried, and why."""
        yield from (f"not {name}: {reason(e)}" for name, e in self.refused.items())
        yield from (f"not tried, {line}" for line in self.untried)

    def to_json(self) -> dict[str, Any]:
        """Return the documented form; seconds and dollars."""
        return {
            "best": self.best.to_json(),
            "unit": self.terms.words,
            "stated": self.stated and self.stated.to_json(),
            "others": [one.to_json() for one in self.others],
            "ties": [one.system for one in self.ties],
            "seeds": {**self.seeds[self.best]},
            "rate": self.rate and dict(zip(("key", "saves"), self.rate, strict=True)),
            "changes": [change.to_json() for change in self.changes],
            "untried": [*self.untried],
            "refused": {name: reason(error) for name, error in self.refused.items()},
        }


@dataclass
class _Search:
    scenario: Scenario
    terms: Terms
    watch: Callable[[str], None]
    refused: dict[str, EmulatorError] = field(default_factory=dict)

    def simulate(
        self, system: str, plain: Scenario, keys: Edit, *, trained: bool = True
    ) -> Choice | None:
        """Return a choice; None, and the reason kept, where it cannot be."""
        edit = {f"job.{key}": value for key, value in keys.items()}
        try:
            self.check_staleness(plain)
            target = self.terms.target if trained else None
            return Choice.simulate(system, load(plain, edit), target, keys)
        except EmulatorError as error:
            self.refused.setdefault(system, error)
            return None

    def check_staleness(self, plain: Scenario) -> None:
        """Raise ScenarioError where weights may lack more updates than is allowed."""
        settings = plain.to_job(train_vertices=1, pins=False).settings
        system = system_of(settings)
        if system is None or self.terms.staleness is None:
            return
        misses = system.updates_missed(settings)
        if system.asynchronous(settings):  # S of Dorylus, on top of the epoch before
            misses = 1 + int(settings.get("staleness", 0))
        if misses > self.terms.staleness:
            problem = f"its weights may lack {misses} updates"
            raise ScenarioError(problem, file="--max-staleness")

    def sets(self) -> list[tuple[str, ...]]:
        """Return sets of the machines that the file lets take part."""
        stated = getattr(self.scenario.job, "machines", None)
        cluster = self.scenario.stated_cluster.build()
        cluster = cluster.only(stated or [m.name for m in cluster.machines])
        return machine_sets(build_job(self.scenario), cluster, _SETS)

    def on(self, row: str, names: Sequence[str]) -> Scenario | None:
        """Return a row on some machines, placed by its own policy."""
        free = self.scenario
        if free.placement.is_explicit:
            free = load(free, placement_edit(free, "best"))
        try:
            return chosen_system(free, row, None, names, spread=True)
        except EmulatorError as error:
            self.refused.setdefault(row, error)
            return None

    def rows(self) -> dict[str, Choice]:
        """Return the best of every system, with its default settings."""
        best: dict[str, Choice] = {}
        sets = self.sets()
        for row in list_variants(["all"]):
            self.watch(row)
            alone = variant_named(row).alone
            for names in sets:
                if alone and len(names) > 1:
                    continue
                plain = self.on(row, names)
                one = plain and self.simulate(row, plain, {}, trained=False)
                if one and (row not in best or self.better(one, best[row])):
                    best[row] = one
            if row in best:
                self.refused.pop(row, None)
        if self.terms.target is None:
            return best
        trained = ((row, self.simulate(row, c.plain, {})) for row, c in best.items())
        return {row: choice for row, choice in trained if choice}

    def better(self, one: Choice, other: Choice) -> bool:
        """Return True where a choice is worth being taken for another."""
        (misfit, aim), (misfit_of_other, least) = map(self.terms.judge, (one, other))
        return (misfit, aim) < (misfit_of_other, least * (1 - WORTHWHILE))

    def tune_best(self, rows: Mapping[str, Choice]) -> list[Choice]:
        """Return the best of every system, of the first few with better settings."""
        order = sorted(rows.values(), key=self.terms.judge)
        best = [self.tune(choice) for choice in order[:_TUNED]]
        return sorted([*best, *order[_TUNED:]], key=self.terms.judge)

    def tune(self, choice: Choice) -> Choice:
        """Return a choice with settings that make it better, one after the other."""
        self.watch(choice.name)
        for key, values in self.knobs(choice):
            for value in values:
                if getattr(choice.plain.job, key) != value:
                    one = self.quiet(choice, choice.plain, {key: value})
                    choice = one if one and self.better(one, choice) else choice
        # Other machines may be the better ones with these settings.
        for names in self.sets() if choice.keys else ():
            if {*names} != {*choice.machines} and not variant_named(
                choice.system
            ).alone:
                plain = self.on(choice.system, names)
                one = plain and self.quiet(choice, plain, choice.keys)
                choice = one if one and self.better(one, choice) else choice
        return choice

    def quiet(self, choice: Choice, plain: Scenario, keys: Edit) -> Choice | None:
        """Return a choice with other settings beside its own; None where none can be.

        Nothing is trained of one whose epochs are no shorter, at as many seeds.
        """
        system, known = choice.system, {*self.refused}
        whole = {**choice.keys, **keys}
        same = not keys.keys() & {"batch_size", "fanouts"}
        one = self.simulate(system, plain, whole, trained=not same)
        if one and same and self.terms.target:
            faster = one.epoch_seconds < choice.epoch_seconds * (1 - WORTHWHILE)
            one = self.simulate(system, plain, whole) if faster else None
        if system not in known:
            self.refused.pop(system, None)
        return one

    def knobs(self, choice: Choice) -> Iterator[tuple[str, Sequence[object]]]:
        """Yield keys of ``job`` and values to try.

        Batches and fan-outs are another training: they are tried where an accuracy
        tells what that is worth.
        """
        job = choice.plain.job
        yield from systems()[job.system].knobs.items()
        size, fanouts = (getattr(job, key, None) for key in ("batch_size", "fanouts"))
        if self.terms.target and size:
            yield "batch_size", [s for s in (size // 4, size // 2, size * 2) if s]
        if self.terms.target and fanouts:
            yield "fanouts", [[max(1, n // by) for n in fanouts] for by in (2, 4)]

    def by_seed(self, choice: Choice) -> dict[int, float]:
        """Return the seconds of a choice by seed, of those with which it can be."""
        first = self.scenario.seed
        seconds = {first: choice.seconds}
        for seed in range(first + 1, first + self.terms.seeds):
            plain = load(choice.plain, {"seed": seed})
            try:
                again = Choice.simulate(choice.system, plain, self.terms.target)
            except EmulatorError:
                continue
            seconds[seed] = again.seconds
        return seconds

    def deciding(self, best: Choice) -> tuple[str, float] | None:
        """Return the rate of operations, or time, whose half saves most, and share."""
        scenario = best.ready.scenario
        section = scenario.job.operation_rates or getattr(scenario.job, "times", ())
        at = "rates" if scenario.job.operation_rates else "times"
        saved = {}
        for name, value in section:
            if value and isinstance(value, float | dict):
                half = write_time(combine(lambda seconds: seconds / 2, value))
                one = self.edited(best, {f"job.{at}.{name}": half})
                saved[name] = 1 - one.seconds / (best.seconds or 1.0)
        return max(saved.items(), key=lambda item: item[1], default=None)

    def edited(self, choice: Choice, edit: Edit) -> Choice:
        """Return a choice with other figures, at as many steps, standing as it does."""
        scenario, problem = choice.ready.scenario, choice.ready.problem
        if not problem.job.fixed:
            edit = ScenarioEdits(scenario).standing(problem) | edit
        scenario = load(scenario, edit)
        one = Choice.simulate(choice.system, scenario)
        if not choice.target:
            return one
        return Choice(one.system, scenario, one.ready, one.schedule, choice.target)


def advise(
    scenario: Scenario, terms: Terms, watch: Callable[[str], None] = lambda _: None
) -> Advice:
    """Return what to use for a file's training, never worse than the file itself.

    ``watch`` is called with what is tried.

    Raises
    ------
    ScenarioError
        When nothing keeps to budget and deadline, or a budget is stated without prices.
    ScenarioError, PlacementError, DataError
        Where no system can be, the reason of the first.
    """
    terms.check(scenario)
    scenario = load(scenario, {"expect": None, "until": None})
    search = _Search(scenario, terms, watch)
    rows = search.rows()
    stated, why_not = None, None
    try:
        search.check_staleness(scenario)
        stated = Choice.simulate(scenario.job.system, scenario, terms.target)
    except EmulatorError as error:
        why_not = error
    if not rows:
        raise next(iter(search.refused.values()))
    order = search.tune_best(rows)
    candidates = order if stated is None else [stated, *order]
    if not any(map(terms.fits, candidates)):
        raise _contradiction(terms, candidates)
    # The file's own seed is the one that is printed: no worse there, either.
    least = terms.judge(stated) if stated else (True, inf)
    finalists = [one for one in order[:_TUNED] if terms.judge(one) <= least]
    finalists += [stated] if stated and terms.fits(stated) else []
    seeds = {one: search.by_seed(one) for one in {*finalists, *order[:_TUNED]}}
    best = min(finalists, key=lambda one: _mean(terms, one, seeds[one]))
    others = [one for one in order if one.system != best.system]
    watch("what would change it")
    priced = terms.saves and best.cost is not None
    changes, untried = try_levers(
        list_levers(scenario, priced=priced),
        best,
        others[:_RIVALS],
        lambda one, edit: terms.judge(search.edited(one, edit)),
    )
    how = stated, why_not, seeds, search.deciding(best), changes, untried
    return Advice(terms, best, others, *how, search.refused)


def _mean(
    terms: Terms, choice: Choice, seconds: Mapping[int, float]
) -> tuple[bool, float]:
    """Return what is least of the best choice, in the mean over the seeds."""
    misfit, aim = terms.judge(choice)
    mean = sum(seconds.values()) / len(seconds)
    return misfit, aim * mean / (choice.seconds or 1.0)


def _contradiction(terms: Terms, choices: Sequence[Choice]) -> ScenarioError:
    """Return the error that nothing fits, with what comes nearest."""
    fastest = min(choices, key=lambda one: one.seconds)
    line = f"the fastest, {fastest.name}, takes {format_duration(fastest.seconds)}"
    options = [f"--deadline {format_duration(terms.deadline)}"] * (terms.deadline < inf)
    if fastest.cost is not None:
        cheapest = min(choices, key=lambda one: one.cost or 0.0)
        line += f" and {format_money(fastest.cost)}, the cheapest, {cheapest.name}, "
        line += f"{format_duration(cheapest.seconds)} and "
        line += format_money(cheapest.cost or 0.0)
    if terms.budget < inf:
        options.append(f"--budget {format_money(terms.budget)}")
    problem = f"nothing keeps to it: {line} {terms.words}"
    return ScenarioError(problem, file=", ".join(options))
