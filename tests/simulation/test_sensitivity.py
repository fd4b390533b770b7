"""How far rounding moves a makespan: nowhere, where nothing is tied in a chain."""

from __future__ import annotations

import numpy as np
import pytest

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
from emu.simulation import makespan, sensitivity
from emu.testing.strategies import random_problem


def test_a_chain_moves_by_no_more_than_its_digits() -> None:
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 3)
    cluster = Cluster((Machine("m", 10.0, 10.0), Machine("n", 10.0, 10.0)))
    problem = Problem(cluster, job, Placement((0, 1)))
    run = Realization(np.ones((2, 3)), np.full((1, 3), 20.0))

    assert 0.0 < sensitivity(problem, run) <= 2e-12 * makespan(problem, run)


@pytest.mark.parametrize("seed", range(10))
def test_it_is_the_same_every_time(seed: int) -> None:
    problem, run = random_problem(np.random.default_rng(seed), ties=True)
    assert sensitivity(problem, run) == sensitivity(problem, run)


def test_a_shorter_makespan_counts_as_much_as_a_longer_one() -> None:
    """Of the four draws for a lone task the largest is negative."""
    task = Job((Task("a", "a"),), (), 1)
    cluster = Cluster((Machine("m", 1.0, 1.0),))
    problem = Problem(cluster, task, Placement((0,)))
    run = Realization(np.full((1, 1), 8.0), np.zeros((0, 1)))
    drawn = np.random.default_rng(0).uniform(-1.0, 1.0, 4)
    assert -drawn.min() > drawn.max()

    found = sensitivity(problem, run)
    assert found == pytest.approx(8e-12 * -drawn.min(), rel=1e-3)
