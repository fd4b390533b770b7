"""Small jobs and clusters for the placement tests, and the brute force beside them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from emu.prediction.placement.distdgl import sampler_pairs
from emu.prediction.placement.space import Space
from emu.problem import Cluster, Edge, Job, Machine, Placement, Realization, Task

GB = 1e9
GBIT = 1e9 / 8


def dgtp_job(
    *,
    stores: int,
    workers: int,
    per_worker: int,
    servers: int = 1,
    demands: Mapping[str, Mapping[str, float]],
    iterations: int = 3,
) -> Job:
    """Return DGTP's job with stores pinned to machines m0, m1, ..."""
    tasks = [
        Task(f"g{i}", "graph_store", demands.get("graph_store", {}), pinned=f"m{i}")
        for i in range(stores)
    ]
    for kind, letter, count in (
        ("sampler", "s", workers * per_worker),
        ("worker", "w", workers),
        ("parameter_server", "ps", servers),
    ):
        tasks += [
            Task(f"{letter}{i}", kind, demands.get(kind, {})) for i in range(count)
        ]
    first_worker = stores + workers * per_worker
    samplers = range(stores, first_worker)
    trainers = range(first_worker, first_worker + workers)
    updaters = range(first_worker + workers, len(tasks))
    edges = [Edge(g, s) for g in range(stores) for s in samplers]
    edges += [Edge(s, first_worker + (s - stores) // per_worker) for s in samplers]
    edges += [Edge(w, q) for w in trainers for q in updaters]
    edges += [Edge(q, w, lag=1) for q in updaters for w in trainers]
    return Job(tuple(tasks), tuple(edges), iterations)


PAPER_DEMANDS = {
    "sampler": {"memory": 7 * GB, "cpu": 2},
    "worker": {"memory": 3 * GB, "cpu": 1, "gpu": 1},
    "parameter_server": {"memory": 5 * GB, "cpu": 1},
}


def paper_testbed(cpu: float = 8, store_memory: float = 14 * GB) -> tuple[Job, Cluster]:
    """Return the paper's testbed: 4 machines, 6 workers with 2 samplers each, 1 PS."""
    demands = {**PAPER_DEMANDS, "graph_store": {"memory": store_memory}}
    machines = tuple(
        Machine(
            f"m{i}", rate * GBIT, rate * GBIT, {"cpu": cpu, "gpu": 2, "memory": 48 * GB}
        )
        for i, rate in enumerate((50, 50, 10, 10))
    )
    job = dgtp_job(stores=4, workers=6, per_worker=2, demands=demands)
    return job, Cluster(machines)


def random_setting(
    rng: np.random.Generator, *, iterations: int = 3
) -> tuple[Job, Cluster]:
    """Return a random small job and cluster, feasible or not."""
    machines = tuple(
        Machine(
            f"m{i}",
            float(rng.choice([1, 2, 5])) * 1e3,
            float(rng.choice([1, 2, 5])) * 1e3,
            {
                "cpu": float(rng.integers(1, 7)),
                "gpu": float(rng.integers(0, 3)),
                "memory": float(rng.integers(4, 20)),
            },
        )
        for i in range(rng.integers(1, 4))
    )
    demands = {
        "graph_store": {"memory": float(rng.integers(0, 5))},
        "sampler": {"cpu": float(rng.integers(1, 3)), "memory": float(rng.integers(6))},
        "worker": {"cpu": 1.0, "gpu": 1.0, "memory": float(rng.integers(4))},
        "parameter_server": {"cpu": float(rng.integers(0, 3)), "memory": 2.0},
    }
    job = dgtp_job(
        stores=len(machines),
        workers=int(rng.integers(1, 4)),
        per_worker=int(rng.integers(1, 3)),
        servers=int(rng.integers(1, 3)),
        demands=demands,
        iterations=iterations,
    )
    return job, Cluster(machines)


def realization(job: Job, rng: np.random.Generator) -> Realization:
    """Return random times around 0.1 s and volumes around 100 bytes."""
    return Realization(
        rng.uniform(0.01, 0.2, (len(job.tasks), job.iterations)),
        rng.uniform(10, 200, (len(job.edges), job.iterations)),
    )


def feasible_placements(job: Job, cluster: Cluster) -> Iterator[Placement]:
    """Yield every placement that satisfies (1)-(3), by plain enumeration."""
    space = Space(job, cluster)
    for machines in itertools.product(
        range(len(cluster.machines)), repeat=len(space.units)
    ):
        placement = space.placement(machines)
        if not placement.violations(job, cluster):
            yield placement


def feasible_exists(job: Job, cluster: Cluster) -> bool:
    """Tell by depth-first search over single tasks whether any placement fits."""
    resources = cluster.resource_names()
    room = [[m.resources.get(r, np.inf) for r in resources] for m in cluster.machines]
    demands = [[t.demands.get(r, 0.0) for r in resources] for t in job.tasks]
    pins = [None if t.pinned is None else cluster.index(t.pinned) for t in job.tasks]
    return _search(room, demands, pins, 0)


def _search(
    room: list[list[float]],
    demands: Sequence[Sequence[float]],
    pins: Sequence[int | None],
    task: int,
) -> bool:
    if task == len(demands):
        return True
    pin = pins[task]
    for machine in range(len(room)) if pin is None else [pin]:
        left = [h - d for h, d in zip(room[machine], demands[task], strict=True)]
        if min(left, default=0.0) >= 0:
            kept, room[machine] = room[machine], left
            found = _search(room, demands, pins, task + 1)
            room[machine] = kept
            if found:
                return True
    return False


def colocated_pairs(job: Job, placement: Placement) -> tuple[int, int]:
    """Return how many (worker, sampler) pairs share a machine, and how many exist."""
    pairs, machine_of = sampler_pairs(job), placement.machine_of
    together = sum(machine_of[source] == machine_of[worker] for source, worker in pairs)
    return together, len(pairs)
