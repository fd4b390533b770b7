"""Load of a schedule on its ports, by rates or by bytes, and queues that TCP may fill.

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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.problem import RateHistory, Schedule

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Steps = tuple[Floats, Floats]

# The rate through every port over time: assigned, or the mean of what moved.


def sum_rates(schedule: Schedule) -> list[Steps] | None:
    """Return per port the times and the sums of assigned rates from then on.

    None when the schedule has no rate history.
    """
    if (history := schedule.rates) is None:
        return None
    return _running_sums(schedule, *_changes(schedule, history))


def peak_rate(schedule: Schedule) -> float:
    """Return the greatest sum of the assigned rates of all flows, bytes per second.

    Raises ValueError when the schedule has no rate history.
    """
    if schedule.rates is None:
        raise ValueError("the schedule holds no rates")
    _, time, change = _changes(schedule, schedule.rates)
    # What ends at a moment makes room for what begins then.
    order = np.lexsort((change, time))
    return float(np.cumsum(change[order]).max(initial=0.0))


def _changes(schedule: Schedule, history: RateHistory) -> tuple[Ints, Floats, Floats]:
    """Return edge, time and change of rate; nothing ends before its last change."""
    of = pieces(schedule, history)
    return changes_of(of._replace(end=np.maximum(of.end, of.rates.time)))


def mean_rates(schedule: Schedule) -> list[Steps]:
    """Return per port the times and the sums of bytes / duration of what is moving."""
    flows = schedule.flows()
    at = tuple(flows.T)
    start = schedule.flow_start[at]
    end = schedule.flow_end[at]
    moving = end > start
    rate = schedule.flow_bytes[at][moving] / (end - start)[moving]
    time = np.append(start[moving], end[moving])
    change = np.append(rate, -rate)
    return _running_sums(schedule, np.tile(flows[moving, 0], 2), time, change)


def _running_sums(
    schedule: Schedule, edge: Ints, time: Floats, change: Floats
) -> list[Steps]:
    """Return the running sums of ``change`` per port, one value per distinct time."""
    problem = schedule.problem
    steps = []
    crossing = np.zeros((len(problem.capacities), len(problem.hops)), dtype=bool)
    for position, hops in enumerate(problem.hops):
        crossing[list(hops), position] = True
    for port, edges in enumerate(crossing):
        here = edges[edge] if len(edge) else np.zeros(0, dtype=bool)
        order = np.argsort(time[here], kind="stable")
        times = time[here][order]
        level = np.cumsum(change[here][order])
        is_last = np.append(times[1:] != times[:-1], np.ones(min(len(times), 1), bool))
        # Sums of differences leave rounding where nothing moves any more.
        level[np.abs(level) < 1e-9 * problem.links.steps.most[port]] = 0.0
        steps.append((times[is_last], level[is_last]))
    return steps


class LinkContention:
    """The active flows of every port of a schedule; those without bytes not counted."""

    def __init__(self, schedule: Schedule) -> None:
        self._hops = schedule.problem.hops
        self._steps = schedule.problem.links.steps
        crossing: list[list[int]] = [[] for _ in schedule.problem.links]
        for edge, hops in enumerate(self._hops):
            for port in hops:
                crossing[port].append(edge)
        self._begun = list[Floats]()
        self._ended = list[Floats]()
        for edges in crossing:
            moving = schedule.flow_bytes[edges] > 0
            self._begun.append(np.sort(schedule.flow_start[edges][moving]))
            self._ended.append(np.sort(schedule.flow_end[edges][moving]))

    def degree(self, port: int, times: Floats) -> Ints:
        """Return the active flows over ``port`` just after each of ``times``."""
        return np.searchsorted(self._begun[port], times, "right") - np.searchsorted(
            self._ended[port], times, "right"
        )

    @property
    def most(self) -> int:
        """The most flows that were active over one link at a time."""
        degrees = (self.degree(port, starts) for port, starts in enumerate(self._begun))
        return max((int(degree.max(initial=0)) for degree in degrees), default=0)

    def bottleneck(self, edge: int, start: float, end: float) -> int:
        """Return the port that gives the flows of ``edge`` least, -1 within a machine.

        Least is the smallest capacity per active flow, for most of the time from
        ``start`` to ``end``; of equal ports the first that the flow crosses. Under
        ``oes`` this is exactly what limits the flow (Algorithm 1 of the paper).
        """
        hops = self._hops[edge]
        if not hops:
            return -1
        changes = [np.array([start])]
        for port in hops:
            changed, _ = self._steps.of(port)
            for times in (self._begun[port], self._ended[port], changed):
                first, last = np.searchsorted(times, [start, end], "right")
                changes.append(times[first:last])
        # One that comes twice has no length. np.unique would import numpy.ma: 20 ms.
        moments = np.sort(np.concatenate(changes))
        lengths = np.diff(np.append(moments, max(end, moments[-1])))
        shares_of_ports = [
            self._steps.at(port, moments) / np.maximum(self.degree(port, moments), 1)
            for port in hops
        ]
        tightest = np.argmin(shares_of_ports, axis=0)
        shares = [lengths[tightest == place].sum() for place in range(len(hops))]
        return hops[int(np.argmax(shares))]


#: Sums of (instant, port) that are made at once: 32 MB.
_BLOCK = 1 << 22


class Pieces(NamedTuple):
    """Pieces of constant rate; those of a flow stand together, in the order of time.

    ``history``: the rates as they were written. ``order``: its rows, flow by flow.
    ``rates``: the history in that order, a row per piece. ``goes_on``: whether the next
    piece is of the same flow. ``end``: when that one begins, or the flow ends, seconds.
    """

    schedule: Schedule
    history: RateHistory
    order: Ints
    rates: RateHistory
    goes_on: NDArray[np.bool_]
    end: Floats


def pieces(schedule: Schedule, rates: RateHistory) -> Pieces:
    """Return the pieces of all flows."""
    edge = _short(rates.edge)
    iteration = _short(rates.iteration)
    order = np.lexsort((iteration, edge))  # stable: time stays in order
    rows = rates.rows(order)
    edge = rows.edge
    iteration = rows.iteration
    goes_on = np.zeros(order.size, dtype=bool)
    goes_on[:-1] = (edge[1:] == edge[:-1]) & (iteration[1:] == iteration[:-1])
    last = np.flatnonzero(~goes_on)
    end = np.roll(rows.time, -1)
    end[last] = schedule.flow_end[edge[last], iteration[last]]
    return Pieces(schedule, rates, order, rows, goes_on, end)


def fluid_ends(schedule: Schedule) -> Floats:
    """Return when the assigned rates had carried each flow's bytes.

    Raises ValueError when the schedule holds no rates.

    Seconds, shape (edges, iterations); NaN for what has no rates (handoffs, flows of no
    bytes) and where the rates never carried all of it.
    """
    rates = schedule.rates
    if rates is None:
        raise ValueError("the schedule holds no rates")
    ends: Floats = np.full_like(schedule.flow_end, np.nan)
    of = pieces(schedule, rates)
    time = of.rates.time
    rate = of.rates.rate
    flow = of.rates.edge * ends.shape[1] + of.rates.iteration
    first = np.flatnonzero(~np.roll(of.goes_on, 1))
    until = np.where(of.goes_on, of.end, np.inf)
    sizes = np.where(of.goes_on, rate * (of.end - time), 0.0)
    before = np.cumsum(sizes) - sizes
    before -= np.repeat(before[first], np.diff(np.append(first, len(flow))))
    missing = np.maximum(schedule.flow_bytes.ravel()[flow] - before, 0.0)
    moving = rate > 0
    arrival = np.full(len(flow), np.inf)
    arrival[moving] = time[moving] + missing[moving] / rate[moving]
    # Rounding of a long sum must not push the end into the next piece, or out of all.
    places = np.flatnonzero(arrival <= until + 1e-9 * np.abs(time))
    places = places[np.isfinite(arrival[places])][::-1]  # the earliest piece wins
    ends.ravel()[flow[places]] = arrival[places]
    return ends


def _short(values: Ints) -> NDArray[Any]:
    """Return the same in 16 bits where they fit: a fourth of the time to sort."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def fluid_bytes(of: Pieces) -> Floats:
    """Return the bytes that the rates of each (edge, iteration) amount to."""
    rates = of.rates
    fluid = np.zeros(of.schedule.flow_end.shape)
    first = np.flatnonzero(~np.roll(of.goes_on, 1))
    if first.size:
        sizes = np.add.reduceat(rates.rate * (of.end - rates.time), first)
        fluid[rates.edge[first], rates.iteration[first]] = sizes
    return fluid


