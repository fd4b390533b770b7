"""What lateness does to the makespan, held against the online run that undergoes it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from typing_extensions import override

from emu.prediction.simulation import makespan, simulate
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
from emu.testing import two_machine_example
from emu.testing.strategies import problems
from emu.trust.lateness import delay, effect_of_slight_delays, late_times
from tests.emulation.coordinator.virtual import LateProcesses, drive
from tests.fidelity.corpus import RULES


def moved_by(
    problem: Problem,
    realization: Realization,
    policy: str,
    tasks: NDArray[np.float64],
    flows: NDArray[np.float64],
) -> float:
    """Return the share by which the makespan changes with these ends late."""
    profile = Profile(realization.times, realization.volumes)
    schedule = simulate(problem, realization, policy, profile=profile)
    late = delay(realization, schedule, tasks=tasks, flows=flows)
    return makespan(problem, late, policy, profile=profile) / schedule.makespan - 1


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
@settings.get_profile("each_rule")
@given(problems())
def test_what_is_on_time_changes_nothing(
    policy: str, drawn: tuple[Problem, Realization]
) -> None:
    problem, realization = drawn
    profile = Profile(realization.times, realization.volumes)
    schedule = simulate(problem, realization, policy, profile=profile)

    late = delay(
        realization,
        schedule,
        tasks=np.zeros_like(realization.times),
        flows=np.zeros_like(realization.volumes),
    )

    np.testing.assert_array_equal(late.times, realization.times)
    np.testing.assert_array_equal(late.volumes, realization.volumes)


def test_a_latency_leaves_less_slack() -> None:
    """From a 30 bytes end at 3 s and land at 5; c ends at 6, so b has 1 s of slack."""
    machines = Machine("m0", 10.0, 10.0, latency_out=2.0), Machine("m1", 10.0, 10.0)
    tasks = Task("a", "a"), Task("b", "b"), Task("c", "c")
    job = Job(tasks, (Edge(0, 1), Edge(2, 1)), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 1)))
    realization = Realization(
        np.array([[0.0], [1.0], [6.0]]), np.array([[30.0], [0.0]])
    )
    schedule = simulate(problem, realization)
    assert schedule.task_start[1, 0] == 6

    late = delay(
        realization,
        schedule,
        tasks=np.array([[0.0], [0.25], [0.0]]),
        flows=np.array([[2.5], [0.0]]),
    )

    # What b itself is late by comes on top of what it waits for longer.
    assert late.times[:, 0].tolist() == [0.0, 1.0 + 1.5 + 0.25, 6.0]


@pytest.mark.parametrize("policy", RULES)
@settings.get_profile("each_rule")
@given(problems(), st.integers(0, 10**6), st.floats(0.1, 5.0))
def test_one_late_flow_or_task_does_what_it_does_to_the_online_run(
    policy: str, drawn: tuple[Problem, Realization], place: int, seconds: float
) -> None:
    problem, realization = drawn
    recorder, _ = drive(problem, realization, policy)
    on_time = recorder.schedule()
    sent = np.argwhere(np.nan_to_num(on_time.flow_bytes) > 0)
    remote = np.array([bool(hops) for hops in problem.hops])
    sent = sent[remote[sent[:, 0]]] if len(sent) else sent
    assume(on_time.makespan > 0)
    flows, tasks = np.zeros_like(realization.volumes), np.zeros_like(realization.times)
    if len(sent) and place % 2:
        flows[tuple(sent[place // 2 % len(sent)])] = seconds
    else:
        tasks.reshape(-1)[place // 2 % tasks.size] = seconds

    processes = Late(problem, realization, tasks, flows)
    recorder, _ = drive(problem, realization, policy, wakes=True, processes=processes)
    schedule = recorder.schedule()
    queued = schedule.flow_ready[:, 1:] < schedule.flow_end[:, :-1]
    assume(not (queued & (flows[:, :-1] > 0)).any())

    expected = float(np.nanmax(recorder.task_end)) / on_time.makespan - 1
    found = moved_by(problem, realization, policy, tasks, flows)
    assert found == pytest.approx(expected, abs=1e-9)


def test_slack_takes_lateness_up() -> None:
    """w0 needs what s0 hands over at 6 s and s1's flow of 12 s; p0 ends last."""
    problem, realization = two_machine_example(1)
    none = np.zeros_like(realization.volumes)
    slack, critical = np.zeros_like(realization.times), np.zeros_like(realization.times)
    slack[2], critical[5] = 0.5, 1.7

    assert moved_by(problem, realization, "oes", slack, none) == 0.0
    assert moved_by(problem, realization, "oes", critical, none) == pytest.approx(0.1)


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
    policy, late = "mrtf_exclusive", np.array([[0.01], [0.0], [0.0], [0.0]])
    schedule = simulate(problem, realization, policy)

    moved = moved_by(problem, realization, policy, late, np.zeros((2, 1)))
    assert moved == pytest.approx(1.0001 / 21, rel=0.01)
    # By 2 ms, a ten-thousandth of its iteration, x is later than y in every other
    # draw: mostly more than the 0.1 ms that it takes.
    found = effect_of_slight_delays(realization, policy, None, schedule)
    assert found == pytest.approx(1.0001 / 21, rel=0.03)


