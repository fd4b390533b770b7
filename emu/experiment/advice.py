"""Which system, on which machines, with which settings: an advice for one file.

`emu.experiment.advice_search` finds the choices; here they are compared over seeds,
and it is said what limits the best one and what would change it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import floor, inf, isnan
from operator import itemgetter

from emu.errors import EmulatorError, ScenarioError
from emu.experiment.advice_search import Search
from emu.experiment.learning_rates import rates_words
from emu.experiment.levers import Lever, list_levers
from emu.experiment.prospects import Choice, Prospect, Terms
from emu.experiment.question import answer
from emu.experiment.refusal import reason
from emu.experiment.systems import WITHIN, Target, variant_named
from emu.problem.fields.quantities import combine, write_times
from emu.runs.intervals import pair
from emu.runs.result import Result
from emu.scenario import Scenario, build_job, load, prepare
from emu.scenario.virtual_training import progress_along, trains
from emu.systems import Edit
from emu.training.looks import hold
from emu.units import format_duration, format_money

#: Choices that are drawn with further seeds; of how many others it is said when they
#: are the better ones.
_FINALISTS = 3
_RIVALS = 2
#: Accuracies are rounded down to so many steps of the whole, and are one at least.
_STEPS = 1000
#: Figures are the same that differ by less: sums of floats, in another order.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Advice:
    """The best choice, and how sure that is."""

    terms: Terms
    best: Choice
    others: Sequence[Choice]
    """The best of every other row that was simulated, in order."""
    stated: Choice | EmulatorError
    """The file as it stands, or why it cannot be."""
    rate: tuple[str, float] | None
    """Rate or time that decides most, and the share that half of it saves."""
    changes: Sequence[str]
    """Figures of the file from which on another choice is better, and that."""
    refused: Mapping[str, EmulatorError]
    """Systems that cannot be, and figures that cannot be tried, and why."""
    tried: Sequence[float]
    """Learning rates that were tried."""

    @property
    def ties(self) -> list[Choice]:
        """Others as good as the best, or within the 95 % interval of the seeds."""
        rivals = []
        for rival in self.others:
            margin = pair(rival.aims, self.best.aims)
            if margin is None:
                continue
            # What was not drawn has one seed, of which only the same figure is a tie.
            is_same = abs(margin.mean) < _ROUNDING
            if is_same or margin.tie:
                rivals.append(rival)
        return rivals

    @property
    def premises(self) -> str:
        """Premises of the best choice, and the rates that were tried, in one line."""
        line = self.best.answer.premises.line()
        return "; ".join([line, *rates_words(self.tried)])

    def lines(self) -> Iterator[str]:
        """Yield the premises, then five lines.

        What to use, how it compares with the file, what limits it, what is next, and
        what would change it.
        """
        yield self.premises
        yield self._best_line()
        yield self._file_line()
        limit = f"limited by {self.best.answer.limit}"
        if self.rate is not None:
            name, share = self.rate
            limit += f"; {name} decides most, twice as fast it saves {share:.1%}"
        yield limit
        yield self._next_line()
        changes = "; ".join(self.changes) or "nothing within 16 times"
        yield f"what would change it: {changes}"

    def _best_line(self) -> str:
        best = self.best
        sure = best.sure
        line = f"use {best.name}: {format_duration(sure.mean)}"
        if sure.count > 1:
            line += f" ± {format_duration(sure.half, 2)}"
        line += f" {self.terms.words}"
        if best.cost is not None:
            line += f", {format_money(best.cost)}"

        simulated = best.answer.simulated
        makespan = format_duration(simulated.makespan, 10)
        job = best.answer.experiment.scenario.job
        return f"{line}; {makespan} for {job.length}"

    def _file_line(self) -> str:
        if isinstance(self.stated, EmulatorError):
            return f"not the file as it stands: {reason(self.stated)}"
        if self.stated is self.best:
            return "the file as it stands is the best that was tried"
        margin = self._margin(self.stated)
        return f"{margin} the file as it stands, {self.stated.name}"

    def _next_line(self) -> str:
        if not self.others:
            return "no other system can be, or comes near"
        second = self.others[0]
        line = f"{self._margin(second)} the next, {second.name}"
        ties = ", ".join(choice.row for choice in self.ties)
        if ties:
            tie = "a tie within 95 %" if self.best.sure.count > 1 else "a tie"
            line += f"; {tie}: {ties}"
        return line

    def _margin(self, rival: Choice) -> str:
        """Return the margin to another choice in words, by what was judged.

        Over the seeds that both have: of what was not drawn that is the first.
        """
        aims = self.best.aims
        aims_of_rival = rival.aims
        seeds = aims.keys() & aims_of_rival
        aim = sum(aims[seed] for seed in seeds)
        excess, _ = rival.judged
        if excess > 1 or not aim:
            return "which fits, unlike"
        is_cost = self.terms.saves and self.best.cost is not None
        kind = "cheap" if is_cost else "fast"
        aim_of_rival = sum(aims_of_rival[seed] for seed in seeds)
        ratio = aim_of_rival / aim
        return f"{ratio:.2f} x as {kind} as"

    def remarks(self) -> Iterator[str]:
        """Yield what cannot be, and why."""
        names_of = defaultdict(list)
        for name, error in self.refused.items():
            cause = reason(error)
            names_of[cause].append(name)
        for cause, names in names_of.items():
            yield f"not {', '.join(names)}: {cause}"

    def to_json(self) -> Result:
        """Return the documented form; seconds and dollars."""
        stated_row = None
        if not isinstance(self.stated, EmulatorError):
            stated_row = self.stated.to_json()
        rate = None
        if self.rate is not None:
            key, share = self.rate
            rate = {"key": key, "saves": share}
        best = self.best.to_json()
        best["seeds"] = self.best.draws
        refusals = {}
        for name, error in self.refused.items():
            refusals[name] = reason(error)

        return {
            "premises": self.premises,
            "best": best,
            "unit": self.terms.words,
            "rates": sorted(self.tried),
            "stated": stated_row,
            "others": [rival.to_json() for rival in self.others],
            "ties": [tie.row for tie in self.ties],
            "rate": rate,
            "changes": [*self.changes],
            "refused": refusals,
        }


def advise(
    scenario: Scenario, terms: Terms, watch: Callable[[str], None] = lambda _: None
) -> Advice:
    """Return what to use for a file's training, never worse than the file itself.

    ``watch`` is called with what is tried. Raises ScenarioError when nothing keeps to
    budget and deadline, a budget is stated without prices, or no system reaches the
    target; where no system can be, the error of the first.
    """
    # Before anything is trained, which may take minutes.
    machines = scenario.stated_cluster.machines
    has_prices = any(machine.price is not None for machine in machines)
    if terms.budget < inf and not has_prices:
        problem = "no machine has a price, write for example price: 0.34 $/h"
        raise scenario.origin.error(("cluster", "machines"), problem)
    if scenario.accuracy is not None:
        problem = "is read by emu compare --to alone, and advice trains: remove it"
        raise scenario.origin.error(("accuracy",), problem)
    # Its error, where the file's system can be compared with no other.
    variant_named(scenario.job.system)
    # The target of the terms takes the place of `until`.
    scenario = load(scenario, {"expect": None, "until": None})
    search = Search(scenario, terms, watch)
    # First of all: its time bounds how far everything else is trained.
    file_choice = search.settle_file()
    search.run()
    if search.best is None:
        raise search.describe_failure()

    # By the first seed, since every further one is a simulation of each choice.
    no_worse = _no_worse(search, file_choice)
    rows = _best_of_rows(no_worse)
    drawn = {choice: choice.drawn() for choice in rows[:_FINALISTS]}
    finalists = [*drawn.values()]
    if not finalists:
        raise _contradiction(search, search.best)
    # By the mean: with the first seed alone a choice may be the best by chance.
    best = min(finalists, key=lambda choice: choice.mean_aim)
    stated = file_choice
    # Drawn, where it is a finalist: it may be the best itself.
    if not isinstance(stated, EmulatorError):
        stated = drawn.get(stated, stated)
    rivals = _best_of_rows(search.choices, finalists)
    rivals = [choice for choice in rivals if choice.row != best.row]
    levers = _Levers(search, [best, *rivals[:_RIVALS]])
    return Advice(
        terms=terms,
        best=best,
        others=rivals,
        stated=stated,
        rate=levers.find_rate(),
        changes=levers.find_changes(),
        refused=search.refused,
        tried=search.list_rates(),
    )


def find_target(scenario: Scenario, within: int = WITHIN) -> Target:
    """Return the accuracy that a file's own job reaches in its own length.

    That of ``until`` where it is stated; else what three looks in a row hold at best,
    and of a job that is too short for these what it ends with; rounded down to 0.1 %.
    Raises ScenarioError where nothing is trained or learnt, or the training diverges.
    """
    until = scenario.until
    if until is not None:
        return Target(until.accuracy, until.split, within)
    if not trains(build_job(scenario)):
        problem = "trains no model that has an accuracy: write --per-epoch"
        raise scenario.origin.error(("job",), problem)
    without_checks = load(scenario, {"expect": None})
    ready = prepare(without_checks)
    progress = progress_along(ready.scenario, ready.simulate)
    if progress.diverged is not None:
        problem = f"the training diverges at step {progress.diverged}: lower its lr"
        raise scenario.origin.error(("job", "optimizer"), problem)

    accuracy = progress.accuracy["valid"]
    level = accuracy[-1]
    if isnan(level):
        problem = "has no valid vertices: write --to accuracy=0.8,split=train, say"
        raise scenario.origin.error(("job", "dataset"), problem)
    # A single high look is chance: so many in a row are not.
    levels = hold(accuracy[: progress.spaced])
    if len(levels):
        level = levels.max()
    if level < 1 / _STEPS:
        problem = "learns nothing in its own length: write --to accuracy=0.8, say"
        raise scenario.origin.error(("job",), problem)
    held_steps = floor(float(level) * _STEPS)
    held_accuracy = held_steps / _STEPS
    # The file takes so many passes itself, and
    # what it reaches must not be out of reach.
    passes = max(within, progress.spaced)
    return Target(held_accuracy, within=passes)


def _no_worse(search: Search, stated: Choice | EmulatorError) -> list[Choice]:
    """Return the choices that keep to the terms.

    None is worse than the file with the file's own seed.
    """
    worst = (1.0, inf)
    if isinstance(stated, Choice):
        worst = min(worst, stated.judged)
    return [choice for choice in search.choices if choice.judged <= worst]


def _best_of_rows(
    choices: Sequence[Choice], drawn: Sequence[Choice] = ()
) -> list[Choice]:
    """Return the best choice of every row, in order; of some rows those ``drawn``."""
    rows = {choice.row: choice for choice in drawn}
    for choice in sorted(choices, key=lambda choice: choice.judged):
        rows.setdefault(choice.row, choice)
    return sorted(rows.values(), key=lambda choice: choice.judged)


class _Levers:
    """The best choices with other figures of the file, each on machines of its own."""

    def __init__(self, search: Search, choices: Sequence[Choice]) -> None:
        self.search = search
        self.choices = choices

    def judge(self, choice: Choice, edit: Edit) -> tuple[tuple[float, float], str]:
        """Return what is least of the best choice with an edit, and its words.

        At as many passes; machines are chosen among few. Raises EmulatorError where it
        can be on none.
        """
        # A few steps tell the speed; passes stay those that the choice took.
        scenario = load(self.search.short, edit)
        stated_question = choice.answer.question
        question = replace(stated_question, scenario=scenario, target=None, seeds=1)
        terms = self.search.terms
        passes = choice.passes
        answers = []
        for machines in self.search.near_sets(choice):
            question_there = replace(question, machines=machines)
            answers.append(answer(question_there))

        prospects = [Prospect(row) for row in answers if row.refused is None]
        # The first are its own machines, whose error says why it can be on none.
        if not prospects:
            answers[0].checked()
        # Other figures may make other machines the best.
        best = min(prospects, key=lambda prospect: prospect.judge(terms, passes))
        judgement = best.judge(terms, passes)
        placing = best.timed.placing
        words = choice.name_on(placing)
        return judgement, words

    def find_winner(self, edit: Edit) -> Choice:
        """Return the best choice with an edit; of equal ones the present one."""

        def judge(choice: Choice) -> tuple[float, float]:
            rank, _ = self.judge(choice, edit)
            return rank

        # `min` takes the first of equals, which is the present best.
        return min(self.choices, key=judge)

    def find_changes(self) -> list[str]:
        """Return from which figures of the file on another choice is better."""
        terms = self.search.terms
        best = self.choices[0]
        if self.find_winner({}) is not best:  # a tie, of which no figure is the cause
            return []

        has_price = terms.saves and best.cost is not None
        changes: list[str] = []
        for lever in list_levers(self.search.scenario, priced=has_price):
            self.search.note(f"what would change it: {lever.name}")
            try:
                for end in lever.ends:
                    changes += self.find_change(lever, end)
            except EmulatorError as error:
                self.search.refused[f"other {lever.name}"] = error
        return changes

    def find_change(self, lever: Lever, end: float) -> Iterator[str]:
        """Yield from which value on, on the way to an end, another choice is better."""
        best = self.choices[0]
        edit = lever.edit(end)
        winner = self.find_winner(edit)
        if winner is best:
            return

        def wins(edit: Edit) -> bool:
            rank, _ = self.judge(winner, edit)
            least, _ = self.judge(best, edit)
            return rank < least

        value = lever.find_value(end, wins)
        edit = lever.edit(value)
        _, words = self.judge(winner, edit)
        yield f"{lever.words(value)}: {words}"

    def find_rate(self) -> tuple[str, float] | None:
        """Return the rate of operations, or time, whose half saves most, and share."""
        best = self.choices[0]
        job = best.answer.scenario.job
        section = "rates" if job.operation_rates else "times"
        (_, aim), _ = self.judge(best, {})
        savings = {}
        for name, time in getattr(job, section, ()):
            if not time or not isinstance(time, float | dict):
                continue
            half = combine(lambda seconds: seconds / 2, time)
            # Half of the time, of an operation or of a task: twice as fast.
            edit: Edit = {f"job.{section}.{name}": write_times(half)}
            with suppress(EmulatorError):  # a key that the file's system lacks
                (_, with_half), _ = self.judge(best, edit)
                share_left = with_half / (aim or 1.0)
                savings[name] = 1 - share_left

        return max(savings.items(), key=itemgetter(1), default=None)


def _contradiction(search: Search, nearest: Choice) -> ScenarioError:
    """Return the error that nothing fits, with what comes nearest."""
    terms = search.terms
    limits = []
    if terms.budget < inf:
        budget = format_money(terms.budget)
        limits.append(f"--budget {budget}")
    if terms.deadline < inf:
        deadline = format_duration(terms.deadline)
        limits.append(f"--deadline {deadline}")
    nearness = "what comes nearest"
    if len(limits) == 1:
        nearness = "the cheapest" if terms.budget < inf else "the fastest"

    figures = format_duration(nearest.seconds)
    if nearest.cost is not None:
        cost = format_money(nearest.cost)
        figures += f" and {cost}"
    problem = (
        f"nothing keeps to it: {nearness} is {nearest.name}, {figures} {terms.words}"
    )
    return ScenarioError(problem, file=" ".join(limits))
