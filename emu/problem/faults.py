"""Faults: links and machines that are slow or stand still for a time, as changes.

A fault multiplies what a link or machine has by a factor, 0 where it is cut or paused.
Faults that overlap multiply, so a cut wins, and what a link has is stated once: a
capacity that changes meanwhile counts from its time on, times the factors of then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from emu.problem.changes import CapacityChange, SpeedChange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from emu.problem.cluster import Cluster


@dataclass(frozen=True)
class Fault:
    """A link that has less for a time, or a machine that is slower.

    Raises
    ------
    ValueError
        When it does not begin after 0 or end after that, or the factor is not from 0
        to 1.
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
    """Processes that are killed at a time since the whole job began, seconds."""

    time: float
    name: str
    """The task or machine that was named."""
    processes: tuple[str, ...]
    recovery: float | None = None
    """Seconds from then to the restart; None for those of any death."""


def factors_over(
    faults: Iterable[tuple[float, float, float]],
) -> list[tuple[float, float]]:
    """Return (time, product of the factors from then on), in the order of time.

    Parameters
    ----------
    faults
        Beginning, end and factor of each; before the first of them the product is 1.
    """
    edges = []
    for since, until, factor in faults:
        edges.append((since, 1, factor))
        if until < math.inf:
            edges.append((until, 0, factor))
    held: list[float] = []
    found: list[tuple[float, float]] = []
    for time, begins, factor in sorted(edges):
        if begins:
            held.append(factor)
        else:
            held.remove(factor)
        product = math.prod(sorted(held))
        if found and found[-1][0] == time:
            found.pop()
        found.append((time, product))
    return found


def with_faults(cluster: Cluster, faults: Sequence[Fault]) -> Cluster:
    """Return the cluster whose capacities and speeds change as the faults have it, too.

    Raises
    ------
    ValueError
        When there is no such link or machine, or one stands still for good.
    """
    if not faults:
        return cluster
    found: dict[bool, dict[str, list[Fault]]] = {False: {}, True: {}}
    for fault in faults:
        found[fault.of_machine].setdefault(fault.subject, []).append(fault)
    by_link, by_machine = found[False], found[True]
    start = {link.name: link.capacity for link in cluster.links}
    changes = [c for c in cluster.changes if c.link not in by_link]
    for link, mine in by_link.items():
        if link not in start:
            raise ValueError(f"no link is called {link}")
        own = [change for change in cluster.changes if change.link == link]
        stated = sorted((change.time, change.capacity) for change in own)
        changes += _changes_of(link, start[link], stated, _factors(mine))
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
    found = []
    for port in range(len(cluster.links)):
        times, capacity = cluster.links.steps.of(port)
        steps = times.tolist(), (capacity / capacity[0]).tolist()
        found += [
            Disturbance("slow" if share else "cut", since, until, port=port)
            for since, until, share in _spans(*steps, end)
        ]
    for machine in range(len(cluster.machines)):
        found += [
            Disturbance("slow" if share else "pause", since, until, machine=machine)
            for since, until, share in _spans(*cluster.speed_steps.of(machine), end)
        ]
    return found


def _spans(
    since: Sequence[float], share: Sequence[float], end: float
) -> Iterator[tuple[float, float, float]]:
    """Yield the beginning, the end and the share of every step with less than 1."""
    for begins, ends, part in zip(since, [*since[1:], math.inf], share, strict=True):
        if part < 1 and begins < end:
            yield begins, min(ends, end), part


def _factors(faults: Iterable[Fault]) -> list[tuple[float, float]]:
    return factors_over((f.since, f.until, f.factor) for f in faults)


def _changes_of(
    link: str,
    capacity: float,
    stated: Sequence[tuple[float, float]],
    factors: Sequence[tuple[float, float]],
) -> list[CapacityChange]:
    """Return the changes of one link: what it has by then times the factor of then."""
    having, share = dict(stated), dict(factors)
    found, factor, before = [], 1.0, capacity
    for time in sorted({*having, *share}):
        capacity, factor = having.get(time, capacity), share.get(time, factor)
        if capacity * factor != before:
            before = capacity * factor
            found.append(CapacityChange(time, link, before))
    return found
