"""Faults: links and machines that are slow or stand still for a time, as changes.

A fault multiplies what a link or machine has by a factor, 0 where it is cut or paused.
Faults that overlap multiply, so a cut wins, and what a link has is stated once: a
capacity that changes meanwhile counts from its time on, times the factors of then.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

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
        # At 0 it would be the cluster itself, which the file states.
        if not 0.0 < self.since < self.until:
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
    """Return the kills that come next in an attempt at a job.

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
        # Of a task that has not ended its iteration yet nothing is known.
        if time < math.inf:
            due_then = due.setdefault(time, [])
            due_then.append(kill)

    idle: list[Kill] = []
    # The first that is fatal ends the attempt: later ones are due in another.
    for time in sorted(due):
        # Where it is not known who dies, the kill counts.
        kills_then = due[time]
        fatal = [
            kill
            for kill in kills_then
            if not kill.processes or any(time < over(p) for p in kill.processes)
        ]
        # What has ended cannot die: such a kill is used up.
        idle += [kill for kill in kills_then if kill not in fatal]
        if fatal:
            return Due(
                time=time,
                now=tuple(fatal),
                idle=tuple(idle),
            )
    return Due(idle=tuple(idle))


def _factors(faults: Iterable[Fault]) -> list[tuple[float, float]]:
    """Return (time, product of the factors from then on) by time; it is 1 before."""
    edges = []
    for fault in faults:
        # An end sorts before a beginning of the same instant: 0 before 1.
        beginning = (fault.since, 1, fault.factor)
        edges.append(beginning)
        if fault.until < math.inf:
            end = (fault.until, 0, fault.factor)
            edges.append(end)

    edges.sort()
    active: list[float] = []
    products: dict[float, float] = {}  # of one instant the last holds
    for time, is_start, factor in edges:
        if is_start:
            active.append(factor)
        else:
            # Of equal factors any will do: only their product counts.
            active.remove(factor)
        # Sorted, so that its bits do not depend on which fault came first.
        product = math.prod(sorted(active))
        products[time] = product
    return list(products.items())


def with_faults(cluster: Cluster, faults: Sequence[Fault]) -> Cluster:
    """Return the cluster whose capacities and speeds change as the faults have it, too.

    Raises ValueError when there is no such link or machine, or one stands still for
    good.
    """
    if not faults:
        return cluster

    by_link = defaultdict[str, list[Fault]](list)
    by_machine = defaultdict[str, list[Fault]](list)
    for fault in faults:
        by_subject = by_machine if fault.of_machine else by_link
        faults_of_subject = by_subject[fault.subject]
        faults_of_subject.append(fault)

    start = {link.name: link.capacity for link in cluster.links}
    # What is stated of a link with faults is stated anew, times their factors.
    changes = [change for change in cluster.changes if change.link not in by_link]
    for name, faults_of_link in by_link.items():
        if name not in start:
            raise ValueError(f"no link is called {name}")
        stated = {}
        for change in cluster.changes:
            if change.link == name:
                stated[change.time] = change.capacity
        factors = dict(_factors(faults_of_link))
        changes += _changes_of(name, start[name], stated, factors)

    # Scenarios state no changes of speed: all that there are come from faults.
    speeds = []
    for machine, faults_of_machine in by_machine.items():
        for time, share in _factors(faults_of_machine):
            speeds.append(SpeedChange(time, machine, share))
    return replace(
        cluster,
        changes=tuple(changes),
        speed_changes=tuple(speeds),
    )


def _changes_of(
    link: str,
    start: float,
    stated: Mapping[float, float],
    factors: Mapping[float, float],
) -> Iterator[CapacityChange]:
    """Yield what a link has, by the capacities and the factors from some times on."""
    capacity = start
    factor = 1.0
    times = sorted({*stated, *factors})
    for time in times:
        capacity = stated.get(time, capacity)
        factor = factors.get(time, factor)
        yield CapacityChange(time, link, capacity * factor)


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
        # Of what it had at first: a change to more is no disturbance.
        shares = capacity / capacity[0]
        for span in _spans(times.tolist(), shares.tolist(), end):
            row = Disturbance(
                what="slow" if span.share else "cut",
                since=span.begin,
                until=span.end,
                port=port,
            )
            rows.append(row)

    for machine in range(len(cluster.machines)):
        # Speeds are shares already.
        step_times, machine_shares = cluster.speed_steps.of(machine)
        for span in _spans(step_times, machine_shares, end):
            row = Disturbance(
                what="slow" if span.share else "pause",
                since=span.begin,
                until=span.end,
                machine=machine,
            )
            rows.append(row)
    return rows


class _Span(NamedTuple):
    """A time in which a link or a machine has a share of what it had at first."""

    begin: float
    end: float
    share: float


def _spans(
    times: Sequence[float],
    shares: Sequence[float],
    end: float,
) -> Iterator[_Span]:
    """Yield the steps before ``end`` with a share of less than 1."""
    next_times = [*times[1:], math.inf]
    steps = zip(times, next_times, shares, strict=True)
    for begin, next_time, share in steps:
        if share < 1 and begin < end:
            yield _Span(begin, min(next_time, end), share)
