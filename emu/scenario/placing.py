"""The placement that a scenario asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.placement import JobsCost, with_placed_ring
from emu.placement import place as place_by
from emu.placement.place import SEARCHES
from emu.scenario.dgtp_section import DgtpJobSection
from emu.scenario.realize import profile_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from emu.placement import PlacementResult
    from emu.problem import Cluster, Job, Problem, Profile
    from emu.scenario.scenario import Scenario


def place(
    scenario: Scenario,
    job: Job,
    cluster: Cluster,
    *,
    profile: Profile | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> PlacementResult:
    """Return a placement of ``job`` by the scenario's policy and seed.

    Parameters
    ----------
    profile
        What searches draw from; default is `profile_of`, asked for by searches only.
    progress
        Called by searches with (candidates so far, in all, best makespan).

    Raises
    ------
    PlacementError
        When the stated placement breaks a constraint; `InfeasiblePlacement` when the
        cluster is too small.
    ScenarioError, DataError
        When a search has nothing to draw from.
    """
    section = scenario.placement
    options: dict[str, Any] = {}
    if section.policy in SEARCHES:
        profile = profile or profile_of(scenario, job)
        options = {
            "transfers": section.iterations,
            "iterations": min(section.simulated_iterations, job.iterations),
            "policy": scenario.schedule.rule,
            "cost": _jobs_cost(scenario),
        }
    if section.policy == "etp":
        options |= {
            "mu": section.tolerance,
            "beta": section.beta,
            "beta_unit": section.beta_unit,
        }
    return place_by(
        section.policy,
        job,
        cluster,
        profile=profile if section.policy in SEARCHES else None,
        seed=scenario.seed,
        tasks=section.tasks,
        progress=progress,
        **options,
    )


def _jobs_cost(scenario: Scenario) -> JobsCost | None:
    """Return what several jobs are judged by, None where that is the makespan."""
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
        if isinstance(job, DgtpJobSection) and job.ring == "placed":
            problem = with_placed_ring(problem, name)
    return problem
