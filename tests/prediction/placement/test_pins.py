"""Pins hold under every policy and in the bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.errors import InfeasiblePlacement
from emu.prediction.placement import PLACEMENT_POLICIES, place
from emu.prediction.placement.bound import placement_bound
from emu.prediction.simulation import makespan
from emu.problem import Job, Placement, Problem, Profile
from tests.prediction.placement.placement_cases import (
    colocated_pairs,
    feasible_placements,
    random_setting,
    realization,
)
from tools.studies.moves_and_bounds import neighbours

POLICIES = sorted(PLACEMENT_POLICIES.keys() - {"explicit"})
#: Settings drawn; a third of them has no placement.
DRAWN = 25


def _pinned(job: Job, machines: int, rng: np.random.Generator) -> Job:
    """Return ``job`` with up to three more tasks pinned, anywhere."""
    tasks = list(job.tasks)
    free = [j for j, task in enumerate(tasks) if task.pinned is None]
    for j in rng.choice(free, min(len(free), int(rng.integers(1, 4))), replace=False):
        tasks[j] = replace(tasks[j], pinned=f"m{rng.integers(machines)}")
    return replace(job, tasks=tuple(tasks))


def _broken_pins(job: Job, placement: Placement) -> list[str]:
    return [
        task.name
        for task, machine in zip(job.tasks, placement.machine_of, strict=True)
        if task.pinned not in {None, f"m{machine}"}
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_pins_hold_and_bounds_are_below_brute_force(policy: str) -> None:
    rng = np.random.default_rng(7)
    compared = 0
    while compared < DRAWN:
        job, cluster = random_setting(rng)
        job = _pinned(job, len(cluster.machines), rng)
        movable = sum(task.pinned is None for task in job.tasks)
        if len(cluster.machines) ** movable > 300:
            continue
        compared += 1
        drawn = realization(job, rng)
        every = list(feasible_placements(job, cluster))
        options: dict[str, Any] = {"transfers": 60} if policy in {"etp", "best"} else {}
        profile = Profile(drawn.times, drawn.volumes)
        if not every:
            with pytest.raises(InfeasiblePlacement):
                place(policy, job, cluster, profile=profile, **options)
            continue
        found = place(policy, job, cluster, profile=profile, **options).placement

        assert _broken_pins(job, found) == []
        assert found.violations(job, cluster) == []
        best = min(makespan(Problem(cluster, job, p), drawn) for p in every)
        for nodes in (0, 200):
            bound = placement_bound(job, cluster, drawn, nodes=nodes)
            assert bound <= best * (1 + 1e-9)
        if policy == "distdgl":
            most = max(colocated_pairs(job, placement)[0] for placement in every)
            assert colocated_pairs(job, found)[0] == most


def test_neighbours_keep_pins_and_miss_no_single_move_or_swap() -> None:
    """Against plain enumeration; equals count once, so makespans are compared."""
    rng = np.random.default_rng(3)
    compared = 0
    while compared < 20:
        job, cluster = random_setting(rng)
        if rng.random() < 0.5:
            job = _pinned(job, len(cluster.machines), rng)
        movable = sum(task.pinned is None for task in job.tasks)
        if not 0 < len(cluster.machines) ** movable <= 300:
            continue
        every = list(feasible_placements(job, cluster))
        if not every:
            continue
        compared += 1
        drawn = realization(job, rng)
        here = every[int(rng.integers(len(every)))]
        near = [p for p in every if _one_step(here.machine_of, p.machine_of)]
        problem = Problem(cluster, job, here)
        found = list(neighbours(problem, drawn))

        placed = {neighbour.placement.machine_of for neighbour in found}
        assert placed <= {p.machine_of for p in every}
        lengths = np.array([_makespan(problem, f.placement, drawn) for f in found])
        for placement in near:
            length = _makespan(problem, placement, drawn)
            assert np.isclose(lengths, length, rtol=1e-9, atol=0).any()


def _makespan(problem: Problem, placement: Placement, drawn: object) -> float:
    return makespan(Problem(problem.cluster, problem.job, placement), drawn)  # type: ignore[arg-type]


def _one_step(here: tuple[int, ...], there: tuple[int, ...]) -> bool:
    """Tell whether one move or one swap leads from here to there."""
    apart = [j for j, (a, b) in enumerate(zip(here, there, strict=True)) if a != b]
    if len(apart) == 1:
        return True
    return len(apart) == 2 and (here[apart[0]], here[apart[1]]) == (
        there[apart[1]],
        there[apart[0]],
    )
