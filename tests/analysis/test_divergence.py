"""Drifts along the emulated chain sum to the difference of the makespans."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from emu.analysis.critical_path import ELSEWHERE, Cause, divergences
from emu.problem import Realization
from emu.simulation import simulate
from emu.testing import two_machine_example
from tests.analysis.chains import cases, distorted

if TYPE_CHECKING:
    from emu.problem import Problem


@pytest.mark.parametrize("case", cases())
def test_drifts_close(case: tuple[Problem, Realization]) -> None:
    simulated = simulate(*case)
    emulated = distorted(simulated)
    total = math.fsum(drift.seconds for drift in divergences(emulated, simulated))

    assert total == pytest.approx(emulated.makespan - simulated.makespan, abs=1e-9)


@pytest.mark.parametrize("case", cases())
def test_drifts_close_when_the_order_of_events_differs(
    case: tuple[Problem, Realization],
) -> None:
    """Another policy stands for an emulation whose flows end in another order."""
    other, simulated = simulate(*case, "mrtf"), simulate(*case)
    total = math.fsum(drift.seconds for drift in divergences(other, simulated))

    assert total == pytest.approx(other.makespan - simulated.makespan, abs=1e-9)


def test_no_drift_from_itself() -> None:
    schedule = simulate(*two_machine_example(3))

    assert divergences(schedule, schedule) == ()


def test_a_run_of_no_length_does_not_drift() -> None:
    problem, realization = two_machine_example(2)
    nothing = Realization(0.0 * realization.times, 0.0 * realization.volumes)
    schedule = simulate(problem, nothing)
    assert schedule.makespan == 0
    assert divergences(schedule, schedule) == ()


def test_late_task_is_blamed() -> None:
    """The worker computes 2 s longer than replayed: that is all of the difference."""
    problem, realization = two_machine_example(1)
    emulated = simulate(problem, realization)
    emulated.task_end[4:6, 0] += 2.0
    emulated.task_start[5, 0] += 2.0
    emulated.flow_ready[6, 0] += 2.0
    emulated.flow_start[6, 0] += 2.0
    emulated.flow_end[6, 0] += 2.0

    (drift,) = divergences(emulated, simulate(problem, realization))

    assert (drift.cause, drift.link.task, drift.seconds) == (Cause.COMPUTE, 4, 2.0)


def test_waits_of_the_simulation_count_against() -> None:
    """What the simulation waited for elsewhere shortens the difference."""
    case = two_machine_example(3)
    fast, slow = simulate(*case), distorted(simulate(*case))
    causes = {drift.cause for drift in divergences(fast, slow)}

    assert ELSEWHERE in causes


def test_other_job_is_refused() -> None:
    with pytest.raises(ValueError, match="same job"):
        divergences(
            simulate(*two_machine_example(1)), simulate(*two_machine_example(2))
        )
