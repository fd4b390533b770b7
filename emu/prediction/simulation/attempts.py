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
    stated: float | None = None
    """Makespan of a run with the kills that its scenario states, and no other death;
    None where those end the job, and of what is no run."""

    @property
    def lost(self) -> dict[str, float]:
        """Seconds lost to recovery, and to work that is done again."""
        return {
            "recovery": math.fsum(attempt.recovery for attempt in self.killed),
            "again": math.fsum(attempt.again for attempt in self.killed),
        }

    def outages(self, length: float) -> Outages:
        """Return what comes before a last attempt of so many seconds.

        A run may have died where nothing dies here, as after the end: its last attempt
        is then another than that of this, and both are still of the same whole job.
        """
        if not self.killed and length == self.last.length:
            return Outages()
        return Outages(self.makespan - length, self.lost["recovery"])

    def to_json(self) -> dict[str, Any]:
        """Return ``recovery`` of a simulation's result, where something was killed."""
        if not self.killed:
            return {}
        content = {
            "makespan": self.makespan,
            "lost": self.lost,
            "attempts": [asdict(attempt) for attempt in self.killed],
        }
        return {"recovery": content}


def attempts(
    part: Callable[[int, float], Schedule],
    kills: Sequence[Kill],
    rules: Rules,
    first: int = 0,
    began: float = 0.0,
) -> Attempts:
    """Return the attempts at a job.

    A process that is to be killed while it is down is down already: recovery begins
    anew.

    Parameters
    ----------
    part
        Returns the schedule from an iteration of the whole job on that begins so many
        seconds after the whole job began.
    first, began
        Iteration and time with which the first attempt begins.

    Raises
    ------
    NodeLost
        One dies and none may begin again.
    ScenarioError
        One of several jobs is killed that may.
    """
    deaths: list[Killed] = []
    ties = set[Kill]()
    start = began
    holders = None
    while True:
        schedule = part(first, began)
        job = schedule.problem.job
        end_of_process = cache(partial(end_of, schedule))
        # A kill may be stated by the end of a task: each attempt's schedule says anew
        # when that is.
        due = next_kills(kills, first, began, schedule.task_end.item, end_of_process)
        # By rounding such a kill falls before or after the end. A run may see it the
        # other way: the ties say for which kills both are right.
        ties |= _find_ties(due.idle, end_of_process, began)
        ran = max(due.time, 0.0)
        if not ran < schedule.length:
            return Attempts(
                killed=tuple(deaths),
                makespan=began + schedule.length - start,
                last=schedule,
                ties=frozenset(ties),
            )

        kill = due.now[0]
        error = _describe(kill, schedule, first, began, ran)
        _check_restart(error, kill, job, rules, len(deaths))
        # Made once: which copies died is remembered from attempt to attempt.
        holders = holders or Holders(job)
        coming = [kill for kill in kills if kill not in due.idle]
        # A process that has ended cannot fall while others recover.
        pause, fallen = time_down(coming, due.now, began + ran, rules.recovery)
        cut, cut_time, is_lost = _find_cut(holders, schedule, rules, first, ran, fallen)
        if is_lost:  # and what earlier attempts had kept, too
            # Owner and copy are both gone: the job begins anew, and all work counts as
            # lost.
            deaths = [replace(attempt, again=attempt.ran) for attempt in deaths]
        death = Killed(
            first_iteration=first,
            next_iteration=cut,
            began=began,
            ran=ran,
            again=ran - cut_time,
            recovery=pause,
            error=error,
        )
        deaths.append(death)
        first = cut
        began = began + ran + pause
        kills = kills_after(coming, fallen, began)


def _find_ties(
    idle: Iterable[Kill],
    end_of_process: Callable[[str], float],
    began: float,
) -> set[Kill]:
    """Return the kills that came at the very time at which what they kill had ended."""
    ties = set()
    for kill in idle:
        ends = map(end_of_process, kill.processes)
        end = began + max(ends)
        if math.isclose(kill.time, end, rel_tol=TIE):
            ties.add(kill)
    return ties


def _find_cut(
    holders: Holders,
    schedule: Schedule,
    rules: Rules,
    first: int,
    ran: float,
    fallen: Iterable[Kill],
) -> tuple[int, float, bool]:
    """Return the cut that is left, its time, and whether a newer one is lost."""
    newest, cut_time = _last_cut(schedule, rules, first, ran)
    last = schedule.problem.job.iterations - 1
    iteration = min(rules.missed, last)
    # A copy has the state again when its task of that iteration has begun.
    has_begun = schedule.task_start[:, iteration] < ran
    arrivals = {*np.flatnonzero(has_begun).tolist()}
    cut = holders.left_of(newest, first, fallen, arrivals)
    if cut < newest:
        return cut, 0.0, True
    return cut, cut_time, False


def _check_restart(
    error: str,
    kill: Kill,
    job: Job,
    rules: Rules,
    restarts: int,
) -> None:
    """Raise NodeLost or ScenarioError unless the job may begin again."""
    if restarts == rules.restarts:
        text = _RESTARTS if rules.restarts else _NO_RESTART
        raise NodeLost(error + text.format(rules.restarts))
    # After a crash a run of several jobs begins all of them again.
    if len(job.job_names) > 1 and kill.processes:
        raise ScenarioError(f"{error}: {_SEVERAL}")


