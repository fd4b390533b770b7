"""The verdict on a prediction, of runs that the simulator makes differ."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emu.analysis.critical_path import error_budget
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
from emu.scenario import load, prepare
from emu.simulation import simulate
from emu.trust.prediction import Outcome, judge_prediction, of_network

if TYPE_CHECKING:
    from emu.problem import Schedule
    from emu.trust.prediction import Prediction

RATE, ITERATIONS = 100.0, 4


def problem_of(senders: int, slow: float = 1.0) -> Problem:
    """Return machines that all send to the last, whose NIC in has a share of RATE."""
    names = [*(f"m{i}" for i in range(senders)), "sink"]
    machines = [Machine(name, RATE, RATE) for name in names]
    machines[-1] = replace(machines[-1], bandwidth_in=slow * RATE)
    tasks = tuple(Task(f"t{i}", "worker") for i in range(senders + 1))
    edges = tuple(Edge(i, senders) for i in range(senders))
    placement = Placement(tuple(range(senders + 1)))
    return Problem(Cluster(tuple(machines)), Job(tasks, edges, ITERATIONS), placement)


def judged(
    emulated: Schedule, stated: Schedule, again: Schedule | None = None
) -> Prediction:
    replayed = again or stated
    free = replace(emulated, rates=None, problem=stated.problem)
    return judge_prediction(
        free,
        stated,
        replayed,
        threshold=0.03,
        time_scale=1.0,
        budget=error_budget(free, replayed, {}),
    )


def expected(problem: Problem, seconds: float = 1.0) -> Realization:
    job = problem.job
    times = np.full((len(job.tasks), ITERATIONS), seconds)
    return Realization(times, np.full((len(job.edges), ITERATIONS), 400.0))


@pytest.mark.parametrize("slow", [1.0, 0.98])
def test_what_is_within_the_threshold_agrees(slow: float) -> None:
    stated = problem_of(1)
    found = judged(
        simulate(problem_of(1, slow), expected(stated), "maxmin"),
        simulate(stated, expected(stated), "maxmin"),
    )
    assert (found.outcome, found.since, found.reasons) == (Outcome.AGREES, None, ())
    assert found.error == pytest.approx(0.0, abs=0.025)


@pytest.mark.parametrize("slow", [0.5, 0.8, 0.9])
def test_a_nic_below_its_stated_rate_is_named(slow: float) -> None:
    stated = problem_of(1)
    found = judged(
        simulate(problem_of(1, slow), expected(stated), "maxmin"),
        simulate(stated, expected(stated), "maxmin"),
    )
    assert found.outcome is Outcome.DIFFERS
    assert "sink in" in found.links
    said = f"sink in is below its stated rate: flows alone on their way had {slow:.0%}"
    assert any(said.replace("%", " %") in reason for reason in found.reasons)
    off, makespan = 4 / slow - 4, 1 + 4 * ITERATIONS + 1
    first = math.floor(0.03 * makespan / off) + 1
    assert found.since == pytest.approx(1 + first * 4 / slow + 1)


@pytest.mark.parametrize("senders", [2, 5])
def test_incast_is_named_with_its_port(senders: int) -> None:
    stated = problem_of(senders)
    found = judged(
        simulate(problem_of(senders, 0.85), expected(stated), "maxmin"),
        simulate(stated, expected(stated), "maxmin"),
    )
    assert found.outcome is Outcome.DIFFERS
    assert found.links[0] == "sink in"
    assert f"incast on sink in: up to {senders} machines" in " ".join(found.reasons)


def test_tasks_that_take_other_times_are_no_fault_of_the_network() -> None:
    stated = problem_of(1)
    ran = simulate(stated, expected(stated, 1.5), "maxmin")
    found = judged(ran, simulate(stated, expected(stated), "maxmin"), ran)
    assert found.outcome is Outcome.DIFFERS
    assert found.links == ()
    assert "tasks took other times than predicted" in found.reasons[0]


def test_two_errors_that_cancel_do_not_agree() -> None:
    """Tasks were shorter than predicted by what the network was longer."""
    stated = problem_of(1)
    slower = simulate(problem_of(1, 0.9), expected(stated, 0.2), "maxmin")
    predicted = simulate(stated, expected(stated), "maxmin")
    again = simulate(stated, expected(stated, 0.2), "maxmin")
    assert abs(slower.makespan / predicted.makespan - 1) < 0.03
    found = judged(slower, predicted, again)
    assert found.outcome is Outcome.DIFFERS
    assert "sink in" in found.links


def test_connections_that_share_a_nic_unequally_are_named() -> None:
    """Older flows first: a flow of 10 B waits for one of 60 B, and NICs are full."""
    stated = prepare(load("golden", ["schedule.policy=maxmin", "expect=null"]))
    ran = simulate(stated.problem, stated.realization, "fifo")
    found = judged(ran, stated.simulate())
    assert found.links == ("m1 out", "m0 in")
    said = (
        "unequal shares of m1 out: ps0->w0 had 22.2 % of its max-min share in "
        "iteration 0, s1->w0 beside it 200 %"
    )
    assert found.reasons == (said,)


@pytest.mark.parametrize(("slow", "incast"), [(1.0, False), (0.9, True)])
def test_machines_that_fill_a_nic_together_are_no_incast(
    slow: float, *, incast: bool
) -> None:
    stated = problem_of(2)
    ran = simulate(problem_of(2, slow), expected(stated), "maxmin")
    free = replace(ran, rates=None, problem=stated)
    found = [*of_network(free, ["sink in"], [(0, 0)], 1.0)]
    assert any(reason.startswith("incast") for reason in found) == incast
