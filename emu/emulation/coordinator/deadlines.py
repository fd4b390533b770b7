"""Track what is under way or overdue: each wait has a deadline and a name."""

from __future__ import annotations

import math
from collections.abc import Container

from emu.emulation.wire.messages import FlowEnded, TaskEnded
from emu.errors import DeadlineExceeded
from emu.prediction.scheduling import Decisions, Scheduler
from emu.problem import Problem

_LISTED = 6
_AWAITED = 3


class Deadlines:
    """Tasks and flows under way; times are run times, emulated seconds, unless said.

    The scheduler knows the least times of tasks (none where they take what their work
    does), and how much of a flow has been served. Something may be overdue for
    ``patience`` wall seconds in which this process ran. Messages call iteration 0
    ``first``.
    """

    def __init__(
        self, problem: Problem, scheduler: Scheduler, patience: float, first: int = 0
    ) -> None:
        self._problem = problem
        self._scheduler = scheduler
        self._patience = patience
        self._first = first
        self._tasks: dict[tuple[int, int], float] = {}  # and when they are due
        self._unknown: set[tuple[int, int]] = set()  # of these: no end was reported
        self._flows: dict[tuple[int, int], float | None] = {}  # and when served
        self._next = [0] * len(problem.job.tasks)
        #: When each wait became overdue, on the clock of `check`; None is idleness.
        self._overdue: dict[tuple[str, int, int] | None, float] = {}
        self._seen: dict[int, str] = {}  # by task: the last report of it

    def on_decisions(self, decisions: Decisions) -> None:
        """Note what was started."""
        least = self._scheduler.holds
        for key in decisions.tasks:
            since = 0.0 if least is None else float(least[key])
            self._tasks[key] = decisions.time + since
            self._unknown.add(key)
            self._next[key[0]] = key[1] + 1
        for key in decisions.flows:
            self._flows[key] = None

    def on_report(self, message: TaskEnded) -> None:
        """Note when a task will have ended: it is not due before."""
        key = message.task, message.iteration
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
        self._seen[message.task] = (
            f"ending iteration {self._first + message.iteration} at {message.end:.3f} s"
        )

    def flow_ended(self, message: FlowEnded) -> None:
        """Note that a flow arrived."""
        self._flows.pop((message.edge, message.iteration), None)
        name = self._problem.job.edge_names[message.edge]
        self._seen[self._problem.job.edges[message.edge].destination] = (
            f"receiving {name} of iteration {self._first + message.iteration} "
            f"at {message.time:.3f} s"
        )

    def check(self, now: float, awake: float) -> None:
        """Raise when something is overdue at run time ``now``.

        A task is due at its profiled end, a flow when its fluid has been served; until
        then both may take as long as they like. ``awake`` are wall seconds in which
        this process ran, since any moment: pauses of its own are no one's delay.

        Raises DeadlineExceeded when one is overdue by more than the patience, or
        nothing is under way for that long. Names who waits for whom, the iteration,
        since when, and what the other side was last seen at.
        """
        job = self._problem.job
        due = dict[tuple[str, int, int] | None, str]()
        scheduler = self._scheduler
        for key, end in self._tasks.items():
            if now > end:
                due["task", *key] = (
                    f"the coordinator waits for task {job.tasks[key[0]].name} to end "
                    f"iteration {self._first + key[1]} since {end:.3f} s; "
                    f"{self._last_seen(key[0])}"
                )
        for key, served_at in self._flows.items():
            if served_at is not None:
                edge = job.edges[key[0]]
                due["flow", *key] = (
                    f"{self._flow_line(key)} since {served_at:.3f} s; "
                    f"{self._last_seen(edge.source)}; "
                    f"{self._last_seen(edge.destination)}"
                )
            elif scheduler.service_of(key[0], now) >= scheduler.volumes[key]:
                self._flows[key] = now
        is_served = any(f is not None for f in self._flows.values())
        gate = scheduler.next_end < math.inf  # if nothing else can end
        if not (self._tasks or gate or is_served):
            what = "no flow has a rate" if self._flows else "no flow is active"
            due[None] = f"no task runs and {what} at {now:.3f} s"
        self._overdue = {wait: self._overdue.get(wait, awake) for wait in due}
        since = self._overdue
        most = self._patience
        if lines := [line for wait, line in due.items() if awake - since[wait] > most]:
            over = f"that is over {most:g} s of wall time"
            raise DeadlineExceeded(f"{self._join_lines(lines)}; {over}")

    def doing(self, process: str) -> str:
        """Return the activities of the tasks of a process, for an error message.

        The first of several tasks are named, whatever each is doing: a server of
        Dorylus has dozens.
        """
        job = self._problem.job
        members = job.processes.get(process, ())
        at = [
            f"task {job.tasks[task].name} in iteration {n + self._first}"
            f"{self._waiters_of(task, n, members)}"
            for task, n in self._tasks
            if task in members
        ]
        for edge, n in self._flows:
            ends = job.edges[edge]
            flow = f"{job.edge_names[edge]} of iteration"
            if ends.source in members or ends.destination in members:
                verb = "sending" if ends.source in members else "receiving"
                at.append(f"{verb} {flow} {n + self._first}")
        for task in () if at else members:
            name = job.tasks[task].name
            n = self._next[task]
            is_over = n == job.rounds[task]
            when = "after its last iteration" if is_over else "before iteration"
            at.append(f"task {name} {when} {n - is_over + self._first}")
        doing = self._join_lines(at)
        if len(members) < 2:
            return doing
        return f"tasks {_some([job.tasks[task].name for task in members])}: {doing}"

    def _waiters_of(self, task: int, n: int, members: Container[int]) -> str:
        """Return which tasks of other processes wait for an iteration, and for what."""
        job = self._problem.job
        waiting = [
            f"{job.tasks[edge.destination].name} for its iteration "
            f"{self._first + n + edge.lag}"
            for position, edge in enumerate(job.edges)
            if edge.source == task
            and edge.destination not in members
            and not edge.credit
            and job.sends(position, n)
        ]
        return f", awaited by {_some(waiting)}" if waiting else ""

    def story(self) -> str:
        """Return the running tasks and the tasks that wait for flows, by iteration."""
        has_times = self._scheduler.holds is not None
        lines = []
        for (task, n), end in self._tasks.items():
            due = f", due at {end:.3f} s" if has_times else ""
            name = self._problem.job.tasks[task].name
            lines.append(f"task {name} runs iteration {n + self._first}{due}")
        lines += [self._flow_line(key) for key in self._flows]
        return self._join_lines(lines) or "no task runs and no flow is active"

    def _last_seen(self, task: int) -> str:
        one = self._problem.job.tasks[task]
        moment = self._seen.get(task)
        process = one.process_name
        where = f" in process {process}" if process != one.name else ""
        return f"{one.name}{where} was last seen {moment or 'when the run began'}"

    def _flow_line(self, key: tuple[int, int]) -> str:
        job = self._problem.job
        edge = job.edges[key[0]]
        return (
            f"task {job.tasks[edge.destination].name} waits for the flow "
            f"{job.edge_names[key[0]]} of iteration {key[1] + self._first}"
        )

    @staticmethod
    def _join_lines(lines: list[str]) -> str:
        more = len(lines) - _LISTED
        return "; ".join(lines[:_LISTED]) + (f"; {more} more" if more > 0 else "")


def _some(names: list[str]) -> str:
    """Return the first of the names, and how many more there are."""
    more = len(names) - _AWAITED
    return ", ".join(names[:_AWAITED]) + (f" and {more} more" if more > 0 else "")
