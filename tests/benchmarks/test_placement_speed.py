"""How long the placement searches take; medians by ``pytest --benchmark-enable``.

The job of the paper's testbed: 4 machines with 50, 50, 10 and 10 Gbit/s, 16 cores and 2
GPUs, 4 stores, 6 workers with 2 samplers each, 1 parameter server; 10,000 candidates of
20 simulated iterations. Without ``--benchmark-enable`` a tenth of that runs once.
"""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from emu.prediction.placement.etp import EtpOptions, search_etp
from emu.prediction.placement.search import SearchOptions
from emu.problem import Cluster, Edge, Job, Machine, Profile, Task
from tools.benches.evaluator import search

ITERATIONS = 20
DEMANDS: dict[str, dict[str, float]] = {
    "graph_store": {},
    "sampler": {"memory": 7e9, "cpu": 2},
    "worker": {"memory": 3e9, "cpu": 1, "gpu": 1},
    "parameter_server": {"memory": 5e9, "cpu": 1},
}
SECONDS = {
    "graph_store": 0.02,
    "sampler": 0.015,
    "worker": 0.06,
    "parameter_server": 0.005,
}


def job_of_the_testbed() -> tuple[Job, Cluster, Profile]:
    """Return the job and a profile of store volumes of 15 MB, 10 % up or down."""
    kinds = ["graph_store"] * 4 + ["sampler"] * 12 + ["worker"] * 6
    kinds.append("parameter_server")
    tasks = tuple(
        Task(f"t{i}", kind, DEMANDS[kind], pinned=f"m{i}" if i < 4 else None)
        for i, kind in enumerate(kinds)
    )
    edges = [Edge(g, s) for g in range(4) for s in range(4, 16)]
    edges += [Edge(s, 16 + (s - 4) // 2) for s in range(4, 16)]
    edges += [Edge(w, 22) for w in range(16, 22)]
    edges += [Edge(22, w, lag=1) for w in range(16, 22)]
    rng = np.random.default_rng(0)
    volumes = np.concatenate(
        [
            15e6 * rng.uniform(0.9, 1.1, (48, ITERATIONS)),
            np.full((12, ITERATIONS), 60e6),
            np.full((12, ITERATIONS), 2.4e6),
        ]
    )
    times = np.repeat([[SECONDS[kind]] for kind in kinds], ITERATIONS, axis=1)
    machines = tuple(
        Machine(f"m{i}", rate, rate, {"cpu": 16, "gpu": 2, "memory": 48e9})
        for i, rate in enumerate((6.25e9, 6.25e9, 1.25e9, 1.25e9))
    )
    job = Job(tasks, tuple(edges), ITERATIONS)
    return job, Cluster(machines), Profile(times, volumes)


@pytest.mark.timeout(300)  # the first call compiles: 30 s on a quiet machine
@pytest.mark.parametrize("beta_unit", [1.0, 1e-3, None], ids=["s", "ms", "default"])
@pytest.mark.parametrize("plainly", [True, False])
def test_etp(
    benchmark: BenchmarkFixture, *, plainly: bool, beta_unit: float | None
) -> None:
    job, cluster, profile = job_of_the_testbed()
    transfers = 10_000 if benchmark.enabled else 1_000
    options = EtpOptions(transfers=transfers, simulate_all=plainly, beta_unit=beta_unit)

    result = benchmark.pedantic(  # type: ignore[no-untyped-call]
        search_etp,
        args=(job, cluster, profile),
        kwargs={"options": options},
        rounds=3,
        warmup_rounds=1,
    )

    benchmark.extra_info.update(
        makespan=result.makespan,
        accepted=result.accepted,
        evaluations=result.evaluations,
    )
    assert result.candidates == transfers


@pytest.mark.timeout(300)
def test_search(benchmark: BenchmarkFixture) -> None:
    job, cluster, profile = job_of_the_testbed()
    transfers = 10_000 if benchmark.enabled else 1_000
    options = SearchOptions(transfers=transfers)

    result = benchmark.pedantic(  # type: ignore[no-untyped-call]
        search,
        args=(job, cluster, profile),
        kwargs={"options": options},
        rounds=3,
        warmup_rounds=1,
    )

    benchmark.extra_info.update(
        makespan=result.makespan, evaluations=result.evaluations
    )
    assert result.makespan < result.start_makespan
