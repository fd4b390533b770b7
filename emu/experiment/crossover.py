"""One scenario as several systems: what each takes, and where the best changes.

The same graph, cluster, model and seeds per iteration (`emu.experiment.systems`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import numpy as np

from emu.errors import EmulatorError, PlacementError, ScenarioError
from emu.experiment.expectations import figures_of_simulation, list_misses
from emu.experiment.spread import spread
from emu.experiment.system_rows import measure
from emu.prediction.analysis.coflow_times import coflow_times
from emu.prediction.placement.moves import Move, Neighbour, move, moves_between
from emu.prediction.scheduling import list_rules
from emu.prediction.simulation import sensitivity
from emu.problem import Job, Problem
from emu.problem.fields.suggestion import nearest
from emu.report.comparison import Candidate, Comparison
from emu.report.system_tables import Crossover, Side
from emu.scenario import Experiment, Scenario, load, prepare
from emu.scenario.edits import ScenarioEdits, placement_edit
from emu.scenario.experiment import check_rule, cost_of, with_deaths
from emu.scenario.run_sections import process_of
from emu.units import DURATION, RATE, SIZE

Pairs = Sequence[tuple[str, str]]


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
) -> Comparison:
    """Return the simulated makespans of all variants of ``base``.

    First ``base`` as it is, then its placement with each move (task, machine) and swap
    (task, task), then every combination of the other placements and policies; without
    names the scenario's own, ``all`` is every rule for rates. Each is a scenario of its
    own, placed under its own rule, or with ``keep_placement`` once, under that of
    ``base``; one that cannot be is a row that says so. So many ``seeds``, from that of
    ``base`` on, are spread over ``jobs`` processes as by `spread`.

    Raises ScenarioError, PlacementError, DataError as loading, placing and realizing
    ``base`` raise, where a name is unknown, or when a move cannot be.
    """
    rules = {}
    if [*policies] == ["all"]:
        policies = list_rules(base.policy)
    for policy in policies:  # whose name may be that of one's own class
        variant = load(base.scenario, {"schedule.policy": policy, "expect": None})
        check_rule(variant)
        rules[policy] = variant.schedule.rule
    source = base.stated or base.unchosen or base.scenario

    def of_seed(n: int) -> list[Candidate]:
        seed = base.scenario.seed + n
        here = prepare(load(source, {"seed": seed})) if n else base
        near = [*_near(here.problem, moves, swaps, again=n > 0)]
        own = here.scenario.placed_by, here.policy
        rules_here = rules or {"": here.policy}
        others = _variants(here, placements, rules_here, near, keep=keep_placement)
        return [_candidate(here, here, *own, exact=n == 0), *others]

    rows: list[Candidate] = []
    for _, variants in sorted(spread(of_seed, seeds, jobs), key=itemgetter(0)):
        if isinstance(variants, EmulatorError):
            raise variants
        pairs = zip(rows, variants, strict=True)
        rows = [one.beside(other) for one, other in pairs] if rows else variants
    return Comparison(rows)


def _variants(
    base: Experiment,
    placements: Sequence[str],
    rules: Mapping[str, str],
    near: Sequence[Neighbour | ScenarioError],
    *,
    keep: bool,
) -> Iterator[Candidate]:
    """Yield the row of every variant of ``base``.

    ``rules`` is policy as stated -> its name.
    """
    scenario, own = base.scenario, (base.scenario.placed_by, base.policy)
    if base.stated is not None and base.simulate().reads is not None:
        scenario = base.stated  # another rule may need more steps
    standing = ScenarioEdits(scenario).standing
    for one in near:
        if isinstance(one, ScenarioError):
            yield Candidate(str(one.file), own[1], refused=one)
            continue
        edit = standing(replace(base.problem, placement=one.placement))
        yield _simulated(base, str(one), own[1], scenario, edit, moves=one.moves)
    if base.unchosen is not None and not keep:
        scenario = base.unchosen  # and may choose other machines
    for placement in placements or [own[0]]:
        edit = {} if placement == own[0] else placement_edit(scenario, placement)
        others = {p: r for p, r in rules.items() if (placement, r) != own}
        base_kept = base if keep else None
        if edit and keep:
            try:
                base_kept = prepare(load(scenario, {**edit, "expect": None}))
            except PlacementError as error:
                for rule in others.values():
                    yield Candidate(placement, rule, refused=error)
                continue
        for policy, rule in others.items():
            edit_of_rule = {} if rule == own[1] else {"schedule.policy": policy}
            edit_of_rule |= edit if base_kept is None else standing(base_kept.problem)
            what = placement, rule, scenario, edit_of_rule
            yield _simulated(base, *what, kept=base_kept)


def _simulated(
    base: Experiment,
    placement: str,
    policy: str,
    scenario: Scenario,
    edit: Mapping[str, object],
    **more: Any,
) -> Candidate:
    """Return the row of a scenario that is edited, or why there is none."""
    scenario_here = load(scenario, {**edit, "expect": None})
    try:
        return _candidate(base, prepare(scenario_here), placement, policy, **more)
    except EmulatorError as error:
        return Candidate(placement, policy, refused=error)


def _candidate(
    base: Experiment,
    ready: Experiment,
    placement: str,
    policy: str,
    *,
    moves: tuple[Move, ...] = (),
    kept: Experiment | None = None,
    exact: bool = False,
) -> Candidate:
    """Return the row of ``ready``, beside ``base`` of the same seed.

    What ``base`` expects as single values holds for itself alone, and where ``exact``.
    """
    problem, realization, seed = ready.problem, ready.realization, base.scenario.seed
    schedule = with_deaths(ready, ready.simulate())
    expect, figures = base.scenario.expect, figures_of_simulation(schedule, realization)
    cost, coflows = cost_of(ready.scenario, schedule), coflow_times(schedule)
    remote = np.array([bool(hops) for hops in problem.hops], dtype=bool)
    total, what = realization.volumes.sum(), (problem, realization, ready.policy)
    return Candidate(
        placement,
        policy,
        {seed: schedule.makespan},
        float(realization.volumes[remote].sum() / total) if total else 0.0,
        moves or moves_between(base.problem, problem),
        None if moves else (kept or ready).placing,
        tuple(list_misses(expect, figures, exact=exact)),
        cost=cost.to_json() if cost else None,
        coflows=coflows.to_json() if coflows else None,
        rounding=sensitivity(*what, profile=ready.expected),
        scenarios={seed: load(ready.scenario, {"expect": None})},
        kept=kept is not None,
    )


def _near(
    problem: Problem, moves: Pairs, swaps: Pairs, *, again: bool
) -> Iterator[Neighbour | ScenarioError]:
    """Yield the placements after each move and swap.

    ``again``: with a later seed, whose placement may be that already, or leave no room:
    its row then has the reason.
    """
    machines = [machine.name for machine in problem.cluster.machines]
    for name, machine in moves:
        option = f"--move {name}={machine}"
        if machine not in machines:
            reason = f"no machine {machine!r} takes part, {nearest(machine, machines)}"
            raise ScenarioError(reason, file=option)
        places = {_process(problem.job, name, option): machine}
        yield _move_tasks(problem, places, option, again=again)
    at, units = problem.placement.machine_of, problem.job.units
    for names in swaps:
        option = f"--swap {','.join(names)}"
        one, other = (_process(problem.job, name, option) for name in names)
        there = {process: machines[at[units[process][0]]] for process in (one, other)}
        places = {one: there[other], other: there[one]}
        yield _move_tasks(problem, places, option, again=again)


def _process(job: Job, name: str, option: str) -> str:
    try:
        return process_of(job, name)
    except ValueError as error:
        problem = f"no task {name!r}, {nearest(name, job.units)}"
        raise ScenarioError(problem, file=option) from error


def _move_tasks(
    problem: Problem, machines: dict[str, str], option: str, *, again: bool
) -> Neighbour | ScenarioError:
    try:
        near = move(problem, machines)
    except PlacementError as error:
        when = " with a later seed" if again else ""
        problem_of_move = ScenarioError(f"cannot be{when}: {error}", file=option)
        if again:
            return problem_of_move
        raise problem_of_move from error
    if not near.moves and not again:
        raise ScenarioError("moves nothing, it stands there already", file=option)
    return near


#: Of numbers that are not whole: the values on both sides differ by less.
_CLOSE = 0.005
_QUANTITY = re.compile(r"\s*([0-9.]+(?:[eE][-+]?\d+)?)\s*(\D*)")


def _in_unit(text: str, unit: str) -> float:
    """Return the number that stands before ``unit`` where ``text`` is meant."""
    for quantity in (RATE, SIZE, DURATION):
        try:
            return quantity.parse(text) / quantity.parse(f"1 {unit}")
        except ValueError:
            continue
    raise ValueError(f"{text} is no number of {unit or 'nothing'}")


@dataclass(frozen=True)
class Values:
    """The values of a key from ``low`` to ``high``, as the scenario writes them."""

    low: float
    high: float
    unit: str = ""
    """Text after the number, empty for a bare one."""
    whole: bool = False
    """True where only whole numbers are meant."""

    @classmethod
    def between(cls, low: str, high: str) -> Values:
        """Return the values between two texts, ``16`` or ``5 Gbit/s``.

        Raises ValueError when one is no number, they are not of one quantity, or not in
        order.
        """
        matches = [_QUANTITY.fullmatch(text) for text in (low, high)]
        if not all(matches):
            raise ValueError(f"{low} and {high} are not two numbers")
        (first, before), (last, other) = (match.groups() for match in matches if match)
        start, end, unit = float(first), float(last), other.strip()
        if before.strip() != unit:
            start = _in_unit(low, unit)
        if not 0 < start < end:
            raise ValueError(f"{low} must be more than 0 and less than {high}")
        return cls(start, end, unit, f"{first}{last}".isdigit() and not unit)

    @classmethod
    def around(cls, value: object) -> Values:
        """Return those from a sixteenth of a number to sixteen times as much.

        Raises ValueError when it is neither a bare number nor one with a unit, such as
        ``10 Gbit/s``.
        """
        if isinstance(value, dict) and len({str(end) for end in value.values()}) == 1:
            value = next(iter(value.values()))  # a NIC, as fast in as out
        match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
        if match is not None and match[2]:
            number = float(match[1])
            return cls(number / 16, number * 16, match[2].strip())
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{value!r} is no number")  # noqa: TRY004 - of input
        whole = isinstance(value, int)
        low = max(1, value // 16) if whole else value / 16
        return cls(low, value * 16, whole=whole)

    def middle(self, low: float, high: float) -> float | None:
        """Return a value between two, None where they are as good as neighbours."""
        if self.whole:
            middle = math.isqrt(int(low) * int(high))
            return max(middle, low + 1) if high - low > 1 else None
        return math.sqrt(low * high) if high / low > 1 + _CLOSE else None

    def write(self, value: float) -> Any:
        """Return a value as a scenario has it."""
        number = int(value) if self.whole else value
        return f"{number:.6g} {self.unit}" if self.unit else number


@dataclass
class _Search:
    scenario: Scenario
    key: str
    between: tuple[str, str]
    values: Values
    seen: dict[float, Side] = field(default_factory=dict)

    def at(self, value: float) -> Side:
        """Return both systems at a value, simulated once."""
        if value not in self.seen:
            text = self.values.write(value)
            edit = {self.key: text}
            try:
                one, other = (measure(self.scenario, s, edit) for s in self.between)
            except ScenarioError as error:
                if error.key != self.key:
                    raise
                problem = f"{error.problem}; --range LOW,HIGH names the values to try"
                raise ScenarioError(problem, file=f"--key {self.key}") from error
            self.seen[value] = Side(text, (one, other))
        return self.seen[value]

    def bisect(self, first_wins: Callable[[Side], bool]) -> tuple[float, float]:
        """Return neighbours between which the winner changes, or the ends."""
        low, high = self.values.low, self.values.high
        at_low = first_wins(self.at(low))
        if at_low == first_wins(self.at(high)):
            return low, high
        while (middle := self.values.middle(low, high)) is not None:
            if first_wins(self.at(middle)) == at_low:
                low = middle
            else:
                high = middle
        return low, high


def find_crossover(
    scenario: Scenario, key: str, between: tuple[str, str], values: Values
) -> Crossover:
    """Return where the better of two systems changes as a key grows.

    One change is looked for, by bisection: the range's ends say whether there is one.
    Both systems stand on all machines, or on those that the file states. Raises
    ScenarioError, PlacementError, DataError as `measure`; among others where the key is
    unknown or a value impossible.
    """
    if between[0] == between[1]:
        raise ScenarioError("write two systems", file=f"--between {','.join(between)}")
    if getattr(scenario.job, "machines", ()) is None:  # both stand on all of them
        names = scenario.job.ranks(scenario.cluster.names)
        scenario = load(scenario, {"job.machines": [*names], "expect": None})
    search = _Search(scenario, key, between, values)
    low, high = search.bisect(lambda side: side.best == between[0])
    below, above = search.at(low), search.at(high)
    guess, after = search.bisect(_fewer_bytes)
    by_estimate = _fewer_bytes(search.at(guess)) != _fewer_bytes(search.at(after))
    estimate = search.at(guess).value if by_estimate else None
    return Crossover(key, below, above, estimate, 2 * len(search.seen))


def _fewer_bytes(side: Side) -> bool:
    one, other = side.results
    return one.busiest_link <= other.busiest_link
