"""Attempts at a job whose processes are killed: what is done again, and the length.

Pure: how long a part of the job takes is given, as is what a cut is taken of.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from emu.errors import NodeLost
from emu.problem import Kill, next_kills

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from emu.problem import Schedule


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

    @property
    def lost(self) -> dict[str, float]:
        """Seconds lost to recovery, and to work that is done again."""
        kinds = ("recovery", "again")
        return {k: math.fsum(getattr(one, k) for one in self.killed) for k in kinds}

    def to_json(self) -> dict[str, Any]:
        """Return ``recovery`` of a simulation's result, where something was killed."""
        if not self.killed:
            return {}
        ended = [asdict(one) for one in self.killed]
        found = {"makespan": self.makespan, "lost": self.lost, "attempts": ended}
        return {"recovery": found}


def attempts(
    part: Callable[[int, float], Schedule],
    kills: Sequence[Kill],
    rules: Rules,
    first: int = 0,
    began: float = 0.0,
) -> Attempts:
    """Return the attempts at a job.

    What is to be killed while it is down is killed as it comes back.

    Parameters
    ----------
    part
        Returns the schedule from an iteration of the whole job on that begins so many
        seconds after the whole job began.
    kills
        In any order.
    first, began
        Iteration and time with which the first attempt begins.

    Raises
    ------
    NodeLost
        When one dies and none may begin again.
    """
    killed: list[Killed] = []
    start = began
    while True:
        schedule = part(first, began)
        due, now = next_kills(kills, first, began, schedule.task_end.item)
        ran = max(due, 0.0)
        if not ran < schedule.makespan:
            length = began + schedule.makespan - start
            return Attempts(tuple(killed), length, schedule)
        error = _story(replace(now[0], time=began + due), schedule, ran, first)
        if len(killed) == rules.restarts:
            raise NodeLost(error + _no_more(rules.restarts))
        cut, kept = _last_cut(schedule, rules, first, ran)
        lost, pause = ran - kept, recovery_after(now, rules.recovery)
        killed.append(Killed(first, cut, began, ran, lost, pause, error))
        first, began = cut, began + ran + pause
        kills = without(kills, now)


def recovery_after(kills: Sequence[Kill], otherwise: float) -> float:
    """Return the seconds from kills of one instant, the longest, to the restart."""
    own = [otherwise if kill.recovery is None else kill.recovery for kill in kills]
    return max(own, default=otherwise)


def without(kills: Sequence[Kill], done: Collection[Kill]) -> tuple[Kill, ...]:
    """Return the kills that are left when some were carried out."""
    return tuple(kill for kill in kills if kill not in done)


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
        begun = schedule.task_start[list(rules.keepers)].max(axis=0)
        there = schedule.task_start[list(rules.copies or rules.keepers)].max(axis=0)
        left = min(schedule.problem.job.rounds[task] for task in rules.keepers)
        newest = (first + left - 1) // rules.every * rules.every
        for cut in range(newest, first, -rules.every):
            whole = cut - first + rules.missed
            # At the instant of the kill itself nothing begins any more.
            if whole < left and there[whole] < ran:
                return cut, float(begun[cut - first])
    return first, 0.0


def _story(kill: Kill, schedule: Schedule, ran: float, first: int) -> str:
    """Return a text on what is killed, when, and in which iteration."""
    job = schedule.problem.job
    task = job.processes[kill.processes[0]][0]
    at = first + int((schedule.task_end[task] <= ran).sum())
    where = f"task {job.tasks[task].name}, iteration {at}"
    return f"{kill.name} is killed at {kill.time:g} s ({where})"


def _no_more(restarts: int) -> str:
    if not restarts:
        return ", and the run ends: write on_failure: restart"
    return f"; there were {restarts} restarts before (max_restarts: {restarts})"
