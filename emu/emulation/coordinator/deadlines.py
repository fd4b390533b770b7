"""Track what is under way or overdue: each wait has a deadline and a name."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import TypeAlias

import numpy as np

from emu.array_types import Ints
from emu.emulation.coordinator.desk import Desk
from emu.errors import DeadlineExceeded
from emu.prediction.scheduling import Scheduler
from emu.problem import Problem

#: Lines of a message, and names of a list: those of a large job are hundreds.
_LISTED = 6
_AWAITED = 3
#: Task or edge, and iteration.
Key: TypeAlias = tuple[int, int]
#: ``task`` or ``flow`` and its key; None is idleness.
Wait: TypeAlias = tuple[str, int, int] | None


class Deadlines:
    """Tasks and flows under way; times are run times, emulated seconds, unless said.

    The scheduler knows the least times of tasks (none where they take what their work
    does), and how much of a flow has been served; the desk, what started and ended.
    Something may be overdue for
    ``patience`` wall seconds in which this process ran. Messages call iteration 0
    ``first``.
    """

    def __init__(
        self,
        problem: Problem,
        scheduler: Scheduler,
        desk: Desk,
        patience: float,
        first: int = 0,
    ) -> None:
        self._problem = problem
        self._scheduler = scheduler
        self._desk = desk
        self._patience = patience
        self._first = first
        gates = [task.gate for task in problem.job.tasks]
        self._is_gate = np.array(gates, np.bool_)
        self._served: dict[Key, float] = {}  # when flows were seen to be
        #: When each wait became overdue, on the clock of `check`.
        self._overdue: dict[Wait, float] = {}

    def _tasks(self) -> dict[Key, float]:
        """Return when each task that runs is due, in the order of their starts."""
        state = self._scheduler.state
        desk = self._desk
        holds = self._scheduler.holds
        runs = (state.started > state.ended) & ~self._is_gate
        tasks = np.flatnonzero(runs)
        iterations = state.ended[tasks]

        start = desk.task_start[tasks, iterations]
        least = 0.0 if holds is None else holds[tasks, iterations]
        is_known = desk.known[tasks] == iterations
        due = np.where(is_known, desk.known_end[tasks], start + least)
        order = np.argsort(start, kind="stable")
        return {
            (task, iteration): end
            for task, iteration, end in zip(
                tasks[order].tolist(),
                iterations[order].tolist(),
                due[order].tolist(),
                strict=True,
            )
        }

    def _flows(self) -> list[Key]:
        """Return the flows that have begun and not ended, in the order of that."""
        edges = self._open_edges()
        iterations = self._scheduler.newest_flows[edges]
        begun = self._desk.activated[edges, iterations]
        order = np.argsort(begun, kind="stable")
        edges = edges[order]
        iterations = iterations[order]
        return [*zip(edges.tolist(), iterations.tolist(), strict=True)]

    def _open_edges(self) -> Ints:
        """Return the edges whose newest flow has begun and not ended."""
        newest = self._scheduler.newest_flows
        begun = np.flatnonzero(newest >= 0)
        is_open = np.isnan(self._desk.flow_end[begun, newest[begun]])
        edges: Ints = begun[is_open]
        return edges

    def check(self, now: float, awake: float) -> None:
        """Raise when something is overdue at run time ``now``.

        A task is due at its profiled end, a flow when its fluid has been served; until
        then both may take as long as they like. ``awake`` are wall seconds in which
        this process ran, since any moment: pauses of its own are no one's delay.

        Raises DeadlineExceeded when one is overdue by more than the patience, or
        nothing is under way for that long. Names who waits for whom, the iteration,
        since when, and what the other side was last seen at.
        """
        tasks = self._tasks()
        flows = self._flows()
        self._note_served(flows, now)
        waits: dict[Wait, float] = {
            ("task", *key): end for key, end in tasks.items() if now > end
        }
        for key, served_at in self._served.items():
            waits["flow", *key] = served_at

        gate_ends = self._scheduler.next_end < math.inf  # if nothing else can end
        if not (tasks or gate_ends or self._served):
            waits[None] = now

        self._overdue = {wait: self._overdue.get(wait, awake) for wait in waits}
        too_late = [
            self._line_of(wait, begin, has_flows=bool(flows))
            for wait, begin in waits.items()
            if awake - self._overdue[wait] > self._patience
        ]
        if too_late:
            raise DeadlineExceeded(
                f"{self._join_lines(too_late)}; that is over {self._patience:g} s of "
                "wall time"
            )

    def _note_served(self, flows: list[Key], now: float) -> None:
        """Note which flows have been served: from here on a last byte is awaited."""
        scheduler = self._scheduler
        served = {}
        others = []
        for key in flows:
            if key in self._served:
                served[key] = self._served[key]
            else:
                others.append(key)
        waiting = np.array(others, np.int64).reshape(-1, 2)
        edges = np.ascontiguousarray(waiting[:, 0])
        iterations = waiting[:, 1]

        volumes = scheduler.volumes[edges, iterations]
        is_served = scheduler.services_of(edges, now) >= volumes
        for edge, iteration in waiting[is_served].tolist():
            served[edge, iteration] = now
        self._served = served

    def _line_of(self, wait: Wait, begin: float, *, has_flows: bool) -> str:
        if wait is None:
            idleness = "no flow has a rate" if has_flows else "no flow is active"
            return f"no task runs and {idleness} at {begin:.3f} s"

        kind, position, iteration = wait
        job = self._problem.job
        if kind == "task":
            return (
                f"the coordinator waits for task {job.tasks[position].name} to end "
                f"iteration {self._first + iteration} since {begin:.3f} s; "
                f"{self._last_seen(position)}"
            )
        edge = job.edges[position]
        return (
            f"{self._flow_line((position, iteration))} since {begin:.3f} s; "
            f"{self._last_seen(edge.source)}; {self._last_seen(edge.destination)}"
        )

    def doing(self, process: str) -> str:
        """Return the activities of the tasks of a process, for an error message.

        The first of several tasks are named, whatever each is doing: a server of
        Dorylus has dozens.
        """
        job = self._problem.job
        members = job.processes.get(process, ())
        activities = self._activities_of(members)
        if not activities:
            activities = [self._idleness_of(task) for task in members]
        doing = self._join_lines(activities)
        if len(members) < 2:
            return doing
        names = [job.tasks[task].name for task in members]
        return f"tasks {_some(names)}: {doing}"

    def _activities_of(self, members: Container[int]) -> list[str]:
        """Return what tasks compute, send and receive."""
        job = self._problem.job
        activities = []
        for task, iteration in self._tasks():
            if task in members:
                name = job.tasks[task].name
                waiters = self._waiters_of(task, iteration, members)
                activities.append(
                    f"task {name} in iteration {iteration + self._first}{waiters}"
                )
        for position, iteration in self._flows():
            edge = job.edges[position]
            flow = f"{job.edge_names[position]} of iteration {iteration + self._first}"
            if edge.source in members:
                activities.append(f"sending {flow}")
            elif edge.destination in members:
                activities.append(f"receiving {flow}")
        return activities

    def _idleness_of(self, task: int) -> str:
        job = self._problem.job
        name = job.tasks[task].name
        iteration = int(self._scheduler.state.started[task])
        if iteration == job.rounds[task]:
            return f"task {name} after its last iteration {iteration - 1 + self._first}"
        return f"task {name} before iteration {iteration + self._first}"

    def _waiters_of(self, task: int, iteration: int, members: Container[int]) -> str:
        """Return which tasks of other processes wait for an iteration, and for what."""
        job = self._problem.job
        waiting = [
            f"{job.tasks[edge.destination].name} for its iteration "
            f"{self._first + iteration + edge.lag}"
            for position, edge in enumerate(job.edges)
            if edge.source == task
            and edge.destination not in members
            and not edge.credit
            and job.sends(position, iteration)
        ]
        return f", awaited by {_some(waiting)}" if waiting else ""

    def story(self) -> str:
        """Return the running tasks and the tasks that wait for flows, by iteration."""
        has_times = self._scheduler.holds is not None
        lines = []
        for (task, iteration), end in self._tasks().items():
            name = self._problem.job.tasks[task].name
            due = f", due at {end:.3f} s" if has_times else ""
            lines.append(f"task {name} runs iteration {iteration + self._first}{due}")
        lines += [self._flow_line(key) for key in self._flows()]
        return self._join_lines(lines) or "no task runs and no flow is active"

    def _last_seen(self, position: int) -> str:
        task = self._problem.job.tasks[position]
        sighting = self._sighting_of(position)
        process = task.process_name
        place = f" in process {process}" if process != task.name else ""
        return f"{task.name}{place} was last seen {sighting}"

    def _sighting_of(self, position: int) -> str:
        """Return what a task did last, of the ends of its iterations and inputs."""
        job = self._problem.job
        desk = self._desk
        last = -math.inf
        sighting = "when the run began"
        ends = {"ending": desk.task_end[position]}
        for edge in job.in_edges(position):
            ends[f"receiving {job.edge_names[edge]} of"] = desk.flow_end[edge]

        for deed, times in ends.items():
            known = np.flatnonzero(~np.isnan(times))
            if known.size and times[known[-1]] > last:
                iteration = int(known[-1])
                last = float(times[iteration])
                number = self._first + iteration
                sighting = f"{deed} iteration {number} at {last:.3f} s"
        return sighting

    def _flow_line(self, key: Key) -> str:
        job = self._problem.job
        position, iteration = key
        receiver = job.tasks[job.edges[position].destination]
        return (
            f"task {receiver.name} waits for the flow {job.edge_names[position]} "
            f"of iteration {iteration + self._first}"
        )

    @staticmethod
    def _join_lines(lines: list[str]) -> str:
        text = "; ".join(lines[:_LISTED])
        rest = len(lines) - _LISTED
        return f"{text}; {rest} more" if rest > 0 else text


def _some(names: list[str]) -> str:
    """Return the first of the names, and how many more there are."""
    text = ", ".join(names[:_AWAITED])
    rest = len(names) - _AWAITED
    return f"{text} and {rest} more" if rest > 0 else text
