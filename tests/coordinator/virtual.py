"""The online run under a virtual clock: processes that keep time perfectly."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from emu.coordinator.online import OnlineRun
from emu.coordinator.record import Recorder
from emu.coordinator.watch import Watch
from emu.scheduling import Scheduler
from emu.wire.messages import FlowEnded, RunTask, TaskEnded

if TYPE_CHECKING:
    from emu.problem import Problem, Realization
    from emu.scheduling import Decisions


class PerfectProcesses:
    """An outlet whose tasks take what they should and whose flows are fluid."""

    def __init__(self, problem: Problem, realization: Realization) -> None:
        self._problem, self._realization = problem, realization
        self._tasks: list[tuple[float, int, int]] = []
        self._flows: dict[int, tuple[float, int]] = {}

    def run_task(self, message: RunTask) -> None:
        """Hold the task for its time."""
        end = message.start + self._realization.times[message.task, message.iteration]
        heapq.heappush(self._tasks, (end, message.task, message.iteration))

    def publish(self, decisions: Decisions, since: float) -> None:
        """Foresee the ends of the flows whose lines have changed."""
        lines = decisions.lines
        rows = zip(lines.edge, lines.iteration, lines.served, lines.rate, strict=True)
        for edge, n, served, rate in rows:
            left = self._realization.volumes[edge, n] - served
            self._flows[int(edge)] = (since + max(left, 0.0) / rate, int(n))

    def next_events(self) -> list[TaskEnded | FlowEnded]:
        """Return everything that ends at the next instant."""
        ends = [end for end, _ in self._flows.values()]
        ends += [self._tasks[0][0]] if self._tasks else []
        now = min(ends)
        events: list[TaskEnded | FlowEnded] = []
        while self._tasks and self._tasks[0][0] == now:
            events.append(self._task_ended(*heapq.heappop(self._tasks)))
        for edge, (end, n) in sorted(self._flows.items()):
            if end == now:
                del self._flows[edge]
                volume = self._realization.volumes[edge, n]
                events.append(FlowEnded(edge, n, end, float(volume)))
        return events

    def _task_ended(self, end: float, task: int, n: int) -> TaskEnded:
        job = self._problem.job
        edges = [
            e
            for e in job.out_edges(task)
            if not job.edges[e].credit and n + job.edges[e].lag < job.iterations
        ]
        return TaskEnded(
            task=task,
            iteration=n,
            start=end - self._realization.times[task, n],
            end=end,
            edges=edges,
            volumes=[float(self._realization.volumes[e, n]) for e in edges],
            busy=0.0,
            cpu=0.0,
            late=0.0,
            report={},
        )


def drive(
    problem: Problem, realization: Realization, policy: str, *, shuffle: bool = False
) -> tuple[Recorder, Watch]:
    """Run to the end; ``shuffle`` has the events of an instant arrive backwards."""
    scheduler = Scheduler(problem, policy)
    recorder = Recorder(problem)
    watch = Watch(problem, realization.times, scheduler.served, patience=1.0)
    outlet = PerfectProcesses(problem, realization)
    online = OnlineRun(scheduler, recorder, watch, outlet)
    online.begin()
    while not online.finished:
        events = outlet.next_events()
        online.handle(events[::-1] if shuffle else events)
    return recorder, watch
