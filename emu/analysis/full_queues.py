"""Queues that TCP may fill: where flows take longer than max-min rates say.

Machines that together send faster than a port drains fill its queue before any of them
notices. What is dropped in mid-flow is sent again at once; a flow whose last packets
are dropped waits for a timeout. Over packets (ns-3, cubic and reno, 300 drawn jobs of
3 s and 150 incasts) 92 % of the flows that took 150 ms longer had begun where the
queue would fill, and of the flows that did not 0.3 % took so long. It sees losses
alone: two connections of the golden job share their sender's queue unequally on kernel
NICs, and it took 7 % longer without any.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from emu.problem import Schedule

#: Bytes of payload in a packet, and seconds of its rate and packets that a queue holds.
_PACKET, _QUEUE, _FEWEST = 1448.0, 0.02, 8.0
#: Share of the flows that begin at a full queue which wait, and wall seconds of a wait:
#: 15 % of 34,530 such flows took 150 ms longer; TCP's least timeout is 200 ms.
_WAIT, TIMEOUT = 0.15, 0.2
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

    @property
    def holds(self) -> bool:
        """True where losses should leave max-min rates right."""
        return self.waits <= FEW

    def sentence(self) -> str:
        """Return the forecast in words."""
        if self.holds:
            return (
                "TCP: no queue should fill; connections that share the NIC of a sender "
                "may still have unequal shares, which this does not foresee"
            )
        return (
            f"TCP may take longer: {self.at_risk:,} of {self.flows:,} flows begin "
            f"where a queue fills (into {self.links[0].removesuffix(' in')} most), and "
            f"one whose last packets are dropped waits {1000 * TIMEOUT:.0f} ms"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self) | {"holds": self.holds}


def full_queues(
    schedule: Schedule, *, time_scale: float, byte_scale: float
) -> FullQueues:
    """Return where TCP would fill queues if flows were ready as in a schedule.

    Parameters
    ----------
    schedule
        Of max-min rates; capacities are those of its start.
    time_scale, byte_scale
        Of the run: wall seconds per emulated second, and real bytes per emulated byte.
    """
    flows = schedule.flows()
    into: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for edge, n in flows.tolist():
        if schedule.flow_bytes[edge, n] > 0:
            into[schedule.problem.hops[edge][-1]].append((edge, n))
    risks: dict[str, int] = {}
    waits = 0.0
    for port, mine in into.items():
        for together in _full(schedule, port, mine, time_scale, byte_scale):
            name = schedule.problem.links[port].name
            risks[name] = risks.get(name, 0) + together
            waits += TIMEOUT * (1 - (1 - _WAIT) ** together)
    wall = schedule.makespan * time_scale
    return FullQueues(
        flows=len(flows),
        at_risk=sum(risks.values()),
        links=tuple(sorted(risks, key=lambda name: (-risks[name], name))),
        waits=waits / wall if wall else 0.0,
    )


def _full(
    schedule: Schedule,
    port: int,
    flows: Sequence[tuple[int, int]],
    time_scale: float,
    byte_scale: float,
) -> Iterator[int]:
    """Yield the number of flows that begin together, wherever the queue would fill."""
    problem = schedule.problem
    at = tuple(np.array(flows).T)
    start, end = (
        time_scale * times[at] for times in (schedule.flow_start, schedule.flow_end)
    )
    size = byte_scale * schedule.flow_bytes[at]
    capacity = np.array(problem.capacities) * byte_scale / time_scale
    source = np.array([problem.hops[edge][0] for edge, _ in flows])
    held = max(_FEWEST * _PACKET, _QUEUE * capacity[port])
    order = np.argsort(start, kind="stable")
    first = 0
    while first < len(order):
        moment = start[order[first]]
        last = int(np.searchsorted(start[order], moment + _TOGETHER, side="right"))
        under_way = order[:last][end[order[:last]] > moment]
        senders, place = np.unique(source[under_way], return_inverse=True)
        sent = np.bincount(place, size[under_way]).astype(np.float64)
        rates = capacity[senders]
        # A NIC that takes longer for a packet than a queue lasts sends no fluid.
        slow = _QUEUE * rates.min() < _PACKET
        if slow or _backlog(sent, rates, capacity[port]) > held:
            yield last - first
        first = last


def _backlog(
    sent: NDArray[np.float64], rates: NDArray[np.float64], drained: float
) -> float:
    """Return the most bytes that wait if senders keep to their NIC's rate alone."""
    moments = sent / rates
    arrived = np.minimum(sent, rates * moments[:, None]).sum(axis=1)
    return float(np.max(arrived - drained * moments, initial=0.0))
