"""The placement searches on workloads A and B."""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from emu.placement import (
    EtpOptions,
    PlacementResult,
    SearchOptions,
    search,
    search_etp,
)
from emu.problem import Cluster, Job, Profile
from emu.testing import bench_directory, load_workload
from tools.benchmarks.rows import Row, once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from emu.problem import Machine, Task

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
ROUNDS = 3


def searchable(name: str) -> tuple[Job, Cluster, Profile]:
    """Return a workload with the paper's demands, its stores pinned, and capacities."""
    problem, realization, _ = load_workload(name)
    machines = problem.cluster.machines

    def placeable(task: Task, machine: int) -> Task:
        pin = machines[machine].name if task.kind == "graph_store" else None
        return replace(task, demands=DEMANDS[task.kind], pinned=pin)

    def roomy(machine: Machine, room: Mapping[str, float]) -> Machine:
        return replace(machine, resources=room)

    tasks = tuple(map(placeable, problem.job.tasks, problem.placement.machine_of))
    cluster = Cluster(tuple(roomy(m, CAPACITIES[name]) for m in machines))
    profile = Profile(realization.times, realization.volumes)
    return replace(problem.job, tasks=tasks), cluster, profile


def search_rows(*, candidates: int = CANDIDATES) -> Iterator[Row]:
    """Yield the timings of ETP and of the improved search."""
    if bench_directory() is None:
        yield Row("search", "workloads A, B", None, "skipped: EMU_BENCH not set")
        return
    yield from _workload_a(candidates)
    yield from _workload_b(candidates)


def _workload_a(candidates: int) -> Iterator[Row]:
    job, cluster, profile = searchable("workload_a")
    found: dict[bool, PlacementResult] = {}

    def etp(plainly: bool, transfers: int = candidates) -> None:  # noqa: FBT001
        options = EtpOptions(transfers=transfers, simulate_all=plainly)
        found[plainly] = search_etp(job, cluster, profile, options=options)

    for plainly, words in (
        (True, "ETP, every candidate simulated"),
        (False, "ETP, exact rejection"),
    ):
        etp(plainly, 2)  # compiles
        taken = [once(partial(etp, plainly)) for _ in range(ROUNDS)]
        result = found[plainly]
        seconds = statistics.median(taken)
        note = f"{result.evaluations:,} simulated, best {result.makespan:.4f} s"
        yield Row(f"search A, {candidates:,}", words, seconds, note)
    every, few = found[True], found[False]
    if (every.accepted, every.history) != (few.accepted, few.history):
        raise RuntimeError("exact rejection has changed the chain")
    note = f"yes: {few.accepted} moves, the same best at every step"
    yield Row(f"search A, {candidates:,}", "same accepted moves and best", None, note)
    options = SearchOptions(transfers=candidates)
    improved: list[PlacementResult] = []
    taken = [
        once(lambda: improved.append(search(job, cluster, profile, options=options)))
        for _ in range(ROUNDS)
    ]
    note = f"{improved[-1].evaluations:,} simulated, best {improved[-1].makespan:.4f} s"
    yield Row(
        f"search A, {candidates:,}", "improved search", statistics.median(taken), note
    )


def _workload_b(candidates: int) -> Iterator[Row]:
    job, cluster, profile = searchable("workload_b")
    options = EtpOptions(transfers=candidates)
    found: list[PlacementResult] = []
    seconds = once(
        lambda: found.append(search_etp(job, cluster, profile, options=options))
    )
    each = seconds / max(found[0].evaluations, 1)
    yield Row(
        f"search B, {candidates:,}",
        "ETP, exact rejection",
        seconds,
        f"{found[0].evaluations:,} simulated, {each * 1e3:.1f} ms each",
    )
