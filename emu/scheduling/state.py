"""What changes while a schedule runs, as flat arrays.

Per edge, iterations are delivered in order, so one counter per edge and two per task
hold the whole dependency state, whatever the lags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.scheduling.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.scheduling.layout import Floats, Ints, Layout

#: Events closer than this, relative to their time, happen at the same instant.
TIE = 1e-12


class Scratch(NamedTuple):
    """Room for computing rates; nothing in it outlives one computation.

    Parameters
    ----------
    weight, rate, frozen
        Per group: weight of each of its flows, their new rate, whether it is final.
    residual, load, flows
        Per port: bytes per second left, and, of the flows in question, the summed
        weights or bytes and the number.
    order, key, turn
        Groups in the order of their keys, the key of every group (smallest first) and
        the iteration of the destination that its flow serves.
    coflow, member, member_start, gamma
        Coflow of every group, -1 without; the groups of every coflow; and the time
        that its fullest port would need for it alone.
    """

    weight: Floats
    rate: Floats
    frozen: NDArray[np.bool_]
    residual: Floats
    load: Floats
    flows: Ints
    order: Ints
    key: Floats
    turn: Ints
    coflow: Ints
    member: Ints
    member_start: Ints
    gamma: Floats


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
    woken, waiting, begun, opened
        Lists, their lengths in ``length``: tasks that may start and edges whose next
        flow may become active at the next settling; tasks that started and flows that
        became active at the last one.
    length
        Lengths of woken, waiting, begun, opened, dirty.
    active
        Active flows of every group.
    service, since, rate, finish
        Per group: bytes served to each of its flows from the time it last was empty
        until time ``since``, rate of each flow from then on, and time when its first
        flow ends (infinite: none or rate 0; negative: out of date).
    base
        Per edge: service of its group when its flow became active.
    mark, mark_edge
        Per group a heap of (service at which a flow ends, edge), see `Layout.slot`.
    degree, share
        Active flows over every port, and capacity per active flow.
    dirty, is_dirty
        Ports whose degree changed since rates were last computed.
    scratch
        See there.
    after
        Per edge and iteration, the longest path that is left when that flow ends,
        seconds (`emu.scheduling.foresight`); empty where the policy does not look.
    due, due_task
        A heap of (end, task) for whoever knows when running tasks will end.
    task_start, task_end, flow_ready, flow_start, flow_end
        The log, seconds, as in `emu.schedule.Schedule`; no columns if none is kept.
    """

    started: Ints
    ended: Ints
    missing: Ints
    ready: Ints
    delivered: Ints
    woken: Ints
    waiting: Ints
    begun: Ints
    opened: Ints
    length: Ints
    active: Ints
    service: Floats
    since: Floats
    rate: Floats
    finish: Floats
    base: Floats
    mark: Floats
    mark_edge: Ints
    degree: Ints
    share: Floats
    dirty: Ints
    is_dirty: NDArray[np.bool_]
    scratch: Scratch
    after: Floats
    due: Floats
    due_task: Ints
    task_start: Floats
    task_end: Floats
    flow_ready: Floats
    flow_start: Floats
    flow_end: Floats


# Positions in State.length.
WOKEN, WAITING, BEGUN, OPENED, DIRTY = range(5)


@compiled
def new_state(layout: Layout, after: Floats, columns: int) -> State:
    """Return the state before anything starts; log ``columns`` iterations, all or 0."""
    tasks, edges = layout.out_start.size - 1, layout.source.size
    groups, ports = layout.slot.size - 1, layout.capacity.size
    places = layout.slot[groups]
    return State(
        np.zeros(tasks, np.int64),
        np.zeros(tasks, np.int64),
        np.zeros(tasks, np.int64),
        np.zeros(edges, np.int64),
        np.zeros(edges, np.int64),
        np.empty(tasks, np.int64),
        np.empty(edges, np.int64),
        np.empty(tasks, np.int64),
        np.empty(edges, np.int64),
        np.zeros(5, np.int64),
        np.zeros(groups, np.int64),
        np.zeros(groups),
        np.zeros(groups),
        np.zeros(groups),
        np.full(groups, np.inf),
        np.zeros(edges),
        np.empty(places),
        np.empty(places, np.int64),
        np.zeros(ports, np.int64),
        np.zeros(ports),
        np.empty(ports, np.int64),
        np.zeros(ports, np.bool_),
        Scratch(
            np.zeros(groups),
            np.zeros(groups),
            np.zeros(groups, np.bool_),
            np.zeros(ports),
            np.zeros(ports),
            np.zeros(ports, np.int64),
            np.arange(groups),
            np.zeros(groups),
            np.zeros(groups, np.int64),
            np.zeros(groups, np.int64),
            np.zeros(groups, np.int64),
            np.zeros(groups + 1, np.int64),
            np.zeros(groups),
        ),
        after,
        np.empty(tasks),
        np.empty(tasks, np.int64),
        np.full((tasks, columns), np.nan),
        np.full((tasks, columns), np.nan),
        np.full((edges, columns), np.nan),
        np.full((edges, columns), np.nan),
        np.full((edges, columns), np.nan),
    )
