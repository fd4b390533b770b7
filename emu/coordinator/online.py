"""The online run: events in, decisions out. The scheduler decides, this only carries.

One scheduler, two clocks: the same state machine that the simulator drives with virtual
time is driven here by messages, at the times that they name. A message that comes late
does not shift the schedule: rates take effect from the nominal time of the event, and
senders catch up with the fluid.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Protocol

import numpy as np

from emu.errors import NodeMisbehaved, SchedulingError
from emu.scheduling import Decisions, Lines, newest
from emu.wire.messages import FlowEnded, RunTask, TaskEnded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emu.coordinator.record import Recorder
    from emu.coordinator.watch import Watch
    from emu.scheduling import Scheduler


class Outlet(Protocol):
    """Where decisions go."""

    def run_task(self, message: RunTask) -> None:
        """Tell the process of the task to start it."""
        ...

    def publish(self, lines: Lines) -> None:
        """Put changed fluid lines on every rate board."""
        ...

    def decided(self, decisions: Decisions, time: float) -> None:
        """Hear of decisions that changed lines, made at run time ``time``."""
        ...


def event_time(event: TaskEnded | FlowEnded) -> float:
    """Return the run time at which an event happened."""
    return event.end if isinstance(event, TaskEnded) else event.time


class OnlineRun:
    """Drives the scheduler with the events of an emulated run."""

    def __init__(
        self, scheduler: Scheduler, recorder: Recorder, watch: Watch, outlet: Outlet
    ) -> None:
        self._scheduler, self._recorder = scheduler, recorder
        self._watch, self._outlet = watch, outlet
        self._now = 0.0
        self._lines: list[Lines] = []  # decided and not told yet, like the tasks
        self._tasks: list[RunTask] = []

    @property
    def finished(self) -> bool:
        """Whether every task has ended in every iteration."""
        return self._scheduler.finished

    def begin(self) -> None:
        """Start at run time 0."""
        self._apply(self._scheduler.begin())
        self._tell()

    def handle(
        self, events: Sequence[TaskEnded | FlowEnded], served_by: float = -math.inf
    ) -> None:
        """Advance the schedule by events that arrived together.

        Events of one instant are settled at once, as the simulator does. An event
        older than one already settled counts from now: rates cannot change in the past.
        What follows from all of them is told at the end: of the lines of an edge only
        the newest, since senders need no other.

        Parameters
        ----------
        events
            In any order.
        served_by
            Run time; flows whose fluid ended before it are let go of.

        Raises
        ------
        NodeMisbehaved
            When an event does not fit the schedule.
        """
        ordered = sorted(events, key=event_time)
        for event in ordered:
            if not math.isfinite(event_time(event)):
                raise NodeMisbehaved(f"a process reported the impossible: {event}")
        for time, group in itertools.groupby(ordered, key=event_time):
            self._drain(time)
            self._now = max(self._now, time)
            for event in group:
                self._note(event)
            self._apply(self._scheduler.settle(self._now))
        self._drain(served_by)
        self._tell()

    @property
    def next_fluid_end(self) -> float:
        """When the next flow will have been served, run time; infinity if none."""
        return self._scheduler.next_fluid_end

    def _drain(self, until: float) -> None:
        """Let go of every flow whose fluid ended before a time.

        Its last byte may be late, but the ports have carried its bytes: who shares
        them, or waits for its turn at them, gets what the schedule gives from then on.
        With the flow kept until it arrived, lateness added up over all that a port
        carries: of 98 drawn scenarios the median error was 0.87 %, and is 0.28.
        """
        while (end := self._scheduler.next_fluid_end) < until:
            self._now = max(self._now, end)
            self._note_served(*self._scheduler.drain(self._now))
            self._apply(self._scheduler.settle(self._now))

    def _note_served(self, edge: int, iteration: int) -> None:
        """Note that a flow has no rate any more; its sender knows by itself."""
        volume = self._recorder.volume(edge, iteration)
        row = (np.array([x]) for x in (edge, iteration, volume, 0.0, self._now))
        served = Decisions(tasks=[], flows=[], lines=Lines(*row))
        self._recorder.decided(served, self._now)
        self._outlet.decided(served, self._now)

    def _note(self, event: TaskEnded | FlowEnded) -> None:
        try:
            if isinstance(event, TaskEnded):
                volumes = dict(zip(event.edges, event.volumes, strict=True))
                self._scheduler.task_ended(
                    event.task, event.iteration, volumes, self._now
                )
                self._recorder.task_ended(event, self._now)
                self._watch.task_ended(event)
            else:
                self._scheduler.flow_ended(event.edge, event.iteration, self._now)
                self._check_volume(event)
                self._recorder.flow_ended(event, self._now)
                self._watch.flow_ended(event)
        except (SchedulingError, TypeError, ValueError) as error:
            raise NodeMisbehaved(
                f"a process reported the impossible: {error}"
            ) from error

    def _check_volume(self, event: FlowEnded) -> None:
        sent = self._recorder.volume(event.edge, event.iteration)
        if not math.isclose(event.volume, sent, rel_tol=1e-9):
            raise SchedulingError(
                f"{event.volume:g} of {sent:g} bytes of edge {event.edge}, "
                f"iteration {event.iteration} arrived"
            )

    def _apply(self, decisions: Decisions) -> None:
        self._recorder.decided(decisions, self._now)
        self._watch.decided(decisions, self._now)
        if len(decisions.lines):
            self._outlet.decided(decisions, self._now)
            self._lines.append(decisions.lines)
        self._tasks += [RunTask(task, n, self._now) for task, n in decisions.tasks]

    def _tell(self) -> None:
        if self._lines:
            self._outlet.publish(newest(self._lines))
            self._lines = []
        tasks, self._tasks = self._tasks, []
        for order in tasks:
            self._outlet.run_task(order)
