"""Arrays of a job that has one of everything, written by hand, and their limits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from emu.prediction.core import lib
from emu.prediction.scheduling import rate_policy
from emu.prediction.scheduling.compiled_problem import (
    JobArrays,
    Kept,
    job_arrays,
    placed_layout,
    rule_of,
)
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Link,
    Machine,
    Placement,
    Problem,
    Route,
    Task,
    Tuner,
)
from emu.problem.changes import SpeedChange
from emu.scenario.own_rules import register_program

JOB = Job(
    tasks=(
        Task("b/u", "x", takes="gpu", frees=""),
        Task("b/v", "x", frees="gpu"),
        Task("b/t", "x", gate=True),
        Task("a/w", "x", takes="cpu"),
        Task("a/x", "x"),
    ),
    edges=(
        Edge(0, 1, coflow="k"),
        Edge(0, 2, channel="y"),
        Edge(3, 4, lag=1, latest=True),
        Edge(1, 2, channel="x", coflow="h"),
        Edge(4, 3, lag=1, coflow="k"),
    ),
    iterations=4,
)
CLUSTER = Cluster(
    machines=(
        Machine("m0", 3.0, 4.0, slots={"cpu": 2}),
        Machine("m1", 5.0, 6.0, slots={"gpu": 3, "cpu": 4}, latency_in=0.5),
        Machine("m2", 7.0, 8.0, slots={"net": 9}),
    ),
    shared_links=(Link("wire", 9.0),),
    routes=(Route((0,), (2,), ("out", "wire", "in")),),
    changes=(CapacityChange(2.0, "wire", 0.0), CapacityChange(1.0, "m2 in", 2.5)),
    tuners=(
        Tuner(1, "gpu", "cpu", most=5, period=0.25, path=(2, 4, 1)),
        Tuner(0, "cpu", "gpu", most=8, period=0.75, path=(7,)),
    ),
    speed_changes=(SpeedChange(2.0, "m1", 0.5),),
)
BY_JOB = rate_policy("oes_by_job")


def test_edges_and_tasks_of_two_jobs_are_numbered() -> None:
    found = job_arrays(JOB, CLUSTER, BY_JOB)

    # Ranks are by destination, then source; of a coflow its edges go by them.
    assert found.rank.tolist() == [4, 2, 1, 3, 0]
    assert found.coflow.tolist() == [5, 2, 4, 6, 5]
    assert found.coflow_start.tolist() == [0, 0, 0, 1, 1, 2, 4, 5]
    assert found.coflow_edge.tolist() == [1, 2, 4, 0, 3]
    assert found.out_start.tolist() == [0, 2, 3, 3, 4, 5]
    assert found.in_edge.tolist() == [0, 1, 3, 4, 2]
    jobs = {name: number for number, name in enumerate(JOB.job_names)}
    assert found.owner.tolist() == [jobs[name] for name in "bbaba"]
    channels = {name: number for number, name in enumerate(JOB.channels)}
    assert found.channel.tolist() == [-1, channels["y"], -1, channels["x"], -1]
    assert found.latest.tolist() == [False, False, True, False, False]
    sizes = found.core
    assert (sizes.jobs, sizes.coflows, sizes.names) == (2, 7, 2)
    assert (sizes.routes.longest, sizes.change_count, sizes.tuners.rows) == (3, 2, 3)


def test_pools_tuners_and_speeds_are_of_their_machines() -> None:
    found = job_arrays(JOB, CLUSTER, BY_JOB)

    # Of a machine cpu goes before gpu; -1 is no limit.
    assert found.taken.tolist() == [1, -1, -1, 0, -1]
    assert found.freed.tolist() == [-1, 1, -1, 0, -1]
    assert found.slots.tolist() == [[2, -1], [4, 3], [-1, -1]]
    assert found.tuners["tuned"].tolist() == [3, 0]
    assert found.tuners["watched"].tolist() == [2, 1]
    assert found.tuners["most"].tolist() == [5, 8]
    assert found.tuners["period"].tolist() == [0.25, 0.75]
    assert found.tuners["path"].tolist() == [[2, 7], [4, 0], [1, 0]]
    assert found.speeds["start"].tolist() == [0, 1, 3, 4]
    assert found.speeds["time"].tolist() == [0.0, 0.0, 2.0, 0.0]
    assert found.speeds["share"].tolist() == [1.0, 1.0, 0.5, 1.0]
    assert found.speeds["slowed"].tolist() == [True, True, False, True, True]


def test_what_a_job_has_none_of_is_empty() -> None:
    """The core looks nothing up there: a job without them pays nothing for them."""
    tasks = tuple(replace(task, takes="", frees=None) for task in JOB.tasks)
    edges = tuple(
        replace(edge, channel="", coflow="", latest=False) for edge in JOB.edges
    )
    plain = Cluster(tuple(Machine(f"m{n}", 1.0 + n, 2.0 + n) for n in range(3)))
    found = job_arrays(
        replace(JOB, tasks=tasks, edges=edges), plain, rate_policy("oes")
    )

    for entries in (found.owner, found.channel, found.latest, found.latency):
        assert entries.size == 0
    for entries in (*found.speeds.values(), found.tuners["path"], found.slots):
        assert entries.size == 0
    assert found.coflow.tolist() == [edge.destination for edge in edges]
    assert found.core.jobs == 0


def test_only_of_one_job_a_rule_by_job_is_the_one_among_flows() -> None:
    alone = Job((Task("u", "x"),), (), 1)

    assert rule_of(JOB, BY_JOB) is BY_JOB
    assert rule_of(alone, BY_JOB) == rate_policy("oes")
    assert rule_of(alone, rate_policy("fifo")) == rate_policy("fifo")


def test_arrays_of_a_rule_of_ones_own_are_made_anew() -> None:
    """It remembers what it was asked; all others are made once."""
    text = "class Mine:\n def rates(self, flows, capacity):\n  return []\n"
    own = rate_policy(register_program("arrays.py:Mine", text))
    problem = Problem(CLUSTER, JOB, Placement((1, 1, 1, 0, 0)))

    for policy, is_kept in ((BY_JOB, True), (own, False)):
        arrays = [job_arrays(JOB, CLUSTER, policy) for _ in range(2)]
        layouts = [placed_layout(problem, policy) for _ in range(2)]
        assert (arrays[0] is arrays[1]) is is_kept
        assert (layouts[0] is layouts[1]) is is_kept
    with pytest.raises(ValueError, match="rates flows one by one"):
        changed(job_arrays(JOB, CLUSTER, own), by_flow=False)


class Owner:
    """Something that things are made of."""


def test_the_oldest_of_32_kept_things_goes() -> None:
    kept: Kept[int] = Kept()
    owners = [Owner() for _ in range(33)]
    for number, owner in enumerate(owners[:-1]):
        assert kept.get((owner,), 1, partial(int, number)) == number
    first, second, *_, last = owners

    assert kept.get((first,), 1, partial(int, -1)) == 0
    assert kept.get((last,), 1, partial(int, 32)) == 32
    assert kept.get((second,), 1, partial(int, -1)) == 1
    assert kept.get((first,), 1, partial(int, -1)) == -1


def changed(good: JobArrays, **changes: Any) -> JobArrays:
    """Return arrays anew, some of them others; checked as all are."""
    fields = {name: value for name, value in vars(good).items() if name != "core"}
    for name, value in changes.items():
        if isinstance(value, dict):
            changes[name] = {**fields[name], **value}
    return JobArrays(**{**fields, **changes})


def numbers(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"rank": numbers()}, "rank must have 5 entries"),
    ({"channel": numbers(0, 1)}, "channel must have 5 entries"),
    ({"speeds": {"start": numbers(0, 1, 3, 3)}}, "start must begin at 0 and end"),
    ({"speeds": {"start": numbers(0, 1, 1, 4)}}, "a machine must have a speed"),
    ({"speeds": {"start": numbers(0, 2, 3, 4)}}, "first speed of a machine"),
    ({"speeds": {"time": np.array([0.0, 0, 2, 1])}}, "first speed of a machine"),
    ({"changes": np.zeros(3)}, "a time, a port and a capacity"),
    ({"changes": np.zeros((2, 2))}, "a time, a port and a capacity"),
    ({"changes": np.array([[1.0, 7, 0.5]])}, "port that changes must be from 0 to 6"),
    ({"changes": np.array([[1.0, 6, -0.5]])}, "a capacity must not be negative"),
    ({"latency": np.full(7, -0.5)}, "latencies must be 0 or more"),
    ({"slots": numbers(2, -1, 4, 0, -1, -1).reshape(3, 2)}, "must have slots"),
    ({"tuners": {"period": np.array([0.25, 0.0])}}, "must have a period"),
)


@pytest.mark.parametrize(("fields", "story"), WRONG)
def test_arrays_that_the_core_could_not_hold_are_refused(
    fields: dict[str, Any], story: str
) -> None:
    with pytest.raises(ValueError, match=story):
        changed(job_arrays(JOB, CLUSTER, BY_JOB), **fields)


def test_arrays_at_their_limits_are_taken() -> None:
    """One slot of a tuned pool, a link that is cut, latencies of some links alone."""
    good = job_arrays(JOB, CLUSTER, BY_JOB)
    slots = numbers(1, -1, 4, 1, -1, -1).reshape(3, 2)

    assert changed(good, slots=slots, latency=np.zeros(7)).policy == BY_JOB.code
    assert (good.changes[:, 2] == 0).any()
    assert BY_JOB.code != lib.OWN
