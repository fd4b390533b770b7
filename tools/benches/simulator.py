"""Runs of the simulator and of searches on workloads A and B, beside SimGrid; rules."""

from __future__ import annotations

import functools
import math
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from emu.prediction.placement import PlacementResult, best_placement
from emu.prediction.placement.etp import EtpOptions, search_etp
from emu.prediction.placement.search import SearchOptions
from emu.prediction.scheduling import RATE_POLICIES
from emu.prediction.simulation import makespan, simulate
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
from emu.systems.dgtp.section import DgtpJobSection
from emu.systems.job_section import BuildContext
from tools.benches.evaluator import MakespanEvaluator, search
from tools.benches.figures import Figure, interleaved, once
from tools.benches.workloads import bench_directory, load_workload

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

    Raises RuntimeError when the peer prints something else.
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

    Raises RuntimeError when the peer disagrees about the makespan.
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
#: Every rule once: none is maxmin by another name.
RULES = [name for name in RATE_POLICIES if name not in {"none", "portfolio"}]
#: Rules that order flows, and those that fill ports by weight.
_ORDERING = {"mrtf", "mrtf_exclusive", "oes_cp", "sebf_madd", "omcoflow"}
_FILLING = {"weighted_maxmin", "omcoflow_wc", "omcoflow_gamma", "omcoflow_frozen"}
#: us per flow that are aimed at: rules -> sparse, DGTP of 64 machines, dense.
_AIMS = {
    **dict.fromkeys(("oes", "maxmin"), (1.0, 2.0, 5.0)),
    **dict.fromkeys(_ORDERING, (5.0, 5.0, 15.0)),
    **dict.fromkeys(_FILLING, (15.0, 15.0, 15.0)),
}


def makespan_call(
    problem: Problem, realization: Realization, policy: str
) -> Callable[[], float]:
    """Return a call of the run alone, all arrays made."""
    evaluator = MakespanEvaluator(problem.job, problem.cluster, policy)
    machine_of = np.array(problem.placement.machine_of, dtype=np.int64)
    return functools.partial(evaluator.makespan, machine_of, realization)


