"""Flows as rules for rates see them, and how links are filled: slow and plain.

Every question is answered by looking at all active flows. Imports of scheduling or
simulation are forbidden here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

Rank = tuple[str, str, int, int]  # names of destination and source; lag; edge
Capacities = dict[str, float]  # of links, bytes per second
Flows: TypeAlias = "list[Flow]"
Rule: TypeAlias = "Callable[[Flows, Capacities], None]"  # sets Flow.rate


@dataclass(eq=False)
class Flow:
    """One active flow: what is left, and everything a policy may ask."""

    edge: int
    turn: int
    rank: Rank
    hops: tuple[str, ...]
    volume: float
    left: float
    ready: float = 0.0
    path_after: float = 0.0
    rate: float = 0.0
    alone: float = 0.0
    job: str = ""
    coflow: str = ""
    came: float = 0.0
    carried: float = 0.0

    @property
    def purpose(self) -> tuple[int, str, str]:
        """Turn, and name or destination, of its coflow."""
        if self.coflow:
            return self.turn, self.coflow, ""
        destination = self.rank[0]
        return self.turn, "", destination

    @property
    def time_alone(self) -> float:
        """Seconds that it would still need alone, infinite over a link that is cut."""
        if not self.alone:
            return math.inf
        return self.left / self.alone

    def key(self, first: float) -> tuple[float, int, Rank]:
        """Return the key that flows are sorted by."""
        return (round_to_32_bits(first), self.turn, self.rank)


def round_to_32_bits(value: float) -> float:
    """Round to 32 bits: values equal but for rounding must tie."""
    if math.isinf(value):
        return value
    mantissa, exponent = math.frexp(value)
    digits = math.floor(mantissa * 2**32 + 0.5)
    return math.ldexp(digits, exponent - 32)


def over(port: str, flows: Iterable[Flow]) -> Flows:
    """Return those of some flows that cross a port."""
    return [flow for flow in flows if port in flow.hops]


def ports_of(flows: Iterable[Flow]) -> set[str]:
    """Return the ports that some flows cross."""
    ports: set[str] = set()
    for flow in flows:
        ports.update(flow.hops)
    return ports


def find_settled(port: str, flows: Flows, rising: Flows) -> Flows:
    """Return the flows over a port whose rates do not rise any more."""
    return [flow for flow in over(port, flows) if flow not in rising]


def water_fill(
    flows: Flows,
    capacity: Capacities,
    weight: Callable[[Flow], float],
) -> None:
    """Raise all rates together, by weight, until a link of theirs is full."""
    weights = {flow: weight(flow) for flow in flows}
    rising = [flow for flow in flows if weights[flow] > 0]
    while rising:
        steps = []
        for port in ports_of(rising):
            settled_flows = find_settled(port, flows, rising)
            used = sum(flow.rate for flow in settled_flows)
            # What is settled may exceed a full port by rounding.
            free = max(capacity[port] - used, 0.0)
            crossing = over(port, rising)
            total = sum(weights[flow] for flow in crossing)
            steps.append((free / total, port))

        # The link that is full first; of equal ones the first by name.
        level, full_port = min(steps)
        still_rising = []
        for flow in rising:
            if full_port in flow.hops:
                flow.rate = level * weights[flow]
            else:
                still_rising.append(flow)
        rising = still_rising


def capacity_left(port: str, flows: Flows, capacity: Capacities) -> float:
    """Return the bytes per second of a port that no flow has; rounding is nothing."""
    crossing = over(port, flows)
    used = sum(flow.rate for flow in crossing)
    rest = capacity[port] - used
    if rest < 1e-9 * capacity[port]:
        return 0.0
    return rest


def in_order(
    flows: Flows,
    capacity: Capacities,
    order: Callable[[Flow], Any],
) -> None:
    """Give the flows what is left of their links, one after the other."""
    for flow in sorted(flows, key=order):
        rests = []
        for port in flow.hops:
            rest = capacity_left(port, flows, capacity)
            rests.append(rest)
        flow.rate += min(rests)
