"""The simulator on workloads A and B, beside SimGrid."""

from __future__ import annotations

import functools
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emu.scheduling.compiled_problem import plain
from emu.simulation import MakespanEvaluator, simulate
from emu.simulation.evaluator import run_makespan
from emu.testing import bench_directory, load_workload
from tools.benchmarks.rows import Row, interleaved
from tools.benchmarks.simgrid import compiled_peer, peer_seconds, write_workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emu.problem import Problem, Realization

FLOWS = {"workload_a": 916, "workload_b": 24_942}
LIKE_FOR_LIKE = "maxmin"  # SimGrid's rule


def makespan_call(
    problem: Problem, realization: Realization, policy: str
) -> Callable[[], float]:
    """Return a call of the compiled run alone, all arrays made."""
    arrays = MakespanEvaluator(problem.job, problem.cluster, policy).arrays
    machine_of = np.array(problem.placement.machine_of, dtype=np.int64)
    times, volumes = plain(realization.times), plain(realization.volumes)
    return functools.partial(run_makespan, arrays, machine_of, times, volumes, math.inf)


def workload_rows(*, budget: float) -> Iterator[Row]:
    """Yield the timings of both workloads; one row of regret where they are not."""
    directory = bench_directory()
    if directory is None:
        yield Row("simulate", "workloads A, B", None, "skipped: EMU_BENCH not set")
        return
    with tempfile.TemporaryDirectory() as folder:
        peer = compiled_peer(directory / "simgrid_peer.cpp", Path(folder))
        for name in FLOWS:
            yield from _one(name, peer, Path(folder), budget)


def _one(name: str, peer: Path | str, folder: Path, budget: float) -> Iterator[Row]:
    problem, realization, expected = load_workload(name)
    title = name.replace("workload_", "").upper()
    calls: dict[str, Callable[[], object]] = {}
    for policy in ("oes", "maxmin"):
        call = makespan_call(problem, realization, policy)
        if abs(call() - expected[policy]) > 1e-9:
            raise RuntimeError(f"{name} takes {call()} s, not {expected[policy]} s")
        calls[f"{policy}, makespan"] = call
        calls[f"{policy}, schedule"] = functools.partial(
            simulate, problem, realization, policy
        )
    medians = interleaved(calls, budget=budget)
    section = f"workload {title}"
    for what, seconds in medians.items():
        yield Row(section, what, seconds, f"{FLOWS[name] / seconds:,.0f} flows/s")
    if isinstance(peer, str):
        yield Row(section, "SimGrid C++", None, f"skipped: {peer}")
        return
    text = folder / f"{name}.txt"
    write_workload(text, problem, realization)
    rounds = 5 if name == "workload_a" else 3
    found = peer_seconds(
        peer, text, problem.job.iterations, expected[LIKE_FOR_LIKE], rounds
    )
    ours = medians[f"{LIKE_FOR_LIKE}, makespan"]
    for kind, seconds in found.items():
        note = f"{seconds / ours:.0f} x our {LIKE_FOR_LIKE}, run alone, same makespan"
        yield Row(section, f"SimGrid C++ {kind}", seconds, note)
