"""Runs of the simulator on workloads A and B, beside SimGrid; rules on drawn jobs."""

from __future__ import annotations

import functools
import math
import tempfile
from pathlib import Path
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
from emu.scheduling.compiled_problem import plain
from emu.simulation import MakespanEvaluator, simulate
from emu.simulation.evaluator import run_makespan
from emu.testing import bench_directory, load_workload
from tools.benches.figures import Figure, interleaved, once
from tools.benches.simgrid import compiled_peer, peer_seconds, write_workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PEERS_RULE = "maxmin"
FLOWS = {"workload_a": 916, "workload_b": 24_942}
#: Machines, tasks, iterations, seed, window: every task sends to two of the next
#: ``window`` tasks. Flows disturb few others in the one job, many in the other.
JOBS = {"sparse": (137, 1_827, 20, 0, 60), "dense": (150, 21_000, 1, 1, 400)}
RULES = ("oes", "maxmin", "mrtf", "mrtf_exclusive", "fifo", "oes_cp", "omcoflow",
         "sebf_madd")  # fmt: skip


def makespan_call(
    problem: Problem, realization: Realization, policy: str
) -> Callable[[], float]:
    """Return a call of the compiled run alone, all arrays made."""
    arrays = MakespanEvaluator(problem.job, problem.cluster, policy).arrays
    machine_of = np.array(problem.placement.machine_of, dtype=np.int64)
    times, volumes = plain(realization.times), plain(realization.volumes)
    return functools.partial(run_makespan, arrays, machine_of, times, volumes, math.inf)


def simulation(seconds: float) -> Iterator[Figure]:
    """Yield the times of both workloads; one figure without a value otherwise.

    Raises
    ------
    RuntimeError
        When a makespan is not the one that is known.
    """
    if bench_directory() is None:
        yield Figure("workloads A, B", math.nan, note="skipped: EMU_BENCH not set")
        return
    for name, flows in FLOWS.items():
        problem, realization, expected = load_workload(name)
        calls: dict[str, Callable[[], object]] = {}
        for policy in ("oes", "maxmin"):
            call = makespan_call(problem, realization, policy)
            if abs(call() - expected[policy]) > 1e-9:
                raise RuntimeError(f"{name} takes {call()} s, not {expected[policy]} s")
            calls[f"{policy}, makespan"] = call
            calls[f"{policy}, schedule"] = functools.partial(
                simulate, problem, realization, policy
            )
        medians = interleaved(calls, budget=seconds / 2)
        for what, took in medians.items():
            yield Figure(f"{name}: {what}", took, note=f"{flows / took:,.0f} flows/s")
        span, ours = expected[PEERS_RULE], medians[f"{PEERS_RULE}, makespan"]
        yield from peer(name, problem, realization, span, ours)


def peer(
    name: str, problem: Problem, realization: Realization, span: float, ours: float
) -> Iterator[Figure]:
    """Yield the times of SimGrid's C++ program, where it is installed.

    Parameters
    ----------
    span
        The makespan that it must have, seconds.
    ours
        The time that our run takes, seconds.
    """
    source = (bench_directory() or Path()) / "simgrid_peer.cpp"
    with tempfile.TemporaryDirectory() as folder:
        program, text = compiled_peer(source, Path(folder)), Path(folder, "workload")
        if isinstance(program, str):
            yield Figure(f"{name}: SimGrid", math.nan, note=f"skipped: {program}")
            return
        write_workload(text, problem, realization)
        found = peer_seconds(program, text, problem.job.iterations, span, rounds=3)
        for kind, took in found.items():
            note = f"{took / ours:.0f} x our {PEERS_RULE}, run alone, same makespan"
            yield Figure(f"{name}: SimGrid C++ {kind}", took, note=note)


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


def rules(_: float) -> Iterator[Figure]:
    """Yield the time of one run of every rule on each job, the least of three."""
    for name, shape in JOBS.items():
        problem, realization = drawn(*shape)
        flows, ports = sum(problem.job.flow_counts), 2 * shape[0]
        for rule in RULES:
            call = makespan_call(problem, realization, rule)
            call()
            took = min(once(call) for _ in range(3))
            note = f"{1e6 * took / flows:.2f} us per flow, {flows:,} over {ports} ports"
            yield Figure(f"{name}: {rule}, makespan", took, note=note)
