"""Attempts at a job whose processes are killed: what is done again, and the length.

Pure: how long a part of the job takes is given, as is what a cut is taken of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from emu.errors import NodeLost, ScenarioError
from emu.problem import Job, Kill, Outages, Schedule, next_kills
from emu.problem.changes import TIE
from emu.problem.workloads import CHECKPOINT, copies_of


@dataclass(frozen=True)
class Rules:
    """Rules for a job of which a process has died."""

    restarts: int
    """Number of times that it begins again."""
    recovery: float
    """Seconds from a death until the next attempt begins."""
    every: int
    """Iterations between two cuts, 0 for none."""
    keepers: tuple[int, ...]
    """Tasks that a cut waits for: it is taken when the last begins its iteration."""
    missed: int = 0
    """Iterations after that until it counts: updates are on their way till then."""
    copies: tuple[int, ...] = ()
    """Tasks that must have it until it counts; none where the keepers have."""


@dataclass(frozen=True)
class Killed:
    """An attempt that a kill has ended."""

    first_iteration: int
    """Iteration of the whole job with which it began."""
    next_iteration: int
    """Iteration with which the next began: all before it are done."""
    began: float
    """Seconds since the whole job began."""
    ran: float
    """Seconds until the kill."""
    again: float
    """Seconds of them after the cut that the next attempt began with."""
    recovery: float
    """Seconds until the next attempt began."""
    error: str


@dataclass(frozen=True, eq=False)
class Attempts:
    """Attempts at a job until one lasted."""

    killed: tuple[Killed, ...]
    makespan: float
    """Seconds of all of them, and from each to the next."""
    last: Schedule
    ties: frozenset[Kill] = frozenset()
    """Kills that came to nothing as what they kill had ended at that very time."""

    @property
    def lost(self) -> dict[str, float]:
        """Seconds lost to recovery, and to work that is done again."""
        kinds = ("recovery", "again")
        return {k: math.fsum(getattr(one, k) for one in self.killed) for k in kinds}

    def outages(self, length: float) -> Outages:
        """Return what deaths add to a schedule of so many seconds."""
        if not self.killed:
            return Outages()
        return Outages(self.makespan - length, self.lost["recovery"])

    def to_json(self) -> dict[str, Any]:
        """Return ``recovery`` of a simulation's result, where something was killed."""
        if not self.killed:
            return {}
        deaths = [asdict(one) for one in self.killed]
        content = {"makespan": self.makespan, "lost": self.lost, "attempts": deaths}
        return {"recovery": content}


def attempts(
    part: Callable[[int, float], Schedule],
    kills: Sequence[Kill],
    rules: Rules,
    first: int = 0,
    began: float = 0.0,
) -> Attempts:
    """Return the attempts at a job.

    What is to be killed while it is down is down already: recovery begins anew.

    ``part``: returns the schedule from an iteration of the whole job on that begins so
    many seconds after the whole job began. ``first``, ``began``: iteration and time
    with which the first attempt begins.

    Raises NodeLost when one dies and none may begin again, and ScenarioError when one
    of several jobs is killed that may.
    """
    deaths: list[Killed] = []
    ties = set[Kill]()
    start = began
    holders = None
    while True:
        schedule = part(first, began)
        job = schedule.problem.job
        ends = schedule.task_end.item
        over = cache(partial(end_of, schedule))
        due = next_kills(kills, first, began, ends, over)
        pairs = ((kill, began + max(map(over, kill.processes))) for kill in due.idle)
        ties |= {k for k, end in pairs if math.isclose(k.time, end, rel_tol=TIE)}
        ran = max(due.time, 0.0)
        if not ran < schedule.length:
            length = began + schedule.length - start
            return Attempts(tuple(deaths), length, schedule, frozenset(ties))
        # A crash names no process, nor the task that it came in.
        kill = due.now[0]
        error = kill.name
        if kill.processes:
            task = job.processes[kill.processes[0]][0]
            at = first + int((schedule.task_end[task] <= ran).sum())
            where = f"task {job.tasks[task].name}, iteration {at}"
            error = f"{kill.name} is killed at {began + ran:g} s ({where})"
        if len(deaths) == rules.restarts:
            text = _RESTARTS if rules.restarts else _NO_RESTART
            raise NodeLost(error + text.format(rules.restarts))
        # After a crash a run of several jobs begins all of them again.
        if len(job.job_names) > 1 and kill.processes:
            raise ScenarioError(f"{error}: {_SEVERAL}")
        holders = holders or Holders(job)
        newest, cut_time = _last_cut(schedule, rules, first, ran)
        coming = [one for one in kills if one not in due.idle]
        pause, fallen = time_down(coming, due.now, began + ran, rules.recovery)
        starts = schedule.task_start[:, min(rules.missed, job.iterations - 1)]
        arrivals = {*np.flatnonzero(starts < ran).tolist()}
        cut = holders.left_of(newest, first, fallen, arrivals)
        if cut < newest:  # and what earlier attempts had kept, too
            cut_time, deaths = 0.0, [replace(one, again=one.ran) for one in deaths]
        deaths.append(Killed(first, cut, began, ran, ran - cut_time, pause, error))
        first, began = cut, began + ran + pause
        kills = kills_after(coming, fallen, began)


