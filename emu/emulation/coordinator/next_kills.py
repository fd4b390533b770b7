"""Kills that a scenario states, followed by the ends that processes report."""

from __future__ import annotations

import math

from emu.emulation.coordinator.settings import RunSettings
from emu.emulation.wire.messages import FlowEnded, TaskEnded
from emu.problem import Due, Job, Problem, next_kills
from emu.problem.workloads import copies_of


def _count_ends(job: Job) -> dict[str, int]:
    """Return how many ends of tasks each process reports before it is over.

    One more for a process that holds a copy, so that it is never over.
    """
    counts = {}
    for process, tasks in job.processes.items():
        rounds = [job.rounds[task] for task in tasks]
        counts[process] = sum(rounds)
    # Copies wait for a death.
    for copy in copies_of(job).values():
        process = job.tasks[copy].process_name
        counts[process] += 1
    return counts


class NextKills:
    """Kills of the scenario that come next in an attempt, by ends that are known."""

    def __init__(self, problem: Problem, settings: RunSettings) -> None:
        job = problem.job
        self._settings = settings
        # Ends of tasks for which a kill waits, and those of them that are known.
        self._awaited = {kill.ended for kill in settings.kills}
        self._ends: dict[tuple[int, int], float] = {}
        self._process = [task.process_name for task in job.tasks]
        #: Processes that send payload over the network, by edge.
        self._source: dict[int, str] = {}
        for position, edge in enumerate(job.edges):
            crosses = problem.hops[position]
            if crosses and not job.control[position]:
                self._source[position] = self._process[edge.source]

        #: Ends to come of every process, of its flows once their bytes are known.
        self._left = _count_ends(job)
        self._last_end = dict.fromkeys(self._left, 0.0)
        self.due = Due()
        self._find()

    def note(self, end: TaskEnded | FlowEnded) -> None:
        """Take in an end of a task, past or to come, or of a flow."""
        is_awaited = False
        if isinstance(end, TaskEnded):
            process = self._process[end.task]
            time = end.end
            flows = zip(end.edges, end.volumes, strict=True)
            for edge, volume in flows:
                if edge in self._source and volume > 0:
                    self._left[process] += 1

            # Kills count iterations of the whole job, from 1.
            count = end.iteration + self._settings.first + 1
            is_awaited = (end.task, count) in self._awaited
            if is_awaited:
                key = (end.task, end.iteration)
                self._ends[key] = time
        else:
            process = self._source[end.edge]
            time = end.time

        self._left[process] -= 1
        last_end = self._last_end[process]
        self._last_end[process] = max(last_end, time)
        is_over = self._left[process] == 0
        if is_awaited or is_over:
            self._find()

    def _find(self) -> None:
        settings = self._settings
        self.due = next_kills(
            settings.kills,
            first=settings.first,
            began=settings.began,
            end_of=self._end_of,
            over=self._over,
        )

    def _end_of(self, task: int, iteration: int) -> float:
        key = (task, iteration)
        return self._ends.get(key, math.inf)

    def _over(self, process: str) -> float:
        if self._left[process]:
            return math.inf
        return self._last_end[process]
