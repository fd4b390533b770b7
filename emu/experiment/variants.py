"""Variants of one scenario: other placements, rules for rates, and moves of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import itemgetter

from emu.errors import EmulatorError, PlacementError, ScenarioError
from emu.experiment.question import Answer, Question, answer
from emu.prediction.placement.moves import Move, Neighbour, move, moves_between
from emu.prediction.placement_policies import PLACEMENT_POLICIES
from emu.prediction.scheduling import list_rules
from emu.problem import Job, Problem
from emu.problem.fields.suggestion import nearest
from emu.runs.result import Row
from emu.scenario import Experiment, Scenario, load, prepare
from emu.scenario.edits import ScenarioEdits, placement_edit
from emu.scenario.experiment import check_rule
from emu.scenario.pins import process_of
from emu.systems import Edit

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Candidate:
    """One row of a comparison: the answer of a variant, with its names."""

    placement: str
    policy: str
    answer: Answer
    moves: tuple[Move, ...] = ()
    """Tasks that stand elsewhere than in the scenario as it is, with its first seed."""
    placing: Row | None = None
    """Method of its placement, see docs/results.md; None of a move or swap."""
    kept: bool = False
    """True where the placement is that of the first row's rule, whatever its own."""

    @property
    def name(self) -> str:
        """Placement and policy."""
        return f"{self.placement}, {self.policy}"

    @property
    def refused(self) -> EmulatorError | None:
        """The reason why there are no makespans."""
        return self.answer.refused

    @property
    def makespan(self) -> float:
        """Mean over the seeds, seconds; infinite where it was refused."""
        return inf if self.refused else self.answer.makespan

    @property
    def makespans(self) -> Mapping[int, float]:
        """Seconds by seed; none where it was refused."""
        if self.refused:
            return {}
        return self.answer.makespans

    @property
    def missed(self) -> tuple[str, ...]:
        """Lines of ``expect`` that a seed does not meet."""
        return self.answer.missed

    @property
    def scenarios(self) -> Mapping[int, Scenario]:
        """By seed, what ``emu simulate`` finds the same of."""
        return self.answer.scenarios

    def beside(self, other: Candidate) -> Candidate:
        """Return the candidate with the answers of other seeds as well."""
        joint_answer = self.answer.beside(other.answer)
        return replace(self, answer=joint_answer)


def compare_variants(
    base: Experiment,
    placements: Sequence[str] = (),
    policies: Sequence[str] = (),
    *,
    moves: Pairs = (),
    swaps: Pairs = (),
    seeds: int = 1,
    keep_placement: bool = False,
    jobs: int = 1,
) -> list[Candidate]:
    """Return the simulated makespans of all variants of ``base``.

    First ``base`` as it is, then its placement with each move (task, machine) and swap
    (task, task), then every combination of the other placements and policies; without
    names the scenario's own; ``all`` is every one that needs nothing stated. Each is a
    scenario of its own, placed under its own rule, or with ``keep_placement`` once,
    under that of ``base``; one that cannot be is a row that says so. So many ``seeds``,
    from that of ``base`` on, are spread over ``jobs`` processes as by `spread`.

    Raises ScenarioError, PlacementError, DataError as loading, placing and realizing
    ``base`` raise, where a name is unknown, or when a move cannot be.
    """
    # It brings processes and sockets, which tables of variants do not need.
    from emu.experiment.spread import spread  # noqa: PLC0415

    if [*policies] == ["all"]:
        policies = list_rules(base.policy)
        if placements:  # others under its own rule are rows, too
            policies.insert(0, base.scenario.schedule.policy)
    if [*placements] == ["all"]:
        placements = _list_placements(base.scenario)
    rules = _rules_named(base.scenario, policies)
    # What leaves most open: with another seed length and machines may be others.
    source = base.stated or base.unchosen or base.scenario

    def of_seed(number: int) -> list[Candidate]:
        is_first = number == 0
        ready = base
        if not is_first:
            seed = base.scenario.seed + number
            ready = prepare(load(source, {"seed": seed}))

        # A move is refused with the first seed, whose placement the reader sees; with a
        # later one it is a row with a reason.
        neighbours = _near(ready.problem, moves, swaps, again=not is_first)
        near = [*neighbours]
        variants = _Variants(
            ready,
            expected=base.scenario,
            is_first=is_first,
            keeps=keep_placement,
        )
        rows = [variants.as_it_is()]
        rows += variants.moved(near)
        rows += variants.others(placements, rules or {"": ready.policy})
        if is_first:
            return rows
        return [_brief(row) for row in rows]

    rows: list[Candidate] = []
    # By seed: rows of the first one have schedules, to which the others add makespans.
    pieces = spread(of_seed, seeds, jobs)
    for _, variants in sorted(pieces, key=itemgetter(0)):
        if isinstance(variants, EmulatorError):
            raise variants
        if rows:
            pairs = zip(rows, variants, strict=True)
            rows = [row.beside(later) for row, later in pairs]
        else:
            rows = variants
    return rows


