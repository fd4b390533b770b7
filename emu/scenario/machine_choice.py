"""Which machines take part, where the file leaves it open: fewer may be faster.

A graph store on a slow NIC may take longer to ask than its share of the graph is worth.
What the file states stays; what depends on the machines is chosen with them: the number
of graph stores, and so of parts of the graph. Of ``job.stores``, a number, the machines
of the stores alone are chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from emu.array_types import Floats
from emu.errors import PlacementError, ScenarioError
from emu.prediction.placement import affordable, best_placement
from emu.prediction.placement.machine_sets import MOST_SETS, machine_sets
from emu.prediction.placement.place import FLOWS
from emu.problem import Cluster, Job, Problem, Realization
from emu.problem.workloads import copies_of, without_copies
from emu.scenario.realize import build_job
from emu.systems.device_memory import RESOURCE

if TYPE_CHECKING:
    from emu.scenario.scenario import Scenario

    Names = tuple[str, ...]

#: Iterations that a short search simulates, and candidates of each.
_ITERATIONS = 10
#: Short searches together simulate as many flows as one full search, over this.
_SHARE = 2
#: Sets that are searched in full at most, and how wrong a short search may be for that.
_FINALISTS = 2
_MARGIN = 1.05
#: The same for all machines, than which no choice may be worse.
_MARGIN_OF_ALL = 1.25
#: Machines that a line names at most.
_NAMES = 8
#: Names or kinds of the ends of an edge, and its lag.
_Key: TypeAlias = tuple[str, str, int]


def on_machines(scenario: Scenario, names: Sequence[str]) -> Scenario | None:
    """Return the scenario with these machines stated; None where they are no choice.

    They are where ``best`` places one job, no profile of its tasks is stated, and its
    system lets them be (`JobSection.on_machines`).
    """
    is_searched = scenario.placed_by == "best" and scenario.profile is None
    if scenario.jobs or not is_searched:
        return None
    count = len(scenario.cluster.names)
    job = scenario.job.on_machines(names, count)
    if job is None:
        return None
    return scenario.model_copy(update={"job": job})


def promising(
    scenario: Scenario,
    job: Job,
    cluster: Cluster,
    realization: Realization,
) -> list[Scenario]:
    """Return the scenario on every set of machines that is worth a full search.

    Short searches rank the sets, on volumes that stores share evenly. As it is, on all
    machines, it comes first where it may be the best; it is alone where its machines
    are no choice. ``job``, ``cluster``, ``realization``: on all machines, with
    reference times.
    """
    everything = cluster.names
    first = everything
    if scenario.job.chosen_count is not None:
        first = scenario.job.owners(everything)
    if on_machines(scenario, first) is None:
        return [scenario]

    times = _short_searches(
        scenario=scenario,
        job=job,
        cluster=cluster,
        realization=realization,
    )

    # Of equal times the fewest machines.
    def rank(names: Names) -> tuple[float, int]:
        return times[names], len(names)

    ranking = sorted(times, key=rank)
    least = min(times.values(), default=0.0)
    limit = least * _MARGIN
    near_best = [names for names in ranking if times[names] <= limit]
    finalists = near_best[:_FINALISTS]
    time_of_whole = times.get(everything, np.inf)
    is_whole_good = time_of_whole <= least * _MARGIN_OF_ALL

    scenarios = []
    for names in finalists:
        variant = on_machines(scenario, names)
        if variant is None or names == everything:
            continue
        if _fits_devices(variant, cluster):
            scenarios.append(variant)
    if is_whole_good or everything in finalists or not scenarios:
        scenarios.insert(0, scenario)
    return scenarios


def _fits_devices(variant: Scenario, cluster: Cluster) -> bool:
    """Return False where devices of its machines cannot hold what they train.

    Short searches leave memory of devices out: only whole jobs tell what they need.
    """
    if not any(RESOURCE in machine.resources for machine in cluster.machines):
        return True
    try:
        build_job(variant)
    except ScenarioError:
        return False
    return True


def _short_searches(
    scenario: Scenario,
    job: Job,
    cluster: Cluster,
    realization: Realization,
) -> dict[Names, float]:
    """Return the makespan that a short search finds on every set of machines to try."""
    original = without_copies(job)
    count = min(_ITERATIONS, job.iterations)
    short = replace(original, iterations=count)
    run = _shortened(realization.of(original), count)
    rates = scenario.schedule.rule_of_searches

    everything = cluster.names
    choice = cluster.only(scenario.job.choice_pool(everything))
    flows_of_searches = FLOWS // _SHARE
    most_sets = affordable(short, rates, flows_of_searches // 10, MOST_SETS)
    sets = machine_sets(
        original,
        choice,
        most_sets,
        held=set(scenario.placement.tasks.values()),
        size=scenario.job.chosen_count,
    )
    if len(sets) == 1 and scenario.job.chosen_count is None:
        return {}  # no choice; of a number the names are stated

    times: dict[Names, float] = {}
    least = 2 if copies_of(job) else 1  # a peer is another machine
    for names in sets:
        variant = on_machines(scenario, names)
        if variant is None:
            continue
        pool = variant.job.movable_on or everything
        if len(pool) < least:
            continue
        machines = cluster.only(pool)
        # All of them together simulate as much as half a full search.
        flows = flows_of_searches // len(sets)
        try:
            times[names] = _search(
                variant=variant,
                cluster=machines,
                short=short,
                run=run,
                flows=flows,
            )
        except (PlacementError, ValueError):  # no room, or a pin of a store it lacks
            continue
    return times


def _search(
    variant: Scenario,
    cluster: Cluster,
    short: Job,
    run: Realization,
    flows: int,
) -> float:
    """Return the makespan that a search over so many flows finds for a variant."""
    rates = variant.schedule.rule_of_searches
    whole_job = variant.to_job(train_vertices=1)
    job = without_copies(whole_job)
    job = replace(job, iterations=short.iterations)

    outcome = best_placement(
        job,
        cluster,
        shared_evenly(short, run, job),
        rates,
        seed=variant.seed,
        transfers=affordable(job, rates, flows),
    )
    return outcome.makespan or 0.0


def _shortened(run: Realization, iterations: int) -> Realization:
    """Return so many iterations of a run, spread evenly over it."""
    last = run.times.shape[1] - 1
    columns = np.linspace(0, last, iterations).astype(np.int64)
    return Realization(
        times=run.times[:, columns],
        volumes=run.volumes[:, columns],
    )


def shared_evenly(job: Job, run: Realization, fewer: Job) -> Realization:
    """Return a run of the job with fewer stores, which share what all had.

    Stores are pinned. Their flows with a task carry together what they did; any other
    task and flow is in both jobs, by its name, but for those of caches.
    """
    times_of_ends = dict(zip(_ends_of(job), run.times, strict=True))
    sums: dict[_Key, Floats] = {}
    nothing = np.zeros(job.iterations)
    for key, row in zip(_edge_keys(job), run.volumes, strict=True):
        volumes_so_far = sums.get(key, nothing)
        sums[key] = volumes_so_far + row

    times = [times_of_ends[end] for end in _ends_of(fewer)]
    keys = _edge_keys(fewer)
    counts = Counter(keys)
    # Beside a single store nothing is cached: what caches of several take in ahead is
    # unknown then, and left to the full search.
    volumes = [sums.get(key, nothing) / counts[key] for key in keys]
    return Realization(
        times=np.array(times),
        volumes=np.array(volumes),
    )


def _ends_of(job: Job) -> list[str]:
    """Return for each task its name, or its kind where others may share its flows."""
    return [task.kind if task.pinned else task.name for task in job.tasks]


def _edge_keys(job: Job) -> list[_Key]:
    """Return what tells the flows of each edge from others but those of its peers."""
    ends = _ends_of(job)
    keys = []
    for edge in job.edges:
        source = ends[edge.source]
        destination = ends[edge.destination]
        keys.append((source, destination, edge.lag))
    return keys


def apart_words(scenario: Scenario, problem: Problem) -> str:
    """Return how stores keep off machines with gpus; empty where it is no question.

    A file that states no ``job.stores`` may mean a pool of storage, as GiGL has it.
    """
    # A system without the key has no such question, and a file that states it has
    # asked.
    unstated = getattr(scenario.job, "stores", "") is None
    if not unstated:
        return ""
    machines = scenario.stated_cluster.by_name
    storage = [name for name, machine in machines.items() if not machine.gpu]
    homes_with_gpu = []
    for task in problem.job.tasks:
        if task.kind != "graph_store":
            continue
        home = problem.machine_of_task[task.name]
        if machines[home].gpu:
            homes_with_gpu.append(home)
    if not storage or not homes_with_gpu:
        return ""

    names = ", ".join(homes_with_gpu[:_NAMES])
    return (
        f"graph stores stand on {names}, too, which compute: job.stores: "
        f"{len(storage)} keeps them on machines without a gpu"
    )


def machines_words(placing: Mapping[str, Any]) -> str:
    """Return where tasks stand: ``on gpu alone``; empty for older results."""
    names = placing.get("machines", ())
    count = placing.get("machines_in_all", 0)
    if len(names) == 1:
        words = f"on {names[0]}"
        return f"{words} alone" if count > 1 else words
    if len(names) == count:
        return f"on all {count} machines" if count else ""

    words = ", ".join(names[:_NAMES])
    unnamed = len(names) - _NAMES
    if unnamed > 0:
        words += f" and {unnamed} more"
    return f"on {len(names)} of {count} machines: {words}"