def _instants(times: Floats, tolerance: float) -> Ints:
    """Return the number of the instant of every time, in the order of time.

    Ends and starts of one instant may differ in the last bits.
    """
    starts = []
    first = 0
    while first < times.size:
        starts.append(first)
        limit = times[first] + max(tolerance, 1e-12 * abs(times[first]))
        first = int(np.searchsorted(times, limit, side="right"))
    number = np.zeros(times.size, dtype=np.int64)
    number[starts[1:]] = 1
    return np.cumsum(number)


def excess_loads(of: Pieces, tolerance: float) -> list[tuple[float, float]]:
    """Return the most that rates over every port exceed its capacity, B/s, and when.

    Less than 0 where they never do. Changes within ``tolerance`` seconds count as one
    instant. What a capacity loses is summed as the rate of one more flow would be.
    """
    edge, time, change = changes_of(of)
    links = of.schedule.problem.links
    losses = links.steps.losses
    beyond = len(of.schedule.problem.hops) + losses[:, 1].astype(np.int64)
    edge, time = np.append(edge, beyond), np.append(time, losses[:, 0])
    change = np.append(change, losses[:, 2])
    order = np.argsort(time, kind="stable")  # nearly in order, as histories are
    edge, time, change = edge[order], time[order], change[order]
    instant = _instants(time, tolerance)
    begin = time[np.flatnonzero(np.diff(instant, prepend=-1))]
    ports = len(links)
    hops = [list(path) for path in of.schedule.problem.hops]
    hops += [[port] for port in range(ports)]
    at = np.zeros(ports)
    level = -links.capacities
    peak = level.copy()
    rows = max(_BLOCK // max(ports, 1), 1)
    columns = ports + 1
    # The port of every edge at each hop; the last column takes what crosses fewer.
    crossed = [
        np.array([path[hop] if hop < len(path) else ports for path in hops])
        for hop in range(max(map(len, hops), default=0))
    ]
    for first in range(0, begin.size, rows):
        since, until = np.searchsorted(instant, [first, first + rows])
        there = instant[since:until] - first
        sums = np.zeros((int(there[-1]) + 1) * columns)
        for port in crossed:
            place = there * columns + port[edge[since:until]]
            sums += np.bincount(place, change[since:until], sums.size)
        loads = level + np.cumsum(sums.reshape(-1, columns)[:, :ports], axis=0)
        worst = np.argmax(loads, axis=0)
        most = loads[worst, np.arange(ports)]
        at = np.where(most > peak, begin[first + worst], at)
        peak, level = np.maximum(most, peak), loads[-1]
    return list(zip(peak.tolist(), at.tolist(), strict=True))


def changes_of(of: Pieces) -> tuple[Ints, Floats, Floats]:
    """Return edge, time and change of rate, of every row and of every flow's end."""
    before = np.roll(of.rates.rate, 1)
    before[np.flatnonzero(~np.roll(of.goes_on, 1))] = 0.0
    change = np.empty_like(before)
    change[of.order] = of.rates.rate - before
    last = np.flatnonzero(~of.goes_on)
    edge = np.append(of.history.edge, of.rates.edge[last])
    time = np.append(of.history.time, of.end[last])
    return edge, time, np.append(change, -of.rates.rate[last])


def best_sums(place: Ints, total: Floats, best: Floats) -> Floats:
    """Return the best of a growing set of intervals, after every step of its growth.

    Step i adds an element at ``place[i]``: it brings ``total[i]`` to every interval
    that ends there or further right, and makes one possible that ends there, with
    ``best[i] - total[i]`` on top of the totals. A segment tree over the places, all
    steps at once, one level after the other.
    """
    total, best, node = total.copy(), best.copy(), place
    step = np.arange(place.size)
    for _ in range(max(place.size - 1, 0).bit_length()):
        order = np.argsort(node >> 1, kind="stable")
        side = node[order] & 1
        above = node[order] >> 1
        first = np.maximum.accumulate(np.where(np.diff(above, prepend=-1), step, 0))
        sums = []
        tops = []
        for hand in (0, 1):
            latest = np.maximum.accumulate(np.where(side == hand, step, -1))
            there = latest >= first
            sums.append(np.where(there, total[order][latest], 0.0))
            tops.append(np.where(there, best[order][latest], -np.inf))
        total[order] = sums[0] + sums[1]
        best[order] = np.maximum(tops[0], sums[0] + tops[1])
        node = node >> 1
    return best


def worst_interval(
    schedule: Schedule, port: int, factor: float, tolerance: float
) -> tuple[float, float, float]:
    """Return the most bytes over ``factor`` times capacity in an interval, and that.

    Counted are the flows that lie in the interval as a whole, so that any excess is
    certain. It runs from some flow's start to some flow's end and is stretched by
    ``tolerance`` seconds. The clock here is the bytes that the port can have carried.
    """
    crossing = np.array([port in hops for hops in schedule.problem.hops], dtype=bool)
    edge, iteration = np.nonzero(~np.isnan(schedule.flow_end) & crossing[:, None])
    if not edge.size:
        return 0.0, 0.0, 0.0
    latest_first = np.argsort(-schedule.flow_start[edge, iteration], kind="stable")
    flows = edge[latest_first], iteration[latest_first]
    began = schedule.flow_start[flows]
    ends = schedule.flow_end[flows]
    steps = schedule.problem.links.steps
    sizes = schedule.flow_bytes[flows]
    start = steps.carry(port, began)
    end = steps.carry(port, ends)
    by_end = np.empty(end.size, dtype=np.int64)
    by_end[np.argsort(end, kind="stable")] = np.arange(end.size)
    best = best_sums(by_end, sizes, sizes - factor * end)
    first = int(np.argmax(best + factor * start))
    inside = np.flatnonzero(start >= start[first])
    inside = inside[np.argsort(end[inside], kind="stable")]
    sums = np.cumsum(sizes[inside])
    slack = steps.most[port] * tolerance
    excess = sums - factor * (end[inside] - start[first] + slack)
    at = int(np.argmax(excess))
    # A sum of many volumes is itself exact to some last bits only.
    if excess[at] <= 1e-12 * sums[-1]:
        return 0.0, 0.0, 0.0
    return float(excess[at]), float(began[first]), float(ends[inside][at])


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
    flows = schedule.flows()
    into: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for edge, n in flows.tolist():
        if schedule.flow_bytes[edge, n] > 0:
            into[schedule.problem.hops[edge][-1]].append((edge, n))
    risks = Counter[str]()
    waits = 0.0
    for port, mine in into.items():
        for together in _full(schedule, port, mine, time_scale, byte_scale):
            risks[schedule.problem.links[port].name] += together
            waits += TIMEOUT * (1 - (1 - _WAIT) ** together)
    wall = schedule.length * time_scale
    links = tuple(sorted(risks, key=lambda name: (-risks[name], name)))
    share = (older_first or schedule.length) / schedule.length - 1 if wall else 0.0
    waits = waits / wall if wall else 0.0
    return FullQueues(len(flows), sum(risks.values()), links, waits, share)


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
    start = time_scale * schedule.flow_start[at]
    end = time_scale * schedule.flow_end[at]
    size = byte_scale * schedule.flow_bytes[at]
    capacity = np.array(problem.capacities) * byte_scale / time_scale
    source = np.array([problem.hops[edge][0] for edge, _ in flows])
    limit = max(_FEWEST * _PACKET, _QUEUE * capacity[port])
    order = np.argsort(start, kind="stable")
    first = 0
    while first < len(order):
        moment = start[order[first]]
        last = int(np.searchsorted(start[order], moment + _TOGETHER, side="right"))
        under_way = order[:last][end[order[:last]] > moment]
        senders, place = np.unique(source[under_way], return_inverse=True)
        sizes = np.bincount(place, size[under_way]).astype(np.float64)
        rates = capacity[senders]
        # A NIC that takes longer for a packet than a queue lasts sends no fluid.
        slow = _QUEUE * rates.min() < _PACKET
        if slow or _backlog(sizes, rates, capacity[port]) > limit:
            yield last - first
        first = last


def _backlog(sent: Floats, rates: Floats, drained: float) -> float:
    """Return the most bytes that wait if senders keep to their NIC's rate alone."""
    moments = sent / rates
    arrivals = np.minimum(sent, rates * moments[:, None]).sum(axis=1)
    return float(np.max(arrivals - drained * moments, initial=0.0))
