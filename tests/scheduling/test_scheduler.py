"""The scheduler driven event by event."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

import pytest

from emu.errors import SchedulingError
from emu.scheduling import Decisions, Scheduler
from emu.testing import two_machine_example

if TYPE_CHECKING:
    from emu.problem import Problem, Realization


def drive(problem: Problem, realization: Realization, policy: str) -> float:
    """Drive a scheduler by a virtual clock and its own fluid lines alone."""
    scheduler = Scheduler(problem, policy)
    tasks: list[tuple[float, int, int]] = []
    ends: dict[int, tuple[float, int]] = {}
    now = 0.0

    def obey(decisions: Decisions) -> None:
        for task, iteration in decisions.tasks:
            end = now + realization.times[task, iteration]
            heapq.heappush(tasks, (end, task, iteration))
        lines = decisions.lines
        for i, edge in enumerate(lines.edge):
            iteration = int(lines.iteration[i])
            left = realization.volumes[edge, iteration] - lines.served[i]
            end = now + left / lines.rate[i] if lines.rate[i] else math.inf
            ends[int(edge)] = (end, iteration)

    obey(scheduler.begin())
    while not scheduler.finished:
        now = min([t for t, *_ in tasks] + [t for t, _ in ends.values()])
        for edge, (end, iteration) in list(ends.items()):
            if end <= now * (1 + 1e-12):
                del ends[edge]
                scheduler.flow_ended(edge, iteration, now)
        while tasks and tasks[0][0] <= now * (1 + 1e-12):
            _, task, iteration = heapq.heappop(tasks)
            volumes = {
                e: float(realization.volumes[e, iteration])
                for e in problem.job.out_edges(task)
            }
            scheduler.task_ended(task, iteration, volumes, now)
        obey(scheduler.settle(now))
    return now


@pytest.mark.parametrize("policy", ["oes", "maxmin", "none"])
def test_golden_run_event_by_event(policy: str) -> None:
    assert drive(*two_machine_example(10), policy) == pytest.approx(115.0, abs=1e-9)


def test_a_task_that_is_not_running_cannot_end() -> None:
    scheduler = Scheduler(two_machine_example(2)[0], "oes")
    scheduler.begin()
    with pytest.raises(SchedulingError, match="w0 ended iteration 0"):
        scheduler.task_ended(4, 0, {}, 1.0)
