"""Latencies in what is derived from a schedule: each direction has another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.prediction.analysis.bounds import bounds
from emu.prediction.analysis.critical_path import Cause, critical_path
from emu.prediction.simulation import simulate
from emu.prediction.simulation.attempts import end_of
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
from emu.testing import two_machine_example

#: Seconds of each direction of both machines: no two ways take as long.
WAYS: Any = (
    {"latency_in": 0.125, "latency_out": 0.25},
    {"latency_in": 0.5, "latency_out": 1.0},
)


def delayed(problem: Problem) -> Problem:
    """Return a problem of two machines with those latencies."""
    pairs = zip(problem.cluster.machines, WAYS, strict=True)
    machines = tuple(replace(machine, **way) for machine, way in pairs)
    return replace(problem, cluster=replace(problem.cluster, machines=machines))


def test_a_flow_that_was_waited_for_has_landed_before_the_next_part() -> None:
    """From m0 to m1 it takes 0.75 s, back 1.125 s; nothing else lies between."""
    problem, realization = two_machine_example(2)
    schedule = simulate(delayed(problem), realization)
    path = critical_path(schedule)

    assert path.seconds == pytest.approx(schedule.makespan)
    assert Cause.GAP not in {link.cause for link in path.links}
    waits = [link for link in path.links if link.cause is Cause.LATENCY]
    assert {round(link.seconds, 9) for link in waits} == {0.75, 1.125}
    for link in waits:
        served = schedule.flow_end[link.edge, link.iteration]
        assert link.start == pytest.approx(served)
        # It holds no port any more.
        assert link.port == -1


def test_what_lands_last_was_waited_for_and_not_what_was_served_last() -> None:
    """Far bytes are served at 2 s and land at 2.75; the near task ends at 2.5 s."""
    tasks = (Task("far", "t"), Task("near", "t"), Task("last", "t"))
    job = Job(tasks, (Edge(0, 2), Edge(1, 2)), 1)
    cluster = Cluster((Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0)))
    problem = delayed(Problem(cluster, job, Placement((0, 1, 1))))
    times = np.array([[1.0], [2.5], [1.0]])
    volumes = np.array([[10.0], [0.0]])
    schedule = simulate(problem, Realization(times, volumes))
    path = critical_path(schedule)

    assert schedule.makespan == pytest.approx(3.75)
    parts = [(link.cause, round(link.seconds, 9)) for link in path.links]
    assert parts == [
        (Cause.COMPUTE, 1.0),
        (Cause.TRANSFER, 1.0),
        (Cause.LATENCY, 0.75),
        (Cause.COMPUTE, 1.0),
    ]


def test_a_process_lives_until_its_bytes_have_arrived() -> None:
    """The last bytes go from g1 on m1 to s0 on m0: 1 s out, 0.125 s in."""
    problem, realization = two_machine_example(1)
    schedule = simulate(delayed(problem), realization)
    edge = problem.job.edge_names.index("g1->s0")

    served = schedule.flow_end[edge, 0]
    assert end_of(schedule, "g1") == pytest.approx(served + 1.125)


def test_a_slot_is_held_while_bytes_are_on_their_way() -> None:
    """Per iteration 1 s of each task, 1 s of each flow, and 0.75 and 1.125 s."""
    tasks = (
        Task("a", "a", takes="gpu", frees=""),
        Task("b", "b"),
        Task("c", "c", frees="gpu"),
    )
    job = Job(tasks, (Edge(0, 1, 0), Edge(1, 2, 0)), 3)
    first = Machine("m0", 10.0, 10.0, slots={"gpu": 1})
    cluster = Cluster((first, Machine("m1", 10.0, 10.0)))
    problem = delayed(Problem(cluster, job, Placement((0, 1, 0))))
    realization = Realization(np.full((3, 3), 1.0), np.full((2, 3), 10.0))
    found = bounds(problem, realization)

    seconds = 3 * (3 * 1.0 + 2 * 1.0 + 0.75 + 1.125)
    assert found.combined == pytest.approx(seconds)
    assert found.binding == "gpu of m0"
    assert simulate(problem, realization).makespan == pytest.approx(seconds)
