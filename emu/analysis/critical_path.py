"""Causes of a schedule's length: the chain of Theorem 1, from its end to its start.

The chain (Appendix B of the paper) is built backwards from the task that ended last.
What made a task start is the last thing that it waited for: a flow, a handoff within
its machine, its own previous iteration, or a credit. What made a flow start is the end
of its source or, where that had ended before, whichever ended last of the flows ahead
of it on its edge (case 2 of the proof) and its channel. So every part begins the moment
the one before ends, and the parts sum to the makespan.

In an emulated schedule a part begins a little after the one before it ended; what lies
between is a link of its own, `Cause.GAP`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from emu.analysis.link_load import LinkContention

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from emu.problem import Schedule

Key = TypeVar("Key")

#: Moments closer than this, relative to the makespan, are the same moment.
SAME = 1e-12


class Cause(StrEnum):
    """Cause of the time of a link."""

    COMPUTE = "compute"
    """A task was executing."""
    TRANSFER = "transfer"
    """A flow was moving."""
    IN_ORDER = "in order"
    """A flow was moving, and the next one of its edge was ready behind it."""
    CHANNEL = "channel"
    """A flow was moving, and the next one of its channel was ready behind it."""
    CREDIT = "credit"
    """A task was executing, and the next part waited for it for its credit only."""
    SLOT = "slot"
    """A task was executing, and the next part waited for its slot only."""
    GAP = "gap"
    """Nothing of the schedule: messages, wake-ups, clocks. None when simulated."""


#: Causes of a link in which a flow was moving.
MOVING = frozenset({Cause.TRANSFER, Cause.IN_ORDER, Cause.CHANNEL})


@dataclass(frozen=True)
class ChainLink:
    """One part of a critical path."""

    cause: Cause
    start: float
    end: float
    """Seconds; ``start`` is the ``end`` of the link before."""
    task: int = -1
    edge: int = -1
    """Position of what was executing or moving, the other one is -1; in a gap, of what
    began after it."""
    iteration: int = -1
    """Iteration of the task, or of the flow's source."""
    port: int = -1
    """Port where a flow was held back most (`LinkContention.bottleneck`), else -1."""
    pool: str = ""
    """Name of the pool whose slot a task was executing in that the next part waited
    for, else empty."""

    @property
    def seconds(self) -> float:
        """Length of the link."""
        return self.end - self.start


