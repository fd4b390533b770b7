"""Ports that are divided among jobs first; golden and random jobs are elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from emu.errors import ScenarioError
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
from emu.scenario import load
from emu.simulation import simulate


@pytest.mark.parametrize(
    ("policy", "rates"),
    [
        ("oes", [1.0, 4.0, 4.0]),
        ("oes_by_job", [1.0, 3.0, 6.0]),
        ("maxmin", [1.0, 5.5, 5.5]),
        ("maxmin_by_job", [1.0, 5.0, 6.0]),
    ],
)
def test_what_one_flow_cannot_use_goes_to_others_of_its_job_first(
    policy: str, rates: list[float]
) -> None:
    """Out of a port of 12 B/s: two flows of a, the first of which takes 1 B/s."""
    names = ("a/s", "b/s", "a/slow", "a/w", "b/w")
    job = Job(
        tuple(Task(name, "task") for name in names),
        (Edge(0, 2), Edge(0, 3), Edge(1, 4)),
        1,
    )
    machines = (
        Machine("m0", 12.0, 12.0),
        Machine("m1", 1.0, 12.0),
        Machine("m2", 12.0, 12.0),
        Machine("m3", 12.0, 12.0),
    )
    problem = Problem(Cluster(machines), job, Placement((0, 0, 1, 2, 3)))
    realization = Realization(np.zeros((5, 1)), np.full((3, 1), 60.0))

    schedule = simulate(problem, realization, policy, record_rates=True)

    assert schedule.rates is not None
    np.testing.assert_allclose(schedule.rates.rate[:3], rates)
    assert schedule.rates.edge[:3].tolist() == [0, 1, 2]


def test_other_rules_know_no_jobs() -> None:
    with pytest.raises(ScenarioError, match="by job there are oes and maxmin") as found:
        load("golden", {"schedule.policy": "fifo", "schedule.share": "job"})
    assert found.value.key == "schedule.share"
    assert load("golden", {"schedule.share": "job"}).schedule.rule == "oes_by_job"
