"""Track what is under way or overdue: each wait has a deadline and a name."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import TypeAlias

from emu.emulation.wire.messages import FlowEnded, TaskEnded
from emu.errors import DeadlineExceeded
from emu.prediction.scheduling import Decisions, Scheduler
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
    does), and how much of a flow has been served. Something may be overdue for
    ``patience`` wall seconds in which this process ran. Messages call iteration 0
    ``first``.
    """

    def __init__(
        self,
        problem: Problem,
        scheduler: Scheduler,
        patience: float,
        first: int = 0,
    ) -> None:
        self._problem = problem
        self._scheduler = scheduler
        self._patience = patience
        self._first = first
        self._tasks: dict[Key, float] = {}  # and when they are due
        self._unknown: set[Key] = set()  # of these: no end was reported
        self._flows: dict[Key, float | None] = {}  # and when served
        self._next = [0] * len(problem.job.tasks)
        #: When each wait became overdue, on the clock of `check`.
        self._overdue: dict[Wait, float] = {}
        self._seen: dict[int, str] = {}  # by task: the last report of it

    def on_decisions(self, decisions: Decisions) -> None:
        """Note what was started."""
        least = self._scheduler.holds
        for key in decisions.tasks:
            least_time = 0.0 if least is None else float(least[key])
            self._tasks[key] = decisions.time + least_time
            self._unknown.add(key)
            task, iteration = key
            self._next[task] = iteration + 1
        for key in decisions.flows:
            self._flows[key] = None

    def on_report(self, message: TaskEnded) -> None:
        """Note when a task will have ended: it is not due before."""
        key = (message.task, message.iteration)
        if key in self._unknown:
            self._unknown.remove(key)
            self._tasks[key] = message.end

    @property
    def lookahead_bound(self) -> float:
        """Earliest run time at which a task may end of whose end nothing is known."""
        if self._unknown and self._scheduler.holds is None:
            return -math.inf
        return min((self._tasks[key] for key in self._unknown), default=math.inf)

    def task_ended(self, message: TaskEnded) -> None:
        """Note that the end of a task was taken in."""
        self._tasks.pop((message.task, message.iteration), None)
        iteration = self._first + message.iteration
        sighting = f"ending iteration {iteration} at {message.end:.3f} s"
        self._seen[message.task] = sighting

    def flow_ended(self, message: FlowEnded) -> None:
        """Note that a flow arrived."""
        self._flows.pop((message.edge, message.iteration), None)
        job = self._problem.job
        name = job.edge_names[message.edge]
        receiver = job.edges[message.edge].destination
        iteration = self._first + message.iteration
        sighting = f"receiving {name} of iteration {iteration} at {message.time:.3f} s"
        self._seen[receiver] = sighting

    def check(self, now: float, awake: float) -> None:
        """Raise when something is overdue at run time ``now``.

        A task is due at its profiled end, a flow when its fluid has been served; until
        then both may take as long as they like. ``awake`` are wall seconds in which
        this process ran, since any moment: pauses of its own are no one's delay.

        Raises DeadlineExceeded when one is overdue by more than the patience, or
        nothing is under way for that long. Names who waits for whom, the iteration,
        since when, and what the other side was last seen at.
        """
        lines = {**self._overdue_tasks(now), **self._overdue_flows(now)}
        is_served = any(served_at is not None for served_at in self._flows.values())
        gate_ends = self._scheduler.next_end < math.inf  # if nothing else can end
        if not (self._tasks or gate_ends or is_served):
            idleness = "no flow has a rate" if self._flows else "no flow is active"
            lines[None] = f"no task runs and {idleness} at {now:.3f} s"

        self._overdue = {wait: self._overdue.get(wait, awake) for wait in lines}
        too_late = [
            line
            for wait, line in lines.items()
            if awake - self._overdue[wait] > self._patience
        ]
        if too_late:
            raise DeadlineExceeded(
                f"{self._join_lines(too_late)}; that is over {self._patience:g} s of "
                "wall time"
            )

    def _overdue_tasks(self, now: float) -> dict[Wait, str]:
        lines: dict[Wait, str] = {}
        for (task, iteration), end in self._tasks.items():
            if now > end:
                name = self._problem.job.tasks[task].name
                lines["task", task, iteration] = (
                    f"the coordinator waits for task {name} to end iteration "
                    f"{self._first + iteration} since {end:.3f} s; "
                    f"{self._last_seen(task)}"
                )
        return lines

    def _overdue_flows(self, now: float) -> dict[Wait, str]:
        """Return what is said of flows that were served; note which are by now."""
        scheduler = self._scheduler
        lines: dict[Wait, str] = {}
        for key, served_at in self._flows.items():
            position, iteration = key
            if served_at is not None:
                edge = self._problem.job.edges[position]
                lines["flow", position, iteration] = (
                    f"{self._flow_line(key)} since {served_at:.3f} s; "
                    f"{self._last_seen(edge.source)}; "
                    f"{self._last_seen(edge.destination)}"
                )
            elif scheduler.service_of(position, now) >= scheduler.volumes[key]:
                self._flows[key] = now  # from here on its last byte is awaited
        return lines

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
        for task, iteration in self._tasks:
            if task in members:
                name = job.tasks[task].name
                waiters = self._waiters_of(task, iteration, members)
                activities.append(
                    f"task {name} in iteration {iteration + self._first}{waiters}"
                )
        for position, iteration in self._flows:
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
        iteration = self._next[task]
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
        for (task, iteration), end in self._tasks.items():
            name = self._problem.job.tasks[task].name
            due = f", due at {end:.3f} s" if has_times else ""
            lines.append(f"task {name} runs iteration {iteration + self._first}{due}")
        lines += [self._flow_line(key) for key in self._flows]
        return self._join_lines(lines) or "no task runs and no flow is active"

    def _last_seen(self, position: int) -> str:
        task = self._problem.job.tasks[position]
        sighting = self._seen.get(position, "when the run began")
        process = task.process_name
        place = f" in process {process}" if process != task.name else ""
        return f"{task.name}{place} was last seen {sighting}"

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
