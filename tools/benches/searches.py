"""The placement searches on workloads A and B."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from emu.placement import EtpOptions, SearchOptions, search, search_etp
from emu.problem import Cluster, Job, Profile
from emu.testing import bench_directory, load_workload
from tools.benches.figures import Figure, once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emu.placement import PlacementResult

CANDIDATES = 10_000
DEMANDS: dict[str, dict[str, float]] = {
    "graph_store": {},
    "sampler": {"memory": 7e9, "cpu": 2},
    "worker": {"memory": 3e9, "cpu": 1, "gpu": 1},
    "parameter_server": {"memory": 5e9, "cpu": 1},
}
CAPACITIES = {
    "workload_a": {"memory": 48e9, "cpu": 16, "gpu": 2},
    "workload_b": {"memory": 128e9, "cpu": 16, "gpu": 4},
}


def searchable(name: str) -> tuple[Job, Cluster, Profile]:
    """Return a workload with the paper's demands, its stores pinned, and capacities."""
    problem, realization, _ = load_workload(name)
    machines = problem.cluster.machines
    tasks = tuple(
        replace(
            task,
            demands=DEMANDS[task.kind],
            pinned=machines[machine].name if task.kind == "graph_store" else None,
        )
        for task, machine in zip(
            problem.job.tasks, problem.placement.machine_of, strict=True
        )
    )
    cluster = Cluster(tuple(replace(m, resources=CAPACITIES[name]) for m in machines))
    profile = Profile(realization.times, realization.volumes)
    return replace(problem.job, tasks=tasks), cluster, profile


def _timed(
    what: str, call: Callable[[], PlacementResult], rounds: int = 3
) -> tuple[PlacementResult, Figure]:
    """Return what a search found, and the median of its times."""
    found: list[PlacementResult] = []
    taken = [once(lambda: found.append(call())) for _ in range(rounds)]
    result = found[-1]
    note = f"{result.evaluations:,} simulated, best {result.makespan:.4f} s"
    seconds = statistics.median(taken)
    return result, Figure(f"{what}, {CANDIDATES:,}", seconds, note=note)


def searches(_: float) -> Iterator[Figure]:
    """Yield the times of ETP, with and without exact rejection, and of our search.

    Raises
    ------
    RuntimeError
        When exact rejection has changed the chain of accepted moves.
    """
    if bench_directory() is None:
        yield Figure("workloads A, B", math.nan, note="skipped: EMU_BENCH not set")
        return
    job = searchable("workload_a")
    plain = EtpOptions(transfers=CANDIDATES, simulate_all=True)
    exact = EtpOptions(transfers=CANDIDATES)
    for options in (plain, exact):
        search_etp(*job, options=replace(options, transfers=2))  # compiles
    every, figure = _timed(
        "A: ETP, every candidate simulated", lambda: search_etp(*job, options=plain)
    )
    yield figure
    few, figure = _timed(
        "A: ETP, exact rejection", lambda: search_etp(*job, options=exact)
    )
    yield figure
    if (every.accepted, every.history) != (few.accepted, few.history):
        raise RuntimeError("exact rejection has changed the chain")
    best = SearchOptions(transfers=CANDIDATES)
    yield _timed("A: improved search", lambda: search(*job, options=best))[1]
    large = searchable("workload_b")
    yield _timed(
        "B: ETP, exact rejection", lambda: search_etp(*large, options=exact), 1
    )[1]
