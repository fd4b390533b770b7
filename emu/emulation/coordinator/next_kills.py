"""Kills that a scenario states, followed by the ends that processes report."""

from __future__ import annotations

import math

from emu.emulation.coordinator.settings import RunSettings
from emu.emulation.wire.messages import FlowEnded, TaskEnded
from emu.problem import Due, Problem, next_kills
from emu.problem.workloads import copies_of


class NextKills:
    """Kills of the scenario that come next in an attempt, by ends that are known."""

    def __init__(self, problem: Problem, settings: RunSettings) -> None:
        job = problem.job
        self._settings = settings
        self._awaited = {kill.ended for kill in settings.kills}
        self._ends: dict[tuple[int, int], float] = {}
        self._process = [task.process_name for task in job.tasks]
        #: Processes that send payload over the network, by edge.
        self._source: dict[int, str] = {}
        for position, edge in enumerate(job.edges):
            if problem.hops[position] and not job.control[position]:
                self._source[position] = self._process[edge.source]

        #: Ends to come of every process, of its flows once their bytes are known, and
        #: the last one; copies are never over.
        self._left: dict[str, int] = {}
        for process, tasks in job.processes.items():
            self._left[process] = sum(job.rounds[task] for task in tasks)
        for copy in copies_of(job).values():
            self._left[self._process[copy]] += 1
        self._last_end = dict.fromkeys(self._left, 0.0)
        self.due = Due()
        self._find()

    def note(self, end: TaskEnded | FlowEnded) -> None:
        """Take in an end of a task, past or to come, or of a flow."""
        is_awaited = False
        if isinstance(end, TaskEnded):
            process = self._process[end.task]
            time = end.end
            for edge, volume in zip(end.edges, end.volumes, strict=True):
                if edge in self._source and volume > 0:
                    self._left[process] += 1
            count = end.iteration + self._settings.first + 1
            is_awaited = (end.task, count) in self._awaited
            if is_awaited:
                self._ends[end.task, end.iteration] = time
        else:
            process = self._source[end.edge]
            time = end.time

        self._left[process] -= 1
        self._last_end[process] = max(self._last_end[process], time)
        if is_awaited or not self._left[process]:
            self._find()

    def _find(self) -> None:
        self.due = next_kills(
            self._settings.kills,
            first=self._settings.first,
            began=self._settings.began,
            end_of=self._end_of,
            over=self._over,
        )

    def _end_of(self, task: int, iteration: int) -> float:
        return self._ends.get((task, iteration), math.inf)

    def _over(self, process: str) -> float:
        return math.inf if self._left[process] else self._last_end[process]
