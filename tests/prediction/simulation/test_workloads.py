"""The peer benchmark's workloads, on whose makespans independent simulators agree.

``EMU_BENCH`` names the directory that holds them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emu.prediction.analysis.bounds import bounds
from emu.prediction.scheduling import RATE_POLICIES
from emu.prediction.simulation import makespan, simulate
from emu.problem import Problem, Realization
from emu.testing import reference
from tests import draws
from tests.prediction.simulation import flat
from tools.benches.workloads import bench_directory, load_workload

#: What `flat` does not know; of a single job ``..._by_job`` is the rule itself.
OTHERS = [
    name
    for name in RATE_POLICIES
    if name not in ("portfolio", "oes", "maxmin") and not name.endswith("_by_job")
]

pytestmark = pytest.mark.skipif(
    bench_directory() is None, reason="EMU_BENCH does not name the workloads"
)


@pytest.mark.parametrize("policy", ["oes", "maxmin"])
@pytest.mark.parametrize("name", ["workload_a", "workload_b"])
def test_makespan_to_nine_digits(name: str, policy: str) -> None:
    problem, realization, expected = load_workload(name)
    span = makespan(problem, realization, policy)
    assert f"{span:.9f}" == f"{expected[policy]:.9f}"
    assert bounds(problem, realization).combined <= span


def first_iterations(name: str, count: int) -> tuple[Problem, Realization]:
    """Return a workload that ends after so many iterations."""
    whole, drawn, _ = load_workload(name)
    job = replace(whole.job, iterations=count)
    problem = Problem(whole.cluster, job, whole.placement)
    times, volumes = drawn.times[:, :count], drawn.volumes[:, :count]
    return problem, Realization(times, volumes)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "iterations", "flows", "policy"),
    [
        ("workload_a", 20, 916, "oes"),
        ("workload_a", 20, 916, "maxmin"),
        ("workload_b", 5, 6222, "oes"),
    ],
)
def test_every_flow_end(name: str, iterations: int, flows: int, policy: str) -> None:
    problem, realization = first_iterations(name, iterations)
    expected = flat.FlatRun(problem, realization, policy)
    expected.run()
    schedule = simulate(problem, realization, policy)
    assert len(schedule.flows()) == flows
    for found, table in (
        (schedule.flow_end, expected.flow_end),
        (schedule.task_end, expected.task_end),
    ):
        np.testing.assert_allclose(found, table, rtol=1e-9, atol=0)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("policy", draws.rarely_but(3, OTHERS))
def test_every_flow_of_workload_a_against_the_oracle(policy: str) -> None:
    problem, realization = first_iterations("workload_a", draws.count(20, few=7))
    expected = reference.run(problem, realization, policy)
    schedule = simulate(problem, realization, policy)
    # Queues amplify: a head that ends later is shared with for longer. The 1e-12 s
    # that the oracle may end a flow early have grown to 1e-8 s after 2.5 s.
    exact = 1e-7 if policy in ("fifo", "aalo") else 1e-9
    for flow, end in expected.flow_end.items():
        assert schedule.flow_end[flow] == pytest.approx(end, rel=exact)
    for event, end in expected.task_end.items():
        assert schedule.task_end[event] == pytest.approx(end, rel=exact)


def test_nic_bounds_as_published() -> None:
    for name, seconds in (("workload_a", 3.174), ("workload_b", 7.948)):
        problem, realization, _ = load_workload(name)
        assert np.round(bounds(problem, realization).nic_load, 3) == seconds
