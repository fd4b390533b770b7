"""Exact results that two simulators written from the rules agreed on."""

from __future__ import annotations

import numpy as np
import pytest

from emu.analysis.bounds import bounds
from emu.scheduling import RATE_POLICIES
from emu.simulation import makespan, simulate
from emu.trust.audit import audit
from tests.golden.cases import Case, cases, exactly, problem_of

CASES = [
    pytest.param(case, policy, id=f"{case}-{policy}")
    for file in ("hops", "executors", "jobs", "ring", "p3", "dgcl", "dorylus")
    for case in cases(file)
    for policy in case.results
    if policy in RATE_POLICIES and not RATE_POLICIES[policy].by_job
]


@pytest.mark.parametrize(("case", "policy"), CASES)
def test_golden(case: Case, policy: str) -> None:
    problem, realization = problem_of(case)
    expected, job = case.results[policy], problem.job
    schedule = simulate(problem, realization, policy, record_rates=True)

    (span,) = exactly([expected["makespan"]])
    assert schedule.makespan == pytest.approx(span, rel=1e-9)
    assert makespan(problem, realization, policy) == schedule.makespan
    for name, ends in expected["task_ends"].items():
        found = schedule.task_end[job.index(name)]
        np.testing.assert_allclose(
            found[: len(ends)], exactly(ends), rtol=1e-9, err_msg=name
        )
        assert np.isnan(found[len(ends) :]).all()
    for name, ends in expected["flow_ends"].items():
        found = schedule.flow_end[job.edge_positions[name]]
        np.testing.assert_allclose(
            found[~np.isnan(found)], exactly(ends), rtol=1e-9, err_msg=name
        )
    for name, read in expected.get("reads", {}).items():
        assert schedule.reads is not None
        found = schedule.reads[job.edge_positions[name]]
        np.testing.assert_array_equal(found, read, err_msg=name)
    assert audit(schedule).passed
    assert bounds(problem, realization).combined <= span * (1 + 1e-9)
