"""The busiest interval of a port, beside all intervals tried one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.prediction.analysis.busy_intervals import best_sums, worst_interval
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
)
from emu.testing.strategies import problems


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 8, 11])
def test_the_best_interval_after_every_step_is_that_of_all_ends(count: int) -> None:
    rng = np.random.default_rng(count)
    places = rng.permutation(count)
    totals = rng.uniform(1.0, 9.0, count)
    bests = rng.uniform(-20.0, 20.0, count)

    expected = []
    for step in range(count):
        there = range(step + 1)
        ends = []
        for end in there:
            within = [i for i in there if places[i] <= places[end]]
            ends.append(sum(totals[within]) + bests[end] - totals[end])
        expected.append(max(ends))

    assert best_sums(places, totals, bests) == pytest.approx(expected)


def most_beyond(schedule: Schedule, port: int, factor: float, wait: float) -> float:
    """Return the most bytes too many from the start of a flow to the end of one."""
    flows = []
    for position, hops in enumerate(schedule.problem.hops):
        for iteration in range(schedule.problem.job.iterations):
            start = schedule.flow_start[position, iteration]
            end = schedule.flow_end[position, iteration]
            if port in hops and np.isfinite(start + end):
                flows.append((start, end, schedule.flow_bytes[position, iteration]))

    steps = schedule.problem.links.steps
    most = 0.0
    for (begin, _, _), (last_start, stop, _) in product(flows, flows):
        if last_start < begin:
            continue
        inside = [size for start, end, size in flows if start >= begin and end <= stop]
        carried = np.diff(steps.carry(port, np.array([begin, stop])))[0]
        room = carried + wait * steps.most[port]
        most = max(most, sum(inside) - factor * room)
    return most


@given(drawn=problems(links=True, changes=True), factor=st.sampled_from([0.5, 1.02]))
def test_the_worst_interval_is_that_of_all_starts_and_ends(
    drawn: tuple[Problem, Realization], factor: float
) -> None:
    """Flows are said to have gone in half of their time: too fast for some ports."""
    schedule = simulate(*drawn)
    middle = (schedule.flow_start + schedule.flow_end) / 2
    fast = replace(schedule, flow_end=middle)

    for port, wait in product(range(len(fast.problem.links)), (0.0, 0.1)):
        found = worst_interval(fast, port, factor, wait)
        expected = most_beyond(fast, port, factor, wait)
        assert found.excess == pytest.approx(expected, abs=1e-9)


def test_an_interval_is_named_by_its_first_start_and_last_end() -> None:
    """A port of 10 B/s: 30 B from 1 to 3 s, 40 B from 2 to 4, 10 B from 7 to 9."""
    machines = (Machine("m0", 99.0, 10.0), Machine("m1", 50.0, 99.0))
    tasks = tuple(Task(name, name) for name in "abcdef")
    edges = (Edge(0, 1), Edge(2, 3), Edge(4, 5))
    job = Job(tasks, edges, 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1) * 3))
    run = Realization(np.ones((6, 1)), np.array([[30.0], [40.0], [10.0]]))
    schedule = replace(
        simulate(problem, run),
        flow_start=np.array([[1.0], [2.0], [7.0]]),
        flow_end=np.array([[3.0], [4.0], [9.0]]),
    )

    assert worst_interval(schedule, 0, 1.0, 0.5) == (70 - 35.0, 1.0, 4.0)
    assert worst_interval(schedule, 0, 3.0, 0.0) == (0.0, 0.0, 0.0)
    assert worst_interval(schedule, 1, 1.0, 0.0) == (0.0, 0.0, 0.0)  # into m0: none

    # A start that is no number is no flow of any interval.
    schedule.flow_start[0, 0] = np.nan
    assert worst_interval(schedule, 0, 1.0, 0.5) == (40 - 25.0, 2.0, 4.0)