@dataclass(frozen=True)
class CriticalPath:
    """The links from time 0 to the end of the schedule, in the order of time."""

    links: tuple[ChainLink, ...]

    @property
    def seconds(self) -> float:
        """Sum over the links: the makespan."""
        return math.fsum(link.seconds for link in self.links)

    def sums(self, key: Callable[[ChainLink], Key]) -> dict[Key, float]:
        """Return the seconds of the links with the same ``key``, longest first."""
        groups: dict[Key, list[float]] = defaultdict(list)
        for link in self.links:
            groups[key(link)].append(link.seconds)
        totals = {name: math.fsum(parts) for name, parts in groups.items()}
        return dict(sorted(totals.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class _Part:
    """A task or a flow on the way back, and since when the next part wanted it to end.

    ``wanted`` is the time from which only the rule ``cause`` held the next part back.
    """

    task: int
    edge: int
    iteration: int
    cause: Cause | None = None
    wanted: float = math.inf
    pool: str = ""


def span(made: Schedule, part: ChainLink | _Part) -> tuple[float, float]:
    """Return when the task or flow of ``part`` began and ended in a schedule."""
    if part.edge >= 0:
        at = part.edge, part.iteration
        return float(made.flow_start[at]), float(made.flow_end[at])
    at = part.task, part.iteration
    return float(made.task_start[at]), float(made.task_end[at])


def critical_path(schedule: Schedule) -> CriticalPath:
    """Return the critical path of ``schedule``, simulated or emulated."""
    return CriticalPath(tuple(_Walk(schedule).links())[::-1])


class _Walk:
    """Walks from the end of a schedule to its start."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._job = schedule.problem.job
        self._hops = schedule.problem.hops
        self._crowd = LinkContention(schedule)
        self._same = SAME * schedule.makespan
        #: Parts crossed on the way back: those that take no time wait for each other.
        self._walked: set[tuple[int, int, int]] = set()
        channels: dict[str, list[int]] = defaultdict(list)
        for position, edge in enumerate(self._job.edges):
            if self._hops[position]:
                channels[edge.channel].append(position)
        #: Edges whose flows go before those of an edge: itself, then its channel.
        self._rivals = [
            [e, *(o for o in channels[edge.channel] if o != e)] if edge.channel else [e]
            for e, edge in enumerate(self._job.edges)
        ]

    def links(self) -> Iterator[ChainLink]:
        """Yield the links, the last one first."""
        rounds = np.array(self._job.rounds, dtype=np.int64)
        ends = self._schedule.task_end[np.arange(rounds.size), rounds - 1]
        last = int(ends.argmax())
        after = _Part(last, -1, self._job.rounds[last] - 1)
        part: _Part | None = after
        cursor = self._schedule.makespan
        while part is not None:
            self._walked.add((part.task, part.edge, part.iteration))
            start, end = span(self._schedule, part)
            if cursor - end > self._same:
                yield _gap(after, end, cursor)
                cursor = end
            start = min(start, cursor)
            yield from self._split(part, start, cursor)
            cursor, after = start, part
            part = self._before(part)
        if cursor > self._same:
            yield _gap(after, 0.0, cursor)

    def _split(self, part: _Part, start: float, end: float) -> Iterator[ChainLink]:
        """Yield the later, waited-for piece of a part, then the piece before it."""
        moving = part.edge >= 0
        plain = Cause.TRANSFER if moving else Cause.COMPUTE
        wanted = min(max(part.wanted, start), end)
        pieces = [(part.cause or plain, wanted, end), (plain, start, wanted)]
        for cause, begin, over in pieces:
            if over > begin:
                port = self._crowd.bottleneck(part.edge, begin, over) if moving else -1
                what = part.task, part.edge, part.iteration
                pool = part.pool if cause is Cause.SLOT else ""
                yield ChainLink(cause, begin, over, *what, port, pool)

    def _before(self, part: _Part) -> _Part | None:
        """Return the part that ``part`` waited for last, None when for nothing."""
        if part.edge >= 0:
            return self._before_flow(part.edge, part.iteration)
        return self._before_task(part.task, part.iteration)

    def _before_flow(self, edge: int, iteration: int) -> _Part:
        """Return the last to end of a flow's source and the flows that go before it."""
        made = self._schedule
        ready = float(made.flow_ready[edge, iteration])
        start = float(made.flow_start[edge, iteration])
        rivals = self._rivals[edge]
        held = self._ended_between(made.flow_end[rivals], ready, start)
        for row, n in held:
            other = rivals[row]
            if (-1, other, n) not in self._walked:
                cause = Cause.IN_ORDER if other == edge else Cause.CHANNEL
                return _Part(-1, other, n, cause, ready)
        return _Part(self._job.edges[edge].source, -1, iteration)

    def _ended_between(
        self, ends: NDArray[np.float64], ready: float, start: float
    ) -> list[tuple[int, int]]:
        """Return where ``ends`` lie after ``ready`` and up to ``start``, last first."""
        within = (ends > ready + self._same) & (ends <= start + self._same)
        found = np.argwhere(within)
        order = np.argsort(-ends[within], kind="stable")
        return [(int(row), int(n)) for row, n in found[order]]

    def _before_task(self, task: int, iteration: int) -> _Part | None:
        """Return the last input; of several, flows come first as in the proof."""
        found: list[tuple[float, int, _Part]] = []
        if iteration > 0:
            previous = float(self._schedule.task_end[task, iteration - 1])
            found.append((previous, 2, _Part(task, -1, iteration - 1)))
        for position in self._job.in_edges(task):
            edge = self._job.edges[position]
            sent = iteration - edge.lag
            if not self._job.sends(position, sent):
                continue
            if self._hops[position]:
                arrived = float(self._schedule.flow_end[position, sent])
                found.append((arrived, 0, _Part(-1, position, sent)))
            else:
                ended = float(self._schedule.task_end[edge.source, sent])
                rank = 3 if edge.credit else 1
                found.append((ended, rank, _Part(edge.source, -1, sent)))
        ready = max((time for time, _, _ in found), default=0.0)
        holder = self._slot_holder(task, iteration, ready)
        if holder is not None:
            return holder
        if not found:
            return None
        latest = max(time for time, _, _ in found) - self._same
        last = [item for item in found if item[0] >= latest]
        _, rank, part = min(last, key=lambda item: item[1])
        if rank < 3:
            return part
        wanted = max((time for time, kind, _ in found if kind < 3), default=0.0)
        return _Part(part.task, -1, part.iteration, Cause.CREDIT, wanted)

    def _slot_holder(self, task: int, iteration: int, ready: float) -> _Part | None:
        """Return the part that freed the slot of a task that waited, else None."""
        made, start = self._schedule, float(self._schedule.task_start[task, iteration])
        if start <= ready + self._same:
            return None
        for pool in made.problem.pools:
            if task not in pool.takers:
                continue
            ends = made.task_end[list(pool.freers)]
            for row, n in self._ended_between(ends, ready, start):
                if (pool.freers[row], -1, n) not in self._walked:
                    freer = pool.freers[row]
                    return _Part(freer, -1, n, Cause.SLOT, ready, pool.name)
        return None


def _gap(after: _Part, start: float, end: float) -> ChainLink:
    return ChainLink(Cause.GAP, start, end, after.task, after.edge, after.iteration)
