"""Causes of a schedule's length: Theorem 1's chain, and where a run drifted from it.

The chain (Appendix B of the paper) is built backwards from the task that ended last.
What made a task start is the last thing that it waited for: a flow, a handoff within
its machine, its own previous iteration, or a credit. What made a flow start is the end
of its source or, where that had ended before, whichever ended last of the flows ahead
of it on its edge (case 2 of the proof) and its channel. So every part begins the moment
the one before ends, and the parts sum to the makespan.

In an emulated schedule a part begins a little after the one before it ended; what lies
between is a link of its own, `Cause.GAP`. It ran the tasks and flows that the
simulation of its own times and volumes has, so every part has a time there too. The two
drift apart part by part, and that sums to the difference of the makespans exactly.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from types import MappingProxyType
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from emu.prediction.analysis.link_load import LinkContention, fluid_ends
from emu.prediction.scheduling.compiled_problem import Floats
from emu.problem import Schedule

Rows = dict[tuple[int, int], Floats]
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
    LATENCY = "latency"
    """A flow that the next part waited for had been served and not yet landed."""
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
    """Return when the task or flow of ``part`` began and ended in a schedule.

    A flow that the part behind it waited for until it had landed ends with that.
    """
    if part.edge >= 0:
        at = part.edge, part.iteration
        lands = part.cause is Cause.LATENCY
        latency = float(made.problem.latencies[part.edge]) if lands else 0.0
        return float(made.flow_start[at]), float(made.flow_end[at]) + latency
    at = part.task, part.iteration
    return float(made.task_start[at]), float(made.task_end[at])


#: A run is judged, budgeted and drawn along one path.
_PATHS: WeakKeyDictionary[Schedule, CriticalPath] = WeakKeyDictionary()


def critical_path(schedule: Schedule) -> CriticalPath:
    """Return the critical path of ``schedule``, simulated or emulated."""
    if schedule not in _PATHS:
        _PATHS[schedule] = CriticalPath(tuple(_Walk(schedule).links())[::-1])
    return _PATHS[schedule]


class _Walk:
    """Walks from the end of a schedule to its start."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._job = schedule.problem.job
        self._hops = schedule.problem.hops
        self._latencies = schedule.problem.latencies
        self._crowd = LinkContention(schedule)
        self._same = SAME * schedule.length
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
        cursor = self._schedule.length
        while part is not None:
            self._walked.add((part.task, part.edge, part.iteration))
            start, end = span(self._schedule, part)
            if cursor - end > self._same:
                yield _gap(after, end, cursor)
                cursor = end
            start = min(start, cursor)
            # The later, waited-for piece of a part, then the piece before it.
            moving = part.edge >= 0
            plain = Cause.TRANSFER if moving else Cause.COMPUTE
            ready = min(max(part.wanted, start), cursor)
            pieces = [(part.cause or plain, ready, cursor), (plain, start, ready)]
            for cause, begin, over in pieces:
                if over > begin:
                    sent = moving and cause is not Cause.LATENCY
                    edge = part.edge
                    port = self._crowd.bottleneck(edge, begin, over) if sent else -1
                    what = part.task, part.edge, part.iteration
                    pool = part.pool if cause is Cause.SLOT else ""
                    yield ChainLink(cause, begin, over, *what, port, pool)
            cursor = start
            after = part
            if part.edge >= 0:
                part = self._before_flow(part.edge, part.iteration)
            else:
                part = self._before_task(part.task, part.iteration)
        if cursor > self._same:
            yield _gap(after, 0.0, cursor)

    def _before_flow(self, edge: int, iteration: int) -> _Part:
        """Return the last to end of a flow's source and the flows that go before it."""
        schedule = self._schedule
        ready = float(schedule.flow_ready[edge, iteration])
        start = float(schedule.flow_start[edge, iteration])
        rivals = self._rivals[edge]
        holder = self._ends_between(schedule.flow_end[rivals], ready, start)
        for row, n in holder:
            other = rivals[row]
            if (-1, other, n) not in self._walked:
                cause = Cause.IN_ORDER if other == edge else Cause.CHANNEL
                return _Part(-1, other, n, cause, ready)
        return _Part(self._job.edges[edge].source, -1, iteration)

    def _ends_between(
        self, ends: Floats, ready: float, start: float
    ) -> list[tuple[int, int]]:
        """Return where ``ends`` lie after ``ready`` and up to ``start``, last first."""
        within = (ends > ready + self._same) & (ends <= start + self._same)
        places = np.argwhere(within)
        order = np.argsort(-ends[within], kind="stable")
        return [(int(row), int(n)) for row, n in places[order]]

    def _before_task(self, task: int, iteration: int) -> _Part | None:
        """Return the last input; of several, flows come first as in the proof."""
        causes: list[tuple[float, int, _Part]] = []
        if iteration > 0:
            previous = float(self._schedule.task_end[task, iteration - 1])
            causes.append((previous, 2, _Part(task, -1, iteration - 1)))
        for position in self._job.in_edges(task):
            edge = self._job.edges[position]
            number = iteration - edge.lag
            if not self._job.sends(position, number):
                continue
            if self._hops[position]:
                served = float(self._schedule.flow_end[position, number])
                part = _Part(-1, position, number)
                if latency := float(self._latencies[position]):
                    part = _Part(-1, position, number, Cause.LATENCY, served)
                causes.append((served + latency, 0, part))
            else:
                end = float(self._schedule.task_end[edge.source, number])
                rank = 3 if edge.credit else 1
                causes.append((end, rank, _Part(edge.source, -1, number)))
        ready = max((time for time, _, _ in causes), default=0.0)
        holder = self._slot_holder(task, iteration, ready)
        if holder is not None:
            return holder
        if not causes:
            return None
        latest = max(time for time, _, _ in causes) - self._same
        last = [item for item in causes if item[0] >= latest]
        _, rank, part = min(last, key=lambda item: item[1])
        if rank < 3:
            return part
        wanted = max((time for time, kind, _ in causes if kind < 3), default=0.0)
        return _Part(part.task, -1, part.iteration, Cause.CREDIT, wanted)

    def _slot_holder(self, task: int, iteration: int, ready: float) -> _Part | None:
        """Return the part that freed the slot of a task that waited, else None."""
        schedule = self._schedule
        start = float(schedule.task_start[task, iteration])
        if start <= ready + self._same:
            return None
        for pool in schedule.problem.pools:
            if task not in pool.takers:
                continue
            ends = schedule.task_end[list(pool.freers)]
            for row, n in self._ends_between(ends, ready, start):
                if (pool.freers[row], -1, n) not in self._walked:
                    freer = pool.freers[row]
                    return _Part(freer, -1, n, Cause.SLOT, ready, pool.name)
        return None


