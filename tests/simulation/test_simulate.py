"""What the simulator promises beyond its numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given

from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Profile,
    Realization,
    Task,
)
from emu.scheduling import POLICIES
from emu.simulation import MakespanEvaluator, best_policy, makespan, simulate
from emu.testing import two_machine_example
from emu.testing.strategies import problems, random_problem

if TYPE_CHECKING:
    from types import ModuleType

RULES = [name for name in POLICIES if name != "portfolio"]


def anomaly() -> tuple[Problem, Realization]:
    """Return a job of four tasks that max-min finishes later than oes."""
    cluster = Cluster(
        tuple(Machine(f"m{m}", nic, nic) for m, nic in enumerate((5.0, 5.0, 1.0)))
    )
    job = Job(
        tuple(Task(name, "task") for name in "abde"),
        (Edge(0, 1), Edge(0, 2), Edge(1, 3), Edge(2, 3)),
        1,
    )
    times = np.array([[2.0], [1.0], [2.0], [0.0]])
    volumes = np.array([[5.0], [8.0], [7.0], [4.0]])
    return Problem(cluster, job, Placement((1, 0, 2, 2))), Realization(times, volumes)


UNCOMPILED = """
import json, sys
import numpy as np
from emu.simulation import makespan
from emu.testing.strategies import random_problem
json.dump(
    {policy: [makespan(*random_problem(np.random.default_rng(seed)), policy)
              for seed in range(8)] for policy in sys.argv[1:]}, sys.stdout)
"""


def test_without_the_compiler_the_result_is_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCOMPILED, *RULES],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    for policy, spans in json.loads(done.stdout).items():
        for seed, span in enumerate(spans):
            drawn = random_problem(np.random.default_rng(seed))
            assert makespan(*drawn, policy) == pytest.approx(span, rel=1e-12), policy


@given(drawn=problems())
def test_max_min_gives_every_flow_at_least_its_equal_share(
    oracle: ModuleType, drawn: tuple[Problem, Realization]
) -> None:
    problem, realization = drawn
    schedule = simulate(problem, realization, "maxmin", record_rates=True)
    rates = schedule.rates
    assert rates is not None
    current: dict[tuple[int, int], float] = {}
    for instant in np.unique(rates.time):
        for row in np.flatnonzero(rates.time == instant):
            current[int(rates.edge[row]), int(rates.iteration[row])] = rates.rate[row]
        current = {
            flow: rate
            for flow, rate in current.items()
            if schedule.flow_end[flow] > instant * (1 + 1e-12)
        }
        flows = [
            oracle.Flow(edge, iteration, 0, problem.hops[edge], 1.0, 1.0)
            for edge, iteration in current
        ]
        oracle.oes(flows, list(problem.capacities))
        for flow in flows:
            assert current[flow.edge, flow.turn] >= flow.rate * (1 - 1e-12)


def test_more_rate_for_every_flow_can_end_later() -> None:
    """Under max-min no flow is ever slower than under oes, and yet the job is.

    Found by a search over 40,000 random jobs, the smallest kept. From 2 s on, a sends
    8 bytes to d at 1 B/s, as m2 takes no more. Its 5 bytes to b go at 2.5 B/s under
    oes, half of m1's port, and at 4 B/s under max-min. So b's flow to e is released at
    4.25 s, not 5 s, and from then on takes half of m2's port from the flow to d, which
    is the one that the end waits for.
    """
    problem, realization = anomaly()
    assert makespan(problem, realization, "oes") == 17.0
    assert makespan(problem, realization, "maxmin") == 17.75


def test_the_portfolio_is_never_worse_than_oes_on_what_it_expects() -> None:
    for seed in range(40):
        drawn = random_problem(np.random.default_rng(seed))
        assert makespan(*drawn, "portfolio") <= makespan(*drawn, "oes")


def test_the_portfolio_chooses_by_the_profile() -> None:
    problem, realization = anomaly()
    profile = Profile(realization.times, realization.volumes)
    assert best_policy(problem, profile, ["oes", "maxmin"]) == "oes"
    assert best_policy(problem, profile, ["maxmin"]) == "oes"
    idle = Profile(profile.times, np.zeros_like(profile.volumes))
    assert best_policy(problem, idle) == "oes"  # all equal: the first listed


@given(drawn=problems())
def test_the_evaluator_agrees_and_stops_beyond_its_limit(
    drawn: tuple[Problem, Realization],
) -> None:
    problem, realization = drawn
    evaluator = MakespanEvaluator(problem.job, problem.cluster, "maxmin")
    machine_of = np.array(problem.placement.machine_of)
    span = makespan(problem, realization, "maxmin")
    assert evaluator.makespan(machine_of, realization) == span
    assert evaluator.makespan(machine_of, realization, limit=span) == span
    if span > 0:
        assert evaluator.makespan(machine_of, realization, limit=0.99 * span) == np.inf


def test_what_does_not_fit_is_refused_before_compiled_code_runs() -> None:
    problem, realization = two_machine_example(3)
    other = two_machine_example(2)[1]
    evaluator = MakespanEvaluator(problem.job, problem.cluster)
    with pytest.raises(ValueError, match=r"do not fit a job of \(6, 3\)"):
        simulate(problem, other)
    with pytest.raises(ValueError, match="no policy is called fast"):
        makespan(problem, realization, "fast")
    with pytest.raises(ValueError, match="a profile of 1 tasks"):
        makespan(
            problem, realization, profile=Profile(np.ones((1, 1)), np.ones((8, 1)))
        )
    with pytest.raises(ValueError, match="beyond 1"):
        evaluator.makespan(np.array([0, 1, 2, 0, 0, 0]), realization)
    with pytest.raises(ValueError, match=r"must be int64 of shape \(6,\)"):
        evaluator.nic_bound(np.zeros(5, dtype=np.int64), realization)
    with pytest.raises(ValueError, match="portfolio is a choice"):
        MakespanEvaluator(problem.job, problem.cluster, "portfolio")


def test_rates_are_kept_only_on_request() -> None:
    drawn = two_machine_example(2)
    assert simulate(*drawn).rates is None
    rates = simulate(*drawn, record_rates=True).rates
    assert rates is not None
    assert (np.diff(rates.time) >= 0).all()
    assert rates.time.size == rates.edge.size == rates.rate.size > 0
