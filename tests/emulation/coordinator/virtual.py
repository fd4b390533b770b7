"""The online run under a virtual clock: processes that keep time perfectly."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from emu.emulation.coordinator.deadlines import Deadlines
from emu.emulation.coordinator.desk import Desk
from emu.emulation.coordinator.outcome import Recorder
from emu.emulation.coordinator.scheduler_driver import Outlet, SchedulerDriver
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.wire.messages import FlowEnded, RunTask, TaskEnded
from emu.emulation.wire.notes import pack_end, unpack_orders
from emu.prediction.scheduling import Decisions, RateSegments, Scheduler
from emu.problem import Problem, Profile, Realization

SPEAKER = "all"


class PerfectProcesses:
    """An outlet whose tasks take what they should and whose flows are fluid."""

    watches = True
    limits = False

    def __init__(self, problem: Problem, realization: Realization) -> None:
        self._problem, self._realization = problem, realization
        self._tasks: list[tuple[float, int, int]] = []
        self._flows: dict[int, tuple[float, int]] = {}
        self.heard: list[Decisions] = []
        self.ended: list[TaskEnded | FlowEnded] = []

    def run_task(self, message: RunTask) -> None:
        """Hold the task for its time."""
        end = message.start + self._realization.times[message.task, message.iteration]
        heapq.heappush(self._tasks, (end, message.task, message.iteration))

    def order(self, speaker: str, notes: bytes) -> None:
        """Carry orders out."""
        assert speaker == SPEAKER
        for order in unpack_orders(notes):
            if isinstance(order, RunTask):
                self.run_task(order)

    def limit(self, lines: RateSegments) -> None:
        """Do without: there are no NICs."""

    def task_started(self, message: RunTask) -> None:
        """Do without: the order was enough."""

    def on_decisions(self, decisions: Decisions) -> None:
        """Note it; what is to be done is told."""
        self.heard.append(decisions)

    def publish(self, desk: Desk) -> None:
        """Foresee the ends of the flows whose lines have changed."""
        self.foresee(desk.rates)

    def foresee(self, lines: RateSegments) -> None:
        """Foresee the ends of flows by their lines."""
        columns = (lines.edge, lines.iteration, lines.served, lines.rate, lines.since)
        for edge, n, served, rate, since in zip(*columns, strict=True):
            left = self._realization.volumes[edge, n] - served
            wait = max(left, 0.0) / rate if rate > 0 else math.inf
            self._flows[int(edge)] = (since + wait, int(n))

    def task_ended(self, message: TaskEnded) -> None:
        """Note it."""
        self.ended.append(message)

    def flow_ended(self, message: FlowEnded) -> None:
        """Note it."""
        self.ended.append(message)

    def next_time(self) -> float:
        """Return when something ends next, infinity if nothing does."""
        ends = [end for end, _ in self._flows.values()]
        ends += [self._tasks[0][0]] if self._tasks else []
        return min(ends, default=math.inf)

    @property
    def idle(self) -> bool:
        """Whether nothing will end or arrive before a fluid does."""
        return self.next_time() == math.inf

    def next_events(self) -> list[TaskEnded | FlowEnded]:
        """Return everything that ends at the next instant."""
        now = self.next_time()
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
            if not job.control[e] and n + job.edges[e].lag < job.iterations
        ]
        return TaskEnded(
            task=task,
            iteration=n,
            start=end - self._realization.times[task, n],
            end=end,
            edges=edges,
            volumes=[float(self._realization.volumes[e, n]) for e in edges],
            began=end - self._realization.times[task, n],
            cpu=0.0,
            late=0.0,
            report={},
        )


class LateProcesses(PerfectProcesses):
    """Processes of which tasks and last bytes come late, and some messages, too."""

    def __init__(
        self, problem: Problem, realization: Realization, rng: Generator
    ) -> None:
        super().__init__(problem, realization)
        self._rng = rng
        self._withheld: list[TaskEnded | FlowEnded] = []
        self._arrived: set[tuple[int, int]] = set()
        self.late = self._some(realization.times.shape)
        self._behind = self._some(realization.volumes.shape)

    def _some(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        return self._rng.exponential(1.0, shape) * (self._rng.random(shape) < 0.5)

    @override
    def run_task(self, message: RunTask) -> None:
        later = float(self.late[message.task, message.iteration])
        super().run_task(dataclasses.replace(message, start=message.start + later))

    @override
    def foresee(self, lines: RateSegments) -> None:
        super().foresee(lines)
        for edge in lines.edge.tolist():
            end, n = self._flows.pop(edge)
            if (
                edge,
                n,
            ) not in self._arrived:  # its rate may change, its bytes are there
                self._flows[edge] = (end + self._behind[edge, n], n)

    @property
    @override
    def idle(self) -> bool:
        return super().idle and not self._withheld

    @override
    def next_events(self) -> list[TaskEnded | FlowEnded]:
        ends = [end for end, _ in self._flows.values()]
        waiting = not self._tasks and not np.isfinite(ends).any()
        more = [] if waiting else super().next_events()
        heard, self._withheld = self._withheld, []
        for event in more:
            if isinstance(event, FlowEnded):
                self._arrived.add((event.edge, event.iteration))
            (self._withheld if self.withholds() else heard).append(event)
        return heard

    def withholds(self) -> bool:
        """Tell whether the next message comes with the ones after it."""
        return bool(self._rng.random() < 0.3)


def drive(
    problem: Problem,
    realization: Realization,
    policy: str,
    *,
    shuffle: bool = False,
    wakes: bool = False,
    processes: PerfectProcesses | None = None,
) -> tuple[Recorder, Deadlines]:
    """Run to the end.

    ``shuffle`` has the events of an instant arrive backwards; with ``wakes`` fluids end
    at their time, else with the next event, or when there is none. Gates end at theirs.
    """
    wakes = wakes or any(task.gate for task in problem.job.tasks)
    outlet = processes or PerfectProcesses(problem, realization)
    online, recorder, deadlines = driver_of(problem, realization, policy, outlet)
    begin(online, problem)
    while not online.finished:
        served = online.next_end
        if outlet.idle if not wakes else served < outlet.next_time():
            assert served < math.inf
            online.settle(served)
            continue
        events = outlet.next_events()
        take_in(online, *(events[::-1] if shuffle else events))
    return recorder, deadlines


def driver_of(
    problem: Problem,
    realization: Realization,
    policy: str,
    outlet: Outlet,
    *,
    patience: float = 1.0,
    timed: bool = True,
    first: int = 0,
) -> tuple[SchedulerDriver, Recorder, Deadlines]:
    """Return a driver that has not begun, and what it notes and watches with."""
    profile = Profile(realization.times, realization.volumes)
    least = realization.times if timed else None
    scheduler = Scheduler(problem, policy, profile, least, realization.times)
    desk = Desk(problem, scheduler)
    recorder = Recorder(problem, scheduler, desk)
    deadlines = Deadlines(problem, scheduler, desk, patience, first)
    driver = SchedulerDriver(scheduler, desk, recorder, outlet)
    return driver, recorder, deadlines


def begin(
    online: SchedulerDriver, problem: Problem, boards: Sequence[RateBoard] = ()
) -> None:
    """Begin a run in which one process speaks for all."""
    tasks = enumerate(problem.job.tasks)
    speakers = {position: SPEAKER for position, task in tasks if not task.gate}
    online.begin(speakers, boards)


def report(
    online: SchedulerDriver, events: Iterable[TaskEnded | FlowEnded], now: float
) -> None:
    """Report ends in a message of that process."""
    online.report(SPEAKER, b"".join(map(pack_end, events)), now)


def take_in(online: SchedulerDriver, *events: TaskEnded | FlowEnded) -> None:
    """Report ends that have passed, and settle until the last of them."""
    report(online, events, math.inf)
    online.settle(-math.inf)


class PromptProcesses(PerfectProcesses):
    """Processes that tell ends of tasks ahead, and whose flows arrive ahead."""

    def __init__(
        self, problem: Problem, realization: Realization, rng: Generator
    ) -> None:
        super().__init__(problem, realization)
        self.now, self.ahead = 0.0, 0
        self._rng = rng
        self._told: list[tuple[float, TaskEnded]] = []
        self._under_way: dict[tuple[int, int], float] = {}  # when they arrive

    @override
    def run_task(self, message: RunTask) -> None:
        self.ahead += message.start > self.now
        end = message.start + float(
            self._realization.times[message.task, message.iteration]
        )
        told = self._rng.uniform(self.now, max(self.now, end))
        event = self._task_ended(end, message.task, message.iteration)
        self._told.append((told, event))

    @override
    def foresee(self, lines: RateSegments) -> None:
        super().foresee(lines)
        for edge in lines.edge.tolist():
            end, n = self._flows.pop(edge)
            arrived = self._under_way.get((edge, n), math.inf)
            if self.now < arrived and end < math.inf:
                at = self._rng.uniform(self.now, max(self.now, end * (1 - 1e-9)))
                self._under_way[edge, n] = min(arrived, at)

    @override
    def next_time(self) -> float:
        arrivals = [at for at in self._under_way.values() if at > -math.inf]
        return min([*(at for at, _ in self._told), *arrivals], default=math.inf)

    def messages(self) -> list[TaskEnded | FlowEnded]:
        """Return what is told by now."""
        events: list[TaskEnded | FlowEnded] = []
        events += [event for at, event in self._told if at <= self.now]
        self._told = [row for row in self._told if row[0] > self.now]
        for (edge, n), at in self._under_way.items():
            if -math.inf < at <= self.now:
                volume = float(self._realization.volumes[edge, n])
                events.append(FlowEnded(edge, n, at, volume))
                self._under_way[edge, n] = -math.inf
        return events


def drive_ahead(
    problem: Problem,
    realization: Realization,
    policy: str,
    ahead: float,
    processes: PromptProcesses,
) -> Recorder:
    """Run to the end, as the coordinator does that hears of everything at once."""
    online, recorder, _ = driver_of(problem, realization, policy, processes)
    begin(online, problem)
    while not online.finished:
        due = online.next_end
        soon = due - ahead / 2
        wake = soon if soon > processes.now else max(due, processes.now)
        now = processes.now = min(wake, processes.next_time())
        assert now < math.inf
        report(online, processes.messages(), now)
        online.settle(now, now + ahead)
    return recorder