@pytest.mark.parametrize("lag", [3, 4, 6])
def test_what_no_iteration_is_left_to_read_has_no_slack(lag: int) -> None:
    """Of three iterations; a ends late, which nobody waits for."""
    machines = Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0)
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1, lag=lag),), 3)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    realization = Realization(np.ones((2, 3)), np.full((1, 3), 10.0))
    schedule = simulate(problem, realization)

    late = delay(
        realization, schedule, tasks=np.zeros((2, 3)), flows=np.full((1, 3), 9.0)
    )

    assert late.times.tolist() == realization.times.tolist()


def test_of_slight_delays_the_largest_shift_of_either_sign_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of eight draws the third makes the run shorter by 4 %; ends are late by 1e-4."""
    problem, realization = two_machine_example(20)
    schedule = simulate(problem, realization)
    shifts = iter([0.01, 0.02, -0.04, 0.03, -0.01, 0.0, 0.02, 0.01])
    drawn = []

    def shifted(_: Problem, late: Realization, **_options: object) -> float:
        drawn.append(late.times - realization.times)
        return schedule.length * (1 + next(shifts))

    monkeypatch.setattr("emu.trust.lateness.makespan", shifted)
    found = effect_of_slight_delays(realization, "oes", None, schedule)

    assert found == pytest.approx(0.04)
    assert len(drawn) == 8
    # Tasks alone, half of 960: what flows add is not always slack.
    iteration = schedule.length / 20
    assert 0.8e-4 < np.mean(drawn) / iteration < 4e-4


def test_what_has_no_bytes_is_never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws are those of a job without any flow, which takes as long."""
    machines = Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0)
    tasks = Task("a", "a"), Task("b", "b")
    drawn: list[list[float]] = []

    def keep(_: Problem, late: Realization, **_options: object) -> float:
        drawn.append(late.times[:, 0].tolist())
        return 1.0

    monkeypatch.setattr("emu.trust.lateness.makespan", keep)
    for edges in [(), (Edge(0, 1),)]:
        problem = Problem(Cluster(machines), Job(tasks, edges, 1), Placement((0, 1)))
        run = Realization(np.array([[0.0], [2.0]]), np.zeros((len(edges), 1)))
        effect_of_slight_delays(run, "oes", None, simulate(problem, run))

    assert len(drawn) == 16
    assert drawn[:8] == drawn[8:]


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_what_no_order_hangs_on_is_not_sensitive(scale: float) -> None:
    """Nor is a run of a part of a second, by as much."""
    problem, drawn = two_machine_example(20)
    realization = Realization(scale * drawn.times, scale * drawn.volumes)
    schedule = simulate(problem, realization, "oes")
    assert (schedule.length < 1) == (scale < 1)

    assert 0 < effect_of_slight_delays(realization, "oes", None, schedule) < 0.001


def test_a_job_that_takes_no_time_is_not_sensitive() -> None:
    problem, realization = two_machine_example(1)
    nothing = Realization(0 * realization.times, 0 * realization.volumes)

    assert (
        effect_of_slight_delays(nothing, "oes", None, simulate(problem, nothing, "oes"))
        == 0.0
    )


@pytest.mark.parametrize("policy", ["oes", "maxmin"])
@settings(max_examples=60, deadline=None)
@given(drawn=problems(channels=True))
def test_where_nothing_came_late_tasks_take_their_own_time(
    policy: str, drawn: tuple[Problem, Realization]
) -> None:
    """A flow without bytes that waits for its turn on a channel is no late one."""
    problem, realization = drawn
    made = simulate(problem, realization, policy, record_rates=True)
    known = replace(made, task_settled=made.task_end, flow_settled=made.flow_end)

    found = late_times(known)

    ran = ~np.isnan(made.task_end)
    assert found[ran] == pytest.approx(realization.times[ran], abs=1e-9)
