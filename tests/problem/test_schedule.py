"""Rows of a schedule, as results and pictures have them."""

from __future__ import annotations

import numpy as np

from emu.prediction.simulation import simulate
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
