"""The slow oracle agrees with what the scheduler assigns, and says where not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings

from emu.simulation import simulate
from emu.testing import two_machine_example
from emu.testing.strategies import problems, random_problem
from emu.trust.rate_audit import POLICIES, rule_audit

if TYPE_CHECKING:
    from emu.problem import Problem, Realization


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=20)
@given(drawn=problems())
def test_what_the_scheduler_assigns_is_what_the_rule_gives(
    policy: str, drawn: tuple[Problem, Realization]
) -> None:
    problem, realization = drawn
    schedule = simulate(problem, realization, policy, record_rates=True)

    assert rule_audit(schedule, policy, realization)[1] == []


@pytest.mark.parametrize("policy", POLICIES)
def test_edges_between_the_same_two_tasks_go_by_lag_then_by_their_order(
    policy: str,
) -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        problem, realization = random_problem(rng, ties=True)
        edges = problem.job.edges
        again = [replace(e, lag=e.lag + int(rng.integers(2))) for e in edges[::-1]]
        job = replace(problem.job, edges=(*again, *edges))
        volumes = rng.permutation(np.tile(realization.volumes, (2, 1)))
        run = replace(realization, volumes=volumes)
        schedule = simulate(replace(problem, job=job), run, policy, record_rates=True)

        assert rule_audit(schedule, policy, run)[1] == [], seed


def test_a_wrong_rate_is_named_with_its_flow_and_first_instant() -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization, record_rates=True)
    assert schedule.rates is not None
    wrong = schedule.rates.rate.copy()
    row = int(np.flatnonzero(schedule.rates.iteration == 1)[0])
    wrong[row] *= 0.9
    changed = replace(schedule, rates=replace(schedule.rates, rate=wrong))

    checked, found = rule_audit(changed, "oes", realization)

    name = problem.job.edge_names[int(schedule.rates.edge[row])]
    assert checked > 20
    assert found[0].subject == f"{name}[1]"
    assert f"from {schedule.rates.time[row]:.6g} s on, oes gives" in found[0].sentence


def test_another_rule_than_the_stated_one_is_found() -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization, "fifo", record_rates=True)

    assert rule_audit(schedule, "oes", realization)[1]