def _gap(after: _Part, start: float, end: float) -> ChainLink:
    return ChainLink(Cause.GAP, start, end, after.task, after.edge, after.iteration)


#: Time that the simulation waited and the emulated chain did not; negative.
ELSEWHERE = "waits of the simulation"


@dataclass(frozen=True)
class Drift:
    """Increase of the emulated run's lateness over one part of its chain."""

    cause: str
    """A `Cause`, or `ELSEWHERE`."""
    link: ChainLink
    """The part: task or edge, iteration, port."""
    seconds: float
    """Emulated minus simulated; the whole of a gap."""


def divergences(emulated: Schedule, simulated: Schedule) -> tuple[Drift, ...]:
    """Return the divergences along the critical path of ``emulated``, by time.

    Raises ValueError when the two are not of the same tasks, edges and iterations.
    """
    shapes = emulated.task_end.shape, emulated.flow_end.shape
    if (simulated.task_end.shape, simulated.flow_end.shape) != shapes:
        raise ValueError("the two schedules are not of the same job")
    links = critical_path(emulated).links
    # where the simulation is
    drifts = list[Drift]()
    moment = 0.0
    for _, group in groupby(links, lambda one: (one.edge, one.task, one.iteration)):
        pieces = [*group]
        gaps = [one for one in pieces if one.cause is Cause.GAP]
        drifts += [Drift(Cause.GAP, gap, gap.seconds) for gap in gaps]
        if own := [one for one in pieces if one.cause is not Cause.GAP]:
            start, end = span(simulated, own[-1])
            drifts.append(Drift(ELSEWHERE, own[-1], moment - start))
            took = own[-1].end - own[0].start
            drifts.append(Drift(own[-1].cause, own[-1], took - (end - start)))
            moment = end
    if links:  # a run of no length has no chain
        drifts.append(Drift(ELSEWHERE, links[-1], moment - simulated.length))
    return tuple(drift for drift in drifts if drift.seconds)


class DelayCause(StrEnum):
    """Cause of a difference between emulation and simulation."""

    SHAPING = "shaping"
    """The last byte left later than its fluid, for none of the reasons below."""
    CONTROL = "control latency"
    """The sender received its rate after the fluid's end; parts began late."""
    COPYING = "framing and copying"
    """From the sender's kernel to the receiver's; to its process without such notes."""
    LOOP_LAG = "loop lag"
    """The alarm that sent the last byte rang late."""
    CPU = "CPU contention"
    """The payload was ready after the fluid's end."""
    OVERRUN = "compute overrun"
    """Tasks took longer than in the simulation."""
    CLOCK = "clock"
    """A flow that ended before its fluid: by rounding where one clock times both, by
    what is not known of the clocks of two hosts otherwise."""
    SHARING = "rates of others"
    """Flows went at other rates, since those beside them were late."""
    FIRST_BYTES = "first bytes"
    """On kernel NICs: until the kernel had taken a flow's first bytes. What passed from
    there to their arrival, 37 to 89 % of it behind one queue, is of the network."""
    NETWORK = "kernel network"
    """No sender kept to rates: what TCP and the kernel's NICs made of the flows."""
    OTHER_PATHS = "other paths"
    """The simulation waited where the emulated chain did not; negative."""


