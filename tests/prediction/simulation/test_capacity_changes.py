"""Capacities that change while a job runs, computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emu.errors import SchedulingError
from emu.prediction.analysis.busy_intervals import worst_interval
from emu.prediction.analysis.link_load import (
    LinkContention,
    excess_loads,
    pieces,
)
from emu.prediction.simulation import makespan, simulate
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)
from emu.runs.result import port_rows

MACHINES = (Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0))


def one_flow(*changes: CapacityChange) -> tuple[Problem, Realization]:
    """40 B from 1 s on over two NICs of 10 B/s; without changes they end at 5 s."""
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 1)
    cluster = Cluster(MACHINES, changes=changes)
    realization = Realization(np.array([[1.0], [1.0]]), np.array([[40.0]]))
    return Problem(cluster, job, Placement((0, 1))), realization


def test_a_link_that_is_cut_for_good_is_named_with_the_last_cut() -> None:
    """At 2 s for a second, and at 4 s for ever."""
    changes = ((2.0, 0.0), (3.0, 10.0), (4.0, 0.0))
    cuts = [CapacityChange(time, "m1 in", rate) for time, rate in changes]

    with pytest.raises(SchedulingError, match=r"m1 in.* carries nothing from 4 s on"):
        simulate(*one_flow(*cuts))


@pytest.mark.parametrize(
    ("policy", "channel"), [("fifo", ""), ("oes", "c"), ("maxmin", "")]
)
def test_what_queues_behind_a_flow_that_is_cut_off_is_no_reason(
    policy: str, channel: str
) -> None:
    tasks = Task("a", "a"), Task("b", "b"), Task("c", "c")
    edges = Edge(0, 1, channel=channel), Edge(0, 2, channel=channel)
    machines = (*MACHINES, Machine("m2", 10.0, 10.0))
    cluster = Cluster(machines, changes=(CapacityChange(2.0, "m1 in", 0.0),))
    problem = Problem(cluster, Job(tasks, edges, 1), Placement((0, 1, 2)))
    realization = Realization(np.ones((3, 1)), np.array([[40.0], [40.0]]))

    with pytest.raises(SchedulingError, match=r"a->b .*carries nothing") as stuck:
        simulate(problem, realization, policy)
    assert "the rule for rates" not in str(stuck.value)


@pytest.mark.parametrize("policy", ["oes", "maxmin", "mrtf", "sebf_madd", "fifo"])
@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ((), 5.0),
        ((CapacityChange(3.0, "m0 out", 2.0),), 13.0),
        ((CapacityChange(3.0, "m1 in", 2.0), CapacityChange(5.0, "m1 in", 16.0)), 6.6),
        ((CapacityChange(0.5, "m0 out", 5.0),), 9.0),  # before the flow
        ((CapacityChange(5.0, "m0 out", 1.0),), 5.0),  # at its end: it has ended
        ((CapacityChange(1.0, "m0 out", 5.0),), 9.0),  # at its start: before rates
        ((CapacityChange(3.0, "m0 in", 1.0),), 5.0),  # not on its way
        ((CapacityChange(99.0, "m0 out", 1.0),), 5.0),  # after the job
        (
            (CapacityChange(3.0, "m0 out", 0.0), CapacityChange(5.0, "m0 out", 10.0)),
            7.0,
        ),
        ((CapacityChange(0.5, "m1 in", 0.0), CapacityChange(2.0, "m1 in", 10.0)), 6.0),
    ],
)
def test_a_flow_whose_nic_changes(
    policy: str, changes: tuple[CapacityChange, ...], end: float
) -> None:
    schedule = simulate(*one_flow(*changes), policy, record_rates=True)

    assert schedule.flow_end[0, 0] == pytest.approx(end, rel=1e-12)
    assert schedule.makespan == pytest.approx(end + 1.0, rel=1e-12)
    assert makespan(*one_flow(*changes), policy) == schedule.makespan


def test_time_slots_take_a_change_in_at_their_end() -> None:
    """At 2 B/s from 4 s on, not from 3.5 s: 30 B by then, 10 B in 5 s more."""
    problem, realization = one_flow(CapacityChange(3.5, "m0 out", 2.0))

    schedule = simulate(problem, realization, step=1.0)

    assert schedule.flow_end[0, 0] == 9.0


def test_steps_of_a_port() -> None:
    problem, _ = one_flow(
        CapacityChange(4.0, "m0 out", 20.0), CapacityChange(2.0, "m0 out", 5.0)
    )
    steps = problem.links.steps

    assert [array.tolist() for array in steps.of(0)] == [[0, 2, 4], [10, 5, 20]]
    assert steps.at(0, np.array([0.0, 2.0, 9.0])).tolist() == [10.0, 5.0, 20.0]
    assert steps.most.tolist() == [20.0, 10.0, 10.0, 10.0]
    assert steps.carry(0, np.array([1.0, 3.0, 5.0])).tolist() == [10, 25, 50]


def test_a_cluster_with_other_capacities_changes_to_others_in_proportion() -> None:
    problem, realization = one_flow(CapacityChange(3.0, "m0 out", 2.0))

    twice = replace(problem, cluster=problem.cluster.with_capacities({0, 3}, 2.0))

    assert simulate(twice, realization).flow_end[0, 0] == 3.0
    half = replace(problem, cluster=problem.cluster.with_capacities({0}, 0.5))
    assert simulate(half, realization).flow_end[0, 0] == 33.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (CapacityChange(0.0, "m0 out", 1.0), "time 0.0 is not positive"),
        (CapacityChange(1.0, "m0 out", -1.0), "capacity -1.0 is negative"),
        (CapacityChange(1.0, "m0 out", float("nan")), "capacity nan is negative"),
        (CapacityChange(float("inf"), "m0 out", 1.0), "time inf is not positive"),
        (CapacityChange(1.0, "m2 out", 1.0), "no link is called m2 out"),
    ],
)
def test_changes_that_cannot_be(change: CapacityChange, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Cluster(MACHINES, changes=(change,))


def test_two_changes_of_a_link_at_one_time_are_refused() -> None:
    change = CapacityChange(1.0, "m0 out", 1.0)
    with pytest.raises(ValueError, match="m0 out changes 2 times"):
        Cluster(MACHINES, changes=(change, replace(change, capacity=2.0)))


def test_what_is_beyond_a_capacity_is_so_at_its_time() -> None:
    """The flow is said to go at 12 B/s over 10, which become 20 when it has ended."""
    problem, _ = one_flow(CapacityChange(6.0, "m0 out", 20.0))
    schedule = simulate(*one_flow(), record_rates=True)
    assert schedule.rates is not None
    rates = replace(schedule.rates, rate=np.full(schedule.rates.rate.size, 12.0))
    schedule = replace(schedule, problem=problem, rates=rates)

    excess = excess_loads(pieces(schedule, rates), 0.0)

    assert excess[0] == pytest.approx((2.0, 1.0))


def test_what_a_link_loses_is_exceeded_there_and_nowhere_else() -> None:
    """The flow goes on at 10 B/s where 7 and then 4 are left at its end."""
    falls = [CapacityChange(3.0, "m1 in", 7.0), CapacityChange(4.0, "m1 in", 4.0)]
    problem, _ = one_flow(*falls)
    schedule = simulate(*one_flow(), record_rates=True)
    rates = schedule.rates
    assert rates is not None
    schedule = replace(schedule, problem=problem)

    excess = excess_loads(pieces(schedule, rates), 0.0)

    found = {}
    for link, most in zip(problem.links, excess, strict=True):
        found[link.name] = most
    assert found["m0 out"] == pytest.approx((0.0, 1.0))
    assert found["m1 in"] == pytest.approx((6.0, 4.0))


@pytest.mark.parametrize(("size", "beyond"), [(43.5, 0.0), (44.5, 0.5)])
def test_an_interval_is_stretched_by_what_a_port_carries_at_most(
    size: float, beyond: float
) -> None:
    """In 4 s come 40 B at 10 B/s, and 4 in 0.2 s of the 20 B/s that it has later."""
    problem, _ = one_flow(CapacityChange(6.0, "m0 out", 20.0))
    schedule = replace(simulate(*one_flow()), problem=problem)
    schedule = replace(schedule, flow_bytes=np.array([[size]]))

    assert worst_interval(schedule, 0, 1.0, 0.2)[0] == pytest.approx(beyond)


def test_what_holds_a_flow_back_is_the_port_that_is_narrow_then() -> None:
    problem, realization = one_flow(
        CapacityChange(0.5, "m1 in", 5.0), CapacityChange(3.0, "m0 out", 2.0)
    )
    crowd = LinkContention(simulate(problem, realization))
    names = [link.name for link in problem.links]

    assert names[crowd.bottleneck(0, 1.0, 3.0)] == "m1 in"
    assert names[crowd.bottleneck(0, 3.0, 9.0)] == "m0 out"


def test_the_use_of_a_port_is_of_what_it_could_carry() -> None:
    """40 B by 6 s: of 3 s at 10 B/s and 3 s at 20, and of 6 s at 10."""
    out, _, _, into = port_rows(
        simulate(*one_flow(CapacityChange(3.0, "m0 out", 20.0)))
    )
    assert (out["used"], into["used"]) == pytest.approx((40 / 90, 40 / 60))
