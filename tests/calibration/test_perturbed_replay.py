"""What lateness does to the makespan, held against the online run that undergoes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from typing_extensions import override

from emu.calibration.perturbed_replay import LateReplay, moving
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
from emu.simulation import simulate
from emu.testing import two_machine_example
from emu.testing.strategies import problems
from tests.coordinator.virtual import LateProcesses, drive
from tools.fidelity_study.corpus import RULES

if TYPE_CHECKING:
    from numpy.typing import NDArray


def replay_of(problem: Problem, realization: Realization, policy: str) -> LateReplay:
    """Return the replay of a simulation whose policy expects what happens."""
    profile = Profile(realization.times, realization.volumes)
    schedule = simulate(problem, realization, policy, profile=profile)
    return LateReplay(problem, realization, policy, profile, schedule)


class Late(LateProcesses):
    """Processes that are late by what is said, and tell of it at once."""

    def __init__(
        self,
        problem: Problem,
        realization: Realization,
        tasks: NDArray[np.float64],
        flows: NDArray[np.float64],
    ) -> None:
        super().__init__(problem, realization, np.random.default_rng(0))
        self.late, self._behind = tasks, flows

    @override
    def withholds(self) -> bool:
        return False


@pytest.mark.parametrize("policy", RULES)
@given(problems())
def test_what_is_punctual_changes_nothing(
    policy: str, drawn: tuple[Problem, Realization]
) -> None:
    replay = replay_of(*drawn, policy)

    flows, tasks = np.zeros_like(replay.flow_ends), np.zeros_like(replay.task_ends)

    assert replay.error(flows, tasks) == 0.0


@pytest.mark.parametrize("policy", RULES)
@given(problems(), st.integers(0, 10**6), st.floats(0.1, 5.0))
def test_one_late_flow_or_task_does_what_it_does_to_the_online_run(
    policy: str, drawn: tuple[Problem, Realization], place: int, seconds: float
) -> None:
    problem, realization = drawn
    replay = replay_of(problem, realization, policy)
    recorder, _ = drive(problem, realization, policy)
    punctual = recorder.schedule()
    flow = moving(punctual)
    assume(punctual.makespan > 0)
    ends, tasks = np.zeros_like(replay.flow_ends), np.zeros_like(replay.task_ends)
    late = ends if len(ends) and place % 2 else tasks.reshape(-1)
    late[place // 2 % len(late)] = seconds
    flows = np.zeros_like(realization.volumes)
    flows[flow] = ends

    processes = Late(problem, realization, tasks, flows)
    recorder, _ = drive(problem, realization, policy, wakes=True, processes=processes)
    queued = (
        recorder.schedule().flow_ready[:, 1:] < recorder.schedule().flow_end[:, :-1]
    )
    assume(not (queued & (flows[:, :-1] > 0)).any())

    expected = float(np.nanmax(recorder.task_end)) / punctual.makespan - 1
    assert replay.error(ends, tasks) == pytest.approx(abs(expected), abs=1e-9)


def test_slack_takes_lateness_up() -> None:
    """w0 needs what s0 hands over at 6 s and s1's flow of 12 s; p0 ends last."""
    replay = replay_of(*two_machine_example(1), "oes")
    flows = np.zeros_like(replay.flow_ends)
    slack, critical = np.zeros_like(replay.task_ends), np.zeros_like(replay.task_ends)
    slack[2], critical[5] = 0.5, 1.7

    assert replay.error(flows, slack) == 0.0
    assert replay.error(flows, critical) == pytest.approx(1.7 / 17.0)


def test_a_delay_that_flips_an_order_counts_for_what_it_does() -> None:
    """Two flows share a port; the shorter goes first, and who it feeds computes long.

    By itself x (10 bytes) precedes y (10.001): u starts at 1 s and ends at 21. With x
    later by 0.01 s y has begun, has less left and goes first: u ends at 22.
    """
    names = ["x", "y", "u", "v"]
    job = Job(
        tuple(Task(name, "t") for name in names), (Edge(0, 2, 0), Edge(1, 3, 0)), 1
    )
    cluster = Cluster((Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0)))
    problem = Problem(cluster, job, Placement((0, 0, 1, 1)))
    realization = Realization(
        np.array([[0.0], [0.0], [20.0], [1.0]]), np.array([[10.0], [10.001]])
    )
    replay = replay_of(problem, realization, "mrtf_exclusive")
    late = np.array([[0.01], [0.0], [0.0], [0.0]])

    assert replay.error(np.zeros(2), late) == pytest.approx(1.0001 / 21, rel=0.01)
    # By 2 ms, a ten-thousandth of its iteration, x is later than y in every other
    # draw: mostly more than the 0.1 ms that it takes.
    assert replay.sensitivity == pytest.approx(1.0001 / 21, rel=0.03)


def test_what_no_order_hangs_on_is_not_sensitive() -> None:
    replay = replay_of(*two_machine_example(20), "oes")

    assert 0 < replay.sensitivity < 0.001
