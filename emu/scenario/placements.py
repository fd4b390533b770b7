"""Placements of a scenario's job by its policy, and what follows from them.

Rings, copies of state and caches go where tasks stand. Several jobs are placed one by
one, each on what those before it leave, or as one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from emu.errors import PlacementError
from emu.prediction.placement import PlacementResult, affordable
from emu.prediction.placement import place as place_by
from emu.prediction.placement.candidates import JobsCost
from emu.prediction.placement.place import SEARCHES
from emu.prediction.placement.ring_order import with_placed_ring
from emu.problem import Cluster, Job, Placement, Problem, Realization
from emu.problem.placement import slot_teams
from emu.problem.workloads import repeat, without_copies
from emu.problem.workloads.copies import copy_names, with_peers
from emu.scenario.realize import build_job, realize
from emu.systems.cache_section import keeps_rows, leave_room, settle_caches

if TYPE_CHECKING:
    from emu.scenario.scenario import Scenario

#: Called by searches with (candidates so far, in all, best makespan).
Progress: TypeAlias = Callable[[int, int, float], None]


def place(
    scenario: Scenario,
    job: Job,
    cluster: Cluster,
    realization: Realization | None = None,
    *,
    progress: Progress | None = None,
) -> PlacementResult:
    """Return a placement of ``job`` by the scenario's policy and seed.

    Where ``best`` has no choice, `PlacementResult.with_makespan` simulates it.

    ``realization``: of the run, with reference times: what searches judge placements
    by; default is that of `realize`, asked for where it matters. Raises PlacementError
    when the stated placement breaks a constraint; `InfeasiblePlacement` when the
    cluster is too small; ScenarioError, DataError as `realize`.
    """
    section = scenario.placement
    original = without_copies(job)
    tasks = places_of_originals(scenario, job)
    options = _search_options(scenario, original)
    # Only searches, and who shares slots, ask how long a placement takes.
    profile = None
    if section.policy in SEARCHES or slot_teams(original):
        if realization is None:
            realization = realize(scenario, job)
        realization_of_originals = realization.of(original)
        profile = repeat(original, realization_of_originals)

    roomy = leave_room(original, cluster)
    outcome = place_by(
        section.policy,
        original,
        roomy,
        profile=profile,
        seed=scenario.seed,
        tasks=tasks,
        progress=progress,
        **options,
    )
    # With the whole cluster: what caches take of memory is no matter of copies.
    placement = _with_peers(
        scenario=scenario,
        job=job,
        cluster=cluster,
        placement=outcome.placement,
    )
    # A proof is of what the search has simulated; of one placement none is needed.
    is_proof = original.fixed or _searches_judge_the_run(scenario, job)
    return replace(
        outcome,
        placement=placement,
        optimal=outcome.optimal and is_proof,
    )


def _searches_judge_the_run(scenario: Scenario, job: Job) -> bool:
    """Return False where a run has what no search simulates.

    Deaths, copies of state, a rule that is chosen for the placed job, and what follows
    from a placement: rings, and volumes beside caches.
    """
    if scenario.schedule.rule == "portfolio":
        return False
    if copy_names(job) or keeps_rows(job):
        return False

    if scenario.states_deaths:
        return False
    sections = [section for _, _, section in scenario.each_job()]
    return not any(section.rings_follow_placement for section in sections)


def premise_of_moves(job: Job) -> str:
    """Return what the times of moved tasks presume; empty where that is nothing."""
    if not keeps_rows(job):
        return ""
    return "moves are timed with the bytes that caches leave at the present placement"


def places_of_originals(scenario: Scenario, job: Job) -> dict[str, str]:
    """Return the stated machines of tasks that are no copies of others' state."""
    copies = copy_names(job)
    places = scenario.placement.tasks.items()
    return {name: machine for name, machine in places if name not in copies}


def _search_options(scenario: Scenario, job: Job) -> dict[str, Any]:
    """Return what the scenario's placement policy takes beside times and volumes."""
    section = scenario.placement
    rates = scenario.schedule.rule_of_searches
    options: dict[str, Any] = {"policy": rates}
    if section.policy in SEARCHES:
        count = min(section.simulated_iterations, job.iterations)
        transfers = section.iterations
        is_stated = "simulated_iterations" in section.model_fields_set
        # ``best`` shares its budget itself, unless the file states how long candidates
        # are.
        if not transfers and (section.policy == "etp" or is_stated):
            transfers = affordable(job, rates, iterations=count)

        options["transfers"] = transfers
        options["iterations"] = count
        options["cost"] = _joint_cost(scenario)
    if section.policy == "best":
        options["judged"] = False
    if section.policy == "etp":
        options["mu"] = section.tolerance
        options["beta"] = section.beta
        options["beta_unit"] = section.beta_unit
    return options


