"""Checkpoints as flows, done by hand: one task of 1 s, a NIC of 10 bytes per second."""

from __future__ import annotations

import numpy as np
import pytest

from emu.prediction.simulation import simulate
from emu.prediction.simulation.attempts import Rules, attempts
from emu.problem import (
    Cluster,
    Job,
    Kill,
    Machine,
    Placement,
    Problem,
    Realization,
    Schedule,
    Task,
)
from emu.problem.workloads import copies_of, without_copies
from emu.problem.workloads.copies import (
    copy_names,
    count_copy_bytes,
    with_copies,
    with_peers,
)

CLUSTER = Cluster(tuple(Machine(f"m{n}", 10.0, 10.0) for n in range(3)))
PLAIN = Job((Task("a", "worker"),), (), 10)
JOB = with_copies(PLAIN, ["a"], 4, 0)


def made(size: float) -> tuple[Problem, Realization]:
    placement = with_peers(JOB, CLUSTER, Placement((1,)), {}, 3)
    times = np.vstack([np.ones(10), np.zeros(10)])
    volumes = count_copy_bytes(JOB, {"a": np.full(10, size)}, 4)
    return Problem(CLUSTER, JOB, placement), Realization(times, volumes)


def test_a_copy_delays_no_task() -> None:
    """30 bytes take 3 s, sent at 5 and 9 s, when iterations 4 and 8 end."""
    schedule = simulate(*made(30.0))
    assert schedule.task_end[0].tolist() == list(range(1, 11))
    assert schedule.task_end[1, [3, 4, 7, 8]] == pytest.approx([4, 8, 8, 12])
    assert np.isnan(schedule.task_end[1, 9])  # no cut comes any more
    assert schedule.makespan == pytest.approx(12.0)


def test_one_copy_at_a_time_is_on_its_way() -> None:
    """60 bytes take 6 s: iteration 8, which sends the next, waits until 11 s."""
    schedule = simulate(*made(60.0))
    assert schedule.task_start[0, [7, 8, 9]] == pytest.approx([7, 11, 12])
    assert schedule.makespan == pytest.approx(18.0)


@pytest.mark.parametrize(("time", "cut"), [(7.9, 0), (8.1, 4)])
def test_a_copy_counts_when_it_has_come(time: float, cut: int) -> None:
    problem, run = made(30.0)

    def part(first: int, began: float) -> Schedule:
        left = problem.beginning_at(first, began)
        return simulate(left, run.beginning_at(first, problem.job))

    rules = Rules(1, 0.5, 4, (0,), copies=(1,))
    (killed,) = attempts(part, [Kill(time, "a", ("a",))], rules).killed
    assert killed.next_iteration == cut
    assert killed.again == pytest.approx(time - cut)


@pytest.mark.parametrize(("iterations", "missed", "last"), [(8, 0, 4), (9, 1, 4)])
def test_a_copy_is_of_the_state_before_its_cut_and_of_none_after_the_last(
    iterations: int, missed: int, last: int
) -> None:
    job = with_copies(Job(PLAIN.tasks, (), iterations), ["a"], 4, missed)
    assert job.rounds[1] == last + missed + 1
    volumes = count_copy_bytes(job, {"a": np.arange(100.0, 100.0 + iterations)}, 4)
    sent = np.flatnonzero(volumes[0]).tolist()
    assert sent == [last + missed]
    assert volumes[0, sent[0]] == 100.0 + last


def test_a_job_without_its_copies_is_the_job() -> None:
    assert without_copies(JOB) == PLAIN
    assert copies_of(JOB) == {"a": 1}
    assert copy_names(JOB) == {"a.copy"}
    assert copies_of(PLAIN) == {}
    assert without_copies(PLAIN) is PLAIN
    assert count_copy_bytes(PLAIN, {}, 4).shape == (0, 10)


def test_a_copy_stands_on_the_next_machine_round() -> None:
    for there, peer in ((0, 1), (1, 2), (2, 0)):
        found = with_peers(JOB, CLUSTER, Placement((there,)), {}, 3)
        assert found.machine_of == (there, peer)
    last = with_peers(JOB, CLUSTER, Placement((1,)), {}, 2)  # m2 is a function
    assert last.machine_of == (1, 0)
    stated = with_peers(JOB, CLUSTER, Placement((0,)), {"a.copy": "m2"}, 3)
    assert stated.machine_of == (0, 2)
    beside = with_peers(JOB, CLUSTER, Placement((0,)), {"a.copy": "m0"}, 3)
    assert beside.machine_of == (0, 1)
    with pytest.raises(ValueError, match="a stands on m0, and no machine is next to"):
        with_peers(JOB, CLUSTER, Placement((0,)), {}, 1)


def test_a_copy_can_die_as_long_as_the_job_lasts() -> None:
    """Its last cut comes at 12 s; the state that it keeps dies with it later, too."""
    problem, run = made(1.0)
    slow = Realization(run.times * 2, run.volumes)

    def part(first: int, began: float) -> Schedule:
        left = problem.beginning_at(first, began)
        return simulate(left, slow.beginning_at(first, problem.job))

    def goes_on(*victims: str) -> int:
        kills = [Kill(19.0, "m", victims)]
        rules = Rules(1, 0.5, 4, (0,), copies=(1,))
        (killed,) = attempts(part, kills, rules).killed
        return killed.next_iteration

    assert part(0, 0.0).task_end[1, 8] < 19.0
    assert goes_on("a") == goes_on("a.copy") == 8
    assert goes_on("a", "a.copy") == 0


@pytest.mark.parametrize(
    ("rounds", "missed", "iterations"),
    # Of six iterations the cuts before the third and the fifth are sent, of two none.
    [(6, 0, 5), (7, 0, 7), (6, 1, 6), (2, 0, 1), (3, 0, 3), (4, 3, 1)],
)
def test_copies_end_with_the_last_cut_of_their_task(
    rounds: int, missed: int, iterations: int
) -> None:
    """Every two iterations of a task that may run less often than the job."""
    task = Task("a", "worker", iterations=rounds)
    job = with_copies(Job((Task("b", "x"), task), (), 10), ["a"], 2, missed)

    copy = job.tasks[2]
    assert (copy.name, copy.iterations, copy.behind) == ("a.copy", iterations, missed)
    state, credit = job.edges
    assert (state.source, state.destination, state.lag, state.credit) == (
        1,
        2,
        0,
        False,
    )
    assert (credit.source, credit.destination, credit.lag) == (2, 1, 2)
    assert credit.credit


def test_a_copy_is_of_the_state_before_each_cut() -> None:
    """Cuts before iterations 2 and 4 find 4 and 16 bytes, sent one iteration later."""
    job = with_copies(Job((Task("a", "worker"),), (), 6), ["a"], 2, 1)
    sizes = {"a": np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])}

    volumes = count_copy_bytes(job, sizes, 2)
    assert volumes.tolist() == [[0, 0, 0, 4, 0, 16], [0] * 6]
