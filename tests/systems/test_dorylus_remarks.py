"""Lines on a Dorylus schedule, of reads, quotas and versions by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from emu.problem import Edge, Job, Task
from emu.systems.dorylus.remarks import (
    ages_of_reads,
    figures,
    live_versions,
    quota_lines,
    read_lines,
)


def test_a_quota_counts_by_the_time_that_it_held() -> None:
    """A quota that changes at the end, or behind it, has held for no time."""
    tuners = [SimpleNamespace(machine=0, pool="lambdas")] * 2
    tuners[1] = SimpleNamespace(machine=1, pool="lambdas")
    pools = [
        SimpleNamespace(machine=machine, name=name)
        for machine in (0, 1)
        for name in ("threads", "lambdas")
    ]
    slots = {
        (0, "lambdas"): (np.array([0.0, 2.0, 10.0]), np.array([3, 1, 2])),
        (1, "lambdas"): (np.array([0.0, 6.0]), np.array([2, 4])),
    }
    schedule: Any = SimpleNamespace(
        problem=SimpleNamespace(
            cluster=SimpleNamespace(tuners=tuners, tuned_names=["of g0", "of g1"]),
            pools=pools,
        ),
        length=8.0,
        slots_of=lambda pool: slots[pool.machine, pool.name],
    )
    assert [*quota_lines(schedule)] == [
        "of g0 tuned from 3 to 1 to 3, 1.5 on average, 2 at last",
        "of g1 tuned from 2 to 2 to 4, 2.5 on average, 4 at last",
    ]


def test_an_age_is_of_what_a_gather_has_read_as_the_newest() -> None:
    """A read of what no epoch has made has no age; reads for gathers count."""
    tasks = tuple(
        Task(kind, kind) for kind in ("scatter", "ghosts", "gather", "weight_update")
    )
    edges = (
        Edge(0, 1, latest=True),
        Edge(1, 2, lag=1, latest=True),
        Edge(0, 2, lag=1),
        Edge(3, 2, lag=1, latest=True),
        Edge(0, 2, lag=1, latest=True),
    )
    reads = [[0, 0, 0, 0], [-1, 0, 0, 3], [9, 9, 9, 9], [0, 1, 2, 3], [-1, -1, 1, -1]]
    schedule: Any = SimpleNamespace(
        problem=SimpleNamespace(job=Job(tasks, edges, 4)), reads=np.array(reads)
    )
    assert ages_of_reads(schedule).tolist() == [1, 2, 0, 1]
    schedule.reads = None
    assert ages_of_reads(schedule).tolist() == []


def test_versions_live_until_a_newer_one_is_there_and_their_last_use_has_ended() -> (
    None
):
    """Updates at 10, 20 and 30 s; the stash of epoch 0 has the first weights to 25."""
    tasks = (
        Task("wu", "weight_update"),
        Task("first", "apply"),
        Task("av", "apply"),
        Task("stash", "stash"),
    )
    edges = (Edge(0, 1, lag=1), Edge(1, 2), Edge(2, 3))
    ends = np.array(
        [
            [10.0, 20.0, 30.0],
            [1.0, 11.0, 21.0],
            [2.0, 12.0, 22.0],
            [3.0, 13.0, 23.0],
        ]
    )
    schedule: Any = SimpleNamespace(
        problem=SimpleNamespace(job=Job(tasks, edges, 3)), reads=None, task_end=ends
    )
    # A version ends as the next one begins: one at a time.
    assert live_versions(schedule) == 1
    ends[3, 0] = 10.5  # the second half uses it as long as that
    assert live_versions(schedule) == 2
    ends[3, 0] = 25.0
    assert live_versions(schedule) == 2
    ends[3, 1] = 35.0
    assert live_versions(schedule) == 3
    ends[3, 2] = 40.0
    assert live_versions(schedule) == 3
    ends[3, 0] = 30.5
    assert live_versions(schedule) == 4


def test_versions_that_are_read_as_the_newest_are_those_of_the_log() -> None:
    """Lags alone would keep older versions: only epoch 1 reads the first weights.

    Updates end at 10, 20 and 30 s. Version 0 is read in epochs 1 and 2, up to 36 s.
    """
    tasks = (Task("wu", "weight_update"), Task("av", "apply"), Task("other", "apply"))
    edges = (Edge(0, 1, lag=3, latest=True), Edge(0, 2, lag=1))
    ends = np.array([[10.0, 20.0, 30.0], [5.0, 15.0, 36.0], [1.0, 11.0, 21.0]])
    reads = np.array([[-1, 0, 0], [9, 9, 9]])
    schedule: Any = SimpleNamespace(
        problem=SimpleNamespace(job=Job(tasks, edges, 3)), reads=reads, task_end=ends
    )
    # At 30 s version 2 begins beside it; version 1 has ended then.
    assert live_versions(schedule) == 2
    ends[2, 2] = 31.0  # the other reader has version 1 until then
    assert live_versions(schedule) == 3
    # Without a log, or where nothing is read as the newest, lags say it.
    schedule.reads = None
    ends[1] = [5.0, 31.0, 32.0]
    assert live_versions(schedule) == 3
    ends[1] = [5.0, 6.0, 7.0]
    assert live_versions(schedule) == 2


def test_lines_name_ages_and_versions_of_each_schedule() -> None:
    tasks = (
        Task("wu", "weight_update"),
        Task("av", "apply"),
        Task("sc", "scatter"),
        Task("ga", "gather"),
    )
    edges = (Edge(0, 1, lag=1), Edge(2, 3, lag=1, latest=True))
    schedule: Any = SimpleNamespace(
        problem=SimpleNamespace(
            job=Job(tasks, edges, 4),
            cluster=SimpleNamespace(tuners=(), tuned_names=()),
            pools=(),
        ),
        reads=np.array([[9] * 4, [-1, 1, 0, 0]]),
        task_end=np.array([[10.0, 20.0, 30.0, 40.0]] * 4),
        length=40.0,
    )
    (line,) = read_lines({"simulated": schedule}, "oes")
    assert line == (
        "simulated: versions of a layer's weights at a time: 1, 33% of the values that "
        "gathers read are of their epoch, the oldest 3 before it"
    )
    schedule.reads = None
    assert [*read_lines({"run": schedule}, "oes")] == [
        "run: versions of a layer's weights at a time: 1"
    ]
    assert figures(schedule) == {}
