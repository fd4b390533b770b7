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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from emu.array_types import Floats
from emu.prediction.analysis.link_load import LinkContention
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
            name = key(link)
            groups[name].append(link.seconds)
        totals = {name: math.fsum(parts) for name, parts in groups.items()}
        longest_first = sorted(totals, key=lambda name: -totals[name])
        return {name: totals[name] for name in longest_first}


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A task or a flow on the way back, and since when the next part wanted it to end.

    ``wanted`` is the time from which only the rule ``cause`` held the next part back.
    """

    iteration: int
    task: int = -1
    edge: int = -1
    cause: Cause | None = None
    wanted: float = math.inf
    pool: str = ""


def span(made: Schedule, part: ChainLink | _Part) -> tuple[float, float]:
    """Return when the task or flow of ``part`` began and ended in a schedule.

    A flow that the part behind it waited for until it had landed ends with that.
    """
    if part.edge < 0:
        event = part.task, part.iteration
        start = made.task_start[event]
        end = made.task_end[event]
    else:
        event = part.edge, part.iteration
        start = made.flow_start[event]
        end = made.flow_end[event]
        if part.cause is Cause.LATENCY:
            end += made.problem.latencies[part.edge]
    return float(start), float(end)


#: A run is judged, budgeted and drawn along one path.
#: Keys are weak: a schedule may be large, and its path must not keep it alive.
_PATHS: WeakKeyDictionary[Schedule, CriticalPath] = WeakKeyDictionary()


def critical_path(schedule: Schedule) -> CriticalPath:
    """Return the critical path of ``schedule``, simulated or emulated."""
    if schedule not in _PATHS:
        walk = _Walk(schedule)
        last_first = tuple(walk.links())
        _PATHS[schedule] = CriticalPath(last_first[::-1])
    return _PATHS[schedule]


class _Walk:
    """Walks from the end of a schedule to its start."""

    def __init__(self, schedule: Schedule) -> None:
        problem = schedule.problem
        self._schedule = schedule
        self._job = problem.job
        self._hops = problem.hops
        self._latencies = problem.latencies
        self._crowd = LinkContention(schedule)
        self._same = SAME * schedule.length
        #: Parts crossed on the way back: those that take no time wait for each other.
        self._walked = set[tuple[int, int, int]]()
        self._rivals = self._find_rivals()

    def _find_rivals(self) -> list[list[int]]:
        """Return the edges whose flows go before those of each: itself, its channel."""
        channels: dict[str, list[int]] = defaultdict(list)
        for position, edge in enumerate(self._job.edges):
            # Handoffs within a machine take no turn in their channel.
            if self._hops[position]:
                channels[edge.channel].append(position)

        rivals_of_edges = []
        for position, edge in enumerate(self._job.edges):
            # Itself first: of two flows that end together the reason is the order of
            # the edge.
            rivals = [position]
            if edge.channel:
                in_channel = channels[edge.channel]
                rivals += [rival for rival in in_channel if rival != position]
            rivals_of_edges.append(rivals)
        return rivals_of_edges

    def _last_task(self) -> _Part:
        """Return the part that ended last."""
        rounds = np.array(self._job.rounds, dtype=np.int64)
        # Rounds differ between tasks: the last column alone would miss those that end
        # early.
        last_iterations = rounds - 1
        tasks = np.arange(rounds.size)
        ends = self._schedule.task_end[tasks, last_iterations]
        task = int(ends.argmax())
        iteration = int(last_iterations[task])
        return _Part(task=task, iteration=iteration)

    def links(self) -> Iterator[ChainLink]:
        """Yield the links, the last one first."""
        next_part = self._last_task()
        part: _Part | None = next_part
        cursor = self._schedule.length

        while part is not None:
            self._walked.add((part.task, part.edge, part.iteration))
            start, end = span(self._schedule, part)
            # Only an emulated schedule gets here: simulated parts begin when others
            # end.
            if cursor - end > self._same:
                yield _gap(next_part, end, cursor)
                cursor = end
            # In a run, by its clocks, a part may seem to begin after the next one did:
            # its length must not be negative, or the links would not sum to the
            # makespan.
            start = min(start, cursor)
            yield from self._pieces(part, start, cursor)

            cursor = start
            next_part = part
            if part.edge >= 0:
                part = self._before_flow(part.edge, part.iteration)
            else:
                part = self._before_task(part.task, part.iteration)

        # The first tasks of a run begin after time 0 by what starting them takes.
        if cursor > self._same:
            yield _gap(next_part, 0.0, cursor)

    def _pieces(self, part: _Part, start: float, end: float) -> Iterator[ChainLink]:
        """Yield the later piece of a part, which only a rule waited for, and the rest.

        A part that no rule waited for is one piece.
        """
        plain = Cause.TRANSFER if part.edge >= 0 else Cause.COMPUTE
        # `wanted` is infinite where no rule held the next part back: one piece is empty
        # then.
        ready = min(max(part.wanted, start), end)
        later_piece = (part.cause or plain, ready, end)
        earlier_piece = (plain, start, ready)

        for cause, begin, over in (later_piece, earlier_piece):
            if not over > begin:  # it is empty, or its time is no number
                continue

            port = -1
            # A flow that has been served holds no port any more.
            if part.edge >= 0 and cause is not Cause.LATENCY:
                port = self._crowd.bottleneck(part.edge, begin, over)
            pool = part.pool if cause is Cause.SLOT else ""
            yield ChainLink(
                cause=cause,
                start=begin,
                end=over,
                task=part.task,
                edge=part.edge,
                iteration=part.iteration,
                port=port,
                pool=pool,
            )

    def _before_flow(self, edge: int, iteration: int) -> _Part:
        """Return the last to end of a flow's source and the flows that go before it."""
        schedule = self._schedule
        ready = float(schedule.flow_ready[edge, iteration])
        start = float(schedule.flow_start[edge, iteration])

        # Case 2 of the proof: its source had ended, and a flow ahead of it had not.
        rivals = self._rivals[edge]
        ends = schedule.flow_end[rivals]
        for row, rival_iteration in self._ends_between(ends, ready, start):
            rival = rivals[row]
            # Flows of no time end at one moment and may each seem to wait for the
            # other: the walk would go round for ever.
            if (-1, rival, rival_iteration) in self._walked:
                continue
            cause = Cause.IN_ORDER if rival == edge else Cause.CHANNEL
            return _Part(
                edge=rival,
                iteration=rival_iteration,
                cause=cause,
                wanted=ready,
            )

        source = self._job.edges[edge].source
        return _Part(task=source, iteration=iteration)

    def _ends_between(
        self,
        ends: Floats,
        ready: float,
        start: float,
    ) -> list[tuple[int, int]]:
        """Return where ``ends`` lie after ``ready`` and up to ``start``, last first."""
        # Strictly after `ready`: what ended by then held nothing up.
        is_between = ends > ready + self._same
        is_between &= ends <= start + self._same
        order = np.argsort(-ends[is_between], kind="stable")
        places = np.argwhere(is_between)
        last_first = places[order]
        return [(row, iteration) for row, iteration in last_first.tolist()]

    def _before_task(self, task: int, iteration: int) -> _Part | None:
        """Return the last input; of several, flows come first as in the proof."""
        inputs = list(self._inputs(task, iteration))
        ready = _last_time(inputs)
        # A slot first: it came after all inputs, or the task would have begun with
        # them.
        holder = self._slot_holder(task, iteration, ready)
        if holder is not None or not inputs:
            return holder

        latest = [item for item in inputs if item.time >= ready - self._same]
        last = min(latest, key=attrgetter("rank"))
        # Ranks put credits last: one counts only where nothing else ended with it.
        if last.rank < _CREDIT:  # it waited for more than a credit
            return last.part

        # Without the credit it would have begun with the last of its other inputs.
        other_inputs = [item for item in inputs if item.rank < _CREDIT]
        wanted = _last_time(other_inputs)
        return replace(last.part, cause=Cause.CREDIT, wanted=wanted)

    def _inputs(self, task: int, iteration: int) -> Iterator[_Input]:
        """Yield all that had to end before a task could begin."""
        schedule = self._schedule
        if iteration > 0:
            previous = _Part(task=task, iteration=iteration - 1)
            end = float(schedule.task_end[task, iteration - 1])
            yield _Input(end, _PREVIOUS, previous)

        for position in self._job.in_edges(task):
            edge = self._job.edges[position]
            number = iteration - edge.lag
            # The first iterations of an edge with lag wait for nothing.
            if not self._job.sends(position, number):
                continue
            if self._hops[position]:
                yield self._flow_input(position, number)
                continue

            end = float(schedule.task_end[edge.source, number])
            source = _Part(task=edge.source, iteration=number)
            rank = _CREDIT if edge.credit else _HANDOFF
            yield _Input(end, rank, source)

    def _flow_input(self, edge: int, iteration: int) -> _Input:
        """Return a flow that a task waited for until it had landed."""
        flow_end = float(self._schedule.flow_end[edge, iteration])
        latency = float(self._latencies[edge])
        flow = _Part(edge=edge, iteration=iteration)
        if latency:
            flow = replace(flow, cause=Cause.LATENCY, wanted=flow_end)
        return _Input(flow_end + latency, _FLOW, flow)

    def _slot_holder(self, task: int, iteration: int, ready: float) -> _Part | None:
        """Return the part that freed the slot of a task that waited, else None."""
        schedule = self._schedule
        start = float(schedule.task_start[task, iteration])
        if start <= ready + self._same:
            return None

        # No input explains the wait, so that some slot was taken until then. Without
        # pools the wait is a gap of the run, and the walk goes on with the inputs.
        for pool in schedule.problem.pools:
            if task not in pool.takers:
                continue
            ends = schedule.task_end[list(pool.freers)]
            for row, number in self._ends_between(ends, ready, start):
                freer = pool.freers[row]
                if (freer, -1, number) in self._walked:
                    continue
                return _Part(
                    task=freer,
                    iteration=number,
                    cause=Cause.SLOT,
                    wanted=ready,
                    pool=pool.name,
                )
        return None


