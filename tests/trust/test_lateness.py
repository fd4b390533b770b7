"""Lateness: what of an emulated schedule is not of the schedule."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.analysis.critical_path import critical_path
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
from emu.trust.lateness import YOUNG, chain_lateness, held_up


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


def _held_up(scale: float, waited: dict[str, float], *, works: bool = False) -> float:
    """Return it of two flows of 3 s, after tasks of 1 s: a of 1, b of 2 iterations."""
    problem = Problem(
        Cluster((Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0))),
        Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), iterations=2),
        Placement((0, 1)),
    )
    made = simulate(problem, Realization(np.full((2, 2), 1.0), np.full((1, 2), 30.0)))
    return held_up(made, waited, scale, critical_path(made), works=works)


def test_waits_delay_the_flows_of_the_critical_path_while_these_are_young() -> None:
    # Flows from 1 to 7 s, all on the path: at scale 0.02 60 ms each, all of it young.
    assert _held_up(0.02, {"a": 0.012}) == pytest.approx(0.012 / 0.02)
    assert _held_up(0.02, {"a": 0.012, "b": 0.006}) == pytest.approx(0.018 / 0.02)
    assert _held_up(0.02, {"a": 0.0, "b": 0.0}) == 0.0
    # At scale 1 the first 0.1 s of each 3 s.
    assert _held_up(1.0, {"a": 0.6}) == pytest.approx(0.6 * YOUNG / 3)
    # A process that computes, too, waits then as well: a from 0 to 2 s, b from 4 on.
    held = _held_up(0.02, {"a": 0.014}, works=True)
    assert held == pytest.approx(0.014 / 0.02 * 6 / 7)


@given(waited=st.floats(0.0, 1e3), scale=st.floats(1e-3, 1e2))
def test_flows_are_held_up_for_no_longer_than_they_last(
    waited: float, scale: float
) -> None:
    assert 0.0 <= _held_up(scale, {"a": waited, "b": waited}) <= 2 * 6 * (1 + 1e-9)
