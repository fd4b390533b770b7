"""The workloads of the peer benchmark, where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from emu.host.input_file import read_json
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

_KINDS = {"g": "graph_store", "s": "sampler", "w": "worker", "p": "parameter_server"}


def bench_directory() -> Path | None:
    """Return the directory that ``EMU_BENCH`` names, None unless it is there."""
    folder = os.environ.get("EMU_BENCH", "")
    return Path(folder) if folder and Path(folder).is_dir() else None


def load_workload(name: str) -> tuple[Problem, Realization, dict[str, float]]:
    """Return a workload and its makespans by policy, seconds.

    Parameters
    ----------
    name
        ``workload_a`` (4 machines, 916 flows) or ``workload_b`` (16, 24,942).

    Raises
    ------
    FileNotFoundError
        When ``EMU_BENCH`` does not name a directory that holds it.
    """
    directory = bench_directory()
    if directory is None:
        raise FileNotFoundError("EMU_BENCH does not name a directory")
    text = read_json(directory / f"{name}.json")
    names, iterations = text["tasks"], text["n_iterations"]
    position = {task: j for j, task in enumerate(names)}
    cluster = Cluster(
        tuple(Machine(f"m{m}", *nic) for m, nic in enumerate(text["machines"]))
    )
    job = Job(
        tuple(Task(task, _KINDS[task[0]]) for task in names),
        tuple(Edge(position[a], position[b], lag) for a, b, lag in text["edges"]),
        iterations,
    )
    placement = Placement(tuple(text["placement"][task] for task in names))
    times = np.array([[text["exec_times"][task]] * iterations for task in names])
    realization = Realization(times, np.array(text["volumes"]))
    return Problem(cluster, job, placement), realization, text["expected_makespan_s"]