def send_rows(logs: Iterable[bytes]) -> Rows:
    """Return (edge, iteration) -> finished, queued, informed, lag; emulated seconds.

    ``logs``: what `emu.emulation.network.send_log.SendLog` packed, of every process.
    """
    rows: Rows = {}
    for log in logs:
        for row in np.frombuffer(log, dtype="<f8").reshape(-1, 6):
            rows[int(row[0]), int(row[1])] = row[2:]
    return rows


def error_budget(
    emulated: Schedule,
    simulated: Schedule,
    rows: Rows,
    first: Mapping[tuple[int, int], float] = MappingProxyType({}),
) -> dict[str, float]:
    """Return seconds by cause; they sum to emulated minus simulated makespan.

    Parameters
    ----------
    emulated
        With its rates; without any the kernel shared the NICs.
    rows
        Of `send_rows`; a flow that is not in it counts as shaping.
    first
        When the kernel had the first bytes of (edge, iteration), where it shared.
    """
    free = emulated.rates is None
    due = np.full_like(emulated.flow_end, np.nan) if free else fluid_ends(emulated)
    others = DelayCause.NETWORK if free else DelayCause.SHARING
    parts: defaultdict[DelayCause, list[float]] = defaultdict(list)
    for drift in divergences(emulated, simulated):
        if drift.cause == ELSEWHERE:
            parts[DelayCause.OTHER_PATHS].append(drift.seconds)
        elif drift.cause == Cause.GAP:
            parts[DelayCause.CONTROL].append(drift.seconds)
        elif drift.link.edge < 0:
            parts[DelayCause.OVERRUN].append(drift.seconds)
        else:
            at = drift.link.edge, drift.link.iteration
            end = float(emulated.flow_end[at])
            own = divide(float(due[at]), end, rows.get(at))
            if at in first:
                behind = first[at] - float(emulated.flow_start[at])
                own = {DelayCause.FIRST_BYTES: max(behind, 0.0)}
            for source, seconds in own.items():
                parts[source].append(seconds)
            parts[others].append(drift.seconds - math.fsum(own.values()))
    return {str(source): math.fsum(parts[source]) for source in DelayCause}


def drift_of_machines(emulated: Schedule, simulated: Schedule) -> dict[str, float]:
    """Return emulated minus simulated seconds along the chain, by machine.

    A flow counts to the machine that sends it. Gaps, and what came by other paths, are
    of none.
    """
    job = emulated.problem.job
    machine_of = emulated.problem.machine_of_task
    parts: defaultdict[str, float] = defaultdict(float)
    for drift in divergences(emulated, simulated):
        if drift.cause not in {ELSEWHERE, Cause.GAP}:
            edge = drift.link.edge
            task = drift.link.task
            at = task if edge < 0 else job.edges[edge].source
            parts[machine_of[job.tasks[at].name]] += drift.seconds
    return dict(parts)


def before_first_bytes(budget: Mapping[str, float], makespan: float) -> float:
    """Return the share of a makespan that a budget gives to delay before first bytes.

    On kernel NICs it is of emu, not of the network.
    """
    return max(budget[DelayCause.FIRST_BYTES], 0.0) / max(makespan, 1e-12)


def divide(due: float, end: float, row: Floats | None) -> dict[DelayCause, float]:
    """Return one flow's lateness, by cause.

    Parameters
    ----------
    due
        When its fluid ended; NaN when not known, then nothing counts as late.
    end
        When its last byte arrived.
    row
        finished, queued, informed, lag, as its sender noted them.
    """
    if math.isnan(due):
        return {}
    if end < due:
        return {DelayCause.CLOCK: end - due}
    if row is None:
        return {DelayCause.SHAPING: end - due}
    finish, queueing, notice, lag = (float(value) for value in row)
    behind = min(max(finish, due), end) - due
    late: dict[DelayCause, float] = {}
    rest = behind
    for source, seconds in (
        (DelayCause.CPU, queueing - due),
        (DelayCause.CONTROL, notice - max(due, queueing)),
        (DelayCause.LOOP_LAG, lag),
    ):
        late[source] = min(max(seconds, 0.0), rest) if math.isfinite(seconds) else 0.0
        rest -= late[source]
    return late | {DelayCause.SHAPING: rest, DelayCause.COPYING: end - due - behind}
