"""Rules that see flows as coflows, once more, slow and plain: as `rate_rules` does.

Flows of a coflow are needed together: they serve one iteration, and have a name or a
destination in common. Imports of scheduling or simulation are forbidden here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

from emu.trust.rated_flows import (
    Capacities,
    Flow,
    Flows,
    Rank,
    capacity_left,
    in_order,
    over,
    ports_of,
    round_to_32_bits,
    water_fill,
)

Coflow: TypeAlias = Flows  # those of one purpose


def coflows(flows: Flows) -> list[Coflow]:
    """Return the flows by what they are needed for: turn, and name or destination."""
    by_purpose = attrgetter("purpose")
    sequence = sorted(flows, key=by_purpose)
    groups = []
    for _, members in groupby(sequence, by_purpose):
        groups.append(list(members))
    return groups


def note_coflows(before: Flows, flows: Flows, now: float) -> None:
    """Set when coflows came, and the bytes of their flows that have ended since.

    Both count from when a coflow last had no active flow. ``before``: the flows of the
    last instant.
    """
    active = set(flows)
    arrivals = {}
    volumes = {}
    for flow in before:
        if flow in active:
            purpose = flow.purpose
            arrivals[purpose] = flow.came
            volumes[purpose] = flow.carried

    for flow in before:
        purpose = flow.purpose
        has_ended = flow not in active
        if has_ended and purpose in arrivals:
            volumes[purpose] += flow.volume

    for flow in flows:
        purpose = flow.purpose
        flow.came = arrivals.get(purpose, now)
        flow.carried = volumes.get(purpose, 0.0)


def bytes_over(port: str, flows: Iterable[Flow]) -> float:
    """Return the bytes left of those of some flows that cross a port."""
    crossing = over(port, flows)
    return sum(flow.left for flow in crossing)


def first_rank(coflow: Coflow) -> tuple[int, Rank]:
    """Return what breaks ties between coflows: turn, and rank of the first flow."""
    first = min(flow.rank for flow in coflow)
    return coflow[0].turn, first


def foreseen(flow: Flow) -> float:
    """Return the bytes left, or a hundredth of the flow: 1 / time has no bound."""
    least = 0.01 * flow.volume
    return max(flow.left, least)


def _share_within(
    coflow: Coflow,
    flow: Flow,
    free: Mapping[str, float],
) -> float:
    """Return the least, over a flow's links, of what is free over its coflow's flows.

    ``free``: bytes per second of links.
    """
    shares = []
    for port in flow.hops:
        members = over(port, coflow)
        shares.append(free[port] / len(members))
    return min(shares)


def finish_weights(
    flows: Flows,
    capacity: Capacities,
    *,
    whole: bool = False,
) -> dict[Flow, float]:
    """Return the inverse of each flow's time within its coflow, 0 where it is cut.

    ``whole``: the time of all its bytes, not of those that are left.
    """
    weights = {}
    for coflow in coflows(flows):
        for flow in coflow:
            weights[flow] = 0.0
            rate = _share_within(coflow, flow, capacity)
            size = flow.volume if whole else foreseen(flow)
            if rate:
                time = size / rate
                weights[flow] = 1 / time
    return weights


def omcoflow(
    flows: Flows,
    capacity: Capacities,
    *,
    whole: bool = False,
) -> None:
    """Share every link by the inverse of each flow's time within its coflow."""
    weights = finish_weights(flows, capacity, whole=whole)
    for flow in flows:
        weight = weights[flow]
        if not weight:
            continue

        shares = []
        for port in flow.hops:
            rivals = over(port, flows)
            total = sum(weights[rival] for rival in rivals)
            share = capacity[port] * weight / total
            shares.append(share)
        flow.rate = min(shares)


def omcoflow_wc(flows: Flows, capacity: Capacities) -> None:
    """Fill by the same weights: what one flow cannot use goes to the others."""
    weights = finish_weights(flows, capacity)
    water_fill(flows, capacity, lambda flow: weights[flow])


def bottleneck(coflow: Coflow, free: Mapping[str, float]) -> float:
    """Return the seconds that a coflow needs at the link that it needs longest.

    Of links that are not cut; 0 where all are.
    """
    times = []
    for port in ports_of(coflow):
        room = free[port]
        if room > 0:
            size = bytes_over(port, coflow)
            times.append(size / room)
    return max(times, default=0.0)


def omcoflow_gamma(flows: Flows, capacity: Capacities) -> None:
    """Fill by bytes over the square of the coflow's bottleneck: its flows end together.

    Bytes are those that are foreseen.
    """
    weights: dict[Flow, float] = {}
    for coflow in coflows(flows):
        times = []
        for port in ports_of(coflow):
            room = capacity[port]
            if room > 0:
                crossing = over(port, coflow)
                size = sum(foreseen(flow) for flow in crossing)
                times.append(size / room)
        gamma = max(times, default=0.0)

        for flow in coflow:
            weights[flow] = 0.0
            if flow.alone:
                weights[flow] = foreseen(flow) / gamma**2
    water_fill(flows, capacity, lambda flow: weights[flow])


