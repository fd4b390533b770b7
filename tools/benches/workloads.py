"""Workloads of the peer benchmark, in the directory that ``EMU_BENCH`` names.

It is no part of emu: where it is not there, the tests of it are skipped.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

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

#: First letter of a task's name -> its kind.
_KINDS = {"g": "graph_store", "s": "sampler", "w": "worker", "p": "parameter_server"}


def bench_directory() -> Path | None:
    """Return the directory that ``EMU_BENCH`` names, None unless it is there."""
    folder = os.environ.get("EMU_BENCH", "")
    return Path(folder) if folder and Path(folder).is_dir() else None


def load_workload(name: str) -> tuple[Problem, Realization, dict[str, float]]:
    """Return a workload of the peer benchmark and its makespans by policy, seconds.

    ``name``: ``workload_a`` (4 machines, 916 flows) or ``workload_b`` (16, 24,942).
    Raises FileNotFoundError when ``EMU_BENCH`` does not name a directory that holds it.
    """
    directory = bench_directory()
    if directory is None:
        raise FileNotFoundError("EMU_BENCH does not name a directory")
    text = json.loads((directory / f"{name}.json").read_text())

    names = text["tasks"]
    iterations = text["n_iterations"]
    machines = [Machine(f"m{m}", *nic) for m, nic in enumerate(text["machines"])]
    cluster = Cluster(tuple(machines))

    position = {name: number for number, name in enumerate(names)}
    edges = [
        Edge(position[source], position[destination], lag)
        for source, destination, lag in text["edges"]
    ]
    tasks = [Task(name, _KINDS[name[0]]) for name in names]
    job = Job(tuple(tasks), tuple(edges), iterations)

    placement = Placement(tuple(text["placement"][task] for task in names))
    # It states one time per task, but the volumes of every iteration.
    times = np.array([[text["exec_times"][task]] * iterations for task in names])
    realization = Realization(times, np.array(text["volumes"]))
    return Problem(cluster, job, placement), realization, text["expected_makespan_s"]
