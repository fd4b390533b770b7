"""The peer benchmark's workloads, on whose makespans independent simulators agree.

``EMU_BENCH`` names the directory that holds them.
"""

from __future__ import annotations

import numpy as np
import pytest

from emu.simulation import bounds, makespan, simulate
from emu.testing import bench_directory, load_workload

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


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("policy", ["oes", "maxmin"])
def test_every_flow_of_workload_a_against_the_oracle(
    oracle: object, policy: str
) -> None:
    problem, realization, _ = load_workload("workload_a")
    expected = oracle.run(problem, realization, policy)  # type: ignore[attr-defined]
    schedule = simulate(problem, realization, policy)
    assert len(schedule.flows()) == 916
    for flow, end in expected.flow_end.items():
        assert schedule.flow_end[flow] == pytest.approx(end, rel=1e-9)
    for event, end in expected.task_end.items():
        assert schedule.task_end[event] == pytest.approx(end, rel=1e-9)


def test_nic_bounds_as_published() -> None:
    for name, seconds in (("workload_a", 3.174), ("workload_b", 7.948)):
        problem, realization, _ = load_workload(name)
        assert np.round(bounds(problem, realization).nic_load, 3) == seconds
