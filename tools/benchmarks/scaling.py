"""What a simulation costs by the number of machines and flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.problem import Cluster, Machine, Placement, Problem, Realization
from emu.systems.dgtp.job import DgtpConfig, dgtp_job, dgtp_times
from tools.benchmarks.rows import Row, amount, once
from tools.benchmarks.simulator import makespan_call

if TYPE_CHECKING:
    from collections.abc import Iterator

GBIT = 1e9 / 8
MACHINES = (4, 8, 16, 32, 64)
FLOWS = (10_000, 100_000, 1_000_000)
MOST_FLOWS = 10_000_000
SECONDS = {
    "graph_store": 0.020,
    "sampler": 0.015,
    "worker": 0.060,
    "parameter_server": 0.005,
}
VOLUMES = {"graph_store": 15e6, "worker": 2.4e6, "parameter_server": 2.4e6}
SAMPLERS_PER_MACHINE = 5
PAPERS_EPOCHS, PAPERS_TRAINED, PAPERS_BATCH = 25, 1_207_179, 500


def grown(machines: int, iterations: int) -> tuple[Problem, Realization]:
    """Return a job of workload B's kind: 5 samplers and 1.25 workers per machine."""
    rng = np.random.default_rng(machines)
    nics = rng.choice([10, 20, 50], machines) * GBIT
    cluster = Cluster(
        tuple(Machine(f"m{m}", nic, nic) for m, nic in enumerate(nics.tolist()))
    )
    workers = machines * SAMPLERS_PER_MACHINE // 4
    job = dgtp_job(
        DgtpConfig(
            machines=tuple(machine.name for machine in cluster.machines),
            workers=workers,
            samplers_per_worker=4,
            parameter_servers=1,
            iterations=iterations,
            hops=2,
        )
    )
    number = {"graph_store": "store", "sampler": "sampler", "worker": "worker"}
    stands = [t.settings.get(number.get(t.kind, ""), 0) % machines for t in job.tasks]
    volumes = np.empty((len(job.edges), iterations))
    for row, edge in zip(volumes, job.edges, strict=True):
        row[:] = VOLUMES.get(job.tasks[edge.source].kind, 15e6 * machines)
        if job.tasks[edge.source].kind == "graph_store":
            row[:] *= rng.uniform(0.9, 1.1, iterations)
    realization = Realization(dgtp_times(job, SECONDS), volumes)
    return Problem(cluster, job, Placement(tuple(stands))), realization


def flow_count(problem: Problem) -> int:
    """Return the flows between machines of the whole run."""
    iterations = problem.job.iterations
    return sum(
        max(iterations - edge.lag, 0)
        for edge, hops in zip(problem.job.edges, problem.hops, strict=True)
        if hops
    )


def training_rows() -> Iterator[Row]:
    """Yield the whole papers100M training: 16 machines, 25 epochs, shards."""
    samplers = 16 * SAMPLERS_PER_MACHINE
    epoch = -(-PAPERS_TRAINED // (samplers * PAPERS_BATCH))
    problem, realization = grown(16, PAPERS_EPOCHS * epoch)
    flows = flow_count(problem)
    for policy in ("oes", "maxmin"):
        makespan_call(*grown(4, 2), policy)()
        seconds = once(makespan_call(problem, realization, policy))
        note = f"{flows:,} flows, {flows / seconds:,.0f}/s"
        yield Row("papers100M, 25 epochs", policy, seconds, note)


def growth_rows(*, full: bool) -> Iterator[Row]:
    """Yield a row per number of machines: seconds of one OES run by flows."""
    makespan_call(*grown(4, 2), "oes")()  # loads what is compiled
    for machines in MACHINES:
        one_iteration = flow_count(grown(machines, 1)[0])
        cells, seconds, counted = [], 0.0, 1
        for flows in (*FLOWS, MOST_FLOWS) if full else FLOWS:
            problem, realization = grown(machines, max(flows // one_iteration, 2))
            counted = flow_count(problem)
            seconds = once(makespan_call(problem, realization, "oes"))
            cells.append(f"{counted:,}: {amount(seconds)}")
        note = f"{amount(seconds / counted)} per flow; {', '.join(cells)}"
        yield Row("growth, oes", f"{machines} machines", seconds, note)