_RESTARTS = "; there were {0} restarts before (max_restarts: {0})"
_NO_RESTART = ", and the run ends: write on_failure: restart"
_SEVERAL = (
    "with several jobs only its own would begin again, which is not simulated: remove "
    "the kill, or on_failure: restart"
)


def end_of(schedule: Schedule, process: str) -> float:
    """Return when a process has nothing left to do or to send, seconds.

    Never, where it keeps a copy of state: that is lost with it.
    """
    problem = schedule.problem
    job = schedule.problem.job
    own = {*job.processes[process]}
    if any(job.tasks[task].kind == CHECKPOINT for task in own):
        return math.inf
    ends = [schedule.task_end[[*own]]]
    ends += [
        schedule.flow_end[e] + problem.latencies[e]
        for e, edge in enumerate(job.edges)
        if edge.source in own and problem.hops[e]
    ]
    return max(float(np.nan_to_num(one).max()) for one in ends)


class Holders:
    """Tasks that hold the state of the cut that a job goes on from.

    Its owner does, from memory, and its copy on another machine. A job whose copies no
    peer has keeps its cuts on disk.
    """

    def __init__(self, job: Job) -> None:
        self._process = [task.process_name for task in job.tasks]
        self._pairs = [(job.index(name), c) for name, c in copies_of(job).items()]
        self._missing: set[int] = set()
        """Copies that died, until the state of the cut comes to them anew."""

    def left_of(
        self, newest: int, first: int, fallen: Iterable[Kill], came: Collection[int]
    ) -> int:
        """Return the cut that is left of the newest one after deaths; 0 for none.

        ``first``: cut with which the attempt began that has ended. ``came``: copies to
        which that has come anew in the attempt.
        """
        dead = {process for kill in fallen for process in kill.processes}
        if newest > first:  # it counts when all have it
            self._missing.clear()
        self._missing -= {*came}
        self._missing |= {c for _, c in self._pairs if self._process[c] in dead}
        if any(self._process[o] in dead and c in self._missing for o, c in self._pairs):
            self._missing.clear()
            return 0
        return newest


def time_down(
    kills: Iterable[Kill], now: Sequence[Kill], died: float, otherwise: float
) -> tuple[float, tuple[Kill, ...]]:
    """Return the seconds for which deaths have a job down, and all kills until then.

    ``otherwise``: seconds of recovery after a death that no kill states them for.
    """

    def lasts(kill: Kill) -> float:
        return otherwise if kill.recovery is None else kill.recovery

    fallen = [*now]
    down = max(map(lasts, now), default=otherwise)
    for kill in sorted(kills, key=lambda kill: kill.time):
        if died < kill.time < died + down and kill not in now:
            fallen.append(kill)
            down = max(down, kill.time - died + lasts(kill))
    return down, tuple(fallen)


def kills_after(
    kills: Iterable[Kill], fallen: Collection[Kill], began: float
) -> tuple[Kill, ...]:
    """Return the kills that are left when a job goes on at a time, ``began``."""
    # To compare each with all that have come took half of a draw of 1000 kills.
    return tuple(
        kill
        for kill in kills
        if began < kill.time < math.inf or (kill.time >= began and kill not in fallen)
    )


def later(kills: Sequence[Kill], first: int, began: float) -> tuple[Kill, ...]:
    """Return those that come in the part of a job that begins with an iteration."""
    return tuple(
        kill
        for kill in kills
        if (kill.time > began if kill.ended is None else kill.ended[1] > first)
    )


def _last_cut(
    schedule: Schedule, rules: Rules, first: int, ran: float
) -> tuple[int, float]:
    """Return the cut that the next attempt begins with, and when it was taken."""
    if rules.every:
        starts = schedule.task_start[list(rules.keepers)].max(axis=0)
        there = schedule.task_start[list(rules.copies or rules.keepers)].max(axis=0)
        rest = min(schedule.problem.job.rounds[task] for task in rules.keepers)
        newest = (first + rest - 1) // rules.every * rules.every
        for cut in range(newest, first, -rules.every):
            whole = cut - first + rules.missed
            # At the instant of the kill itself nothing begins any more.
            if whole < rest and there[whole] < ran:
                return cut, float(starts[cut - first])
    return first, 0.0
