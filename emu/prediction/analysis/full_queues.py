"""Queues that TCP may fill, foreseen from a schedule under max-min rates.

Machines that together send faster than a port drains fill its queue before any of them
notices. What is dropped in mid-flow is sent again at once; a flow whose last packets
are dropped waits for a timeout. Over packets (ns-3, cubic and reno, 300 drawn jobs of
3 s and 150 incasts) 92 % of the flows that took 150 ms longer had begun where the
queue would fill, and of the flows that did not 0.3 % took so long.

Connections that share a NIC have unequal shares without a loss, too: on kernel NICs the
golden job took 0.2 to 13.5 % longer (18 runs; `emu.trust.rate_audit` has the
cause). With the older of them served first it takes 13.2 % longer in simulation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from emu.array_types import Floats
from emu.problem import Schedule

#: Bytes of payload in a packet, and seconds of its rate and packets that a queue holds.
_PACKET = 1448.0
_QUEUE = 0.02
_FEWEST = 8.0
#: Share of the flows that begin at a full queue which wait, and wall seconds of a wait:
#: 15 % of 34,530 such flows took 150 ms longer; TCP's least timeout is 200 ms.
_WAIT = 0.15
TIMEOUT = 0.2
#: Wall seconds within which flows begin together.
_TOGETHER = 1e-3
#: Share of the makespan up to which waits leave max-min rates right.
FEW = 0.02


@dataclass(frozen=True)
class FullQueues:
    """Forecast of what TCP's losses may cost, from a schedule under max-min rates."""

    flows: int
    """Flows between machines."""
    at_risk: int
    """Those that begin where the queue would fill."""
    links: tuple[str, ...]
    """Ports of these, those of most flows first."""
    waits: float
    """Expected waits for timeouts over the makespan, if each delayed the end."""
    older_first: float = 0.0
    """Share by which the makespan moves if older flows of a NIC are served first."""

    @property
    def holds(self) -> bool:
        """True where neither losses nor unequal shares should make max-min wrong."""
        return max(self.waits, abs(self.older_first)) <= FEW

    def sentence(self) -> str:
        """Return the forecast in words."""
        if self.holds:
            return "TCP: no queue should fill, and order among connections adds nothing"

        longer = []
        if self.waits > FEW:
            longer.append(
                f"{self.at_risk:,} of {self.flows:,} flows begin where a queue fills "
                f"(into {self.links[0].removesuffix(' in')} most), and one whose last "
                f"packets are dropped waits {1000 * TIMEOUT:.0f} ms"
            )
        if abs(self.older_first) > FEW:
            longer.append(
                "connections that share a NIC may have unequal shares: with the older "
                f"served first it would be {100 * self.older_first:+.2g} %"
            )

        return f"TCP may differ: {'; '.join(longer)}"

    def to_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self) | {"holds": self.holds}


def full_queues(
    schedule: Schedule,
    *,
    time_scale: float,
    byte_scale: float,
    older_first: float | None = None,
) -> FullQueues:
    """Return where TCP would fill queues if flows were ready as in a schedule.

    Parameters
    ----------
    schedule
        Of max-min rates; capacities are those of its start.
    time_scale, byte_scale
        Of the run: wall seconds per emulated second, and real bytes per emulated byte.
    older_first
        Makespan under ``fifo``, where machines hold connections back in their own
        queues, as Linux does; ns-3 drops, and does not.
    """
    problem = schedule.problem
    flows = schedule.flows()
    flows_into = defaultdict[int, list[tuple[int, int]]](list)
    for edge, iteration in flows.tolist():
        if schedule.flow_bytes[edge, iteration] > 0:
            last_port = problem.hops[edge][-1]
            flows_into[last_port].append((edge, iteration))

    risks = Counter[str]()
    waits = 0.0
    for port, port_flows in flows_into.items():
        name = problem.links[port].name
        bursts = _overfull(schedule, port, port_flows, time_scale, byte_scale)
        for count in bursts:
            risks[name] += count
            # Flows that begin together wait at the same time: one timeout per burst at
            # most.
            waits += TIMEOUT * (1 - (1 - _WAIT) ** count)

    wall = schedule.length * time_scale
    share = 0.0
    if wall:
        waits = waits / wall
        share = (older_first or schedule.length) / schedule.length - 1
    most_first = sorted(risks, key=lambda name: (-risks[name], name))
    return FullQueues(
        flows=len(flows),
        at_risk=sum(risks.values()),
        links=tuple(most_first),
        waits=waits if wall else 0.0,
        older_first=share,
    )


def _overfull(
    schedule: Schedule,
    port: int,
    flows: Sequence[tuple[int, int]],
    time_scale: float,
    byte_scale: float,
) -> Iterator[int]:
    """Yield the number of flows that begin together, wherever the queue would fill."""
    problem = schedule.problem
    # Real bytes and wall seconds, as packets and TCP's timeouts are real.
    flow = tuple(np.array(flows).T)
    start = time_scale * schedule.flow_start[flow]
    end = time_scale * schedule.flow_end[flow]
    size = byte_scale * schedule.flow_bytes[flow]
    first_hops = [problem.hops[edge][0] for edge, _ in flows]
    source = np.array(first_hops)
    capacity = np.array(problem.capacities) * byte_scale / time_scale
    limit = max(_FEWEST * _PACKET, _QUEUE * capacity[port])

    order = np.argsort(start, kind="stable")
    starts = start[order]
    first = 0
    while first < len(order):
        moment = starts[first]
        # Flows that begin so close behind count as one burst with it.
        last = int(np.searchsorted(starts, moment + _TOGETHER, side="right"))
        begun = order[:last]
        goes_on = end[begun] > moment
        under_way = begun[goes_on]
        senders, sender_of = np.unique(source[under_way], return_inverse=True)
        totals = np.bincount(sender_of, size[under_way])
        sizes = totals.astype(np.float64)
        rates = capacity[senders]
        # A NIC that takes longer for a packet than a queue lasts sends no fluid.
        is_slow = _QUEUE * rates.min() < _PACKET
        if is_slow or _backlog(sizes, rates, capacity[port]) > limit:
            yield last - first
        first = last


def _backlog(sent: Floats, rates: Floats, drained: float) -> float:
    """Return the most bytes that wait if senders keep to their NIC's rate alone."""
    moments = sent / rates
    could_arrive = rates * moments[:, None]
    arrivals = np.minimum(sent, could_arrive).sum(axis=1)
    waiting = arrivals - drained * moments
    return float(waiting.max(initial=0.0))
