"""Timings of the simulator; without --benchmark-enable each body runs once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from emu.prediction.scheduling import End, Scheduler
from emu.prediction.simulation import simulate
from emu.testing import two_machine_example
from tools.benches.evaluator import MakespanEvaluator
from tools.benches.workloads import bench_directory, load_workload

pytestmark = pytest.mark.skipif(
    bench_directory() is None, reason="EMU_BENCH does not name the workloads"
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("policy", ["oes", "maxmin", "oes_cp", "mrtf"])
@pytest.mark.parametrize("name", ["workload_a", "workload_b"])
def test_makespan_only(benchmark: BenchmarkFixture, name: str, policy: str) -> None:
    problem, realization, expected = load_workload(name)
    evaluator = MakespanEvaluator(problem.job, problem.cluster, policy)
    machine_of = np.array(problem.placement.machine_of)
    span = benchmark(evaluator.makespan, machine_of, realization)
    if policy in expected:
        assert span == pytest.approx(expected[policy], abs=1e-9)
    assert span > 3


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["workload_a", "workload_b"])
def test_full_schedule(benchmark: BenchmarkFixture, name: str) -> None:
    problem, realization, expected = load_workload(name)
    schedule = benchmark(simulate, problem, realization)
    assert schedule.makespan == pytest.approx(expected["oes"], abs=1e-9)


@pytest.mark.timeout(300)
def test_one_event_of_the_scheduler(benchmark: BenchmarkFixture) -> None:
    """One task end and the settling after it, from Python."""
    problem, _ = two_machine_example(2)

    def begun() -> tuple[tuple[Scheduler], dict[str, object]]:
        scheduler = Scheduler(problem, "oes")
        scheduler.begin()
        return (scheduler,), {}

    def event(scheduler: Scheduler) -> int:
        scheduler.announce(0, 0, {0: 40.0, 1: 40.0})
        return len(scheduler.settle([End(1.0, 0, -1, 0)]).decisions[0].flows)

    timed: Any = benchmark  # its pedantic carries no types
    assert timed.pedantic(event, setup=begun, rounds=200) == 1