def sebf_madd(flows: Flows, capacity: Capacities) -> None:
    """Serve the coflow with the shortest bottleneck first, all its flows to its end."""

    def turn(coflow: Coflow) -> tuple[float, int, Rank]:
        gamma = bottleneck(coflow, capacity)
        return round_to_32_bits(gamma), *first_rank(coflow)

    sequence = sorted(coflows(flows), key=turn)
    for coflow in sequence:
        rest = _capacities_left(coflow, flows, capacity)
        # With one link full some of its flows would stand still: all wait for what is
        # left.
        if all(room > 0 for room in rest.values()):
            # MADD: none of its flows ends before the one that takes longest.
            slowest = bottleneck(coflow, rest)
            for flow in coflow:
                flow.rate = flow.left / slowest

    # What MADD leaves idle goes to the flows in the same order, as Varys backfills:
    # of two coflows that tie, all flows of the first come before those of the second.
    place: dict[Flow, int] = {}
    for number, coflow in enumerate(sequence):
        place |= dict.fromkeys(coflow, number)
    in_order(flows, capacity, lambda flow: (place[flow], flow.rank))


def _capacities_left(
    coflow: Coflow,
    flows: Flows,
    capacity: Capacities,
) -> Capacities:
    """Return the bytes per second that no flow has, of the ports of a coflow."""
    capacities = {}
    for port in ports_of(coflow):
        capacities[port] = capacity_left(port, flows, capacity)
    return capacities


#: A weight below this, of 1 at first, is what rounding left.
_NO_WEIGHT = 1e-9


def sincronia(flows: Flows, capacity: Capacities) -> None:
    """Find the coflow that goes last, then the last of the others, and so on."""
    sequence = sorted(coflows(flows), key=first_rank)
    rest = [_Unplaced(coflow) for coflow in sequence]
    place: dict[Flow, float] = {}
    while rest:
        port = _fullest_port(rest, capacity)
        for coflow in rest:
            coflow.size = bytes_over(port, coflow.flows)
        candidates = [coflow for coflow in rest if coflow.size > 0]

        last = rest[-1]
        if candidates:
            last = _select_last(candidates)
        # Scale: the others there weigh less by their part of what it has there.
        for coflow in candidates:
            if coflow is not last:
                part = coflow.size / last.size
                weight = coflow.weight - last.weight * part
                coflow.weight = weight if weight > _NO_WEIGHT else 0.0

        rest.remove(last)
        last_place = float(len(rest))
        place |= dict.fromkeys(last.flows, last_place)
    in_order(flows, capacity, lambda flow: flow.key(place[flow]))


@dataclass(eq=False)
class _Unplaced:
    """A coflow that has no place in the order of `sincronia` yet."""

    flows: Coflow
    weight: float = 1.0
    size: float = 0.0
    """Bytes on the port that is the fullest one now."""


def _fullest_port(rest: list[_Unplaced], capacity: Capacities) -> str:
    """Return the port that needs longest for all that is left, empty where none is."""
    flows: Flows = []
    for coflow in rest:
        flows += coflow.flows
    needs = {}
    for port, room in capacity.items():
        if room > 0:
            size = bytes_over(port, flows)
            needs[port] = round_to_32_bits(size / room)

    fullest = max(needs, key=needs.__getitem__, default="")
    return fullest if needs.get(fullest) else ""


def _select_last(candidates: list[_Unplaced]) -> _Unplaced:
    """Return of the coflows on the fullest port the one of least weight per byte.

    Of equal ones the last: they are in the order in which ties are broken.
    """
    last = candidates[0]
    least = math.inf
    for coflow in candidates:
        ratio = round_to_32_bits(coflow.weight / coflow.size)
        if ratio <= least:
            last = coflow
            least = ratio
    return last


#: Bytes with which a coflow leaves each queue of Aalo for the next.
#: 10 MB and tenfold from queue to queue, ten in all, are the paper's settings.
QUEUE_ENDS = [1e7 * 10**number for number in range(9)]


def bytes_sent(coflow: Coflow) -> float:
    """Return what a coflow has sent since it last had no active flow."""
    # `note_coflows` has given all flows of a coflow the same bytes of those that ended.
    carried = coflow[0].carried
    sent_by_active = sum(flow.volume - flow.left for flow in coflow)
    return carried + sent_by_active


def aalo(flows: Flows, capacity: Capacities) -> None:
    """Serve those first that have sent least, as orders of magnitude go."""

    def turn(coflow: Coflow) -> tuple[int, float, int, Rank]:
        volume = round_to_32_bits(bytes_sent(coflow))
        queue = sum(end <= volume for end in QUEUE_ENDS)
        arrival = round_to_32_bits(coflow[0].came)
        return queue, arrival, *first_rank(coflow)

    place = {}
    sequence = sorted(coflows(flows), key=turn)
    for number, coflow in enumerate(sequence):
        rest = _capacities_left(coflow, flows, capacity)
        for flow in coflow:
            place[flow] = number
            flow.rate = _share_within(coflow, flow, rest)
    in_order(flows, capacity, lambda flow: (place[flow], flow.rank))


def time_in_queue(flows: Flows) -> float:
    """Return the seconds until a coflow leaves its queue of Aalo at these rates."""
    times = [math.inf]
    for coflow in coflows(flows):
        volume = bytes_sent(coflow)
        rounded_volume = round_to_32_bits(volume)
        ends_ahead = [end for end in QUEUE_ENDS if end > rounded_volume]
        speed = sum(flow.rate for flow in coflow)
        if speed and ends_ahead:
            rest = ends_ahead[0] - volume
            missing = max(rest, 0.0)
            times.append(missing / speed)
    return min(times)
