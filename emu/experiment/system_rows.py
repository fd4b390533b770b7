"""Rows of a table of systems: machines first, then trainings, then the answers.

All machines are chosen before anything is trained, so that what does not fit is known
by then. Trainings are kept by content: a comparison that was cut off goes on with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from emu.errors import EmulatorError, ScenarioError
from emu.experiment.question import Answer, Question, answer, row_of, scenario_of
from emu.experiment.row_figures import weights_of
from emu.experiment.row_machines import Trial
from emu.experiment.row_rates import choose_rates
from emu.experiment.spread import spread
from emu.experiment.systems import (
    Target,
    check_rows,
    list_settings,
    list_variants,
    variant_named,
)
from emu.scenario import Scenario, prepare
from emu.scenario.virtual_training import NotReached
from emu.units import format_duration

R = TypeVar("R")


@dataclass(frozen=True)
class Workers:
    """Processes that share pieces of work, and who is told of what is done."""

    cores: int = 1
    watch: Callable[[str], None] = lambda _: None

    def share(
        self, what: str, function: Callable[..., R], items: Sequence[tuple[Any, ...]]
    ) -> list[R]:
        """Return what a function returns of every item, in order; see `spread`."""
        results: dict[int, R] = {}
        self.watch(f"{what}: 0 of {len(items)}")
        pieces = spread(lambda n: function(*items[n]), len(items), self.cores)
        with closing(pieces):
            for number, result in pieces:
                if isinstance(result, EmulatorError):
                    raise result
                results[number] = result
                self.watch(f"{what}: {len(results)} of {len(items)}")
        return [results[number] for number in range(len(items))]


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
    tried = list_settings(scenario, row)
    grid = {key: (*dict.fromkeys(str(one[key]) for one in tried),) for key in tried[0]}
    if twice := grid.keys() & (overrides or {}).keys():
        problem = "is stated for this row already: remove it here or there"
        raise scenario.origin.error(("systems", row), f"{min(twice)} {problem}")
    common = Question(
        scenario,
        row,
        machines=None if machines is None else tuple(machines),
        target=target,
        seeds=seeds,
        per_machine=target is not None,
        grid={key: values for key, values in grid.items() if len(values) > 1},
    )
    own_system = row == scenario.job.system
    return [
        replace(
            common,
            settings={**settings, **(overrides or {})},
            exact=own_system and not settings and not overrides,
        )
        for settings in tried
    ]


def choose_machines(
    questions: Sequence[Question], workers: Workers
) -> list[Question | EmulatorError]:
    """Return the questions with the machines on which each is fastest.

    One that leaves none open is as it was; where there is none it is the reason.
    """
    sets: list[list[tuple[str, ...]]] = []
    outcomes: list[Question | EmulatorError] = []
    for question in questions:
        try:
            is_open = question.machines is None
            row = row_of(question, question.scenario.seed)
            sets.append(row.machine_sets() if is_open else [])
            outcomes.append(question)
        except EmulatorError as error:
            sets.append([])
            outcomes.append(error)

    def try_on(number: int, names: tuple[str, ...]) -> Trial:
        question = questions[number]
        return row_of(question, question.scenario.seed).try_on(names)

    pieces = [(number, names) for number, own in enumerate(sets) for names in own]
    trials = workers.share("machines tried", try_on, pieces)
    for number, question in enumerate(questions):
        own = [
            trial for (n, _), trial in zip(pieces, trials, strict=True) if n == number
        ]
        try:
            row = row_of(question, question.scenario.seed)
            if own and (names := row.choose(own)) is not None:
                outcomes[number] = replace(question, machines=names)
        except EmulatorError as error:
            outcomes[number] = error
    return outcomes


def best_of(answers: Sequence[Answer]) -> Answer:
    """Return the best answer of a row, which has tried all of them.

    It has the shortest time to the target, or the most training vertices per second. Of
    answers that are all refused it is that which came nearest to the target.
    """
    there = [one for one in answers if not one.refused]
    if not there:
        return max(answers, key=lambda one: getattr(one.refused, "nearest", -1.0))
    tried = [
        ({**one.question.settings}, None if one.refused else one.makespan)
        for one in answers
    ]
    has_target = there[0].question.target is not None
    best = min(
        there,
        key=lambda one: one.makespan if has_target else -one.samples_per_second,
    )
    return replace(best, tried=tuple(tried))


def measure(
    scenario: Scenario,
    system: str,
    overrides: Mapping[str, object] | None = None,
    seeds: int = 1,
    machines: Sequence[str] | None = None,
    target: Target | None = None,
) -> Answer:
    """Return the answer of a row, with the best of the settings that the file states.

    Raises ScenarioError, PlacementError, DataError as `list_questions`, or with which
    it is refused.
    """
    questions = list_questions(
        scenario,
        system,
        overrides=overrides,
        machines=machines,
        target=target,
        seeds=seeds,
    )
    return best_of([answer(question) for question in questions]).checked()


def compare_systems(
    scenario: Scenario,
    systems: Sequence[str],
    seeds: int = 1,
    *,
    same_machines: bool = False,
    target: Target | None = None,
    keep_rate: bool = False,
    watch: Callable[[str], None] = lambda _: None,
    warn: Callable[[str, EmulatorError], None] = lambda *_: None,
    cores: int = 1,
) -> list[Answer]:
    """Return the answer of every system, in the order given.

    Each on machines of its choice; with ``same_machines`` on those of the first. One
    that this scenario cannot be says why in its place. With a ``target`` all train to
    that accuracy, each at the best learning rate of a grid unless ``keep_rate``, and
    each row has the time on all machines too, or is on all of them where that is
    faster. ``watch`` is called with what is done, and how much of it;
    ``warn`` with each row that cannot be, before anything is trained; ``cores``
    processes share the work.

    Raises ScenarioError, PlacementError, DataError where no system can be simulated or
    one is unknown.
    """
    check_rows(scenario)
    workers = Workers(cores, watch)
    names = list_variants(systems)
    machines = None
    if same_machines:
        machines = _first_of(scenario, names, target).machines
    questions = [
        question
        for name in names
        for question in list_questions(
            scenario,
            name,
            machines=None if variant_named(name).alone else machines,
            target=target,
            seeds=seeds,
        )
    ]
    chosen = choose_machines(questions, workers)
    if target is not None:
        chosen = _refuse_early(chosen, workers)
        _warn_of(questions, chosen, warn)
        if not keep_rate:
            chosen = choose_rates(chosen, target, workers.share)
        classes = _list_trainings(chosen, target)
        workers.share("trainings, one per class of weights", _train, classes)

    answers = workers.share(
        "rows", _answer_planned, [*zip(questions, chosen, strict=True)]
    )
    rows = [
        best_of([one for one in answers if one.question.row == name]) for name in names
    ]
    if all(row.refused for row in rows):
        raise _nearest(rows, target)
    if target is not None:
        items = [(row, not same_machines) for row in rows]
        rows = workers.share("rows on all machines", _beside_all_machines, items)
    return rows


def _answer_planned(question: Question, planned: Question | EmulatorError) -> Answer:
    """Return an answer whose machines count as chosen where the question left them."""
    if isinstance(planned, EmulatorError):
        return Answer(question, refused=planned)
    found = answer(planned)
    if question.machines is not None or planned.machines is None:
        return found
    return replace(found, chosen=True, held=False)


def _refuse_early(
    chosen: Sequence[Question | EmulatorError], workers: Workers
) -> list[Question | EmulatorError]:
    """Return the questions that can be simulated as long as the file says."""

    def check(question: Question | EmulatorError) -> Answer | None:
        if isinstance(question, EmulatorError):
            return None
        return answer(replace(question, target=None, seeds=1))

    answers = workers.share("rows checked", check, [(question,) for question in chosen])
    outcomes: list[Question | EmulatorError] = []
    for question, found in zip(chosen, answers, strict=True):
        if isinstance(question, EmulatorError) or found is None:
            outcomes.append(question)
        else:
            names = found.machines if found.chosen else question.machines
            outcomes.append(found.refused or replace(question, machines=names))
    return outcomes


def _warn_of(
    questions: Sequence[Question],
    chosen: Sequence[Question | EmulatorError],
    warn: Callable[[str, EmulatorError], None],
) -> None:
    """Tell of rows of which every setting is refused, unless all rows are."""
    wrong: dict[str, EmulatorError] = {}
    right = set[str]()
    for question, planned in zip(questions, chosen, strict=True):
        if isinstance(planned, EmulatorError):
            wrong[question.row] = planned
        else:
            right.add(question.row)
    for row, error in wrong.items():
        if right and row not in right:
            warn(row, error)


def _nearest(rows: Sequence[Answer], target: Target | None) -> EmulatorError:
    """Return the error of a table without a row: of a target, what came nearest."""
    best = max(rows, key=lambda row: getattr(row.refused, "nearest", -1.0))
    error = best.refused
    if error is None:
        raise ValueError("a row is there")
    if not isinstance(error, NotReached) or target is None or len(rows) == 1:
        return error
    return ScenarioError(
        f"no system holds it within {target.within} epochs: {best.system} came nearest,"
        f" {error.nearest:.2%} after {format_duration(error.seconds)}; write more "
        "epochs (--within), or a lower accuracy",
        file=f"--to accuracy={target.accuracy:g}",
    )


def _first_of(
    scenario: Scenario, names: Sequence[str], target: Target | None
) -> Answer:
    """Return the first row that can be, whose machines the others are to have."""
    refusals: list[EmulatorError] = []
    for name in names:
        questions = list_questions(scenario, name, target=target)
        answers = [answer(replace(question, target=None)) for question in questions]
        best = best_of(answers)
        if best.refused is None:
            return best
        refusals.append(best.refused)
    raise refusals[0] if refusals else ScenarioError("write two", file="--systems")


def _list_trainings(
    chosen: Iterable[Question | EmulatorError], target: Target
) -> list[tuple[Scenario]]:
    """Return one scenario per class of weights, which all the others will find kept."""
    classes: dict[tuple[str, str], Scenario] = {}
    for question in chosen:
        if isinstance(question, EmulatorError):
            continue
        first = question.scenario.seed
        for seed in range(first, first + question.seeds):
            try:
                scenario = target.end(scenario_of(question, seed))
                key = weights_of(scenario), scenario.job.length
            except EmulatorError:  # its row says so
                continue
            classes.setdefault(key, scenario)
    return [(scenario,) for scenario in classes.values()]


def _train(scenario: Scenario) -> None:
    """Train until the accuracy of a scenario; what is learnt is kept."""
    try:
        prepare(scenario)
    except EmulatorError:  # its row says so
        return


def _beside_all_machines(row: Answer, free: bool) -> Answer:  # noqa: FBT001 - shared
    """Return a row with its time on all machines; it is there if free and faster."""
    scenario = row.question.scenario
    names = scenario.job.ranks(scenario.stated_cluster.names)
    is_alone = variant_named(row.question.row).alone
    if row.refused or is_alone or {*row.machines} >= {*names}:
        return row
    whole = answer(replace(row.question, machines=tuple(names)))
    if whole.refused:  # it has no room there, or too few columns
        return row
    if free and whole.makespan < row.makespan:  # it chose by fewer iterations
        return replace(whole, tried=row.tried, chosen=True, held=False)
    return replace(row, everywhere=whole.makespan)
