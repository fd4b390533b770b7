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


class Watch:
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
        self._flows: dict[tuple[int, int], float] = {}
        self._volumes: dict[tuple[int, int], float] = {}
        self._last_event = 0.0

    def decided(self, decisions: Decisions, time: float) -> None:
        """Note what was started at run time ``time``."""
        for key in decisions.tasks:
            held = 0.0 if self._times is None else float(self._times[key])
            self._tasks[key] = time + held
        for key in decisions.flows:
            self._flows[key] = time

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
        """Raise once nothing has happened for longer than it should take.

        Raises
        ------
        DeadlineExceeded
            When the last event is further back than the patience and nothing under
            way still has profiled time or unserved bytes left.
        """
        if now - self._last_event < self._patience:
            return
        if any(now < end + self._patience for end in self._tasks.values()):
            return
        if any(self._unserved(key, now - self._patience) for key in self._flows):
            return
        raise DeadlineExceeded(f"nothing has ended for too long: {self.story()}")

    def _unserved(self, key: tuple[int, int], now: float) -> bool:
        return self._served(key[0], now) < self._volumes.get(key, 0.0)

    def doing(self, process: str) -> str:
        """Return what the tasks of a process are at, for an error message."""
        job = self._problem.job
        members = job.processes.get(process, ())
        at = [
            f"task {job.tasks[task].name} in iteration {n}"
            for task, n in self._tasks
            if task in members
        ]
        at += [
            f"sending {job.edge_name(job.edges[edge])} of iteration {n}"
            for edge, n in self._flows
            if job.edges[edge].source in members
        ]
        return self._listed(at) or "waiting"

    def story(self) -> str:
        """Return who waits for whom, by task and iteration."""
        job = self._problem.job
        lines = [
            f"task {job.tasks[task].name} runs iteration {n} since its start "
            f"and was due at {end:.3f} s"
            for (task, n), end in self._tasks.items()
        ]
        lines += [
            f"task {job.tasks[job.edges[edge].destination].name} waits for "
            f"{job.tasks[job.edges[edge].source].name}, iteration {n}"
            for edge, n in self._flows
        ]
        return self._listed(lines) or "no task runs and no flow is active"

    @staticmethod
    def _listed(lines: list[str]) -> str:
        more = len(lines) - _LISTED
        return "; ".join(lines[:_LISTED]) + (f"; {more} more" if more > 0 else "")
