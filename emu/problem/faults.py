"""Faults: links and machines that are slow or stand still for a time, as changes.

A fault multiplies what a link or machine has by a factor, 0 where it is cut or paused.
Faults that overlap multiply, so a cut wins, and what a link has is stated once: a
capacity that changes meanwhile counts from its time on, times the factors of then.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from emu.problem.changes import CapacityChange, SpeedChange

if TYPE_CHECKING:
    from emu.problem.cluster import Cluster


@dataclass(frozen=True)
class Fault:
    """A link that has less for a time, or a machine that is slower.

    Raises ValueError when it does not begin after 0 or end after that, or the factor is
    not from 0 to 1.
    """

    subject: str
    """Name of the link or the machine."""
    since: float
    """Seconds since the job began, positive and finite."""
    until: float
    """When it is over, infinite where it never is."""
    factor: float = 0.0
    """Share of capacity or speed that is left, 0 where it is cut or paused."""
    of_machine: bool = False
    """True where it is the speed of a machine."""

    def __post_init__(self) -> None:
        if not (0.0 < self.since < self.until and self.since < math.inf):
            raise ValueError(f"a fault of {self.subject}: {self.since} to {self.until}")
        if not 0.0 <= self.factor <= 1.0:
            raise ValueError(f"a fault of {self.subject}: its factor is {self.factor}")


@dataclass(frozen=True)
class Kill:
    """Processes that are killed at a time, or as a task ends an iteration."""

    time: float
    """Seconds since the whole job began; infinite where it is a task's iteration."""
    name: str
    """The task or machine that was named."""
    processes: tuple[str, ...]
    """Those that die; none where it is not known which."""
    recovery: float | None = None
    """Seconds from then to the restart; None for those of any death."""
    ended: tuple[int, int] | None = None
    """A task, and how many iterations of the whole job it has ended by then."""


@dataclass(frozen=True)
class Due:
    """Kills that come next in an attempt at a job, and those that came to nothing."""

    time: float = math.inf
    """Seconds since the attempt began; infinite for none, below 0 for before it."""
    now: tuple[Kill, ...] = ()
    """All of then that some process dies of."""
    idle: tuple[Kill, ...] = ()
    """Those by then whose processes had all ended: what has ended cannot die."""


def next_kills(
    kills: Iterable[Kill],
    first: int,
    began: float,
    end_of: Callable[[int, int], float],
    over: Callable[[str], float] = lambda _: math.inf,
) -> Due:
    """Return what is killed next in an attempt at a job.

    ``first``, ``began``: iteration and time of the whole job with which the attempt
    begins; a task that had ended its iteration by then has ended it at 0. ``end_of``
    returns when in the attempt a task ends an iteration of it, counted from 0, and
    ``over`` when a process has nothing left to do or to send; infinite where that is
    not known yet.
    """
    due: dict[float, list[Kill]] = {}
    for kill in kills:
        time = kill.time - began
        if kill.ended is not None:
            task, count = kill.ended
            time = end_of(task, count - first - 1) if count > first else 0.0
        due.setdefault(time, []).append(kill)
    due.pop(math.inf, None)
    idle: list[Kill] = []
    for time in sorted(due):
        now = [
            kill
            for kill in due[time]
            if not kill.processes or any(time < over(p) for p in kill.processes)
        ]
        idle += [kill for kill in due[time] if kill not in now]
        if now:
            return Due(time, tuple(now), tuple(idle))
    return Due(idle=tuple(idle))


def _factors(faults: Iterable[Fault]) -> list[tuple[float, float]]:
    """Return (time, product of the factors from then on) by time; it is 1 before."""
    edges = []
    for fault in faults:
        edges.append((fault.since, 1, fault.factor))
        if fault.until < math.inf:
            edges.append((fault.until, 0, fault.factor))
    active: list[float] = []
    factors: list[tuple[float, float]] = []
    for time, is_start, factor in sorted(edges):
        if is_start:
            active.append(factor)
        else:
            active.remove(factor)
        product = math.prod(sorted(active))
        if factors and factors[-1][0] == time:
            factors.pop()
        factors.append((time, product))
    return factors


def with_faults(cluster: Cluster, faults: Sequence[Fault]) -> Cluster:
    """Return the cluster whose capacities and speeds change as the faults have it, too.

    Raises ValueError when there is no such link or machine, or one stands still for
    good.
    """
    if not faults:
        return cluster
    by_link, by_machine = (defaultdict[str, list[Fault]](list) for _ in range(2))
    for fault in faults:
        (by_machine if fault.of_machine else by_link)[fault.subject].append(fault)
    start = {link.name: link.capacity for link in cluster.links}
    changes = [c for c in cluster.changes if c.link not in by_link]
    for link, mine in by_link.items():
        if link not in start:
            raise ValueError(f"no link is called {link}")
        own = [change for change in cluster.changes if change.link == link]
        having = {c.time: c.capacity for c in own}
        share = dict(_factors(mine))
        capacity = before = start[link]
        factor = 1.0
        # What it has by then times the factor of then.
        for time in sorted({*having, *share}):
            capacity, factor = having.get(time, capacity), share.get(time, factor)
            if capacity * factor != before:
                before = capacity * factor
                changes.append(CapacityChange(time, link, before))
    speeds = [
        SpeedChange(time, machine, share)
        for machine, mine in by_machine.items()
        for time, share in _factors(mine)
    ]
    return replace(cluster, changes=tuple(changes), speed_changes=tuple(speeds))


@dataclass(frozen=True)
class Disturbance:
    """A time in which a link or a machine has less than at the beginning."""

    what: str
    """``cut`` or ``slow``, of a link; ``pause`` or ``slow``, of the tasks of a
    machine."""
    since: float
    until: float
    port: int = -1
    machine: int = -1
    """Which of the links, or of the machines."""


def disturbances(cluster: Cluster, end: float) -> list[Disturbance]:
    """Return what is slow or stands still before ``end``, by links, then machines."""
    rows = []
    for port in range(len(cluster.links)):
        times, capacity = cluster.links.steps.of(port)
        steps = times.tolist(), (capacity / capacity[0]).tolist()
        rows += [
            Disturbance("slow" if share else "cut", since, until, port=port)
            for since, until, share in _spans(*steps, end)
        ]
    for machine in range(len(cluster.machines)):
        rows += [
            Disturbance("slow" if share else "pause", since, until, machine=machine)
            for since, until, share in _spans(*cluster.speed_steps.of(machine), end)
        ]
    return rows


def _spans(
    since: Sequence[float], share: Sequence[float], end: float
) -> Iterator[tuple[float, float, float]]:
    """Yield the beginning, the end and the share of every step with less than 1."""
    for start, ends, part in zip(since, [*since[1:], math.inf], share, strict=True):
        if part < 1 and start < end:
            yield start, min(ends, end), part
