"""Lower bounds hold for every policy, Theorem 1 for those that keep it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from emu.analysis.bounds import bounds
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
from emu.scheduling import RATE_POLICIES
from emu.simulation import makespan
from emu.testing import two_machine_example
from emu.testing.strategies import problems

SLACK = 1 + 1e-9


@given(drawn=problems())
def test_no_policy_beats_the_bounds(drawn: tuple[Problem, Realization]) -> None:
    found = bounds(*drawn)
    assert found.nic_load <= found.combined * SLACK
    assert found.critical_path <= found.combined
    for policy, rule in RATE_POLICIES.items():
        span = makespan(*drawn, policy)
        assert span * SLACK >= found.combined, policy
        assert -1e-9 <= found.gap(span) <= 1
        if rule.keeps_theorem:
            assert span <= found.certificate * SLACK, policy


def test_bounds_of_the_example() -> None:
    found = bounds(*two_machine_example(10))
    # g1->s0 and s1->w0 ten times, p0->w0 nine times: 1000 + 90 bytes.
    assert found.nic_load == 109.0
    assert found.nic_port == "m0 in"
    assert found.degree == 3  # g1->s0, s1->w0, p0->w0 leave m1
    assert found.combined == pytest.approx(115.0)
    assert found.binding == "m0 in"
    assert found.gap(115.0) == pytest.approx(0.0)


def test_two_flows_through_one_port_in_context() -> None:
    cluster = Cluster((Machine("a", 1.0, 1.0), Machine("b", 9.0, 9.0)))
    job = Job(
        tuple(Task(name, "t") for name in ("u", "v", "w")), (Edge(0, 1), Edge(0, 2)), 1
    )
    problem = Problem(cluster, job, Placement((0, 1, 1)))
    realization = Realization(np.array([[2.0], [3.0], [4.0]]), np.full((2, 1), 5.0))
    found = bounds(problem, realization)
    assert found.nic_load == 10.0
    assert found.critical_path == 2 + 5 + 4
    assert found.binding in {"a out", "b in"}
    assert found.combined == 2 + 10 + 3  # u, both flows, the shorter of v and w


def test_flows_of_an_edge_follow_one_another_in_context() -> None:
    """The third flow of a->b begins at 11 s, as that of c->b does: 5.5 s over b in."""
    cluster = Cluster(
        (Machine("a", 1.0, 1.0), Machine("b", 10.0, 10.0), Machine("c", 99.0, 99.0))
    )
    tasks = (Task("a", "t"), Task("b", "t"), Task("c", "t", iterations=1))
    job = Job(tasks, (Edge(0, 1), Edge(2, 1, lag=2)), 3)
    realization = Realization(
        np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [11.0, 0.0, 0.0]]),
        np.array([[5.0, 5.0, 5.0], [50.0, 0.0, 0.0]]),
    )

    found = bounds(Problem(cluster, job, Placement((0, 1, 2))), realization)

    assert found.combined == pytest.approx(11 + 5.5 + 1)
    assert found.binding == "b in"


def test_without_flows_the_critical_path_is_the_makespan() -> None:
    problem, realization = two_machine_example(3)
    alone = Problem(problem.cluster, problem.job, Placement((0,) * 6))
    found = bounds(alone, realization)
    assert found.degree == 0
    assert found.certificate == makespan(alone, realization)
