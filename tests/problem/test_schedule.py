"""Rows of a schedule, as results and pictures have them."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Schedule,
    Task,
    Tuner,
)
from emu.problem.schedule import Outages
from emu.units import format_duration


def test_a_flow_waits_from_when_it_is_ready_until_the_one_before_has_ended() -> None:
    """The second mini-batch is there after 2 s, the first is sent until 4 s."""
    job = Job((Task("a", "t"), Task("b", "t")), (Edge(0, 1),), 2)
    cluster = Cluster((Machine("m0", 9.0, 1.0), Machine("m1", 1.0, 9.0)))
    problem = Problem(cluster, job, Placement((0, 1)))
    times = np.array([[1.0, 1.0], [0.5, 0.25]])
    realization = Realization(times, np.array([[3.0, 2.0]]))

    content = simulate(problem, realization, "maxmin").to_json()

    spans = [(row["ready"], row["start"], row["end"]) for row in content["flows"]]
    assert spans == [(1.0, 1.0, 4.0), (2.0, 4.0, 6.0)]
    assert [(row["bytes"], row["iteration"]) for row in content["flows"]] == [
        (3.0, 0),
        (2.0, 1),
    ]
    assert content["tasks"][2:] == [
        {"task": "b", "iteration": 0, "start": 4.0, "end": 4.5},
        {"task": "b", "iteration": 1, "start": 6.0, "end": 6.25},
    ]


def ran(seconds: float, outages: Outages) -> Schedule:
    """Return a run of one task, with what deaths added to it."""
    problem = Problem(
        Cluster((Machine("m0", 1.0, 1.0),)),
        Job((Task("a", "t"),), (), 1),
        Placement((0,)),
    )
    realization = Realization(np.array([[seconds]]), np.zeros((0, 1)))
    return replace(simulate(problem, realization, "maxmin"), outages=outages)


@pytest.mark.parametrize("wrong", [-1e-9, math.inf, -math.inf, math.nan])
def test_times_and_volumes_are_finite_and_not_negative(wrong: float) -> None:
    sound = np.array([[0.0, 1.0], [2.0, 3.0]])
    values = sound.copy()
    values[1, 0] = wrong
    problem = rf"\[1, 0\] is {wrong}; it must be finite and not negative"

    with pytest.raises(ValueError, match=f"times {problem}"):
        Realization(values, sound)
    with pytest.raises(ValueError, match=f"volumes {problem}"):
        Realization(sound, values)
    with pytest.raises(ValueError, match="times must have two axes, not 1"):
        Realization(values[0], sound)


@pytest.mark.parametrize(
    ("run", "expected", "error"),
    [
        # Of 10 + 6 s that are expected 4 are recovery: an error is one of 12 s.
        ((13.0, 6.0, 5.0), (10.0, 6.0, 4.0), 3 / 12),
        ((10.0, 3.0, 1.0), (10.0, 6.0, 4.0), -3 / 12),
        ((13.0, 0.0, 0.0), (10.0, 0.0, 0.0), 3 / 10),
        # Deaths that were not expected.
        ((10.0, 5.0, 5.0), (10.0, 0.0, 0.0), 5 / 10),
        # Nothing but recovery: no share of it is any.
        ((1e-3, 4.0, 4.0), (0.0, 4.0, 4.0), 1.0),
        ((0.0, 4.0, 4.0), (0.0, 4.0, 4.0), 0.0),
    ],
)
def test_an_error_is_a_share_of_the_time_in_which_something_runs(
    run: tuple[float, ...], expected: tuple[float, ...], error: float
) -> None:
    """Compare seconds, those that deaths add, and recovery of run and prediction."""
    schedules = [ran(row[0], Outages(row[1], row[2])) for row in (run, expected)]
    assert schedules[0].error_over(schedules[1]) == pytest.approx(error, rel=1e-12)


def test_a_notebook_shows_what_each_machine_computed() -> None:
    """Three rounds of 1 and of 2 s on m1, one of 0.5 s on m2, and none on m0."""
    tasks = (Task("a", "t"), Task("b", "t"), Task("c", "t", iterations=1))
    machines = tuple(Machine(f"m{number}", 1.0, 1.0) for number in range(3))
    job = Job(tasks, (), 3)
    problem = Problem(Cluster(machines), job, Placement((1, 1, 2)))
    run = Realization(np.array([[1.0] * 3, [2.0] * 3, [0.5] * 3]), np.zeros((0, 3)))
    page = simulate(problem, run)._repr_html_()
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in page.split("<tr>")]
    assert [row for row in rows if row] == [
        ["m1", "a, b", format_duration(9.0)],
        ["m2", "c", format_duration(0.5)],
    ]


def test_a_flow_has_landed_its_latency_after_its_end() -> None:
    """6 B at 2 B/s from 1 s on; 0.5 s out of m0 and 0.25 s into m1."""
    machines = (
        Machine("m0", 9.0, 2.0, latency_out=0.5, latency_in=7.0),
        Machine("m1", 4.0, 9.0, latency_out=8.0, latency_in=0.25),
    )
    job = Job((Task("a", "t"), Task("b", "t")), (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    run = Realization(np.array([[1.0], [2.0]]), np.array([[6.0]]))
    schedule = simulate(problem, run)

    (flow,) = schedule.to_json()["flows"]
    assert (flow["start"], flow["end"], flow["landed"]) == (1.0, 4.0, 4.75)
    assert schedule.makespan == 4.75 + 2.0


def test_slots_change_at_every_look_of_their_tuner() -> None:
    """Every half second on m1, every two on m0, which looks once in that time."""
    machines = (
        Machine("m0", 1.0, 1.0, slots={"gpu": 5, "cpu": 3}),
        Machine("m1", 1.0, 1.0, slots={"gpu": 4}),
    )
    tuners = (
        Tuner(0, "gpu", "gpu", most=9, period=2.0),
        Tuner(1, "gpu", "gpu", most=9, period=0.5),
    )
    tasks = (
        *(Task(name, "t", takes="gpu") for name in "ab"),
        Task("c", "t", takes="cpu"),
    )
    job = Job(tasks, (), 1)
    problem = Problem(Cluster(machines, tuners=tuners), job, Placement((0, 1, 0)))
    run = Realization(np.ones((3, 1)), np.empty((0, 1)))
    quotas = np.array([[6, 3], [0, 2], [0, 7]])
    schedule = replace(simulate(problem, run), quotas=quotas)

    found = {}
    for pool in problem.pools:
        times, slots = schedule.slots_of(pool)
        found[pool.machine, pool.name] = times.tolist(), slots.tolist()
    assert found == {
        (0, "gpu"): ([0.0, 2.0], [5, 6]),
        (0, "cpu"): ([0.0], [3]),
        (1, "gpu"): ([0.0, 0.5, 1.0, 1.5], [4, 3, 2, 7]),
    }


def test_what_deaths_add_is_told_where_there_were_any() -> None:
    assert "outages" not in ran(3.0, Outages()).to_json()
    content = ran(3.0, Outages(2.0, recovery=0.5)).to_json()
    assert content["outages"] == {"seconds": 2.0, "recovery": 0.5}
    assert content["makespan"] == 5.0
