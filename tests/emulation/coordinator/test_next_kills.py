"""Kills that come next: a process is over at its latest end, in whatever order."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from emu.emulation.coordinator import RunSettings
from emu.emulation.coordinator.cuts import CutPlan
from emu.emulation.coordinator.next_kills import NextKills
from emu.emulation.wire.messages import FlowEnded, TaskEnded
from emu.problem import Cluster, Edge, Job, Kill, Machine, Placement, Problem, Task
from emu.problem.job import Cut
from emu.problem.workloads import CHECKPOINT


def ended(
    task: int, end: float, iteration: int = 0, volumes: dict[int, float] | None = None
) -> TaskEnded:
    """Return the end of a task, with the bytes that it sends over edges."""
    return TaskEnded(
        task=task,
        iteration=iteration,
        start=0.0,
        end=end,
        edges=[*(volumes or {})],
        volumes=[*(volumes or {}).values()],
        began=0.0,
        cpu=0.0,
        late=0.0,
        report={},
    )


@pytest.mark.parametrize("ends", [((0, 3.0), (1, 5.0)), ((0, 5.0), (1, 3.0))])
@pytest.mark.parametrize(("moment", "dies"), [(4.0, True), (6.0, False)])
def test_a_process_is_over_with_the_last_of_its_tasks(
    ends: tuple[tuple[int, float], ...], moment: float, *, dies: bool
) -> None:
    """Either of two tasks of one process may be the later one."""
    tasks = (Task("a", "t", process="p"), Task("b", "t", process="p"))
    job = Job(tasks, (Edge(0, 1, 1),), 1)
    machine = Machine("m0", 1.0, 1.0)
    problem = Problem(Cluster((machine,)), job, Placement((0, 0)))
    kill = Kill(moment, "p", ("p",))
    kills = NextKills(problem, RunSettings(kills=(kill,)))
    assert kills.due.now == (kill,)

    for task, end in ends:
        kills.note(ended(task, end))
    assert kills.due.now == ((kill,) if dies else ())
    assert kills.due.idle == (() if dies else (kill,))


def test_a_kill_awaits_an_iteration_of_the_whole_job() -> None:
    """Its fifth, which is the second of an attempt that begins with three done."""
    job = Job((Task("a", "t"), Task("b", "t")), (), 3)
    problem = Problem(Cluster((Machine("m0", 1.0, 1.0),)), job, Placement((0, 0)))
    kill = Kill(math.inf, "b", ("b",), ended=(0, 5))
    begin = Cut(3, {})
    plan = CutPlan({}, every=3, keep=lambda _: None, start=begin)
    kills = NextKills(problem, RunSettings(kills=(kill,), cuts=plan))

    for iteration, due in ((0, math.inf), (1, 7.0), (2, 7.0)):
        assert kills.due.time == (math.inf if iteration < 2 else 7.0)
        kills.note(ended(0, 5.0 + 2 * iteration, iteration))
        assert kills.due.time == due


@pytest.mark.parametrize("size", [0.0, 0.5, 30.0])
def test_a_sender_lives_until_its_bytes_have_arrived(size: float) -> None:
    """The second of two processes ends at 2 s, and what it has sent at 9 s."""
    machines = Machine("m0", 1.0, 1.0), Machine("m1", 1.0, 1.0)
    job = Job((Task("a", "t"), Task("b", "t")), (Edge(1, 0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    kill = Kill(4.0, "b", ("b",))
    kills = NextKills(problem, RunSettings(kills=(kill,)))

    kills.note(ended(1, 2.0, volumes={0: size}))
    assert kills.due.now == ((kill,) if size else ())
    if size:
        kills.note(FlowEnded(0, 0, 9.0, size))
        assert kills.due.now == (kill,)
        late = NextKills(problem, RunSettings(kills=(replace(kill, time=9.5),)))
        late.note(ended(1, 2.0, volumes={0: size}))
        assert late.due.now
        late.note(FlowEnded(0, 0, 9.0, size))
        assert late.due.now == ()


def test_what_stays_on_a_machine_has_arrived_when_its_task_ends() -> None:
    job = Job((Task("a", "t"), Task("b", "t")), (Edge(1, 0, 1),), 2)
    problem = Problem(Cluster((Machine("m0", 1.0, 1.0),)), job, Placement((0, 0)))
    kill = Kill(9.0, "b", ("b",))
    kills = NextKills(problem, RunSettings(kills=(kill,)))

    found = []
    for iteration, end in enumerate((2.0, 4.0)):
        kills.note(ended(1, end, iteration, volumes={0: 30.0}))
        found.append((kills.due.now, kills.due.idle))
    assert found == [((kill,), ()), ((), (kill,))]


def test_a_process_with_a_copy_is_never_over() -> None:
    """A death may ask for it at any time."""
    tasks = (Task("a", "t"), Task("copy", CHECKPOINT, process="keeper"))
    job = Job(tasks, (Edge(0, 1),), 1)
    problem = Problem(Cluster((Machine("m0", 1.0, 1.0),)), job, Placement((0, 0)))
    kill = Kill(4.0, "keeper", ("keeper",))
    kills = NextKills(problem, RunSettings(kills=(kill,)))

    kills.note(ended(1, 2.0))
    assert kills.due.now == (kill,)
