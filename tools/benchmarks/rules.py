"""Rules on two drawn jobs: flows that disturb few others, and flows that disturb many.

Every task sends to two of the next ``window`` tasks; tasks are on random machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)
from tools.benchmarks.rows import Row, once
from tools.benchmarks.simulator import makespan_call

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Machines, tasks, iterations, seed, window.
JOBS = {"sparse": (137, 1_827, 20, 0, 60), "dense": (150, 21_000, 1, 1, 400)}
TELL_APART = ("mrtf", "mrtf_exclusive", "fifo", "oes_cp", "omcoflow", "sebf_madd")
RULES = ("oes", "maxmin", *TELL_APART)


def drawn(
    machines: int, tasks: int, iterations: int, seed: int, window: int
) -> tuple[Problem, Realization]:
    """Return a job of two flows per task, and what its tasks take and send."""
    rng = np.random.default_rng(seed)
    nics = rng.uniform(5, 10, (machines, 2)).tolist()
    cluster = Cluster(tuple(Machine(f"m{i}", *nic) for i, nic in enumerate(nics)))
    ahead = [rng.integers(1, window, 2).tolist() for _ in range(tasks)]
    edges = [Edge(j, j + d) for j in range(tasks) for d in ahead[j] if j + d < tasks]
    job = Job(tuple(Task(f"t{j}", "x") for j in range(tasks)), tuple(edges), iterations)
    at = Placement(tuple(rng.integers(0, machines, tasks).tolist()))
    times = rng.uniform(0.5, 1.5, (tasks, iterations))
    volumes = rng.uniform(1, 20, (len(edges), iterations))
    return Problem(cluster, job, at), Realization(times, volumes)


def rule_rows() -> Iterator[Row]:
    """Yield the time of one run of every rule on each job."""
    for name, shape in JOBS.items():
        problem, realization = drawn(*shape)
        flows, ports = sum(problem.job.flow_counts), 2 * shape[0]
        for rule in RULES:
            call = makespan_call(problem, realization, rule)
            call()
            seconds = min(once(call) for _ in range(3))
            note = (
                f"{1e6 * seconds / flows:.2f} us per flow, {flows:,} over {ports} ports"
            )
            yield Row(f"rules, {name}", f"{rule}, makespan", seconds, note)
