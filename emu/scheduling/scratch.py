"""Room for computing rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.scheduling.codes import FIFO
from emu.scheduling.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.scheduling.compiled_problem import Floats, Ints, Layout


class Scratch(NamedTuple):
    """Room for computing rates, and what rules that tell flows apart keep meanwhile.

    Parameters
    ----------
    weight, rate, frozen
        Per group: weight of each of its flows, their new rate, whether it is final or
        not in question.
    residual, load, flows
        Per port: bytes per second left, and, of the flows in question, the summed
        weights or bytes and the number.
    share
        Kept, per port: capacity per active flow.
    order, is_ordered
        Kept, where a policy tells flows apart: the groups with an active flow in the
        order of their keys, as many as `State.length` says, and a mark per group; under
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


@compiled
def new_scratch(layout: Layout) -> Scratch:
    """Return room for the rates of a layout."""
    groups, ports, jobs = layout.slot.size - 1, layout.capacity.size, layout.jobs
    flows = groups if layout.by_flow else 0
    tasks = layout.rounds.size if layout.by_flow else 0
    queues = ports if layout.policy == FIFO else 0
    hops = layout.hop.size if layout.by_flow else 0
    number, integer = np.zeros((6, flows)), np.zeros((5, flows), np.int64)
    left, shared = np.zeros((3, ports)), np.zeros((2, groups))
    return Scratch(
        weight=shared[0],
        rate=shared[1],
        frozen=np.ones(groups, np.bool_),
        residual=left[0],
        load=left[1],
        flows=np.zeros(ports, np.int64),
        share=left[2],
        order=integer[0],
        is_ordered=np.zeros(flows, np.bool_),
        key=number[0],
        turn=integer[1],
        alone=number[1],
        after=number[2],
        left=number[3],
        fair=number[4],
        coflow=integer[2],
        next_member=integer[3],
        is_chained=np.zeros(tasks, np.bool_),
        gamma=number[5],
        ranking=np.zeros(hops, np.int64),
        ranked=np.zeros(ports, np.int64),
        suspect=integer[4],
        is_suspect=np.zeros(flows, np.bool_),
        head=np.full(queues, -1, np.int64),
        job_flows=np.zeros(ports * jobs, np.int64),
        job_used=np.zeros(ports * jobs),
        job_level=np.zeros(ports * jobs),
    )
