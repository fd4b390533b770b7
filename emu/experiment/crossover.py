"""One scenario as several systems: what each takes, and where the best changes.

The same graph, cluster, model and seeds per iteration (`emu.experiment.systems`).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.analysis.bounds import bounds
from emu.analysis.critical_path import critical_path
from emu.analysis.throughput import pace, seeds_per_iteration
from emu.errors import PlacementError, ScenarioError
from emu.experiment.expectations import missed, simulated_figures
from emu.experiment.systems import chosen_system, edits
from emu.fields.suggestion import nearest
from emu.placement.moves import difference, moved
from emu.problem import Problem, Profile
from emu.report import Candidate, Crossover, Side, SystemResult
from emu.report.comparison import Comparison
from emu.scenario import Experiment, build_job, load, place, prepare
from emu.scenario.experiment import check_rule, cost_of, following_placement
from emu.scenario.own_rules import is_program
from emu.scenario.run_sections import process_of
from emu.simulation import sensitivity, simulate
from emu.units import DURATION, RATE, SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emu.placement.moves import Move, Neighbour
    from emu.problem import Job, Realization
    from emu.scenario import Scenario

    Pairs = Sequence[tuple[str, str]]
    from collections.abc import Callable, Mapping, Sequence

    from emu.problem import Schedule


def compare_variants(
    base: Experiment,
    placements: Sequence[str] = (),
    policies: Sequence[str] = (),
    *,
    moves: Pairs = (),
    swaps: Pairs = (),
    seeds: int = 1,
) -> Comparison:
    """Return the simulated makespans of all variants of ``base``.

    First ``base`` as it is, then its placement with each move and swap, then every
    combination of the other placements and policies.

    Parameters
    ----------
    placements, policies
        Names; empty means the scenario's own.
    moves
        (task, machine) of every move.
    swaps
        (task, task) of every swap.
    seeds
        How many: that of ``base`` and those that follow it.

    Raises
    ------
    ScenarioError, PlacementError, DataError
        As loading, placing and realizing raise, or when a move cannot be.
    """
    wanted = placements, policies, moves, swaps
    found = _variants(base, *wanted, exact=True)
    first = base.scenario.seed
    for seed in range(first + 1, first + seeds):
        again = prepare(load(base.scenario, {"seed": seed}))
        pairs = zip(found, _variants(again, *wanted), strict=True)
        found = [one.beside(other) for one, other in pairs]
    return Comparison(found)


def _variants(
    base: Experiment,
    placements: Sequence[str],
    policies: Sequence[str],
    moves: Pairs,
    swaps: Pairs,
    *,
    exact: bool = False,
) -> list[Candidate]:
    """Return the simulated makespan of every variant with the seed of ``base``.

    What ``base`` expects as single values holds for itself alone, and where ``exact``.
    """
    own = base.scenario.placed_by, base.policy
    candidates = [_candidate(base, base, own[0], exact=exact)]
    for near in _near(base.problem, moves, swaps):
        problem = replace(base.problem, placement=near.placement)
        problem = following_placement(base.scenario, problem)
        moved = replace(base, problem=problem, placed=None)
        candidates.append(_candidate(base, moved, str(near), near.moves))
    rules = [_rule(base.scenario, policy) for policy in policies]
    for placement in placements or [own[0]]:
        placed = _placed(base, placement)
        candidates += [
            _candidate(base, placed, placement, policy=rule)
            for rule in rules or [own[1]]
            if (placement, rule) != own
        ]
    return candidates


def _rule(scenario: Scenario, policy: str) -> str:
    """Return the name of a rate policy, which may be a class of one's own."""
    changed = load(scenario, {"schedule.policy": policy, "expect": None})
    check_rule(changed)
    return changed.schedule.rule if is_program(policy) else policy


def placed_by(scenario: Scenario, policy: str) -> Scenario:
    """Return the scenario with another placement policy.

    What an explicit placement spells out pins nothing elsewhere.

    Raises
    ------
    ScenarioError
        When there is no such policy.
    """
    changes: dict[str, object] = {"placement.policy": policy, "expect": None}
    if scenario.placement.spelt_out and policy != scenario.placement.policy:
        changes["placement.tasks"] = None
    return load(scenario, changes)


