"""State that changes while a schedule runs, as flat arrays.

Per edge, iterations are delivered in order, so one counter per edge and two per task
hold the whole dependency state, whatever the lags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.scheduling.compiled import compiled, spliced
from emu.scheduling.policies import FIFO, MAXMIN, OES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.scheduling.compiled_problem import Floats, Ints, Layout


class Scratch(NamedTuple):
    """Room for computing rates, and what rules that rate flows one by one keep.

    Parameters
    ----------
    weight, rate, frozen
        Per group: weight of each of its flows, their new rate, true if it is final or
        not in question.
    residual, load, flows
        Per port: bytes per second left, and, of the flows in question, the summed
        weights or bytes and the number.
    share
        Kept, per port: capacity per active flow.
    order, is_ordered
        Kept, where flows are rated one by one: the groups with an active flow in the
        order of their keys, as many as in `State.length`, and a mark per group; under
        ``mrtf`` those that are served, in any order.
    key, turn, alone, after
        Kept, per group: its key (smallest first), the iteration of the destination that
        its flow serves, the rate that it has alone, and the entry of `State.after`.
    left, fair
        Per group: bytes that count as left; and, kept, the least of its equal shares of
        its ports within its coflow.
    coflow, next_member, is_chained, gamma
        Kept: per group the first of its coflow and the next one, -1 behind the last; a
        mark per task; and, at the first of a coflow, the time that its fullest port
        would need for it alone, negative when that is unknown.
    ranking, ranked
        Kept under ``mrtf``: the groups with an active flow over every port as they go,
        see `Layout.port_start`, and how many they are.
    suspect, is_suspect
        Under ``mrtf`` a queue of groups whose rate may have to change, and their marks.
    head
        Kept, per port: under ``fifo`` the group whose flow it sends, -1 for none.
    job_flows, job_used, job_level
        Where ports are divided among jobs, per port and job: flows in question, bytes
        per second of those that are not, and what each flow could rise to.
    """

    weight: Floats
    rate: Floats
    frozen: NDArray[np.bool_]
    residual: Floats
    load: Floats
    flows: Ints
    share: Floats
    order: Ints
    is_ordered: NDArray[np.bool_]
    key: Floats
    turn: Ints
    alone: Floats
    after: Floats
    left: Floats
    fair: Floats
    coflow: Ints
    next_member: Ints
    is_chained: NDArray[np.bool_]
    gamma: Floats
    ranking: Ints
    ranked: Ints
    suspect: Ints
    is_suspect: NDArray[np.bool_]
    head: Ints
    job_flows: Ints
    job_used: Floats
    job_level: Floats


@spliced
def new_scratch(layout: Layout) -> Scratch:
    """Return room for the rates of a layout; what it does not use is made empty."""
    groups, ports, policy = layout.slot.size - 1, layout.capacity.size, layout.policy
    flows, simple = groups if layout.by_flow else 0, policy in (OES, MAXMIN)
    number, integer = np.zeros((6, flows)), np.zeros((5, flows), np.int64)
    marks = np.zeros((2, flows), np.bool_)
    left, counted = np.zeros((3, ports)), np.zeros((2, ports), np.int64)
    shared = number if policy == OES else np.zeros((2, groups))
    job_flows = np.zeros(ports * layout.jobs, np.int64)
    of_job = np.zeros((2, job_flows.size)) if layout.jobs > 0 else number
    frozen = marks[0] if simple else np.ones(groups, np.bool_)
    ranking = integer[0] if simple else np.zeros(layout.hop.size, np.int64)
    head = np.full(ports, -1) if policy == FIFO else integer[0]
    return Scratch(
        weight=shared[0],
        rate=shared[1],
        frozen=frozen,
        residual=left[0],
        load=left[1],
        flows=counted[0],
        share=left[2],
        order=integer[0],
        is_ordered=marks[0],
        key=number[0],
        turn=integer[1],
        alone=number[1],
        after=number[2],
        left=number[3],
        fair=number[4],
        coflow=integer[2],
        next_member=integer[3],
        is_chained=np.zeros(layout.rounds.size, np.bool_),
        gamma=number[5],
        ranking=ranking,
        ranked=counted[1],
        suspect=integer[4],
        is_suspect=marks[1],
        head=head,
        job_flows=job_flows,
        job_used=of_job[0],
        job_level=of_job[1],
    )


#: Events closer than this, relative to their time, happen at the same instant.
TIE = 1e-12


class Levels(NamedTuple):
    """Fill levels of ports under max-min, kept from event to event, see `max_min`.

    Parameters
    ----------
    level
        Per port, the most that a flow gets there, infinite where it is not full.
    target
        Level that it would have had when it was last looked for.
    left, rising
        Per port, bytes per second that flows with a limit below ``target`` leave, and
        the number of the others.
    place, dirty_ports, bound
        Per port its place among the dirty, -1 for none; those ports, a list, and
        what their levels, old and new, are not below.
    shared
        Per group the flows that rates were last computed for.
    crowd, crossing
        Per port the number of groups with flows there, and these groups, in the places
        of `Layout.port_group`.
    """

    level: Floats
    target: Floats
    left: Floats
    rising: Ints
    place: Ints
    dirty_ports: Ints
    bound: Floats
    shared: Ints
    crowd: Ints
    crossing: Ints


class Log(NamedTuple):
    """When everything happened, seconds, as in `emu.schedule.Schedule`.

    A column per iteration, or none where nothing is kept; ``flow_ready`` is kept for
    ``fifo`` in any case. So is ``reads``: per edge and iteration of its destination,
    which iteration of the source that one read, -1 for none, until it starts, and where
    the edge does not read the newest; no rows where none does.
    """

    task_start: Floats
    task_end: Floats
    flow_ready: Floats
    flow_start: Floats
    flow_end: Floats
    reads: Ints


class Lines(NamedTuple):
    """The flows that stand in the lines of their channels, see `channels`.

    Parameters
    ----------
    place, came
        Edge and iteration served of every flow that has stood in a line, channel by
        channel in the order of their turns; and when it got ready.
    tally
        Per channel: its first place, how many flows have joined, been given their turn,
        and left.
    calling
        Channels whose next flow may become active, a list.
    """

    place: Ints
    came: Floats
    tally: Ints
    calling: Ints


class State(NamedTuple):
    """The state of one schedule.

    Parameters
    ----------
    started, ended
        Iterations of every task that have started and ended.
    missing
        In-edges that the next iteration of every task still waits for.
    ready, delivered
        Iterations of every edge that its source produced and its destination has. The
        flow in transit, if any, is number ``delivered[e]``.
    allowed
        Iterations of its destination that every edge lets start: ``delivered + lag``,
        and all once it has delivered everything.
    served, arrived
        Per edge, one more than the newest flow whose fluid has ended, and whose last
        byte is there: a flow ends when both are.
    free, queued, came
        Slots left of every pool; the tasks that wait for one, or for the end of the
        instant (`Layout.last`), a list, and when every task came to wait.
    woken, waiting, begun, opened, gone
        Lists, their lengths in ``length``: tasks that may start and edges whose next
        flow may become active at the next settling; tasks that started and flows that
        became active at the last one; edges whose fluid ended at this instant.
    length
        Lengths of woken, waiting, begun, opened, touched, gone, queued, due, order,
        calling; how many changes of capacities have been made; and those of dirty_ports
        and of suspects.
    active
        Active flows of every group.
    touched, is_touched
        Groups whose flows came or went since rates were last computed, or over whose
        ports the capacity changed, a list and a mark per group.
    service, since, rate, finish
        Per group: bytes served to each of its flows from the time it last was empty
        until time ``since``, rate of each flow from then on, and time when its first
        flow ends (infinite: none or rate 0; negative: out of date).
    base
        Per edge: service of its group when its flow became active.
    mark, mark_edge
        Per group a heap of (service at which a flow ends, edge), see `Layout.slot`.
    degree, capacity
        Active flows over every port, and its bytes per second of now.
    levels, scratch, log, lines
        See there.
    after
        Per edge and iteration, the longest path that is left when that flow ends,
        seconds (`emu.scheduling.priorities`); empty where no policy needs it.
    due, due_task
        A heap of (end, task) of the running tasks whose end is known before: of all of
        them in a simulation, of gates elsewhere.
    """

    started: Ints
    ended: Ints
    missing: Ints
    ready: Ints
    delivered: Ints
    allowed: Ints
    served: Ints
    arrived: Ints
    free: Ints
    queued: Ints
    came: Floats
    woken: Ints
    waiting: Ints
    begun: Ints
    opened: Ints
    gone: Ints
    length: Ints
    active: Ints
    touched: Ints
    is_touched: NDArray[np.bool_]
    service: Floats
    since: Floats
    rate: Floats
    finish: Floats
    soonest: Floats
    base: Floats
    mark: Floats
    mark_edge: Ints
    degree: Ints
    capacity: Floats
    levels: Levels
    scratch: Scratch
    log: Log
    lines: Lines
    after: Floats
    due: Floats
    due_task: Ints


# Positions in State.length.
(
    WOKEN, WAITING, BEGUN, OPENED, TOUCHED, GONE, QUEUED, GATES, ORDERED, CALLING,
    CHANGED, DIRTY, SUSPECTS,
) = range(13)  # fmt: skip


@spliced
def _new_levels(layout: Layout, none: Floats, nothing: Ints) -> Levels:
    """Return levels, or what is empty where no rule keeps them."""
    if layout.policy != MAXMIN:
        return Levels(
            none, none, none, nothing, nothing, nothing, none, nothing, nothing, nothing
        )
    ports = layout.capacity.size
    number, integer = np.full((4, ports), np.inf), np.zeros((4, ports), np.int64)
    number[2], integer[1] = layout.capacity, -1
    return Levels(
        level=number[0],
        target=number[1],
        left=number[2],
        rising=integer[0],
        place=integer[1],
        dirty_ports=integer[2],
        bound=number[3],
        shared=np.zeros(layout.slot.size - 1, np.int64),
        crowd=integer[3],
        crossing=np.zeros(layout.hop.size, np.int64),
    )


@spliced
def _new_log(layout: Layout, columns: int) -> Log:
    tasks, edges = layout.out_start.size - 1, layout.source.size
    reads = np.full((layout.latest.size, layout.iterations), -1)
    none = np.full((0 if columns == 0 else edges, columns), np.nan)
    queues = layout.policy == FIFO and columns == 0
    ready = np.full((edges, layout.iterations), np.nan) if queues else none
    if columns == 0:
        return Log(none, none, ready, none, none, reads)
    return Log(
        task_start=np.full((tasks, columns), np.nan),
        task_end=np.full((tasks, columns), np.nan),
        flow_ready=ready,
        flow_start=np.full((edges, columns), np.nan),
        flow_end=np.full((edges, columns), np.nan),
        reads=reads,
    )


@spliced
def _new_lines(channel_of: Ints, sent: Ints, none: Floats) -> Lines:
    if channel_of.size == 0:
        nothing = np.empty((0, 4), np.int64)
        return Lines(place=nothing, came=none, tally=nothing, calling=channel_of)
    channels, places = 0, 0
    for channel in channel_of:
        channels = max(channels, channel + 1)
    tally = np.zeros((channels, 4), np.int64)
    for edge, channel in enumerate(channel_of):
        if channel >= 0:
            places += sent[edge]
            if channel + 1 < channels:
                tally[channel + 1, 0] += sent[edge]
    for channel in range(1, channels):
        tally[channel, 0] += tally[channel - 1, 0]
    return Lines(
        place=np.empty((places, 2), np.int64),
        came=np.empty(places),
        tally=tally,
        calling=np.empty(channels, np.int64),
    )


@spliced
def _rows(layout: Layout) -> tuple[Ints, Floats, Ints, Floats, Ints, Floats]:
    """Return numbers and more of tasks, of edges and of groups.

    Most arrays of a state are rows of these: an allocation takes 40 ns, and a placement
    search makes ten thousand states.
    """
    tasks, edges, groups = layout.rounds.size, layout.source.size, layout.slot.size - 1
    of_task, of_edge = np.zeros((7, tasks), np.int64), np.zeros((9, edges), np.int64)
    of_group, clock = np.zeros((2, groups), np.int64), np.zeros((4, groups))
    of_edge[0] = layout.lag
    clock[0] = np.inf
    return of_task, np.zeros((2, tasks)), of_edge, np.zeros((2, edges)), of_group, clock


@compiled
def new_state(layout: Layout, after: Floats, columns: int) -> State:
    """Return the state before anything starts; log ``columns`` iterations, all or 0."""
    of_task, time, of_edge, service, of_group, clock = _rows(layout)
    return State(
        started=of_task[0],
        ended=of_task[1],
        missing=of_task[2],
        ready=of_edge[1],
        delivered=of_edge[2],
        allowed=of_edge[0],
        served=of_edge[3],
        arrived=of_edge[4],
        free=layout.pool_slots.copy(),
        queued=of_task[3],
        came=time[0],
        woken=of_task[4],
        waiting=of_edge[5],
        begun=of_task[5],
        opened=of_edge[6],
        gone=of_edge[7],
        length=np.zeros(13, np.int64),
        active=of_group[0],
        touched=of_group[1],
        is_touched=np.zeros(of_group.shape[1], np.bool_),
        service=clock[1],
        since=clock[2],
        rate=clock[3],
        finish=clock[0],
        soonest=np.full((of_group.shape[1] >> layout.block_bits) + 1, np.inf),
        base=service[0],
        mark=service[1],  # no more places than edges
        mark_edge=of_edge[8],
        degree=np.zeros(layout.capacity.size, np.int64),
        capacity=layout.capacity.copy(),
        levels=_new_levels(layout, time[0][:0], of_task[0][:0]),
        scratch=new_scratch(layout),
        log=_new_log(layout, columns),
        lines=_new_lines(layout.channel, layout.sent, time[0][:0]),
        after=after,
        due=time[1],
        due_task=of_task[6],
    )