#: Ranks of inputs: of several that end last, the first of these counts.
_FLOW, _HANDOFF, _PREVIOUS, _CREDIT = range(4)


class _Input(NamedTuple):
    """A part that a task waited for, and when it had it."""

    time: float
    rank: int
    part: _Part


def _last_time(inputs: Iterable[_Input]) -> float:
    times = [item.time for item in inputs]
    return max(times, default=0.0)


def _gap(after: _Part, start: float, end: float) -> ChainLink:
    return ChainLink(
        cause=Cause.GAP,
        start=start,
        end=end,
        task=after.task,
        edge=after.edge,
        iteration=after.iteration,
    )


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
    has_same_tasks = emulated.task_end.shape == simulated.task_end.shape
    has_same_flows = emulated.flow_end.shape == simulated.flow_end.shape
    if not (has_same_tasks and has_same_flows):
        raise ValueError("the two schedules are not of the same job")

    links = critical_path(emulated).links
    drifts = list[Drift]()
    moment = 0.0  # where the simulation is
    for _, group in groupby(links, attrgetter("edge", "task", "iteration")):
        # Pieces of one part are compared as one: a simulation may divide it elsewhere.
        pieces = []
        for link in group:
            if link.cause is Cause.GAP:
                gap = Drift(Cause.GAP, link, link.seconds)
                drifts.append(gap)
            else:
                pieces.append(link)
        if not pieces:
            continue

        first = pieces[0]
        last = pieces[-1]
        start, end = span(simulated, last)
        # In the simulation the part before need not be what this one waited for.
        # What it waited beyond that is counted here, so that all drifts sum to the
        # difference.
        wait = Drift(ELSEWHERE, last, moment - start)
        emulated_seconds = last.end - first.start
        simulated_seconds = end - start
        lateness = Drift(last.cause, last, emulated_seconds - simulated_seconds)
        drifts += [wait, lateness]
        moment = end

    if links:  # a run of no length has no chain
        # The task that ended last in the run need not be last in the simulation.
        rest = Drift(ELSEWHERE, links[-1], moment - simulated.length)
        drifts.append(rest)
    return tuple(drift for drift in drifts if drift.seconds)
