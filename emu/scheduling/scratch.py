"""Room for computing rates, as much as the policy uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.scheduling.codes import FIFO, MAXMIN, OES
from emu.scheduling.compiled import spliced

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
