"""What the scheduler underwent, simulated, is the run: in every order, late or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emu.emulation.coordinator.outcome import Recorder
from emu.prediction.analysis.link_load import fluid_ends
from emu.prediction.simulation import makespan
from emu.problem import Problem, Profile, Realization
from emu.testing.strategies import problems
from emu.trust.lateness import HostEffect, host_effect, late_times
from tests.emulation.coordinator.virtual import (
    LateProcesses,
    PromptProcesses,
    drive,
    drive_ahead,
)
from tests.fidelity.corpus import RULES


def _waited_for_an_arrival(recorder: Recorder) -> bool:
    """Tell whether a flow began when the one before on its edge arrived, late."""
    schedule = recorder.schedule()
    due, begun = fluid_ends(schedule)[:, :-1], schedule.flow_start[:, 1:]
    source = [edge.source for edge in schedule.problem.job.edges]
    assert schedule.task_settled is not None
    settled = schedule.task_settled[source, 1:]
    return bool(((begun > due + 1e-9) & (begun > settled + 1e-9)).any())


def with_lateness(recorder: Recorder) -> Realization:
    times = late_times(recorder.schedule())
    return Realization(times, recorder.realization().volumes)


def _effect(
    problem: Problem, realization: Realization, policy: str, late: LateProcesses | None
) -> HostEffect:
    recorder, _ = drive(problem, realization, policy, processes=late)
    assume(not _waited_for_an_arrival(recorder))
    end = float(np.nanmax(recorder.task_end))
    return host_effect(
        problem,
        policy,
        Profile(realization.times, realization.volumes),
        emulated=end,
        simulated=end,
        measured=recorder.realization(),
        perturbed=with_lateness(recorder),
        late=late.late if late else np.zeros_like(realization.times),
    )


@pytest.mark.parametrize("policy", RULES)
@settings.get_profile("each_rule")
@given(problems(), st.integers(0, 2**32))
def test_a_late_run_is_repeated(
    policy: str, drawn: tuple[Problem, Realization], seed: int
) -> None:
    late = LateProcesses(*drawn, np.random.default_rng(seed))

    effect = _effect(*drawn, policy, late)

    assert effect.repeated == pytest.approx(effect.emulated, rel=1e-6)


@given(problems(), st.integers(0, 2**32), st.sampled_from(RULES))
def test_the_error_is_what_the_end_was_moved_by(
    drawn: tuple[Problem, Realization], seed: int, policy: str
) -> None:
    problem, realization = drawn
    profile = Profile(realization.times, realization.volumes)
    ideal = makespan(problem, realization, policy, profile=profile)

    effect = _effect(*drawn, policy, LateProcesses(*drawn, np.random.default_rng(seed)))

    assert effect.punctual == pytest.approx(ideal, rel=1e-6)
    moved = abs(effect.emulated - ideal)
    assert effect.error * ideal == pytest.approx(moved, rel=1e-5, abs=1e-6)


@given(problems(), st.sampled_from(RULES), st.integers(0, 2**32))
def test_a_run_settled_ahead_was_not_moved(
    drawn: tuple[Problem, Realization], policy: str, seed: int
) -> None:
    problem, realization = drawn
    prompt = PromptProcesses(problem, realization, np.random.default_rng(seed))

    recorder = drive_ahead(problem, realization, policy, 30.0, prompt)

    perturbed = with_lateness(recorder).times
    np.testing.assert_allclose(perturbed, realization.times, atol=1e-9)


@given(problems(), st.sampled_from(RULES))
def test_a_perfect_run_was_not_moved(
    drawn: tuple[Problem, Realization], policy: str
) -> None:
    effect = _effect(*drawn, policy, None)

    assert effect.error == pytest.approx(0.0, abs=1e-6)
    assert effect.punctual == pytest.approx(effect.emulated, rel=1e-6)
