"""The worked example with every number known, exactly."""

from __future__ import annotations

import pytest

from emu.simulation import makespan, simulate
from emu.testing import two_machine_example

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