def simulation(seconds: float) -> Iterator[Figure]:
    """Yield the times of both workloads; one figure without a value otherwise.

    Raises RuntimeError when a makespan is not the one that is known.
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


def dgtp_shaped(machines: int, iterations: int) -> tuple[Problem, Realization]:
    """Return a DGTP job, a worker and two samplers per machine, placed at random."""
    rng = np.random.default_rng(machines)
    nics = rng.uniform(1e9, 4e9, (machines, 2)).tolist()
    cluster = Cluster(tuple(Machine(f"m{i}", *nic) for i, nic in enumerate(nics)))
    names = tuple(machine.name for machine in cluster.machines)
    job = _dgtp_job(names, machines, iterations)
    at = [
        names.index(task.pinned) if task.pinned else int(rng.integers(machines))
        for task in job.tasks
    ]
    problem = Problem(cluster, job, Placement(tuple(at)))
    return problem, _dgtp_run(job, machines, rng)


def _dgtp_job(
    names: tuple[str, ...], workers: int, iterations: int, **more: Any
) -> Job:
    section = DgtpJobSection.model_validate(
        {
            "system": "dgtp",
            "dataset": "products-like",
            "model": {"hidden": 4, "layers": 2},
            "fanouts": "all",
            "batch_size": 2,
            "workers": workers,
            "samplers_per_worker": 2,
            "iterations": iterations,
            **more,
        }
    )
    return section.build(BuildContext(names, None, seed=0))


def _dgtp_run(job: Job, machines: int, rng: np.random.Generator) -> Realization:
    share = {"graph_store": 64e6 / machines, "sampler": 64e6}
    sent = [share.get(job.tasks[edge.source].kind, 2.4e6) for edge in job.edges]
    times = rng.uniform(0.01, 0.06, (len(job.tasks), job.iterations))
    drawn = rng.lognormal(0.0, 0.2, (len(job.edges), job.iterations))
    return Realization(times, np.array(sent)[:, None] * drawn)


#: What tasks of the paper's testbed need, and what each of its machines has.
_DEMANDS = {
    "graph_store": {"memory": "14 GB"},
    "sampler": {"cpu": 2, "memory": "7 GB"},
    "worker": {"cpu": 1, "gpu": 1, "memory": "3 GB"},
    "parameter_server": {"cpu": 1, "memory": "5 GB"},
}
_ROOM = {"cpu": 8.0, "gpu": 2.0, "memory": 48e9}


def testbed(machines: int, seed: int) -> tuple[Job, Cluster, Realization]:
    """Return the paper's testbed with more machines, NICs of 10 to 50 Gbit/s drawn."""
    rng = np.random.default_rng([machines, seed])
    nics = rng.choice([1.25e9, 3.125e9, 6.25e9], machines).tolist()
    members = [Machine(f"m{i}", nic, nic, _ROOM) for i, nic in enumerate(nics)]
    names = tuple(machine.name for machine in members)
    job = _dgtp_job(names, machines * 3 // 2, 20, demands=_DEMANDS)
    return job, Cluster(tuple(members)), _dgtp_run(job, machines, rng)


#: Jobs of the rules, with the place of their aims. In sparse and dense ones every task
#: sends to two of the next so many: flows disturb few others or many.
JOBS: dict[str, tuple[Callable[[], tuple[Problem, Realization]], int | None]] = {
    "sparse": (functools.partial(drawn, 137, 1_827, 20, 0, 60), 0),
    "DGTP 16": (functools.partial(dgtp_shaped, 16, 40), None),
    "DGTP 64": (functools.partial(dgtp_shaped, 64, 4), 1),
    "dense": (functools.partial(drawn, 150, 21_000, 1, 1, 400), 2),
}


def cpu_seconds_of(call: Callable[[], object], rounds: int = 3) -> float:
    """Return the median CPU time of some calls, seconds."""
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        call()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def rules(_: float) -> Iterator[Figure]:
    """Yield the CPU time per flow of every rule on each job."""
    for name, (make, aims) in JOBS.items():
        problem, realization = make()
        counted = zip(problem.job.flow_counts, problem.hops, strict=True)
        flows = sum(count for count, links in counted if links)
        note = f"{flows:,} flows over {2 * len(problem.cluster.machines)} ports"
        for rule in RULES:
            took = cpu_seconds_of(makespan_call(problem, realization, rule))
            aim = _AIMS[rule][aims] if rule in _AIMS and aims is not None else None
            each = 1e6 * took / flows
            yield Figure(f"{name}: {rule}", each, "us per flow", aim, note=note)


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

    Raises RuntimeError when exact rejection has changed the chain of accepted moves.
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


#: CPU seconds that `best` may take for so many machines, and seeds tried.
_SIZES = {16: (3.0, 3), 64: (10.0, 3), 256: (40.0, 1)}


def budgets(_: float) -> Iterator[Figure]:
    """Yield what `best` takes by the number of machines, and what ten budgets gain.

    Both are judged by the whole run.
    """
    for machines, (aim, seeds) in _SIZES.items():
        taken, gains, note = [], [], ""
        for seed in range(seeds):
            job, cluster, run = testbed(machines, seed)
            began = time.process_time()
            one = best_placement(job, cluster, run)
            taken.append(time.process_time() - began)
            note = f"{one.budget} candidates of {one.iterations} iterations"
            ten = best_placement(
                job,
                cluster,
                run,
                transfers=10 * one.budget,
                iterations=one.iterations,
            )
            spans = []
            for found in (one, ten):
                problem = Problem(cluster, job, found.placement)
                spans.append(makespan(problem, problem.stretch(run), "oes"))
            gains.append(100 * (spans[0] / spans[1] - 1))
        what = f"best, {machines} machines"
        yield Figure(f"{what}, CPU", statistics.median(taken), aim=aim, note=note)
        note = f"worst of {seeds}"
        yield Figure(f"{what}, above ten budgets", max(gains), "%", aim=3.0, note=note)