def _joint_cost(scenario: Scenario) -> JobsCost | None:
    """Return the cost of jobs placed together; None where the makespan judges."""
    cost = scenario.joint_cost
    # With a release the longest time of a job is not the makespan: it counts from
    # there.
    has_releases = any(item.release for item in scenario.jobs)
    if cost == "max" and not has_releases:
        return None
    weights = {}
    for item in scenario.jobs:
        if item.weight is not None:
            weights[item.name] = item.weight
    return JobsCost(cost != "max", weights)


class NoPeer(PlacementError):
    """A machine beside which no other can keep checkpoints."""

    key = "checkpoint.to"


def _with_peers(
    scenario: Scenario,
    job: Job,
    cluster: Cluster,
    placement: Placement,
) -> Placement:
    """Return a placement with the copies of state on other machines.

    Raises NoPeer when there is no other.
    """
    # Without machines that jobs bring along: functions go, and what they keep with
    # them.
    names = set(scenario.stated_cluster.names)
    count = sum(machine.name in names for machine in cluster.machines)
    places = scenario.placement.tasks
    try:
        return with_peers(
            job=job,
            cluster=cluster,
            placement=placement,
            stated=places,
            count=count,
        )
    except ValueError as error:
        raise NoPeer(f"{error}: add one, or write to: disk") from error


def following_placement(scenario: Scenario, problem: Problem) -> Problem:
    """Return the problem with rings, copies and caches where its placement asks for.

    Rings of jobs with ``ring: placed``; copies of state on peers; caches of rows that
    others than a sampler's machine own, which change what is sent.
    """
    # Once more: a stated placement, or one that only looks for room, has no peers yet.
    placement = _with_peers(
        scenario=scenario,
        job=problem.job,
        cluster=problem.cluster,
        placement=problem.placement,
    )
    problem = replace(problem, placement=placement)
    sections = {item.name: part.job for item, part in scenario.parts()}
    if not sections:
        sections[""] = scenario.job

    for name, section in sections.items():
        if section.rings_follow_placement:
            problem = with_placed_ring(problem, name)

    job = settle_caches(problem.job, problem.machine_of_task)
    if job is problem.job:
        return problem
    return replace(problem, job=job)


def place_one_by_one(
    scenario: Scenario,
    job: Job,
    cluster: Cluster,
    progress: Progress | None = None,
) -> PlacementResult:
    """Place each of several jobs by its own policy, on what those before it leave.

    Raises PlacementError, ScenarioError, DataError as `place`, of the first job for
    which it does.
    """
    names = cluster.names
    free = cluster
    machine_of: dict[str, int] = {}
    results = []
    for item, scenario_of_part in scenario.parts():
        part = build_job(scenario_of_part)
        pool = free.only(item.job.movable_on or names)
        result = place(scenario_of_part, part, pool, progress=progress)
        results.append(result)

        # By name, as positions in the pool are others in the cluster.
        homes = []
        positions = []
        for position_in_pool in result.placement.machine_of:
            machine = pool.machines[position_in_pool]
            homes.append(machine.name)
            position = names.index(machine.name)
            positions.append(position)
        placement = Placement(tuple(positions))
        for process, members in part.units.items():
            first = members[0]
            machine_of[f"{item.name}/{process}"] = positions[first]

        # What a placed job takes is not there for the next.
        task_names = [task.name for task in part.tasks]
        places = dict(zip(task_names, homes, strict=True))
        free = _without_usage(free, part, placement)
        free = leave_room(part, free, places)

    machine_of_tasks = [machine_of[task.process_name] for task in job.tasks]
    return PlacementResult(
        placement=Placement(tuple(machine_of_tasks)),
        policy="sequential",
        candidates=sum(result.candidates for result in results),
        budget=max(result.budget for result in results),
    )


def _without_usage(cluster: Cluster, job: Job, placement: Placement) -> Cluster:
    """Return the cluster with the resources that a placed job leaves."""
    machines = []
    usage = placement.usage(job, cluster)
    for machine, load in zip(cluster.machines, usage, strict=True):
        rest = {}
        for name, amount in machine.resources.items():
            used = load.get(name, 0.0)
            rest[name] = amount - used
        remainder = replace(machine, resources=rest)
        machines.append(remainder)
    return replace(cluster, machines=tuple(machines))
