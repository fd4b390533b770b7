"""Variants of a scenario, simulated under the same times and volumes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from emu.errors import PlacementError, ScenarioError
from emu.experiment.expectations import missed, simulated_figures
from emu.fields.suggestion import nearest
from emu.placement.neighbours import difference, moved
from emu.problem import Problem, Profile
from emu.report import Candidate
from emu.report.comparison import Comparison
from emu.scenario import Experiment, build_job, load, place, prepare
from emu.scenario.apply_placement import with_placed_rings
from emu.scenario.pins import process_of
from emu.simulation import sensitivity, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emu.placement.neighbours import Move, Neighbour
    from emu.problem import Job, Realization
    from emu.scenario import Scenario

    Pairs = Sequence[tuple[str, str]]


def compare_variants(
    base: Experiment,
    placements: Sequence[str] = (),
    policies: Sequence[str] = (),
    *,
    moves: Pairs = (),
    swaps: Pairs = (),
    seeds: int = 1,
) -> Comparison:
    """Return what every variant of ``base`` is simulated to take.

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
        As loading, placing and realizing say, or when a move cannot be.
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
    """Return what every variant takes with the seed of ``base``.

    What ``base`` expects as single values holds for itself alone, and where ``exact``.
    """
    own = base.scenario.placed_by, base.policy
    candidates = [_candidate(base, base, own[0], exact=exact)]
    for near in _near(base.problem, moves, swaps):
        problem = replace(base.problem, placement=near.placement)
        problem = with_placed_rings(base.scenario, problem)
        moved = replace(base, problem=problem, placed=None)
        candidates.append(_candidate(base, moved, str(near), near.moves))
    for placement in placements or [own[0]]:
        placed = _placed(base, placement)
        for policy in policies or [own[1]]:
            if (placement, policy) != own:
                load(base.scenario, {"schedule.policy": policy, "expect": None})
                candidates.append(_candidate(base, placed, placement, policy=policy))
    return candidates


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
    problem = with_placed_rings(scenario, Problem(cluster, job, found.placement))
    return Experiment(scenario, problem, problem.taken(reference), found)


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
    moved_by = sensitivity(problem, realization, policy, profile=expected)
    return Candidate(
        placement,
        policy,
        {base.scenario.seed: schedule.makespan},
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
