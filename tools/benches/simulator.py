"""Runs of the simulator and of searches on workloads A and B, beside SimGrid; rules."""

from __future__ import annotations

import functools
import math
import re
import shutil
import statistics
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emu.placement import EtpOptions, SearchOptions, search, search_etp
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Profile,
    Realization,
    Task,
)
from emu.simulation import MakespanEvaluator, simulate
from emu.testing import bench_directory, load_workload
from tools.benches.figures import Figure, interleaved, once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emu.placement import PlacementResult


_RUN = re.compile(r"makespan (\S+) .* run (\S+) s flows")


def compiled_peer(source: Path, folder: Path) -> Path | str:
    """Return the peer's program, or in words why there is none."""
    if not source.is_file():
        return f"no {source.name} beside the workloads"
    compiler = shutil.which("g++")
    if compiler is None:
        return "no g++"
    program = folder / "simgrid_peer"
    done = subprocess.run(
        [compiler, "-O2", "-std=c++17", str(source), "-lsimgrid", "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return "SimGrid is not installed (apt: libsimgrid-dev)"
    return program


def write_workload(path: Path, problem: Problem, realization: Realization) -> None:
    """Write a workload as the peer reads it."""
    job, machines = problem.job, problem.cluster.machines
    lines = [f"{len(machines)} {len(job.tasks)} {len(job.edges)} {job.iterations}"]
    lines += [f"{m.bandwidth_in!r} {m.bandwidth_out!r}" for m in machines]
    lines += [
        f"{machine} {seconds!r}"
        for machine, seconds in zip(
            problem.placement.machine_of, realization.times[:, 0].tolist(), strict=True
        )
    ]
    lines += [
        f"{edge.source} {edge.destination} {edge.lag} {' '.join(map(repr, volumes))}"
        for edge, volumes in zip(job.edges, realization.volumes.tolist(), strict=True)
    ]
    path.write_text("\n".join(lines))


def run_peer(
    program: Path, workload: Path, kind: str, iterations: int
) -> tuple[float, float]:
    """Return makespan and run time (without its setup), seconds.

    Raises
    ------
    RuntimeError
        When the peer prints something else.
    """
    command = [str(program), str(workload), kind, str(iterations)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _RUN.search(done.stdout)
    if found is None:
        printed = (done.stdout + done.stderr)[-300:]
        raise RuntimeError(f"{program.name} printed {printed!r}")
    return float(found[1]), float(found[2])


def peer_seconds(
    program: Path, workload: Path, iterations: int, expected: float, rounds: int
) -> dict[str, float]:
    """Return the median run time of both kinds, after comparing makespans.

    The kinds are ``dag`` and ``actors``.

    Raises
    ------
    RuntimeError
        When the peer disagrees about the makespan.
    """
    times: dict[str, list[float]] = {"dag": [], "actors": []}
    for _ in range(rounds):
        for kind, taken in times.items():
            span, seconds = run_peer(program, workload, kind, iterations)
            if abs(span - expected) > 1e-6:
                raise RuntimeError(f"SimGrid has {span} s, we have {expected} s")
            taken.append(seconds)
    return {kind: float(np.median(taken)) for kind, taken in times.items()}


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
    """Return a call of the run alone, all arrays made."""
    evaluator = MakespanEvaluator(problem.job, problem.cluster, policy)
    machine_of = np.array(problem.placement.machine_of, dtype=np.int64)
    return functools.partial(evaluator.makespan, machine_of, realization)


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