def _placed(base: Experiment, policy: str) -> Experiment:
    if policy == base.scenario.placed_by:
        return base
    scenario, cluster = placed_by(base.scenario, policy), base.problem.cluster
    job = build_job(scenario)
    reference = base.problem.reference(base.realization)
    found = place(scenario, job, cluster, reference)
    problem = following_placement(scenario, Problem(cluster, job, found.placement))
    return Experiment(scenario, problem, problem.taken(reference), found)


def _with_deaths(variant: Experiment, policy: str, schedule: Schedule) -> float:
    """Return the makespan under another rule, with what its kills lose."""
    if not (variant.scenario.events or variant.scenario.failures):
        return schedule.makespan
    ruled = load(variant.scenario, {"schedule.policy": policy, "expect": None})
    kills = ruled.kills(variant.problem)
    return replace(variant, scenario=ruled, kills=kills).attempts(schedule).makespan


def _candidate(
    base: Experiment,
    variant: Experiment,
    placement: str,
    moves: tuple[Move, ...] = (),
    *,
    policy: str = "",
    exact: bool = False,
) -> Candidate:
    policy, problem = policy or base.policy, variant.problem
    realization = problem.taken(base.problem.reference(base.realization))
    expected = Profile(realization.times, realization.volumes)
    schedule = simulate(problem, realization, policy, profile=expected)
    expect, figures = base.scenario.expect, simulated_figures(schedule, realization)
    ready = replace(variant, realization=realization)
    figures["makespan"] = length = _with_deaths(ready, policy, schedule)
    cost = cost_of(base.scenario, schedule)
    moved_by = sensitivity(problem, realization, policy, profile=expected)
    return Candidate(
        placement,
        policy,
        {base.scenario.seed: length},
        _crossing(problem, realization),
        moves
        or difference(
            problem.job,
            problem.cluster,
            base.problem.placement,
            problem.placement,
        ),
        variant.placing if variant.placed else None,
        tuple(missed(expect, figures, exact=exact)),
        cost=cost.to_json() if cost else None,
        rounding=moved_by,
    )


def _near(problem: Problem, moves: Pairs, swaps: Pairs) -> Iterator[Neighbour]:
    """Yield the placements after each move and swap."""
    machines = [machine.name for machine in problem.cluster.machines]
    for name, machine in moves:
        option = f"--move {name}={machine}"
        if machine not in machines:
            said = f"no machine {machine!r}, {nearest(machine, machines)}"
            raise ScenarioError(said, file=option)
        yield _moved(problem, {_process(problem.job, name, option): machine}, option)
    for names in swaps:
        option = f"--swap {','.join(names)}"
        one, other = (_process(problem.job, name, option) for name in names)
        there = {
            process: machines[problem.placement.machine_of[members[0]]]
            for process, members in problem.job.units.items()
        }
        yield _moved(problem, {one: there[other], other: there[one]}, option)


def _process(job: Job, name: str, option: str) -> str:
    try:
        return process_of(job, name)
    except ValueError as error:
        raise ScenarioError(
            f"no task {name!r}, {nearest(name, job.units)}", file=option
        ) from error


def _moved(problem: Problem, machines: dict[str, str], option: str) -> Neighbour:
    try:
        near = moved(problem, machines)
    except PlacementError as error:
        raise ScenarioError(f"cannot be: {error}", file=option) from error
    if not near.moves:
        raise ScenarioError("moves nothing, it stands there already", file=option)
    return near


def _crossing(problem: Problem, realization: Realization) -> float:
    """Return the share of all bytes that cross between machines."""
    remote = np.array([bool(hops) for hops in problem.hops], dtype=bool)
    total = realization.volumes.sum()
    return float(realization.volumes[remote].sum() / total) if total else 0.0


