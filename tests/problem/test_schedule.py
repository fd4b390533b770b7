"""Rows of a schedule, as results and pictures have them."""

from __future__ import annotations

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
)
from emu.problem.schedule import Outages


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
