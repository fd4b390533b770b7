"""Rows of a table of systems: machines first, then trainings, then the answers.

All machines are chosen before anything is trained, so that what does not fit is known
by then. Trainings are kept by content: a comparison that was cut off goes on with them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from emu.errors import EmulatorError, ScenarioError
from emu.experiment.question import Answer, Question, answer, row_of, scenario_of
from emu.experiment.row_figures import weights_of
from emu.experiment.row_machines import Contest, Machines, Row, Sources, Trial
from emu.experiment.row_rates import Planned, choose_rates
from emu.experiment.row_settings import list_settings
from emu.experiment.scaled_steps import list_smaller
from emu.experiment.spread import spread
from emu.experiment.systems import (
    Target,
    as_variant,
    check_rows,
    list_variants,
    refuse_drawn,
    variant_named,
)
from emu.scenario import Experiment, Scenario, prepare
from emu.scenario.virtual_training import NotReached
from emu.units import format_duration

#: Is told what is done, and how much of it.
Watch: TypeAlias = Callable[[str], None]

R = TypeVar("R")


@dataclass(frozen=True)
class Workers:
    """Processes that share pieces of work, and who is told of what is done."""

    cores: int = 1
    watch: Watch = lambda _: None

    def share(
        self,
        what: str,
        function: Callable[..., R],
        items: Sequence[tuple[Any, ...]],
    ) -> list[R]:
        """Return what a function returns of every item, in order; see `spread`."""
        count = len(items)
        results = {}
        self.watch(f"{what}: 0 of {count}")
        pieces = spread(lambda number: function(*items[number]), count, self.cores)
        with closing(pieces):
            for number, result in pieces:
                if isinstance(result, EmulatorError):
                    raise result
                results[number] = result
                done = len(results)
                self.watch(f"{what}: {done} of {count}")
        return [results[number] for number in range(count)]


def list_questions(
    scenario: Scenario,
    row: str,
    *,
    overrides: Mapping[str, object] | None = None,
    machines: Sequence[str] | None = None,
    target: Target | None = None,
    seeds: int = 1,
) -> list[Question]:
    """Return the questions of a row: one for each of the settings that are tried.

    They are those that the file states for it. Raises ScenarioError as `list_settings`,
    or where ``overrides`` state one of their keys again.
    """
    overrides = overrides or {}
    combinations = list_settings(scenario, row)
    grid = {}
    first_combination = combinations[0]
    if twice := first_combination.keys() & overrides.keys():
        problem = "is stated for this row already: remove it here or there"
        raise scenario.origin.error(("systems", row), f"{min(twice)} {problem}")
    # All combinations have the same keys.
    for key in first_combination:
        values = dict.fromkeys(str(settings[key]) for settings in combinations)
        if len(values) > 1:
            grid[key] = (*values,)

    if target is not None and row in scenario.curve_files:
        _check_alternatives(scenario, row, combinations)
    is_of_file = row == scenario.job.system and not overrides
    names = None if machines is None else tuple(machines)
    questions = []
    for settings in combinations:
        question = Question(
            scenario=scenario,
            row=row,
            settings={**settings, **overrides},
            machines=names,
            target=target,
            seeds=seeds,
            per_machine=target is not None,
            grid=grid,
            exact=is_of_file and not settings,
        )
        questions.append(question)
    return questions


def _check_alternatives(
    scenario: Scenario, row: str, combinations: Sequence[Mapping[str, object]]
) -> None:
    """Raise ScenarioError where settings of a row train otherwise than others of it."""
    causes = set()
    for settings in combinations:
        with suppress(EmulatorError):  # its answer says so
            variant = as_variant(scenario, row, settings)
            causes.add(weights_of(variant))
    if len(causes) > 1:
        problem = "these train in several ways, of which accuracy records one: write it"
        raise scenario.origin.error(("systems", row), problem)


class _Attempts:
    """Trials of rows, of each of which the fastest is kept with its experiment.

    `Row.choose` mostly takes that one, and the answer then needs no other preparation;
    it may take an earlier trial that is hardly slower, which is prepared again.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        rows: Sequence[Row],
        pieces: Sequence[tuple[int, Machines]],
    ) -> None:
        self._questions = questions
        self._rows = rows
        self._fastest: dict[int, Trial] = {}
        # In the order of `Row.choose`, which is not that in which they are tried.
        self._places = {piece: place for place, piece in enumerate(pieces)}
        self._contests = defaultdict[int, Contest](Contest)

    def try_on(self, number: int, machines: Machines) -> Trial:
        """Return how fast a row is on some machines, without its experiment."""
        place = self._places[number, machines]
        contest = self._contests[number]
        trial = self._rows[number].try_on(machines, contest.limit(place))
        contest.note(place, trial)
        question = self._questions[number]
        # With a target the answer is of another length, and what is prepared until an
        # accuracy holds a job of that length in place of the row's own.
        if question.target is None and question.scenario.until is None:
            fastest = self._fastest.setdefault(number, trial)
            if trial.seconds < fastest.seconds:
                self._fastest[number] = trial
        # A job of 64 machines has tens of thousands of edges: one is kept per row.
        return replace(trial, ready=None)

    def ready_on(self, number: int, machines: Machines) -> Experiment | None:
        """Return the experiment of a row on some machines, if it is kept."""
        fastest = self._fastest.get(number)
        if fastest is None or fastest.machines != machines:
            return None
        return fastest.ready


