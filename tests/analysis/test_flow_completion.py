"""Finish of flows against the integral of their rates, by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from emu.simulation import simulate
from emu.testing.problems import two_machine_example
from emu.trust.lateness import flow_completion


def test_simulated_flows_end_when_their_fluid_does() -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization, "oes", record_rates=True)

    finish = flow_completion(schedule, time_scale=3.0)

    assert len(finish.error) == len(schedule.flows()) > 0
    assert np.abs(finish.error).max() < 1e-9
    at = tuple(schedule.flows().T)
    lengths = (schedule.flow_end - schedule.flow_start)[at]
    assert finish.length == pytest.approx(3.0 * lengths)


def test_what_is_late_is_held_against_its_length_or_two_milliseconds() -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization, "oes", record_rates=True)
    late = schedule.flow_end.copy()
    flows = [tuple(at) for at in schedule.flows().tolist()]
    late[flows[0]] += 0.003
    late[flows[1]] -= 0.001
    run = dataclasses.replace(schedule, flow_end=late)

    finish = flow_completion(run, time_scale=2.0)

    assert finish.error[:3] == pytest.approx([0.006, -0.002, 0.0], abs=1e-9)
    allowed = np.maximum(0.01 * finish.length[:2], 0.002)
    assert finish.excess[:2] == pytest.approx([0.006, 0.002] / allowed)
    assert finish.share[0] == pytest.approx(0.006 / finish.length[0])