def _list_placements(scenario: Scenario) -> list[str]:
    """Return the rules of placement that need nothing stated, and the scenario's."""
    stated = scenario.placed_by
    names = dict.fromkeys(PLACEMENT_POLICIES)
    del names["explicit"]
    names.pop(stated, None)
    return [stated, *names]


def _rules_named(scenario: Scenario, policies: Sequence[str]) -> dict[str, str]:
    """Return policy as stated, which may be a class of one's own -> its name."""
    rules = {}
    for policy in policies:
        variant = load(scenario, {"schedule.policy": policy, "expect": None})
        check_rule(variant)
        rules[policy] = variant.schedule.rule
    return rules


def _brief(row: Candidate) -> Candidate:
    """Return a row of a later seed, of which the makespan alone is shown."""
    # Nothing else of it is sent from process to process.
    brief_answer = replace(row.answer, ready=None, schedule=None)
    return replace(row, answer=brief_answer)


@dataclass(frozen=True)
class _Variants:
    """Variants of one experiment, all with its seed."""

    base: Experiment
    expected: Scenario
    """Scenario whose ``expect`` holds."""
    is_first: bool
    """True with the first seed, of which single values of ``expect`` are."""
    keeps: bool

    def as_it_is(self) -> Candidate:
        """Return the row of the experiment itself."""
        base = self.base
        scenario = replace_expect(base.scenario, self.expected)
        question = Question(scenario, exact=self.is_first, prepared=base)
        row = answer(question).checked()
        # Now, in the process of its seed: the table would compute them one by one.
        row.warm()

        return Candidate(
            placement=base.scenario.placed_by,
            policy=base.policy,
            answer=row,
            moves=(),
            placing=base.placing,
        )

    def moved(
        self, neighbours: Sequence[Neighbour | ScenarioError]
    ) -> Iterator[Candidate]:
        """Yield the rows of moves and swaps."""
        standing = ScenarioEdits(self._source).standing
        for neighbour in neighbours:
            if isinstance(neighbour, ScenarioError):
                refusal = Answer(Question(self._source), refused=neighbour)
                name = str(neighbour.file)
                yield Candidate(name, self.base.policy, refusal)
                continue
            # All tasks are held: searched anew, the others would move as well.
            moved_problem = replace(self.base.problem, placement=neighbour.placement)
            edit = standing(moved_problem)
            row = self._row(
                str(neighbour),
                policy=self.base.policy,
                source=self._source,
                edit=edit,
            )
            yield replace(row, moves=neighbour.moves, placing=None)

    def others(
        self, placements: Sequence[str], rules: Mapping[str, str]
    ) -> Iterator[Candidate]:
        """Yield every other combination; ``rules`` is policy as stated -> its name."""
        base = self.base
        source = self._source
        if base.unchosen is not None and not self.keeps:
            source = base.unchosen  # and may choose other machines

        base_placement = base.scenario.placed_by
        for placement in placements or [base_placement]:
            edit = {}
            choices = {**rules}
            # The base has this row already.
            if placement == base_placement:
                for policy, rule in rules.items():
                    if rule == base.policy:
                        del choices[policy]
            else:
                edit = placement_edit(source, placement)
            if self.keeps:
                yield from self._kept(
                    placement,
                    source=source,
                    edit=edit,
                    rules=choices,
                )
                continue
            for policy, rule in choices.items():
                edits = self._rule_edit(policy, rule) | edit
                yield self._row(placement, policy=rule, source=source, edit=edits)

    def _kept(
        self,
        placement: str,
        source: Scenario,
        edit: Edit,
        rules: Mapping[str, str],
    ) -> Iterator[Candidate]:
        """Yield rows of one placement, that of the base's rule, under other rules."""
        base = self.base
        if edit:
            try:
                base = prepare(load(source, {**edit, "expect": None}))
            except PlacementError as error:
                refusal = Answer(Question(source), refused=error)
                for rule in rules.values():
                    yield Candidate(placement, rule, refusal)
                return

        # Every task by name on its machine, so that no other rule moves one.
        standing = ScenarioEdits(source).standing(base.problem)
        for policy, rule in rules.items():
            edits = self._rule_edit(policy, rule) | standing
            row = self._row(
                placement,
                policy=rule,
                source=source,
                edit=edits,
            )
            yield replace(row, kept=True, placing=row.placing and base.placing)

    def _rule_edit(self, policy: str, rule: str) -> dict[str, object]:
        """Return what makes the rule of rates another one than the base's."""
        if rule == self.base.policy:
            return {}
        return {"schedule.policy": policy}

    @property
    def _source(self) -> Scenario:
        """The scenario that is varied; another rule may need more steps of it."""
        base = self.base
        # Where tasks read the newest, the rule decides what is read, and
        # so how many steps an accuracy takes.
        if base.stated is not None and base.simulate().reads is not None:
            return base.stated
        return base.scenario

    def _row(
        self,
        placement: str,
        policy: str,
        source: Scenario,
        edit: Mapping[str, object],
    ) -> Candidate:
        """Return the row of a scenario that is edited, or why there is none."""
        scenario = load(source, {**edit, "expect": None})
        with_expect = replace_expect(scenario, self.expected)
        question = Question(with_expect, exact=False)
        row_answer = answer(question)
        if row_answer.ready is None:
            return Candidate(placement, policy, row_answer)
        row_answer.warm()
        moves = moves_between(self.base.problem, row_answer.ready.problem)

        return Candidate(
            placement=placement,
            policy=policy,
            answer=row_answer,
            moves=moves,
            placing=row_answer.placing,
        )


