"""Timed tasks that the core runs do what Python would have done with them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emu.emulation.coordinator import EmulatedRun
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
from tests.emulation.coordinator.emulated import emulable, run
from tests.leftovers import Leftovers

#: Module and class of a program that only Python runs.
BY_PYTHON = "by_python:ByPython"
ITERATIONS = 6


def drawn_job(seed: int) -> tuple[Problem, Realization]:
    """Return a job of five tasks: two share a process, one reads the newest.

    No two edges have one lag and volume, an iteration of one of them is empty, and
    machines are unequal in both directions.
    """
    rng = np.random.default_rng(seed)
    tasks = (
        Task("a", "a"),
        Task("b", "b", process="both"),
        Task("c", "c", process="both"),
        Task("d", "d"),
        Task("e", "e"),
    )
    edges = (
        Edge(0, 1, 0),
        Edge(1, 2, 0),  # within their process
        Edge(2, 3, 1),
        Edge(3, 0, 2),
        Edge(0, 4, 3, latest=True),
        Edge(4, 3, 1),  # within their machine
    )
    job = Job(tasks, edges, ITERATIONS)
    machines = (
        Machine("m0", 10.0, 14.0),
        Machine("m1", 8.0, 9.0),
        Machine("m2", 12.0, 11.0),
    )
    placement = Placement((0, 1, 1, 2, 2))
    times = rng.uniform(0.2, 1.5, (5, ITERATIONS))
    volumes = rng.uniform(1.0, 6.0, (6, ITERATIONS)).round(2)
    volumes[0, 2] = 0.0
    return Problem(Cluster(machines), job, placement), Realization(times, volumes)


def emulated(
    seed: int,
    tmp_path: Path,
    programs: dict[str, str] | None = None,
) -> EmulatedRun:
    """Emulate the job of a seed, by the core or with these programs."""
    problem, realization = drawn_job(seed)
    tmp_path.mkdir(exist_ok=True)
    return run(
        emulable(problem, realization, programs=programs),
        realization,
        tmp_path,
        time_scale=0.05,
        allow=tuple(set((programs or {}).values())),
    )


def frames_of(rows: NDArray[Any]) -> Counter[tuple[int, int, int]]:
    """Return which frames of how many bytes crossed, whatever their times."""
    keys = zip(
        rows["edge"].tolist(),
        rows["iteration"].tolist(),
        rows["bytes"].tolist(),
        strict=True,
    )
    return Counter(keys)


def flows_of(rows: NDArray[Any]) -> list[tuple[int, int]]:
    """Return the flows before which connections were looked at."""
    return sorted(zip(rows["edge"].tolist(), rows["iteration"].tolist(), strict=True))


def counts_of(run: EmulatedRun) -> dict[str, Any]:
    """Return what processes counted that does not depend on time."""
    counts = {}
    for process, figures in run.statistics.items():
        received = dict(figures["received"])
        received.pop("bursts")
        received["payloads"] = sorted(
            (row["edge"], row["kind"], row["bytes"]) for row in received["payloads"]
        )
        sent = sorted(
            (
                row["edge"],
                row["frames"],
                row["payload_bytes"],
                row["header_bytes"],
                row["lost_bytes"],
            )
            for row in figures["sent"]
        )
        in_use = figures["memory"]["in_use"]
        waiting = figures["waiting"]["waiting"]
        counts[process] = (received, sent, in_use, waiting)
    return counts


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.parametrize("seed", [71, 72])
def test_core_and_python_count_the_same(
    seed: int,
    tmp_path: Path,
    leftovers: Leftovers,
) -> None:
    names = ["a", "b", "c", "d", "e"]
    by_core = emulated(seed, tmp_path / "core")
    by_python = emulated(seed, tmp_path / "python", dict.fromkeys(names, BY_PYTHON))
    leftovers.note()

    for found in (by_core, by_python):
        assert np.isfinite(found.schedule.task_end).all()
        assert found.schedule.makespan >= 0.0
    assert frames_of(by_core.sent) == frames_of(by_python.sent)
    assert frames_of(by_core.received) == frames_of(by_python.received)
    assert counts_of(by_core) == counts_of(by_python)
    assert flows_of(by_core.connections) == flows_of(by_python.connections)
    np.testing.assert_array_equal(
        by_core.realization.volumes,
        by_python.realization.volumes,
    )
    np.testing.assert_array_equal(
        np.isfinite(by_core.began),
        np.isfinite(by_python.began),
    )
