"""What is under way and whether it is overdue: each wait has a deadline and a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.errors import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from emu.problem import Problem
    from emu.scheduling import Decisions
    from emu.wire.messages import FlowEnded, TaskEnded

_LISTED = 6


class Deadlines:
    """Tasks and flows under way; all times are run times, emulated seconds.

    Parameters
    ----------
    times
        Profiled seconds per (task, iteration), None when tasks end when they are done.
    served
        Bytes that the fluid of the active flow of an edge has served at a run time.
    patience
        How long something may be overdue, emulated seconds.
    """

    def __init__(
        self,
        problem: Problem,
        times: NDArray[np.float64] | None,
        served: Callable[[int, float], float],
        patience: float,
    ) -> None:
        self._problem, self._times = problem, times
        self._served, self._patience = served, patience
        self._tasks: dict[tuple[int, int], float] = {}
        self._flows: dict[tuple[int, int], float | None] = {}
        self._volumes: dict[tuple[int, int], float] = {}
        self._next = [0] * len(problem.job.tasks)
        self._last_event = 0.0

    def decided(self, decisions: Decisions) -> None:
        """Note what was started."""
        for key in decisions.tasks:
            held = 0.0 if self._times is None else float(self._times[key])
            self._tasks[key] = decisions.time + held
            self._next[key[0]] = key[1] + 1
        for key in decisions.flows:
            self._flows[key] = None

    def task_ended(self, message: TaskEnded) -> None:
        """Note that a task ended and what it sends."""
        self._tasks.pop((message.task, message.iteration), None)
        for edge, volume in zip(message.edges, message.volumes, strict=True):
            self._volumes[edge, message.iteration] = volume
        self._last_event = max(self._last_event, message.end)

    def flow_ended(self, message: FlowEnded) -> None:
        """Note that a flow arrived."""
        key = message.edge, message.iteration
        self._flows.pop(key, None)
        self._volumes.pop(key, None)
        self._last_event = max(self._last_event, message.time)

    def check(self, now: float) -> None:
        """Raise when something is overdue at run time ``now``.

        A task is due at its profiled end, a flow when its fluid has been served; until
        then both may take as long as they like.

        Raises
        ------
        DeadlineExceeded
            When one is overdue by more than the patience, or nothing is under way and
            nothing has happened for that long. Names task and iteration.
        """
        overdue = [
            self._task_line(key, end)
            for key, end in self._tasks.items()
            if now - end > self._patience
        ]
        for key, served_at in self._flows.items():
            if served_at is None:
                if self._served(key[0], now) >= self._volumes.get(key, 0.0):
                    self._flows[key] = now
            elif now - served_at > self._patience:
                overdue.append(self._flow_line(key))
        idle = not self._tasks and not self._flows
        if idle and now - self._last_event > self._patience:
            overdue.append("no task runs and no flow is active")
        if overdue:
            raise DeadlineExceeded(f"waited too long: {self._listed(overdue)}")

    def doing(self, process: str) -> str:
        """Return what the tasks of a process are at, for an error message."""
        job = self._problem.job
        members = job.processes.get(process, ())
        at = [
            f"task {job.tasks[task].name} in iteration {n}"
            for task, n in self._tasks
            if task in members
        ]
        for edge, n in self._flows:
            ends = job.edges[edge]
            if ends.source in members or ends.destination in members:
                verb = "sending" if ends.source in members else "receiving"
                at.append(f"{verb} {job.edge_names[edge]} of iteration {n}")
        return self._listed(at or [self._waiting(task) for task in members])

    def story(self) -> str:
        """Return who is at what and who waits for whom, by task and iteration."""
        lines = [self._task_line(key, end) for key, end in self._tasks.items()]
        lines += [self._flow_line(key) for key in self._flows]
        return self._listed(lines) or "no task runs and no flow is active"

    def _waiting(self, task: int) -> str:
        name, n = self._problem.job.tasks[task].name, self._next[task]
        if n == self._problem.job.iterations:
            return f"task {name} after its last iteration {n - 1}"
        return f"task {name} before iteration {n}"

    def _task_line(self, key: tuple[int, int], end: float) -> str:
        name = self._problem.job.tasks[key[0]].name
        due = "" if self._times is None else f", due at {end:.3f} s"
        return f"task {name} runs iteration {key[1]}{due}"

    def _flow_line(self, key: tuple[int, int]) -> str:
        job = self._problem.job
        edge = job.edges[key[0]]
        return (
            f"task {job.tasks[edge.destination].name} waits for the flow "
            f"{job.edge_names[key[0]]} of iteration {key[1]}"
        )

    @staticmethod
    def _listed(lines: list[str]) -> str:
        more = len(lines) - _LISTED
        return "; ".join(lines[:_LISTED]) + (f"; {more} more" if more > 0 else "")