def _describe(
    kill: Kill,
    schedule: Schedule,
    first: int,
    began: float,
    ran: float,
) -> str:
    """Return who is killed, and when; a crash names no process, nor where it came."""
    if not kill.processes:
        return kill.name
    job = schedule.problem.job
    process, *_ = kill.processes
    task, *_ = job.processes[process]
    has_ended = schedule.task_end[task] <= ran
    # The schedule counts from its own first iteration, messages from that of the job.
    iteration = first + int(has_ended.sum())
    place = f"task {job.tasks[task].name}, iteration {iteration}"
    return f"{kill.name} is killed at {began + ran:g} s ({place})"


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
    tasks = {*job.processes[process]}
    if any(job.tasks[task].kind == CHECKPOINT for task in tasks):
        return math.inf

    ends = [schedule.task_end[list(tasks)]]
    for position, edge in enumerate(job.edges):
        if edge.source in tasks and problem.hops[position]:
            # A process that has sent its last byte is needed until that has landed.
            arrivals = schedule.flow_end[position] + problem.latencies[position]
            ends.append(arrivals)
    # NaN is of what never happens: it must not decide the maximum.
    return max(float(np.nan_to_num(times).max()) for times in ends)


class Holders:
    """Tasks that hold the state of the cut that a job goes on from.

    Its owner does, from memory, and its copy on another machine. A job whose copies no
    peer has keeps its cuts on disk.
    """

    def __init__(self, job: Job) -> None:
        self._process = [task.process_name for task in job.tasks]
        self._pairs = []
        for owner, copy in copies_of(job).items():
            position = job.index(owner)
            self._pairs.append((position, copy))
        self._missing = set[int]()
        """Copies that died, until the state of the cut comes to them anew."""

    def left_of(
        self,
        newest: int,
        first: int,
        fallen: Iterable[Kill],
        came: Collection[int],
    ) -> int:
        """Return the cut that is left of the newest one after deaths; 0 for none.

        Parameters
        ----------
        newest
            The newest cut that counted.
        first
            Cut with which the attempt began that has ended.
        fallen
            The deaths.
        came
            Copies to which that has come anew in the attempt.
        """
        dead = set[str]()
        for kill in fallen:
            dead.update(kill.processes)
        if newest > first:  # it counts when all have it
            self._missing.clear()
        self._missing -= {*came}
        for _, copy in self._pairs:
            if self._process[copy] in dead:
                self._missing.add(copy)
        for owner, copy in self._pairs:
            if self._process[owner] in dead and copy in self._missing:
                self._missing.clear()
                return 0
        return newest


def time_down(
    kills: Iterable[Kill],
    now: Sequence[Kill],
    died: float,
    otherwise: float,
) -> tuple[float, tuple[Kill, ...]]:
    """Return the seconds for which deaths have a job down, and all kills until then.

    ``otherwise``: seconds of recovery after a death that no kill states them for.
    """

    def lasts(kill: Kill) -> float:
        return otherwise if kill.recovery is None else kill.recovery

    fallen = [*now]
    down = max(map(lasts, now), default=otherwise)
    for kill in sorted(kills, key=lambda kill: kill.time):
        # As the job goes on, up to rounding, it is of the attempt that begins then.
        end = (died + down) * (1.0 - TIE)
        if died < kill.time < end and kill not in now:
            fallen.append(kill)
            # Recovery begins anew with every death, so that a later one may come within
            # reach: by time, each is held against the end as it is by then.
            down = max(down, kill.time - died + lasts(kill))
    return down, tuple(fallen)


def kills_after(
    kills: Iterable[Kill],
    fallen: Collection[Kill],
    began: float,
) -> tuple[Kill, ...]:
    """Return the kills that are left when a job goes on at a time, ``began``."""
    rest = []
    least = began * (1.0 - TIE)
    most = began * (1.0 + TIE)
    for kill in kills:
        # To compare each with all that have come took half of a draw of 1000 kills.
        is_ahead = most < kill.time < math.inf
        if is_ahead or (kill.time >= least and kill not in fallen):
            rest.append(kill)
    return tuple(rest)


def later(kills: Sequence[Kill], first: int, began: float) -> tuple[Kill, ...]:
    """Return those that come in the part of a job that begins with an iteration."""

    def is_later(kill: Kill) -> bool:
        if kill.ended is None:
            return kill.time > began
        _, iteration = kill.ended
        return iteration > first

    return tuple(filter(is_later, kills))


def _last_cut(
    schedule: Schedule,
    rules: Rules,
    first: int,
    ran: float,
) -> tuple[int, float]:
    """Return the cut that the next attempt begins with, and when it was taken."""
    if not rules.every:
        return first, 0.0
    keepers = list(rules.keepers)
    holders = list(rules.copies or rules.keepers)
    # The last keeper decides: a cut holds where each has begun the iteration.
    starts = schedule.task_start[keepers].max(axis=0)
    arrivals = schedule.task_start[holders].max(axis=0)
    rest = min(schedule.problem.job.rounds[task] for task in keepers)

    # Cuts are at multiples of the whole job's iterations, whatever attempt takes them.
    last = first + rest - 1
    newest = last // rules.every * rules.every
    for cut in range(newest, first, -rules.every):
        counting = cut - first + rules.missed
        # At the instant of the kill itself nothing begins any more.
        if counting < rest and arrivals[counting] < ran:
            return cut, float(starts[cut - first])
    return first, 0.0
