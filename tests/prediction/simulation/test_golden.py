"""Exact results: of the worked example, and of what two simulators agreed on."""

from __future__ import annotations

import numpy as np
import pytest

from emu.prediction.analysis.bounds import bounds
from emu.prediction.scheduling import RATE_POLICIES
from emu.prediction.simulation import makespan, simulate
from emu.testing import two_machine_example
from emu.trust.audit import audit
from tests.golden.cases import Case, cases, exactly, problem_of

FLOW_ENDS = {
    "g0->s1": [5, 9, 13],
    "g1->s0": [5, 12, 20],
    "s1->w0": [18, 26, 33],
    "w0->p0": [22, 30, 37],
    "p0->w0": [25, 33],
}


@pytest.mark.parametrize(
    ("iterations", "expected"), [(1, 17.0), (2, 27.0), (3, 38.0), (10, 115.0)]
)
def test_makespan(iterations: int, expected: float) -> None:
    problem, realization = two_machine_example(iterations)
    assert makespan(problem, realization) == expected
    assert simulate(problem, realization).makespan == expected


def test_flow_ends() -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization)
    ends: dict[str, list[float]] = {}
    for edge, iteration in schedule.flows():
        name = problem.job.edge_names[edge]
        ends.setdefault(name, []).append(schedule.flow_end[edge, iteration])
    assert ends == FLOW_ENDS


@pytest.mark.parametrize(("nic", "expected"), [(5.0, 225.0), (2.0, 555.0)])
def test_slow_nic(nic: float, expected: float) -> None:
    assert makespan(*two_machine_example(10, second_nic=nic)) == expected


@pytest.mark.parametrize(
    ("nic", "expected"), [(10.0, 86.0), (5.0, 166.0), (2.0, 406.0)]
)
def test_all_on_one_machine(nic: float, expected: float) -> None:
    problem, realization = two_machine_example(10, second_nic=nic, together=True)
    assert makespan(problem, realization) == expected


@pytest.mark.parametrize(
    ("credit", "iterations", "expected"),
    [(1, 3, 47.0), (1, 10, 152.0), (2, 3, 38.0), (2, 10, 115.0), (5, 10, 115.0)],
)
def test_credit_window(credit: int, iterations: int, expected: float) -> None:
    problem, realization = two_machine_example(iterations, credit=credit)
    assert makespan(problem, realization) == expected


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