def choose_machines(questions: Sequence[Question], workers: Workers) -> list[Planned]:
    """Return the questions with the machines on which each is fastest.

    One that leaves none open is as it was; where there is none it is the reason.
    """
    plans: list[Planned] = []
    pieces: list[tuple[int, Machines]] = []
    # Each is translated once, whatever number of sets it is tried on.
    sources = Sources()
    rows = [replace(row_of(question), sources=sources) for question in questions]
    for question, row in zip(questions, rows, strict=True):
        number = len(plans)
        try:
            if question.target is not None and not question.has_steps:
                refuse_drawn(question.scenario)
            if question.machines is None:
                # A piece per set, so that cores share a slow row
                # and progress counts what is tried.
                pieces += [(number, names) for names in row.machine_sets()]
            plans.append(question)
        except EmulatorError as error:
            plans.append(error)

    attempts = _Attempts(questions, rows, pieces)

    # Rows on equal machines one after the other: they count the same batches.
    order = sorted(pieces, key=lambda piece: piece[1])
    outcomes = workers.share("machines tried", attempts.try_on, order)
    trials = dict(zip(order, outcomes, strict=True))
    trials_of = defaultdict(list)
    for piece in pieces:
        number, _ = piece
        trials_of[number].append(trials[piece])
    for number, of_question in trials_of.items():
        question = questions[number]
        try:
            names = rows[number].choose(of_question)
            if names is not None:
                ready = attempts.ready_on(number, names)
                plans[number] = replace(question, machines=names, prepared=ready)
        except EmulatorError as error:
            plans[number] = error
    return plans


def best_of(answers: Sequence[Answer]) -> Answer:
    """Return the best answer of a row, which has tried all of them.

    It has the shortest time to the target, or the most training vertices per second. Of
    answers that are all refused it is that which came nearest to the target. One with a
    value in ``systems`` that cannot be read comes first: that is a mistake of the file.
    """
    for row in answers:
        if getattr(row.refused, "key", "").startswith("systems."):
            return row

    found = [row for row in answers if not row.refused]
    if not found:
        return _nearest_of(answers)

    def aim(row: Answer) -> float:
        if row.question.target is not None:
            return row.makespan
        # By seeds per second: settings that are tried may be batches of other sizes.
        return -row.samples_per_second

    trials = []
    for row in answers:
        seconds = None if row.refused else row.makespan
        trials.append(({**row.question.settings}, seconds))
    best = min(found, key=aim)
    return replace(best, tried=tuple(trials))


def _nearest_of(answers: Sequence[Answer]) -> Answer:
    """Return the answer that came nearest to its target, of some that are refused."""
    # Below any accuracy: what was refused before it trained came nearest to nothing.
    return max(answers, key=lambda row: getattr(row.refused, "nearest", -1.0))


