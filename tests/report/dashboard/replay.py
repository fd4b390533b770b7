"""A simulated schedule told to a tape as the coordinator would tell it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from emu.emulation.wire.messages import FlowEnded, RunTask, TaskEnded
from emu.prediction.scheduling import Decisions
from emu.prediction.scheduling.scheduler import RateSegments
from emu.prediction.simulation import simulate
from emu.problem import Schedule
from emu.report.dashboard import LiveRun
from emu.report.dashboard.live_run import Tape
from emu.testing import two_machine_example


class Clock:
    """Wall time that passes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the wall time, seconds."""
        return self.now


class Replay:
    """A live run of the two-machine example, moved on by `until`.

    One emulated second is one wall second.
    """

    def __init__(self, iterations: int = 4, **options: Any) -> None:
        problem, realization = two_machine_example(iterations, **options)
        self.schedule = simulate(problem, realization, record_rates=True)
        self.clock = Clock()
        self.live = LiveRun(problem, "two machines", "oes", 1.0, clock=self.clock)
        self._events = _events(self.schedule)
        self.begin()

    def begin(self) -> None:
        """Tell that it begins now."""
        self._began = self.clock.now
        self.live.tape.on_prediction(self.schedule)
        self.live.tape.on_join(len(self.schedule.problem.job.processes))
        self.live.tape.began(2.5)

    def until(self, time: float) -> None:
        """Tell everything up to a run time, looking on ten times a second."""
        while self._events and self._events[0][0] <= time:
            at, _, tell = self._events.pop(0)
            while self.clock.now < self._began + at:
                self.clock.now = min(self.clock.now + 0.1, self._began + at)
                self.live.status()
            tell(self.live.tape)
        while self.clock.now < self._began + time:
            self.clock.now = min(self.clock.now + 0.1, self._began + time)
            self.live.status()

    def result(self) -> dict[str, Any]:
        """Return what the end of the run tells."""
        makespan = self.schedule.makespan
        return {
            "makespan": makespan,
            "replayed_makespan": makespan,
            "replay_error": 0.0,
            "predicted_makespan": makespan,
            "makespan_error": 0.0,
            "verdict": {"trust": "trusted"},
        }


def _events(schedule: Schedule) -> list[tuple[float, int, Callable[[Tape], None]]]:
    """Return (run time, rank at that time, how to tell it), sorted."""
    job, rates = schedule.problem.job, schedule.rates
    assert rates is not None
    events: list[tuple[float, int, Callable[[Tape], None]]] = []
    for task in range(len(job.tasks)):
        for n in range(job.iterations):
            start, end = schedule.task_start[task, n], schedule.task_end[task, n]
            began = RunTask(task, n, float(start))
            sends = [e for e in job.out_edges(task) if job.sends(e, n)]
            ended = TaskEnded(
                task=task,
                iteration=n,
                start=float(start),
                end=float(end),
                edges=sends,
                volumes=[float(schedule.flow_bytes[e, n]) for e in sends],
                began=float(start),
                cpu=0.0,
                late=0.0,
                report={"loss": 1.0 / (n + 1)} if job.tasks[task].name == "w0" else {},
            )
            events.append((float(start), 2, partial(Tape.task_started, message=began)))
            events.append((float(end), 0, partial(Tape.task_ended, message=ended)))
    for e, n in schedule.flows().tolist():
        arrived = FlowEnded(
            e, n, float(schedule.flow_end[e, n]), float(schedule.flow_bytes[e, n])
        )
        events.append((arrived.time, 0, partial(Tape.flow_ended, message=arrived)))
    for time in np.unique(rates.time).tolist():
        rows = rates.time == time
        edge, iteration = rates.edge[rows], rates.iteration[rows]
        new = schedule.flow_start[edge, iteration] == time
        flows = list(zip(edge[new].tolist(), iteration[new].tolist(), strict=True))
        lines = RateSegments(
            edge, iteration, np.zeros(len(edge)), rates.rate[rows], rates.time[rows]
        )
        decided = Decisions(time, [], flows, lines)
        events.append((time, 1, partial(Tape.on_decisions, decisions=decided)))
    events.sort(key=lambda event: event[:2])
    return events
