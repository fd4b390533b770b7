"""Placements by hand: pools, teams that share slots, and constraints that break."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emu.errors import PlacementError
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
    Tuner,
)
from emu.problem.changes import SpeedChange
from emu.problem.links import NO_ROUTE, Link, Route
from emu.problem.placement import pools_of, slot_teams, slowness

#: Task a takes what c gives back; b takes and gives back, and d none.
TASKS = (
    Task("a", "x", takes="gpu", frees=""),
    Task("b", "x", takes="cpu"),
    Task("c", "x", frees="gpu"),
    Task("d", "x", slowness={"m1": 4.0}),
)
JOB = Job(TASKS, (Edge(0, 2), Edge(1, 3)), 2)
CLUSTER = Cluster(
    (
        Machine("m0", 3.0, 4.0, {"ram": 0.3}, slots={"gpu": 5, "cpu": 2, "net": 9}),
        Machine("m1", 5.0, 6.0, slots={"gpu": 3}),
    ),
    tuners=(Tuner(0, "gpu", "gpu", most=2), Tuner(1, "gpu", "gpu", most=7)),
)


def test_pools_are_of_the_tasks_that_stand_there() -> None:
    """With the most that a machine begins with, or its tuner gives."""
    found = pools_of(CLUSTER, JOB, (0, 0, 0, 0))
    rows = [(pool.name, pool.takers, pool.freers, pool.most) for pool in found]
    assert rows == [("gpu", (0,), (2,), 5), ("cpu", (1,), (1,), 2)]

    found = pools_of(CLUSTER, JOB, (0, 1, 1, 0))
    rows_there = [(p.machine, p.name, p.takers, p.freers, p.most) for p in found]
    assert rows_there == [(0, "gpu", (0,), (), 5), (1, "gpu", (), (2,), 7)]


def test_who_gives_back_stands_with_who_took() -> None:
    """The nearest of two takers upstream; tasks of other pools are no team."""
    assert slot_teams(JOB) == (("a", "c"),)
    tasks = (
        Task("far", "x", takes="gpu", frees=""),
        Task("near", "x", takes="gpu", frees=""),
        Task("other", "x", takes="cpu", frees=""),
        Task("end", "x", frees="gpu"),
        Task("last", "x", frees="cpu"),
    )
    edges = (Edge(0, 1), Edge(1, 2), Edge(2, 3), Edge(3, 4))
    teams = slot_teams(Job(tasks, edges, 3))
    assert sorted(map(sorted, teams)) == [["end", "near"], ["last", "other"]]
    # Without a way from who takes, it is who takes all the same.
    apart = slot_teams(Job((tasks[0], tasks[3]), (), 3))
    assert apart == (("end", "far"),)
    # One that gives back twice as often is of both that take.
    once = [replace(task, iterations=1) for task in tasks[:2]]
    both = Job(
        (*once, *tasks[2:3], replace(tasks[3], iterations=2), tasks[4]), edges, 3
    )
    assert sorted(map(sorted, slot_teams(both))) == [
        ["end", "far", "near"],
        ["last", "other"],
    ]


def test_factors_on_times_are_of_tasks_that_have_some() -> None:
    assert slowness(JOB, CLUSTER).tolist() == [[1, 1], [1, 1], [1, 1], [1, 4]]
    assert slowness(Job(TASKS[:3], (), 1), CLUSTER).shape == (0, 2)
    problem = Problem(CLUSTER, JOB, Placement((0, 0, 0, 1)))
    times = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    run = problem.stretch(Realization(times, np.ones((2, 2))))

    assert run.times[3].tolist() == [28.0, 32.0]
    assert problem.reference(run).times.tolist() == times.tolist()


def test_a_placement_shows_its_first_machines() -> None:
    assert repr(Placement((0, 1))) == "<Placement of 2 tasks: 0, 1>"
    assert repr(Placement((7,) * 24)).endswith("7, 7>")
    assert repr(Placement((7,) * 25)).endswith("7, 7, ...>")


def test_constraints_that_break_are_told() -> None:
    """Three tenths are a tenth and two, but for rounding; four are too many."""
    tasks = (
        Task("a", "x", {"ram": 0.1}, process="p"),
        Task("b", "x", {"ram": 0.2}, process="p"),
        Task("c", "x", {"ram": 0.1}, pinned="m1"),
    )
    job = Job(tasks, (), 1)

    assert Placement((0, 0, 1)).violations(job, CLUSTER) == []
    assert Placement((0, 1, 0)).violations(job, CLUSTER) == [
        "process p stands on several machines",
        "task c must stand on m1, not m0",
    ]
    (problem, _) = Placement((0, 0, 0)).violations(job, CLUSTER)
    assert problem == "machine m0 has 0.3 ram, its tasks need 0.4"
    with pytest.raises(PlacementError, match="this placement cannot be: process p"):
        Placement((0, 1, 1)).check(job, CLUSTER)
    Placement((0, 0, 1)).check(job, CLUSTER)


def test_a_pool_gets_no_more_back_than_is_taken_there() -> None:
    (problem,) = Placement((0, 0, 1, 0)).violations(JOB, CLUSTER)
    assert problem == (
        "pool gpu of machine m1 gets 2 slots back from c, but 0 are taken there"
    )
    assert Placement((0, 1, 0, 1)).violations(JOB, CLUSTER) == []


def test_work_is_less_on_a_slow_machine_but_for_gates() -> None:
    """Machine m1 has a quarter of its speed from 2 s on."""
    tasks = (Task("a", "x"), Task("b", "x"), Task("g", "x", gate=True))
    slow = replace(CLUSTER, speed_changes=(SpeedChange(2.0, "m1", 0.25),))
    problem = Problem(slow, Job(tasks, (), 1), Placement((0, 1, 1)))
    start = np.array([[1.0], [1.0], [1.0]])
    end = np.array([[6.0], [6.0], [6.0]])

    assert problem.work(start, end).tolist() == [[5.0], [1.0 + 4 * 0.25], [5.0]]


def test_each_task_that_gives_a_slot_back_has_a_taker_of_its_own() -> None:
    """Task c returns the slot of a, the nearest task before it that took one.

    Task d then returns the slot of b, which stands before a.
    """
    tasks = (
        Task("b", "x", takes="gpu", frees=""),
        Task("a", "x", takes="gpu", frees=""),
        Task("c", "x", frees="gpu"),
        Task("d", "x", frees="gpu"),
    )
    edges = (Edge(0, 1), Edge(1, 2), Edge(1, 3))

    assert sorted(slot_teams(Job(tasks, edges, 3))) == [("a", "c"), ("b", "d")]


def test_slots_are_counted_by_iterations() -> None:
    """Task a takes six slots; b and c give back four and two, then five and two."""
    taker = Task("a", "x", takes="gpu", frees="")
    first = Task("b", "x", frees="gpu", iterations=4)
    second = Task("c", "x", frees="gpu", iterations=2)
    job = Job((taker, first, second), (Edge(0, 1), Edge(0, 2)), 6)
    everywhere = Placement((0, 0, 0))

    assert everywhere.violations(job, CLUSTER) == []
    tasks = (taker, replace(first, iterations=5), second)
    (problem,) = everywhere.violations(replace(job, tasks=tasks), CLUSTER)
    assert problem == (
        "pool gpu of machine m0 gets 7 slots back from b, c, but 6 are taken there"
    )


def test_a_flow_has_the_latencies_of_all_links_that_it_crosses() -> None:
    """A flow from m0 to m1 is late by 0.5 + 4 s, one back by 2 + 0.25 s.

    A flow within a machine crosses no link.
    """
    machines = (
        Machine("m0", 9.0, 5.0, latency_out=0.5, latency_in=0.25),
        Machine("m1", 8.0, 7.0, latency_out=2.0, latency_in=4.0),
    )
    tasks = tuple(Task(name, "x") for name in "abc")
    edges = (Edge(0, 1), Edge(1, 2), Edge(0, 2), Edge(0, 1, lag=1, credit=True))
    job = Job(tasks, edges, 2)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 0)))

    assert problem.latencies.tolist() == [4.5, 2.25, 0.0, 0.0]
    plain = [replace(machine, latency_in=0.0, latency_out=0.0) for machine in machines]
    without = Problem(Cluster(tuple(plain)), job, Placement((0, 1, 0)))
    assert without.latencies.tolist() == [0.0] * 4


def test_a_problem_that_begins_later_has_a_later_job_and_cluster() -> None:
    change = SpeedChange(2.0, "m1", 0.25)
    cluster = replace(CLUSTER, speed_changes=(change,))
    later = Problem(cluster, JOB, Placement((0, 1, 0, 1))).beginning_at(1, 1.5)

    assert later.cluster.speed_changes == (SpeedChange(0.5, "m1", 0.25),)
    assert later.job.iterations == 1


def test_a_flow_without_a_way_names_its_tasks_and_their_machines() -> None:
    """Nothing leads from m0 to m1; a credit needs no way, and back there is one."""
    machines = tuple(Machine(f"m{number}", 1.0, 1.0) for number in range(3))
    cut = Route((0,), (1,), (NO_ROUTE,))
    cluster = Cluster(machines, (Link(NO_ROUTE, 1.0),), (cut,))
    tasks = tuple(Task(name, "x") for name in "abc")
    edges = (Edge(0, 2), Edge(2, 1), Edge(1, 0, lag=1), Edge(0, 1, 1, credit=True))
    job = Job(tasks, edges, 2)
    assert Placement((0, 1, 2)).missing_routes(job, cluster) == []
    (problem,) = Placement((0, 1, 1)).missing_routes(job, cluster)
    assert problem == "a sends to c, and no route leads from m0 to m1"
    (problem,) = Placement((1, 1, 0)).missing_routes(job, cluster)
    assert problem == "c sends to b, and no route leads from m0 to m1"