def measure(
    scenario: Scenario,
    system: str,
    overrides: Mapping[str, object] | None = None,
    seeds: int = 1,
    machines: Sequence[str] | None = None,
) -> SystemResult:
    """Simulate a scenario as one of the systems, with its seed and those that follow.

    Parameters
    ----------
    machines
        Those that take part; by default chosen with the first seed (`chosen_system`).

    Raises
    ------
    ScenarioError, PlacementError, DataError
        As `as_system` and `prepare`.
    """
    found = {}
    for seed in range(scenario.seed, scenario.seed + seeds):
        changes = {**(overrides or {}), "seed": seed}
        ready = prepare(chosen_system(scenario, system, changes, machines))
        machines = machines or ready.placing["machines"]
        found[seed] = ready, ready.simulate()
    ready, schedule = found[scenario.seed]
    figures = simulated_figures(schedule, ready.realization)
    return SystemResult(
        system,
        {seed: one.attempts(made).makespan for seed, (one, made) in found.items()},
        limit_of(schedule),
        bounds(ready.problem, ready.realization).nic_load,
        seeds=seeds_per_iteration(ready.problem.job.settings) or 0,
        paces={seed: pace(schedule) for seed, (_, schedule) in found.items()},
        edits=edits(scenario, ready.scenario),
        placing=ready.placing,
        missed=tuple(
            missed(scenario.expect, figures, exact=system == scenario.job.system)
        ),
    )


def limit_of(schedule: Schedule) -> str:
    """Return the largest part of the critical path, such as ``m0 in, 81 %``."""
    problem = schedule.problem
    seconds: dict[str, float] = defaultdict(float)
    for link in critical_path(schedule).links:
        if link.port >= 0:
            name = problem.links[link.port].name
        else:
            task = problem.job.edges[link.edge].source if link.edge >= 0 else link.task
            machine = problem.cluster.machines[problem.placement.machine_of[task]]
            name = f"computing on {machine.name}"
        seconds[name] += link.end - link.start
    if not schedule.makespan:
        return "nothing"
    most = max(seconds, key=seconds.__getitem__)
    return f"{most}, {seconds[most] / schedule.makespan:.0%}"


def compare_systems(
    scenario: Scenario,
    systems: Sequence[str],
    seeds: int = 1,
    *,
    same_machines: bool = False,
) -> list[SystemResult]:
    """Return the simulated times of every system, in the order given.

    Each on machines of its choice; with ``same_machines`` on those of the first.

    Raises
    ------
    ScenarioError, PlacementError, DataError
        As `measure`.
    """
    results, machines = list[SystemResult](), None
    for system in systems:
        results.append(measure(scenario, system, seeds=seeds, machines=machines))
        if same_machines:
            machines = results[0].placing["machines"]
    return results


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

        Raises
        ------
        ValueError
            When one is no number, they are not of one quantity, or not in order.
        """
        found = [_QUANTITY.fullmatch(text) for text in (low, high)]
        if not all(found):
            raise ValueError(f"{low} and {high} are not two numbers")
        (first, before), (last, other) = (match.groups() for match in found if match)
        start, end, unit = float(first), float(last), other.strip()
        if before.strip() != unit:
            start = _in_unit(low, unit)
        if not 0 < start < end:
            raise ValueError(f"{low} must be more than 0 and less than {high}")
        whole = first.isdigit() and last.isdigit() and not unit
        return cls(start, end, unit, whole)

    @classmethod
    def around(cls, value: object) -> Values:
        """Return those from a sixteenth of a number to sixteen times as much.

        Raises
        ------
        ValueError
            When it is neither a bare number nor one with a unit, such as ``10 Gbit/s``.
        """
        if isinstance(value, dict) and len({str(end) for end in value.values()}) == 1:
            value = next(iter(value.values()))  # a NIC, as fast in as out
        found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
        if found is not None and found[2]:
            number = float(found[1])
            return cls(number / 16, number * 16, found[2].strip())
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

    def written(self, value: float) -> Any:
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
            written = self.values.written(value)
            one, other = (
                measure(self.scenario, system, {self.key: written})
                for system in self.between
            )
            self.seen[value] = Side(written, (one, other))
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

    Raises
    ------
    ScenarioError, PlacementError, DataError
        As `measure`; among others where the key is unknown or a value impossible.
    """
    if between[0] == between[1]:
        raise ScenarioError("write two systems", file=f"--between {','.join(between)}")
    search = _Search(scenario, key, between, values)
    low, high = search.bisect(lambda side: side.best == between[0])
    below, above = search.at(low), search.at(high)
    guess, after = search.bisect(_fewer_bytes)
    estimated = _fewer_bytes(search.at(guess)) != _fewer_bytes(search.at(after))
    return Crossover(
        key,
        below,
        above,
        search.at(guess).value if estimated else None,
        2 * len(search.seen),
    )


def _fewer_bytes(side: Side) -> bool:
    one, other = side.results
    return one.busiest_link <= other.busiest_link
