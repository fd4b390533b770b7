"""A scheduler that hears of ends one by one, and a coordinator in virtual time."""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.prediction.scheduling import Decisions, End, Scheduler
from emu.problem import Problem, Profile, Realization
from emu.problem.changes import end_of_work


class Reporting:
    """A scheduler, and the ends that it was not asked to settle yet."""

    def __init__(self, *arguments: Any) -> None:
        self.scheduler = Scheduler(*arguments)
        self.ends: list[End] = []

    def task_ended(
        self, task: int, iteration: int, volumes: dict[int, float], time: float
    ) -> None:
        """Announce what a task sends, and keep its end."""
        self.scheduler.announce(task, iteration, volumes)
        self.ends.append(End(time, task, -1, iteration))

    def end_task(self, *event: Any) -> None:
        """Announce what a task sends and settle its end."""
        self.task_ended(*event)
        self.settle()

    def flow_arrived(self, edge: int, iteration: int, time: float) -> None:
        """Keep the arrival of a flow."""
        self.ends.append(End(time, -1, edge, iteration))

    def settle(self, until: float | None = None) -> list[Decisions]:
        """Settle; what is not taken in stays, unless one is impossible."""
        ends, self.ends = sorted(self.ends), []
        decisions, taken = self.scheduler.settle(ends, until)
        # Every count, list and rate of the core against what it follows from.
        assert not self.scheduler.broken
        self.ends = ends[taken:]
        return decisions


class VirtualCoordinator:
    """Obeys a scheduler with a virtual clock, by its decisions alone.

    ``rng`` shuffles the order in which the events of one instant are told, and has
    everything settled up to some times before the next one.
    """

    def __init__(
        self,
        problem: Problem,
        realization: Realization,
        policy: str,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.problem, self.realization, self.rng = problem, realization, rng
        #: Flows that land later, and queues of coflows, are events of the scheduler.
        self.has_events = problem.latencies.any() or policy == "aalo"
        profile = Profile(realization.times, realization.volumes)
        self.reporting = Reporting(problem, policy, profile)
        self.scheduler = self.reporting.scheduler
        self.running: list[tuple[float, int, int]] = []
        self.flow_ends: dict[int, tuple[float, int]] = {}
        self.now = 0.0
        of = problem.cluster.speed_steps.of
        self.steps_of = [
            None if task.gate else of(machine)
            for task, machine in zip(
                problem.job.tasks, problem.placement.machine_of, strict=True
            )
        ]
        self.task_start: NDArray[np.float64] = np.full(realization.times.shape, np.nan)
        self.flow_end: NDArray[np.float64] = np.full(realization.volumes.shape, np.nan)

    def obey(self, decisions: Decisions) -> None:
        """Start what is to be started and note when flows will end."""
        self.now = decisions.time
        for task, iteration in decisions.tasks:
            self.task_start[task, iteration] = self.now
            steps = self.steps_of[task]
            work = float(self.realization.times[task, iteration])
            end = end_of_work(*steps, self.now, work) if steps else self.now + work
            heapq.heappush(self.running, (end, task, iteration))
        lines = decisions.lines
        for edge, iteration, served, rate in zip(
            lines.edge, lines.iteration, lines.served, lines.rate, strict=True
        ):
            left = self.realization.volumes[edge, iteration] - served
            end = self.now + max(left, 0.0) / rate if rate else math.inf
            self.flow_ends[int(edge)] = (end, int(iteration))

    def tell_next_instant(self) -> float | None:
        """Move the clock to the next end and tell all ends of that time.

        Return the time by which to settle where nothing ends but a fluid: a flow that
        arrived a rounding before that has not ended.
        """
        times = [end for end, *_ in self.running]
        times += [end for end, _ in self.flow_ends.values()]
        first = min(times, default=math.inf)
        if first == math.inf:
            return self.scheduler.next_end
        changes = {change.time for change in self.problem.cluster.changes}
        changes |= {
            tuner.period * (int(self.now / tuner.period * (1 + 1e-9)) + 1)
            for tuner in self.problem.cluster.tuners
        }
        now = self.now * (1 + 1e-12)
        coming = [time for time in changes if now < time < first * (1 - 1e-12)]
        event = self.scheduler.next_end
        if self.has_events and event < first * (1 - 1e-12):
            coming.append(event)
        if coming:
            return min(coming)
        if self.rng is not None and self.rng.random() < 0.3:
            early = self.now + self.rng.random() * (first - self.now)
            assert self.reporting.settle(early * (1 - 1e-9)) == []
        self.now = first
        due = self.now * (1 + 1e-12)
        ends = [("task", *event) for event in self.running if event[0] <= due]
        ends += [
            ("flow", end, edge, iteration)
            for edge, (end, iteration) in self.flow_ends.items()
            if end <= due
        ]
        if self.rng is not None:
            ends = [ends[i] for i in self.rng.permutation(len(ends))]
        for kind, end, which, iteration in ends:
            if kind == "flow":
                del self.flow_ends[which]
                self.flow_end[which, iteration] = self.now
                self.reporting.flow_arrived(which, iteration, self.now)
            else:
                self.running.remove((end, which, iteration))
                volumes = {
                    edge: float(self.realization.volumes[edge, iteration])
                    for edge in self.problem.job.out_edges(which)
                }
                self.reporting.task_ended(which, iteration, volumes, self.now)
        return None

    def run(self) -> None:
        """Run to the end."""
        self.obey(self.scheduler.begin())
        while not self.scheduler.finished:
            fluid_end = self.tell_next_instant()
            # Tasks without length end at once: more events of the same instant.
            for decisions in self.reporting.settle(fluid_end):
                self.obey(decisions)
            # A change to what is there already decides nothing, and is over as well.
            self.now = max(self.now, fluid_end or 0.0)
