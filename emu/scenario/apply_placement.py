"""The placement that a scenario asks for, of its job or of each of several."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from emu.placement import (
    JobsCost,
    PlacementResult,
    affordable,
    with_placed_ring,
)
from emu.placement import place as place_by
from emu.placement.place import SEARCHES
from emu.problem import Placement
from emu.problem.slots import slot_teams
from emu.scenario.realize import build_job, realize
from emu.workloads import repeated

if TYPE_CHECKING:
    from collections.abc import Callable

    from emu.problem import Cluster, Job, Problem, Realization
    from emu.scenario.scenario import Scenario


def place(
    scenario: Scenario,
    job: Job,
    cluster: Cluster,
    realization: Realization | None = None,
    *,
    progress: Callable[[int, int, float], None] | None = None,
) -> PlacementResult:
    """Return a placement of ``job`` by the scenario's policy and seed.

    Parameters
    ----------
    realization
        Of the run, with reference times: what searches judge placements by; default is
        that of `realize`, asked for where it matters.
    progress
        Called by searches with (candidates so far, in all, best makespan).

    Raises
    ------
    PlacementError
        When the stated placement breaks a constraint; `InfeasiblePlacement` when the
        cluster is too small.
    ScenarioError, DataError
        As `realize`.
    """
    section = scenario.placement
    rates = "oes" if scenario.schedule.rule == "portfolio" else scenario.schedule.rule
    options: dict[str, Any] = {"policy": rates}
    if section.policy in SEARCHES:
        count = min(section.simulated_iterations, job.iterations)
        short = replace(job, iterations=count)
        options |= {
            "transfers": section.iterations or affordable(short, rates),
            "iterations": count,
            "cost": _jobs_cost(scenario),
        }
    if section.policy == "etp":
        options |= {
            "mu": section.tolerance,
            "beta": section.beta,
            "beta_unit": section.beta_unit,
        }
    # Only searches, and who shares slots, ask how long a placement takes.
    judged = section.policy in SEARCHES or slot_teams(job)
    if judged and realization is None:
        realization = realize(scenario, job)
    return place_by(
        section.policy,
        job,
        cluster,
        profile=repeated(job, realization) if judged and realization else None,
        seed=scenario.seed,
        tasks=section.tasks,
        progress=progress,
        **options,
    )


def _jobs_cost(scenario: Scenario) -> JobsCost | None:
    """Return the cost to judge several jobs by, None where that is the makespan."""
    cost = scenario.joint_cost
    if cost == "max" and not any(item.release for item in scenario.jobs):
        return None
    stated = {item.name: item.weight for item in scenario.jobs}
    weights = {name: weight for name, weight in stated.items() if weight is not None}
    return JobsCost(cost != "max", weights)


def with_placed_rings(scenario: Scenario, problem: Problem) -> Problem:
    """Return the problem with rings in the order that its placement asks for.

    Those of jobs with ``ring: placed``; whatever order they had before.
    """
    alone = {item.name: part.job for item, part in scenario.parts()}
    for name, job in (alone or {"": scenario.job}).items():
        if job.rings_follow_placement:
            problem = with_placed_ring(problem, name)
    return problem


def place_one_by_one(
    scenario: Scenario,
    job: Job,
    cluster: Cluster,
    progress: Callable[[int, int, float], None] | None = None,
) -> PlacementResult:
    """Place each of several jobs by its own policy, on what those before it leave.

    Parameters
    ----------
    job
        All jobs, as `build_job` makes them one.

    Raises
    ------
    PlacementError, ScenarioError, DataError
        As `place`, of the first job for which it does.
    """
    free, machine_of = cluster, dict[str, int]()
    candidates, budgets = [], []
    for item, alone in scenario.parts():
        part = build_job(alone)
        result = place(alone, part, free, progress=progress)
        found = result.placement
        candidates.append(result.candidates)
        budgets.append(result.budget)
        free = _left(free, part, found)
        for process, members in part.units.items():
            machine_of[f"{item.name}/{process}"] = found.machine_of[members[0]]
    placed = tuple(machine_of[task.process_name] for task in job.tasks)
    return PlacementResult(
        Placement(placed),
        "sequential",
        candidates=sum(candidates),
        budget=max(budgets),
    )


def _left(cluster: Cluster, job: Job, placement: Placement) -> Cluster:
    """Return the cluster without what a placed job takes of its resources."""
    used = placement.usage(job, cluster)
    machines = [
        replace(
            machine,
            resources={
                resource: amount - taken.get(resource, 0.0)
                for resource, amount in machine.resources.items()
            },
        )
        for machine, taken in zip(cluster.machines, used, strict=True)
    ]
    return replace(cluster, machines=tuple(machines))
