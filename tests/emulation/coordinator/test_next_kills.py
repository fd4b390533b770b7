"""Kills that come next: a process is over at its latest end, in whatever order."""

from __future__ import annotations

import pytest

from emu.emulation.coordinator import RunSettings
from emu.emulation.coordinator.next_kills import NextKills
from emu.emulation.wire.messages import TaskEnded
from emu.problem import Cluster, Edge, Job, Kill, Machine, Placement, Problem, Task


def ended(task: int, end: float) -> TaskEnded:
    return TaskEnded(
        task=task,
        iteration=0,
        start=0.0,
        end=end,
        edges=[],
        volumes=[],
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