def measure(
    scenario: Scenario,
    system: str,
    overrides: Mapping[str, object] | None = None,
    target: Target | None = None,
) -> Answer:
    """Return the answer of a row, with the best of the settings that the file states.

    Raises ScenarioError, PlacementError, DataError as `list_questions`, or with which
    it is refused.
    """
    questions = list_questions(scenario, row=system, overrides=overrides, target=target)
    answers = [answer(question) for question in questions]
    return best_of(answers).checked()


def compare_systems(
    scenario: Scenario,
    systems: Sequence[str],
    seeds: int = 1,
    *,
    same_machines: bool = False,
    target: Target | None = None,
    keep_rate: bool = False,
    watch: Watch = lambda _: None,
    warn: Callable[[str, EmulatorError], None] = lambda *_: None,
    cores: int = 1,
) -> list[Answer]:
    """Return the answer of every system, in the order given.

    Each on machines of its choice; with ``same_machines`` on those of the first. One
    that this scenario cannot be says why in its place. With a ``target`` all train to
    that accuracy, each at the best learning rate of a grid unless ``keep_rate``, and
    each row has the time on all machines too, or is on all of them where that is
    faster. Rows of which the file states a recorded curve are not trained. ``watch`` is
    called with what is done, and how much of it; ``warn`` with each row that cannot be,
    before anything is trained; ``cores`` processes share the work.

    Raises ScenarioError, PlacementError, DataError where no system can be simulated or
    one is unknown.
    """
    check_rows(scenario)
    workers = Workers(cores, watch)
    names = list_variants(systems)
    machines = None
    if same_machines:
        first_row = _first_of(scenario, names, target)
        machines = first_row.machines
    questions = []
    for name in names:
        # A row of one machine chooses that one, whatever the others stand on.
        is_alone = variant_named(name).alone
        questions += list_questions(
            scenario,
            name,
            machines=None if is_alone else machines,
            target=target,
            seeds=seeds,
        )
    plans = choose_machines(questions, workers)
    if target is not None:
        # Trainings may take minutes, and memory that lacks is known from a simulation.
        plans = _refuse_early(plans, workers)
        _warn_of(questions, plans, warn)
        if not keep_rate:
            plans = choose_rates(plans, target, workers.share)
        # Rows of one class learn the same: each is trained once, and kept for all.
        classes = _list_trainings(plans, target)
        workers.share("trainings, one per class of weights", _train, classes)

    pairs = [*zip(questions, plans, strict=True)]
    answers = defaultdict(list)
    for row_answer in workers.share("rows", _answer_planned, pairs):
        name = row_answer.question.row
        answers[name].append(row_answer)
    rows = [best_of(answers[name]) for name in names]
    if all(row.refused for row in rows):
        raise _failure_of(rows, target)
    if target is not None:
        items = [(row, not same_machines) for row in rows]
        rows = workers.share("rows on all machines", _beside_all_machines, items)
    return rows


def _answer_planned(question: Question, planned: Planned) -> Answer:
    """Return an answer whose machines count as chosen where the question left them."""
    if isinstance(planned, EmulatorError):
        return Answer(question, refused=planned)
    row_answer = answer(planned)
    # Who asks again may do so on other machines.
    asked = replace(row_answer.question, prepared=question.prepared)
    row_answer = replace(row_answer, question=asked)
    if question.machines is None and planned.machines is not None:
        return replace(row_answer, chosen=True, held=False)
    return row_answer


def _refuse_early(planned: Sequence[Planned], workers: Workers) -> list[Planned]:
    """Return the questions that can be simulated as long as the file says."""

    def check(question: Planned) -> Answer | None:
        if isinstance(question, EmulatorError):
            return None
        short_question = replace(question, target=None, seeds=1)
        return answer(short_question)

    items = [(question,) for question in planned]
    answers = workers.share("rows checked", check, items)
    outcomes = []
    for question, row_answer in zip(planned, answers, strict=True):
        if isinstance(question, EmulatorError) or row_answer is None:
            outcomes.append(question)
        elif row_answer.refused:
            outcomes.append(row_answer.refused)
        else:
            names = question.machines
            if row_answer.chosen:
                names = row_answer.machines
            outcomes.append(replace(question, machines=names))
    return outcomes


