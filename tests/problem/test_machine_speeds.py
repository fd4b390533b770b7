"""Work on machines that are slow or stand still: three ways, one answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Fault,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
    with_faults,
)
from emu.problem.changes import SpeedChange, SpeedSteps, end_of_work
from emu.trust.audit_checks import work_of


def drawn(rng: np.random.Generator) -> tuple[list[float], list[float]]:
    """Return the steps of a machine, the last of them not 0."""
    count = int(rng.integers(0, 8))
    since = [0.0, *np.cumsum(rng.uniform(0.05, 3.0, count)).tolist()]
    share = [1.0, *rng.choice([0.0, 0.25, 1 / 3, 0.7, 1.0], count).tolist()]
    share[-1] = share[-1] or 0.5
    return since, share


def cumulative(since: Sequence[float], share: Sequence[float], time: float) -> Fraction:
    """Return all the work that could be done by ``time``, exactly."""
    done, ends = Fraction(0), [*since[1:], math.inf]
    for begin, end, part in zip(since, ends, share, strict=True):
        if time > begin:
            done += Fraction(part) * (Fraction(min(time, end)) - Fraction(begin))
    return done


def halved(
    since: Sequence[float], share: Sequence[float], start: float, work: float
) -> float:
    """Return the first time by which the work is done, by halving."""
    wanted = cumulative(since, share, start) + Fraction(work)
    low, high = start, start + 1.0
    while cumulative(since, share, high) < wanted:
        high = start + 2 * (high - start)
    while (middle := (low + high) / 2) not in {low, high}:
        if cumulative(since, share, middle) < wanted:
            low = middle
        else:
            high = middle
    return high


def test_work_ends_when_the_speeds_since_its_start_sum_up_to_it() -> None:
    rng = np.random.default_rng(5)
    for _ in range(500):
        since, share = drawn(rng)
        start, work = float(rng.uniform(0, 12)), float(rng.uniform(0.001, 6))
        found = end_of_work(since, share, start, work)
        assert found == pytest.approx(halved(since, share, start, work), rel=1e-12)


@pytest.mark.parametrize(
    ("start", "work", "end"),
    [
        (0.0, 1.0, 1.0),
        (0.0, 2.0, 2.0),  # done as it stops
        (0.0, 2.5, 5.5),
        (2.0, 0.0, 2.0),  # no work takes no time, even then
        (3.0, 1.0, 6.0),
        (1.0, 3.0, 7.0),
        (6.0, 2.0, 9.0),  # half as fast from 7 s on
        (0.1 + 0.2, 1.7, 2.0),
    ],
)
def test_work_on_a_machine_that_stands_still_from_2_to_5_s(
    start: float, work: float, end: float
) -> None:
    steps = [0.0, 2.0, 5.0, 7.0], [1.0, 0.0, 1.0, 0.5]
    assert end_of_work(*steps, start, work) == pytest.approx(end, rel=1e-15)
    assert end_of_work([0.0, 2.0], [1.0, 0.0], start, 9.0) == math.inf


def chains(rng: np.random.Generator) -> tuple[Problem, Realization]:
    """Return tasks on three machines whose speeds change, without any edges."""
    machines = tuple(Machine(f"m{m}", 1.0, 1.0) for m in range(3))
    changes = []
    for machine in machines:
        since, share = drawn(rng)
        steps = list(zip(since, share, strict=True))[1:]
        changes += [SpeedChange(t, machine.name, part) for t, part in steps]
    cluster = Cluster(machines, speed_changes=tuple(changes))
    tasks = tuple(Task(f"t{j}", "task", gate=j == 4) for j in range(5))
    at = Placement(tuple(rng.integers(0, 3, 5).tolist()))
    times = rng.uniform(0, 3, (5, 6))
    problem = Problem(cluster, Job(tasks, (), 6), at)
    return problem, Realization(times, np.zeros((0, 6)))


def test_work_that_ends_as_its_machine_stops_but_for_rounding_has_ended() -> None:
    """0.1 + 0.2 is a little more than 0.3."""
    end = end_of_work([0.0, 0.3, 5.0], [1.0, 0.0, 1.0], 0.1, 0.2)
    assert end == pytest.approx(0.3, rel=1e-12)


def test_the_core_computes_the_same_bits_and_lengths_give_the_work_back() -> None:
    rng = np.random.default_rng(6)
    for _ in range(300):
        problem, realization = chains(rng)
        schedule = simulate(problem, realization)
        of = problem.cluster.speed_steps.of
        for j, machine in enumerate(problem.placement.machine_of):
            now = 0.0
            for n, work in enumerate(realization.times[j].tolist()):
                gate = problem.job.tasks[j].gate
                now = now + work if gate else end_of_work(*of(machine), now, work)
                assert schedule.task_end[j, n] == now
        np.testing.assert_allclose(schedule.work, realization.times, atol=1e-12)
        stated = work_of(problem, schedule.task_start, schedule.task_end)
        np.testing.assert_allclose(stated, schedule.work, atol=1e-12)


def test_faults_of_a_machine_multiply_and_leave_its_links_alone() -> None:
    cluster = Cluster((Machine("m0", 1.0, 1.0), Machine("m1", 1.0, 1.0)))
    faults = [
        Fault("m1", 1.0, 5.0, 0.5, of_machine=True),
        Fault("m1", 2.0, 3.0, 0.0, of_machine=True),
        Fault("m1", 4.0, 6.0, 0.5, of_machine=True),
    ]
    found = with_faults(cluster, faults)

    assert found.changes == ()
    assert found.speed_steps.of(1) == (
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        [1.0, 0.5, 0.0, 0.5, 0.25, 0.5, 1.0],
    )
    assert found.speed_steps.of(0) == ([0.0], [1.0])
    assert found.widest == cluster


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (SpeedChange(0.0, "m0", 0.5), "time 0.0 is not positive"),
        (SpeedChange(1.0, "m0", 1.5), "share 1.5 is above 1"),
        (SpeedChange(1.0, "m0", math.nan), "share nan is negative or"),
        (SpeedChange(1.0, "m9", 0.5), "no machine is called m9"),
        (SpeedChange(1.0, "m0", 0.0), "m0 stands still from 1.0 s on for good"),
    ],
)
def test_speeds_that_cannot_be(change: SpeedChange, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Cluster((Machine("m0", 1.0, 1.0),), speed_changes=(change,))


def test_two_changes_of_a_machine_at_one_time_are_refused() -> None:
    change = SpeedChange(1.0, "m0", 0.5)
    with pytest.raises(ValueError, match="m0 changes 2 times"):
        Cluster((Machine("m0", 1.0, 1.0),), speed_changes=(change, change))


def test_work_between_two_times_is_that_of_their_machine() -> None:
    """Machine b has half of its speed from 2 s on, all of it again from 5 s on."""
    changes = (SpeedChange(5.0, "b", 1.0), SpeedChange(2.0, "b", 0.5))
    steps = SpeedSteps(changes, {"a": 0, "b": 1})
    start = np.array([0.5, 1.0, 3.0])
    end = np.array([1.5, 6.0, 4.0])

    assert steps.work(0, start, end).tolist() == [1.0, 5.0, 1.0]
    assert steps.work(1, start, end).tolist() == [1.0, 1.0 + 1.5 + 1.0, 0.5]
