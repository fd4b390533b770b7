"""Latencies that differ by direction: all that reads a schedule adds them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Link,
    Machine,
    Placement,
    Problem,
    Realization,
    Route,
    Schedule,
    Task,
)
from emu.trust.audit import audit
from emu.trust.guards.earliest_ends import earliest_ends
from emu.trust.guards.evidence import list_latencies
from emu.trust.lateness import chain_lateness, late_times

#: m0 to m1 over a link takes 1 + 16 + 8 s, and back 4 + 2 s.
FORTH, BACK = 25.0, 6.0
CLUSTER = Cluster(
    (
        Machine("m0", 10.0, 10.0, latency_out=1.0, latency_in=2.0, slots={"gpu": 1}),
        Machine("m1", 10.0, 10.0, latency_out=4.0, latency_in=8.0),
    ),
    (Link("wan", 10.0, latency=16.0),),
    (Route((0,), (1,), ("out", "wan", "in")),),
)


def there_and_back() -> tuple[Problem, Realization]:
    """Return a (1 s) -> b (2 s) -> c (3 s); each flow is sent in 1 s."""
    tasks = Task("a", "a"), Task("b", "b"), Task("c", "c")
    job = Job(tasks, (Edge(0, 1), Edge(1, 2)), 1)
    problem = Problem(CLUSTER, job, Placement((0, 1, 0)))
    times = np.array([[1.0], [2.0], [3.0]])
    return problem, Realization(times, np.full((2, 1), 10.0))


def test_every_direction_has_its_own() -> None:
    problem, realization = there_and_back()
    b_starts = 1 + 1 + FORTH
    c_starts = b_starts + 2 + 1 + BACK
    ends = [[1.0], [b_starts + 2], [c_starts + 3]]

    assert list_latencies(problem) == problem.latencies.tolist() == [FORTH, BACK]
    assert simulate(problem, realization).task_end.tolist() == ends
    least = earliest_ends(problem, realization.times, realization.volumes)
    assert least.tolist() == ends


def test_an_audit_finds_what_starts_before_its_input_has_landed() -> None:
    schedule = simulate(*there_and_back())
    assert audit(schedule).passed

    schedule.task_start[1, 0] -= 0.5
    schedule.task_start[2, 0] -= 0.25

    assert [str(violation) for violation in audit(schedule).violations] == [
        "(8) b[0] started before a->b[0] landed: 0.5 s",
        "(8) c[0] started before b->c[0] landed: 0.25 s",
    ]


def test_an_input_lands_where_any_link_has_a_latency() -> None:
    """Also one that crosses no link: a word of the job and not of its way."""
    problem, realization = there_and_back()
    stays = replace(problem, placement=Placement((0, 1, 1)))
    schedule = simulate(stays, realization)
    schedule.task_start[2, 0] -= 0.25

    assert [str(violation) for violation in audit(schedule).violations] == [
        "(9) c[0] started before b->c[0] landed: 0.25 s",
    ]


def test_what_is_on_its_way_is_no_lateness() -> None:
    problem, realization = there_and_back()
    made = simulate(problem, realization, record_rates=True)
    known = replace(made, task_settled=made.task_end, flow_settled=made.flow_end)

    assert late_times(known).tolist() == realization.times.tolist()
    assert chain_lateness(made, np.zeros((3, 1))).seconds == pytest.approx(0.0)
    last_late = np.array([[0.0], [0.0], [0.5]])
    later = replace(known, task_settled=made.task_end + last_late)
    assert late_times(later)[:, 0].tolist() == [1.0, 2.0, 3.5]


def _for_one_slot() -> Schedule:
    """Return x, whose input of 1 s lands at 7 s, and y, which comes at 4 and ends at 9.

    Of one slot: x starts at 9 s.
    """
    tasks = (
        Task("a", "a"),
        Task("z", "z"),
        Task("x", "x", takes="gpu"),
        Task("y", "y", takes="gpu"),
    )
    job = Job(tasks, (Edge(0, 2), Edge(1, 3)), 1)
    problem = Problem(CLUSTER, job, Placement((1, 0, 0, 0)))
    times = np.array([[1.0], [4.0], [1.0], [5.0]])
    return simulate(problem, Realization(times, np.zeros((2, 1))))


def test_who_comes_to_a_pool_comes_when_its_input_has_landed() -> None:
    schedule = _for_one_slot()

    assert schedule.task_start[2:, 0].tolist() == [9.0, 4.0]
    assert audit(schedule).passed
    schedule.task_start[2:, 0] = [7.0, 8.0]
    schedule.task_end[2:, 0] = [8.0, 13.0]
    assert [str(violation) for violation in audit(schedule).violations] == [
        "slots x[0] got a slot of gpu before a task that came earlier: 3 s"
    ]


def test_who_gets_a_slot_is_held_against_all_that_get_one_later() -> None:
    """To one slot x came at 3 s, y at 1 and z at 5: they got it in this order."""
    machine = Machine("m", 10.0, 10.0, slots={"gpu": 1})
    tasks = (
        *(Task(name, "source") for name in "abc"),
        *(Task(name, "taker", takes="gpu") for name in "xyz"),
    )
    edges = tuple(Edge(source, 3 + source) for source in range(3))
    problem = Problem(Cluster((machine,)), Job(tasks, edges, 1), Placement((0,) * 6))
    times = np.array([[3.0], [1.0], [5.0], [0.5], [0.25], [2.0]])
    schedule = simulate(problem, Realization(times, np.zeros((3, 1))))
    assert schedule.task_start[3:, 0].tolist() == [3.0, 1.0, 5.0]
    assert audit(schedule).passed

    schedule.task_start[4, 0], schedule.task_end[4, 0] = 3.5, 3.75
    assert [str(violation) for violation in audit(schedule).violations] == [
        "slots x[0] got a slot of gpu before a task that came earlier: 2 s"
    ]


def test_the_newest_that_can_be_read_is_the_newest_that_has_landed() -> None:
    """Flows of 1 s land 6 s after their ends: from 8 s on, one in every second."""
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1, latest=True),), 8)
    problem = Problem(CLUSTER, job, Placement((1, 0)))
    times = np.array([[1.0] * 8, [2.5] * 8])
    schedule = simulate(problem, Realization(times, np.full((1, 8), 10.0)))
    assert schedule.reads is not None
    assert schedule.task_start[1, :2].tolist() == [8.0, 10.5]
    assert schedule.reads[0, :2].tolist() == [0, 2]
    assert audit(schedule).passed

    sentences = ((4, "before it arrived"), (1, "where 2 had arrived"))
    for read, words in sentences:
        reads = schedule.reads.copy()
        reads[0, 1] = read
        (violation,) = audit(replace(schedule, reads=reads)).violations
        assert violation.sentence == f"b[1] read of a->b iteration {read} {words}"
        assert violation.amount == abs(read - 2)
    # The first flow lands at 8 s: b cannot have read it half a second before.
    starts = schedule.task_start.copy()
    starts[1, 0] = 7.5
    early = audit(replace(schedule, task_start=starts))
    assert early.checked["reads"] == 8
    assert "b[0] read of a->b iteration 0 before it arrived" in [
        violation.sentence for violation in early.violations
    ]

    # The third landed at 10 s; where that was known at 10.75 s, b read the second.
    second = schedule.reads.copy()
    second[0, 1] = 1
    told = replace(
        schedule,
        reads=second,
        task_settled=schedule.task_end,
        flow_settled=schedule.flow_end + 0.75,
    )
    assert not [text for text in map(str, audit(told).violations) if "read" in text]
    # Or had landed after b began, by another clock.
    older = replace(schedule, reads=second)
    assert audit(older, tolerance=0.6).passed
    assert not audit(older, tolerance=0.4).passed
    # By the clock of b the fourth may have landed before 11 s.
    fourth = schedule.reads.copy()
    fourth[0, 1] = 3
    ahead = replace(schedule, reads=fourth)
    assert audit(ahead, tolerance=0.6).passed
    assert not audit(ahead, tolerance=0.4).passed


def test_a_lag_lets_the_first_iteration_read_nothing() -> None:
    """Task b begins at once, and again when the first flow has landed, at 8 s."""
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1, 1, latest=True),), 3)
    problem = Problem(CLUSTER, job, Placement((1, 0)))
    times = np.array([[1.0] * 3, [2.5] * 3])
    schedule = simulate(problem, Realization(times, np.full((1, 3), 10.0)))

    assert schedule.reads is not None
    assert schedule.reads[0, 0] == -1
    assert schedule.task_start[1, :2].tolist() == [0.0, 8.0]
    assert audit(schedule).passed


def test_of_a_source_with_fewer_iterations_the_last_is_the_newest() -> None:
    """It sends two; b runs five times, and reads each as it has landed."""
    tasks = Task("a", "a", iterations=2), Task("b", "b")
    job = Job(tasks, (Edge(0, 1, latest=True),), 5)
    problem = Problem(CLUSTER, job, Placement((1, 0)))
    times = np.array([[1.0] * 5, [2.5] * 5])
    schedule = simulate(problem, Realization(times, np.full((1, 5), 10.0)))
    assert schedule.reads is not None
    assert schedule.reads[0].tolist()[-2:] == [1, 1]
    assert audit(schedule).passed

    reads = schedule.reads.copy()
    reads[0, 4] = 2
    (violation,) = audit(replace(schedule, reads=reads)).violations
    assert violation.sentence == "b[4] read of a->b iteration 2 before it arrived"
