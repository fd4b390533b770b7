"""How fast a job goes, against the golden example's numbers by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given

from emu.analysis.throughput import pace, seeds_per_iteration
from emu.simulation import simulate
from emu.testing import two_machine_example
from emu.testing.strategies import problems

if TYPE_CHECKING:
    from emu.problem import Problem, Realization


def test_the_golden_example() -> None:
    """38 s for three iterations; its one worker takes 3 s in each."""
    problem, realization = two_machine_example(3)
    job = replace(problem.job, settings={"batch_size": 50, "workers": 1})
    schedule = simulate(replace(problem, job=job), realization)
    found = pace(schedule)
    ends = schedule.task_end.max(axis=0)

    assert found.iteration_seconds == pytest.approx((38 - ends[0]) / 2)
    assert found.samples_per_second == 50 / found.iteration_seconds
    assert found.busy == pytest.approx(9 / 38)
    assert next(iter(found.critical_path)) == "transfer"


def test_a_job_without_batches_has_no_samples() -> None:
    assert pace(simulate(*two_machine_example(1))).samples_per_second is None
    assert seeds_per_iteration({"jobs": {"a": {"batch_size": 50}}}) is None


@given(problems())
def test_the_parts_of_the_critical_path_sum_to_it(
    drawn: tuple[Problem, Realization],
) -> None:
    schedule = simulate(*drawn)
    found = pace(schedule)

    if schedule.makespan:
        assert np.isclose(sum(found.critical_path.values()), 1.0)
    assert found.busy is None or 0 <= found.busy <= 4  # tasks of a process overlap