def replace_expect(scenario: Scenario, expected: Scenario) -> Scenario:
    """Return a scenario with what another expects."""
    changes = {"expect": expected.expect}
    return scenario.model_copy(update=changes)


def _near(
    problem: Problem,
    moves: Pairs,
    swaps: Pairs,
    *,
    again: bool,
) -> Iterator[Neighbour | ScenarioError]:
    """Yield the placements after each move and swap.

    ``again``: with a later seed, whose placement may be that already, or leave no room:
    its row then has the reason.
    """
    machines = problem.cluster.names
    for name, machine in moves:
        option = f"--move {name}={machine}"
        if machine not in machines:
            reason = f"no machine {machine!r} takes part, {nearest(machine, machines)}"
            raise ScenarioError(reason, file=option)
        process = _process(problem.job, name, option)
        yield _move_tasks(
            problem,
            machines={process: machine},
            option=option,
            again=again,
        )

    def machine_of(process: str) -> str:
        first_task = problem.job.units[process][0]
        machine = problem.placement.machine_of[first_task]
        return machines[machine]

    for names in swaps:
        option = f"--swap {','.join(names)}"
        job = problem.job
        processes = [_process(job, name, option) for name in names]
        first, second = processes
        places = {first: machine_of(second), second: machine_of(first)}
        yield _move_tasks(problem, machines=places, option=option, again=again)


def _process(job: Job, name: str, option: str) -> str:
    try:
        return process_of(job, name)
    except ValueError as error:
        problem = f"no task {name!r}, {nearest(name, job.units)}"
        raise ScenarioError(problem, file=option) from error


def _move_tasks(
    problem: Problem,
    machines: dict[str, str],
    option: str,
    *,
    again: bool,
) -> Neighbour | ScenarioError:
    try:
        neighbour = move(problem, machines)
    except PlacementError as error:
        note = " with a later seed" if again else ""
        reason = f"cannot be{note}: {error}"
        problem_of_move = ScenarioError(reason, file=option)
        if again:
            return problem_of_move
        raise problem_of_move from error

    # It would be a second row of the same.
    if not neighbour.moves and not again:
        raise ScenarioError("moves nothing, it stands there already", file=option)
    return neighbour
