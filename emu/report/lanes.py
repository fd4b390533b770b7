"""Lanes of bars, and columns of numbers as text: what pages, figures and traces share.

Bars that overlap are drawn beside each other, each in a lane of its own.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import NamedTuple

import numpy as np

from emu.array_types import Array, Floats, Ints
from emu.problem import Schedule


def pack_lanes(start: Floats, end: Floats) -> tuple[Ints, int]:
    """Return a lane per bar such that bars of one lane do not overlap, and how many.

    A bar takes the lowest lane that is free, in the order of starts: as few lanes as
    bars ever overlap. ``start`` and ``end`` are seconds, shape (bars,).
    """
    lanes = np.zeros(len(start), dtype=np.int64)
    lane_count = 0
    busy: list[tuple[float, int]] = []  # end of the bar, lane
    free: list[int] = []

    # By starts; of bars that begin together the shortest takes the lowest lane.
    order = np.lexsort((end, start))
    for bar in order.tolist():
        # A bar may begin where another ends, and share its lane.
        while busy and busy[0][0] <= start[bar]:
            _, lane = heappop(busy)
            heappush(free, lane)
        lane = lane_count
        if free:
            lane = heappop(free)
        lane_count = max(lane_count, lane + 1)
        lanes[bar] = lane
        bar_end = float(end[bar])
        heappush(busy, (bar_end, lane))

    return lanes, lane_count


def pack_lanes_per_group(
    start: Floats,
    end: Floats,
    group: Ints,
    groups: int,
) -> tuple[Ints, list[int]]:
    """Return `pack_lanes` of every group, and the number of lanes of each."""
    lanes = np.zeros(len(start), dtype=np.int64)
    lane_counts = []
    for number in range(groups):
        members = np.flatnonzero(group == number)
        starts = start[members]
        ends = end[members]
        member_lanes, lane_count = pack_lanes(starts, ends)
        lanes[members] = member_lanes
        lane_counts.append(lane_count)
    return lanes, lane_counts


class Crossings(NamedTuple):
    """Every flow at every link that it crosses, and its lane there."""

    flow: Ints
    """Position in `Schedule.flows`."""
    port: Ints
    lane: Ints
    """The link, and which of its lanes."""
    lanes: list[int]
    """Number of lanes of every link."""


def crossings(schedule: Schedule) -> Crossings:
    """Return the lanes of all flows, in the order of the flows and of their routes."""
    flows = schedule.flows()
    hops = schedule.problem.hops
    edges = flows[:, 0].tolist()
    routes = [hops[edge] for edge in edges]
    route_lengths = [len(route) for route in routes]
    hop_counts = np.array(route_lengths, dtype=np.int64)
    numbers = np.arange(len(flows))
    flow = np.repeat(numbers, hop_counts)
    ports_of_routes = chain.from_iterable(routes)
    port = np.fromiter(ports_of_routes, np.int64)

    positions = tuple(flows.T)
    start = schedule.flow_start[positions]
    end = schedule.flow_end[positions]
    links = len(schedule.problem.links)
    # Flows overlap at a link, not on their way: each link has lanes of its own.
    lane, lanes = pack_lanes_per_group(
        start[flow],
        end=end[flow],
        group=port,
        groups=links,
    )
    return Crossings(
        flow=flow,
        port=port,
        lane=lane,
        lanes=lanes,
    )


def pack(values: Array | Sequence[float], dtype: str) -> str:
    """Return numbers as base64 of little-endian ``dtype``: a third of their JSON."""
    little_endian = np.dtype(dtype).newbyteorder("<")
    with np.errstate(over="ignore"):  # 1e300 s of a damaged run: drawn as without end
        array = np.ascontiguousarray(values, dtype=little_endian)
    packed = base64.b64encode(array.tobytes())
    return packed.decode("ascii")


def pack_columns(**columns: Array) -> dict[str, str]:
    """Return columns by name as `pack` does: times as float32, positions as uint32.

    The 7 digits of float32 are less than a pixel.
    """
    kinds = {
        "f": "f4",
        "i": "u4",
        "u": "u4",
    }
    packed_columns = {}
    for name, values in columns.items():
        kind = kinds[values.dtype.kind]
        packed_columns[name] = pack(values, kind)
    return packed_columns
