"""What the scheduler underwent, simulated, is the run: in every order, late or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from emu.emulation.coordinator.outcome import Recorder
from emu.prediction.analysis.link_load import fluid_ends
from emu.prediction.simulation import makespan
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Profile,
    Realization,
    Task,
)
from emu.testing.strategies import problems
from emu.trust.lateness import HostEffect, Lateness, host_effect, late_times
from emu.trust.verdict import HostFigures, Trust, decide
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


class LateLastBytes(LateProcesses):
    """Processes to which every last byte comes late, and whose last task is late."""

    def __init__(
        self,
        problem: Problem,
        realization: Realization,
        *,
        flows: float,
        last_task: float,
    ) -> None:
        super().__init__(problem, realization, np.random.default_rng(0))
        self.late = np.zeros_like(realization.times)
        self.late[-1, -1] = last_task
        self._behind = np.full_like(realization.volumes, flows)

    @override
    def withholds(self) -> bool:
        return False


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


@pytest.mark.parametrize(
    ("flows", "last_task", "trust"),
    [(0.01, 0.06, Trust.DEGRADED), (0.005, 0.03, Trust.TRUSTED)],
)
def test_a_run_off_by_more_than_may_be_is_not_trusted(
    flows: float, last_task: float, trust: Trust
) -> None:
    """Ten flows of 1 s on one edge, of which each waits for the one before.

    1 % may be. Its end is 1.6 % off: 0.7 % are of what came late last, and 0.9 % of
    flows that waited, which no repetition shows. Each is less than 1 %.
    """
    tasks = (Task("source", "x"), Task("reader", "x"))
    cluster = Cluster((Machine("m0", 1.0, 1.0), Machine("m1", 1.0, 1.0)))
    job = Job(tasks, (Edge(0, 1),), 10)
    problem = Problem(cluster, job, Placement((0, 1)))
    realization = Realization(np.full((2, 10), 1e-6), np.ones((1, 10)))
    late = LateLastBytes(problem, realization, flows=flows, last_task=last_task)
    recorder, _ = drive(problem, realization, "maxmin", processes=late)
    end = float(np.nanmax(recorder.task_end))
    measured = recorder.realization()

    effect = host_effect(
        problem,
        "maxmin",
        Profile(realization.times, realization.volumes),
        emulated=end,
        simulated=makespan(problem, measured, "maxmin"),
        measured=measured,
        perturbed=with_lateness(recorder),
        late=late.late,
    )
    verdict = decide(
        effect,
        Lateness(0.0, 0.0, 0.0),
        HostFigures(),
        time_scale=1.0,
        max_error=0.01,
        processes=2,
    )

    assert effect.error < 0.01
    assert effect.uncertainty < 0.01
    off = end / effect.punctual - 1
    assert effect.shift == pytest.approx(off, rel=1e-6)
    assert off == pytest.approx((10 * flows + last_task) / 10, rel=1e-4)
    assert verdict.trust is trust
