"""How far rounding moves a makespan: nowhere, where nothing is tied in a chain."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from emu.cli.predict_commands import NOTABLE
from emu.prediction.placement import place
from emu.prediction.simulation import makespan, rounding_effect
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
from emu.report.comparison import comparison_table
from emu.testing.strategies import random_problem
from tests.report.answers import candidate_of
from tests.systems.sections import job_of


def test_a_chain_moves_by_no_more_than_its_digits() -> None:
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 3)
    cluster = Cluster((Machine("m", 10.0, 10.0), Machine("n", 10.0, 10.0)))
    problem = Problem(cluster, job, Placement((0, 1)))
    run = Realization(np.ones((2, 3)), np.full((1, 3), 20.0))

    assert 0.0 < rounding_effect(problem, run) <= 2e-12 * makespan(problem, run)


@pytest.mark.parametrize("seed", range(10))
def test_it_is_the_same_every_time(seed: int) -> None:
    problem, run = random_problem(np.random.default_rng(seed), ties=True)
    assert rounding_effect(problem, run) == rounding_effect(problem, run)


def test_a_shorter_makespan_counts_as_much_as_a_longer_one() -> None:
    """The largest of the four draws for a lone task is negative."""
    task = Job((Task("a", "a"),), (), 1)
    cluster = Cluster((Machine("m", 1.0, 1.0),))
    problem = Problem(cluster, task, Placement((0,)))
    run = Realization(np.full((1, 1), 8.0), np.zeros((0, 1)))
    drawn = np.random.default_rng(0).uniform(-1.0, 1.0, 4)
    assert -drawn.min() > drawn.max()

    found = rounding_effect(problem, run)
    assert found == pytest.approx(8e-12 * -drawn.min(), rel=1e-3)


@pytest.mark.parametrize("workers", [20, 22, 24, 26])
def test_thousands_of_tied_flows_turn_a_last_digit_into_a_share(workers: int) -> None:
    """By 1 % with 20,480 flows that all ask at once, first come, first served."""
    names = tuple(f"m{m}" for m in range(14))
    job = job_of("dgtp", names, workers=workers, iterations=30)
    cluster = Cluster(tuple(Machine(name, 1.25e9, 1.25e9) for name in names))
    problem = Problem(cluster, job, place("round_robin", job, cluster).placement)
    tasks, edges = len(job.tasks), len(job.edges)
    run = Realization(np.full((tasks, 30), 0.01), np.full((edges, 30), 1e7))
    moved, length = (
        rounding_effect(problem, run, "fifo"),
        makespan(problem, run, "fifo"),
    )
    share = moved / length

    assert edges * job.iterations > 10_000
    assert 1e-4 < share < 0.05
    assert rounding_effect(problem, run, "oes") < 1e-9 * makespan(problem, run, "oes")
    assert share > NOTABLE
    said = {}
    for apart in (moved / 2, moved * 2):
        rows = [
            candidate_of(name, "fifo", {0: seconds}, rounding=moved)
            for name, seconds in (("one", length), ("two", length + apart))
        ]
        shown = io.StringIO()
        Console(width=200, file=shown).print(comparison_table(rows))
        said[apart] = "as good as the first row" in shown.getvalue()
    assert said == {moved / 2: True, moved * 2: False}
