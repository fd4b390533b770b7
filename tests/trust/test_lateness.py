"""Lateness: what of an emulated schedule is not of the schedule."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.analysis.link_load import fluid_ends
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    RateHistory,
    Realization,
    Schedule,
    Task,
)
from emu.simulation import simulate
from emu.testing import two_machine_example
from emu.trust.lateness import chain_lateness


def _simulated(iterations: int = 4) -> Schedule:
    return simulate(*two_machine_example(iterations), record_rates=True)


def test_in_a_simulation_every_flow_ends_with_its_fluid() -> None:
    schedule = _simulated()
    at = tuple(schedule.flows().T)

    np.testing.assert_allclose(fluid_ends(schedule)[at], schedule.flow_end[at])


def test_a_simulation_is_never_late() -> None:
    schedule = _simulated()

    late = chain_lateness(schedule, np.zeros(schedule.task_end.shape))

    assert late.seconds == pytest.approx(0.0, abs=1e-9)


@given(delay=st.floats(1e-3, 5.0))
def test_the_delay_of_the_only_flow_is_the_lateness(delay: float) -> None:
    problem = Problem(
        Cluster((Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0))),
        Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), iterations=1),
        Placement((0, 1)),
    )
    times, volumes = np.array([[1.0], [2.0]]), np.array([[30.0]])
    schedule = simulate(problem, Realization(times, volumes), record_rates=True)
    shift = np.array([[0.0], [delay]])
    delayed = dataclasses.replace(
        schedule,
        flow_end=schedule.flow_end + delay,
        task_start=schedule.task_start + shift,
        task_end=schedule.task_end + shift,
    )

    late = chain_lateness(delayed, np.array([[0.0], [0.25]]))

    assert late.flows == pytest.approx(delay)
    assert late.tasks == 0.25
    assert late.gaps == 0.0


def test_time_between_parts_is_a_gap() -> None:
    schedule = _simulated()
    later = dataclasses.replace(
        schedule,
        task_start=schedule.task_start.copy(),
        task_end=schedule.task_end.copy(),
    )
    last = int(schedule.task_end[:, -1].argmax())
    later.task_start[last, -1] += 0.5
    later.task_end[last, -1] += 0.5

    late = chain_lateness(later, np.zeros(schedule.task_end.shape))

    assert late.gaps == pytest.approx(0.5)


def test_without_rates_there_is_no_fluid() -> None:
    with pytest.raises(ValueError, match="no rates"):
        fluid_ends(simulate(*two_machine_example(1)))


def test_a_fluid_ends_with_its_last_byte_whatever_rates_follow() -> None:
    schedule = _simulated(1)
    flow = np.array([1, 1, 1]), np.array([0, 0, 0])
    rates = RateHistory(np.array([1.0, 6.0, 7.0]), *flow, np.array([10.0, 5.0, 0.0]))

    ends = fluid_ends(dataclasses.replace(schedule, rates=rates))

    assert ends[1, 0] == 5.0  # 40 bytes


def test_what_no_rate_ever_carried_has_no_end() -> None:
    schedule = _simulated(1)
    nothing = np.empty(0, dtype=np.int64)
    none = RateHistory(np.empty(0), nothing, nothing, np.empty(0))
    half = RateHistory(
        np.array([0.0, 1.0]), np.array([1, 1]), np.array([0, 0]), np.array([1.0, 0.0])
    )

    for rates in (none, half):
        ends = fluid_ends(dataclasses.replace(schedule, rates=rates))
        assert np.isnan(ends).all()