def _warn_of(
    questions: Sequence[Question],
    planned: Sequence[Planned],
    warn: Callable[[str, EmulatorError], None],
) -> None:
    """Tell of rows of which every setting is refused, unless all rows are."""
    wrong = {}
    right = set()
    for question, outcome in zip(questions, planned, strict=True):
        if isinstance(outcome, EmulatorError):
            wrong[question.row] = outcome
        else:
            right.add(question.row)
    for row, error in wrong.items():
        if right and row not in right:
            warn(row, error)


def _failure_of(rows: Sequence[Answer], target: Target | None) -> EmulatorError:
    """Return the error of a table without a row: of a target, what came nearest."""
    best = _nearest_of(rows)
    error = best.refused
    if error is None:
        raise ValueError("a row is there")
    if not isinstance(error, NotReached) or target is None or len(rows) == 1:
        return error

    length = format_duration(error.seconds)
    problem = (
        f"no system holds it within {target.within} epochs: {best.system} came nearest,"
        f" {error.nearest:.2%} after {length}; write more "
        "epochs (--within), or a lower accuracy"
    )
    return ScenarioError(problem, file=f"--to accuracy={target.accuracy:g}")


def _first_of(
    scenario: Scenario, names: Sequence[str], target: Target | None
) -> Answer:
    """Return the first row that can be, whose machines the others are to have."""
    refusals = []
    for name in names:
        questions = list_questions(scenario, name, target=target)
        answers = []
        for question in questions:
            per_epoch = replace(question, target=None)
            answers.append(answer(per_epoch))
        best = best_of(answers)
        if best.refused is None:
            return best
        refusals.append(best.refused)

    if refusals:
        raise refusals[0]
    raise ScenarioError("write two", file="--systems")


def _list_trainings(
    planned: Iterable[Planned], target: Target
) -> list[tuple[Scenario]]:
    """Return one scenario per class of weights, which all the others will find kept."""
    classes: dict[tuple[str, str], Scenario] = {}
    for question in planned:
        if isinstance(question, EmulatorError) or question.curve_file:
            continue
        with suppress(EmulatorError):  # its row says so
            for scenario in _trainings_of(question, target):
                # Rows of equal weights may be of other
                # lengths, and are kept apart then.
                key = (weights_of(scenario), scenario.job.length)
                classes.setdefault(key, scenario)
    return [(scenario,) for scenario in classes.values()]


def _trainings_of(question: Question, target: Target) -> Iterator[Scenario]:
    """Yield what a row trains: with every seed, or smaller graphs in its place."""
    first = question.scenario.seed
    if question.trains_smaller:
        plain = scenario_of(question, first)
        for _, scenario in list_smaller(row_of(question), plain, target):
            yield scenario
        return
    for seed in range(first, first + question.seeds):
        scenario = scenario_of(question, seed)
        yield target.end(scenario)


def _train(scenario: Scenario) -> None:
    """Train until the accuracy of a scenario; what is learnt is kept."""
    with suppress(EmulatorError):  # its row says so
        prepare(scenario)


def _beside_all_machines(row: Answer, free: bool) -> Answer:  # noqa: FBT001 - shared
    """Return a row with its time on all machines; it is there if free and faster."""
    question = row.question
    scenario = question.scenario
    names = scenario.job.ranks(scenario.stated_cluster.names)
    is_alone = variant_named(question.row).alone
    if row.refused or is_alone or set(row.machines) >= set(names):
        return row

    question_of_all = replace(question, machines=tuple(names))
    everywhere = answer(question_of_all)
    if everywhere.refused:  # it has no room there, or too few columns
        return row
    if free and everywhere.makespan < row.makespan:  # it chose by fewer iterations
        return replace(everywhere, tried=row.tried, chosen=True, held=False)
    return replace(row, everywhere=everywhere.makespan)
