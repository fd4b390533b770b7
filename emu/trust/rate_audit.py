"""Check that a schedule's rates are those that its rule gives, by the slow oracle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np

from emu.problem import RateHistory, Realization, Schedule
from emu.trust.guards.evidence import list_capacities, list_hops
from emu.trust.rate_rules import (
    POLICIES,
    Event,
    Flow,
    Rates,
    ask_rule,
    maxmin,
    note_coflows,
    rank_of,
    remaining_paths,
    time_in_queue,
)
from emu.trust.violation import Findings, Violation, flow_name


def shares_of_max_min(
    schedule: Schedule, flows: Collection[Event]
) -> dict[Event, tuple[float, float]]:
    """Return bytes that flows carried, and those of max-min rates while they lasted.

    Where a network shares max-min both are equal. On kernel NICs with one queue (Linux
    6.18, reno) two connections of the golden job had 0.31 and 1.42 of it, and its
    makespan was 9 % longer without a loss: a connection keeps in the queue of its
    machine what it sends in 1 ms at the rate that its window allows, and the window of
    one that has sent for longer is larger.

    ``flows``: between machines. With them come those that were under way beside them on
    one of their links.
    """
    start = schedule.flow_start
    end = schedule.flow_end
    hops = list_hops(schedule.problem)
    all_flows = {
        # Max-min asks for links alone: rank and volume stay empty.
        (edge, n): Flow(
            edge=edge,
            turn=n,
            rank=("", "", 0, edge),
            hops=hops[edge],
            volume=0.0,
            left=0.0,
        )
        for edge, n in schedule.flows().tolist()
        if end[edge, n] > start[edge, n]
    }

    def is_beside(event: Event, flow: Event) -> bool:
        if not (start[event] < end[flow] and end[event] > start[flow]):
            return False
        common = set(hops[event[0]]).intersection(hops[flow[0]])
        return bool(common)

    known_flows = [event for event in flows if event in all_flows]
    events = {
        event
        for event in all_flows
        if any(is_beside(event, flow) for flow in known_flows)
    }
    # Rates change only where a flow begins or ends, or a link changes.
    moments = {change.time for change in schedule.problem.cluster.changes}
    for event in all_flows:
        moments |= {start[event], end[event]}

    sizes = schedule.flow_bytes
    fair = _fair_bytes(schedule, all_flows, events, sorted(moments))
    # A share of no bytes at all cannot be compared.
    return {
        event: (float(sizes[event]), float(fair[event]))
        for event in events
        if fair[event] > 0
    }


def _fair_bytes(
    schedule: Schedule,
    flows: Mapping[Event, Flow],
    wanted: set[Event],
    moments: list[float],
) -> dict[Event, float]:
    """Return bytes that max-min rates carry of flows, while a wanted one lasts."""
    # The latest first, as pop takes from the end.
    coming = sorted(flows, key=lambda event: -schedule.flow_start[event])
    active: dict[Event, Flow] = {}
    fair = dict.fromkeys(flows, 0.0)
    for moment, next_moment in pairwise(moments):
        active = {
            event: flow
            for event, flow in active.items()
            if schedule.flow_end[event] > moment
        }
        while coming and schedule.flow_start[coming[-1]] <= moment:
            event = coming.pop()
            active[event] = flows[event]
        # The oracle is slow: it is spared where none of the wanted is under way.
        if not wanted.isdisjoint(active):
            maxmin([*active.values()], list_capacities(schedule.problem, moment))
            for event, flow in active.items():
                fair[event] += flow.rate * (next_moment - moment)
    return fair


#: Share of its narrowest link by which a rate may be off: rounding.
_EXACTNESS = 1e-6
#: Seconds within which flows may have got ready in any order.
_CLOSE = 1e-9
#: Share of a time within which what happens is of one instant.
_TIE = 1e-9
#: Share of its bytes that a flow may miss and be served.
_ROUNDING = 1e-9


#: Time, flows under way, and the rates that they have.
_Instant: TypeAlias = tuple[float, list[Flow], dict[Event, float]]


class _Assigned(NamedTuple):
    """State of a flow: bytes carried by ``since``, and a rate from then on."""

    carried: float
    rate: float
    since: float

    def at(self, time: float) -> float:
        return self.carried + self.rate * (time - self.since)


def rule_audit(
    schedule: Schedule, policy: str, expected: Realization, own: Rates | None = None
) -> Findings:
    """Return the number of rates recomputed, and the first wrong one of every flow.

    At every instant at which a rate changed, or has to under ``aalo``, the oracle is
    asked for the rates of all flows that are under way. It takes what they have carried
    from the history itself, so that one mistake is not found again in all that comes
    after it. A second takes some 10,000 rates.

    Raises ValueError when the schedule holds no rates, or there is no such rule. Raises
    DataError when a rule of one's own fails.

    Parameters
    ----------
    policy
        A rule of `emu.trust.rate_audit`.
    expected
        Times and volumes that rules look ahead by.
    own
        Answers for ``policy`` where that is a rule of one's own: asked again.
    """
    if schedule.rates is None:
        raise ValueError("the schedule holds no rates")
    if own is None and policy not in POLICIES:
        raise ValueError(f"no rule is called {policy}: {', '.join(POLICIES)}")
    rule = POLICIES[policy] if own is None else ask_rule(schedule.problem, own)
    count = 0
    violations: dict[Event, Violation] = {}
    instants = _instants(
        schedule, schedule.rates, expected, with_queues=policy == "aalo"
    )
    for time, flows, rates in instants:
        capacity = list_capacities(schedule.problem, time)
        for flow in flows:
            flow.alone = min(capacity[link] for link in flow.hops)
        _settle_ties(flows, rates)
        rule(flows, capacity)
        count += len(flows)

        for flow, (event, rate) in zip(flows, rates.items(), strict=True):
            distance = abs(rate - flow.rate)
            if distance > _EXACTNESS * flow.alone and event not in violations:
                name = flow_name(schedule.problem.job, *event)
                assignment = f"{name} has {rate:g} B/s from {time:.6g} s on"
                violations[event] = Violation(
                    constraint="rule",
                    subject=name,
                    amount=distance,
                    unit="B/s",
                    sentence=f"{assignment}, {policy} gives {flow.rate:g}",
                )
    return count, list(violations.values())


def _settle_ties(flows: list[Flow], rates: dict[Event, float]) -> None:
    """Put what is served before others of its port that got ready as it did.

    The records of a run do not tell which of two came first that were 2e-11 s apart.
    """
    queues = defaultdict[str, list[tuple[Flow, float]]](list)
    for flow, rate in zip(flows, rates.values(), strict=True):
        queues[flow.hops[0]].append((flow, rate))
    for queue in queues.values():
        first = min(flow.ready for flow, _ in queue)
        close = [(flow, rate) for flow, rate in queue if flow.ready - first < _CLOSE]
        if len(close) > 1:
            for flow, rate in close:
                if rate > 0:
                    flow.ready = first - _CLOSE


def _next_demotion(flows: list[Flow], now: float) -> float:
    """Return when a coflow goes to its next queue, infinity if a flow ends before.

    What is of one instant with that end, or with now, is looked at with the rates that
    change then.
    """
    moving = [flow for flow in flows if flow.rate > 0]
    ends = [now + flow.left / flow.rate for flow in moving]
    # Where nothing moves no coflow goes to its next queue.
    soonest = min(ends, default=now)
    demotion = now + time_in_queue(flows)
    is_apart = now * (1 + _TIE) < demotion < soonest * (1 - _TIE)
    return demotion if is_apart else inf


def _demotions(
    flows: Mapping[Event, Flow],
    assigned: Mapping[Event, _Assigned],
    since: float,
    until: float,
) -> Iterator[_Instant]:
    """Yield when coflows go to their next queues between two changes of rates."""
    under_way = list(flows.values())
    now = _next_demotion(under_way, since)
    while now < until * (1 - _TIE):
        for event, flow in flows.items():
            flow.left = max(flow.volume - assigned[event].at(now), 0.0)
            flow.rate = 0.0  # until the rule has set it
        yield now, under_way, {event: assigned[event].rate for event in flows}
        now = _next_demotion(under_way, now)


def _list_flows(schedule: Schedule, expected: Realization) -> dict[Event, Flow]:
    """Return the flows between machines as rules know them, in the order of starts."""
    job = schedule.problem.job
    paths = remaining_paths(schedule.problem, expected)
    hops = list_hops(schedule.problem)
    has_begun = (schedule.flow_bytes > 0) & ~np.isnan(schedule.flow_start)
    events: list[Event] = [(e, n) for e, n in np.argwhere(has_begun).tolist()]

    flows = {}
    for event in sorted(events, key=lambda event: schedule.flow_start[event]):
        e, n = event
        if not hops[e]:
            continue
        edge = job.edges[e]
        # What a run carried, and not what was expected: it ends with that.
        volume = float(schedule.flow_bytes[event])
        flows[event] = Flow(
            edge=e,
            # The iteration that the flow is needed for, by which rules rank it.
            turn=n + edge.lag,
            rank=rank_of(job, e),
            hops=hops[e],
            volume=volume,
            left=volume,
            ready=float(schedule.flow_ready[event]),
            path_after=paths[event],
            job=job.tasks[edge.source].job_name,
            coflow=edge.coflow,
        )
    return flows


def _instants(
    schedule: Schedule,
    rates: RateHistory,
    expected: Realization,
    *,
    with_queues: bool = False,
) -> Iterator[_Instant]:
    """Yield the time, the flows under way and their rates, of every change.

    ``with_queues``: also when a coflow goes to its next queue of Aalo, by the rates
    that whoever takes an instant leaves in its flows.
    """
    coming = _list_flows(schedule, expected)
    waiting = [*coming][::-1]
    rows = _rows_of(rates)
    stops = _list_stops(rows)
    # Rows of one time are one change of all rates.
    changes = np.flatnonzero(np.diff(rates.time, prepend=-np.inf)).tolist()

    assignments: dict[Event, _Assigned] = {}
    flows: dict[Event, Flow] = {}
    previous_flows: list[Flow] = []
    now = 0.0
    for low, high in pairwise([*changes, len(rows)]):
        time = float(rates.time[low])
        if with_queues:
            yield from _demotions(flows, assignments, now, time)
        now = time

        while waiting and schedule.flow_start[waiting[-1]] <= time:
            event = waiting.pop()
            flows[event] = coming[event]
            assignments[event] = _Assigned(0.0, 0.0, time)
        for edge, iteration, rate in rows[low:high]:
            # What it has carried so far is kept, and the new rate counts from here.
            state = assignments.get((edge, iteration), _Assigned(0.0, 0.0, time))
            assignments[edge, iteration] = _Assigned(state.at(time), rate, time)

        for event, flow in list(flows.items()):
            bytes_left = flow.volume - assignments[event].at(time)
            is_over = bytes_left <= _ROUNDING * flow.volume
            if event in stops:
                is_over = stops[event] < high
            if is_over:
                del flows[event], assignments[event]
            flow.left = max(bytes_left, 0.0)
            flow.rate = 0.0

        under_way = list(flows.values())
        note_coflows(previous_flows, under_way, time)
        previous_flows = under_way
        yield time, [*under_way], {event: assignments[event].rate for event in flows}


def _rows_of(rates: RateHistory) -> list[tuple[int, int, float]]:
    """Return edge, iteration and rate of every row."""
    edges = rates.edge.tolist()
    iterations = rates.iteration.tolist()
    return list(zip(edges, iterations, rates.rate.tolist(), strict=True))


def _list_stops(rows: list[tuple[int, int, float]]) -> dict[Event, int]:
    """Return the row with which each flow ends, where its last rate is 0.

    That is so in a run: of two flows that end within 1e-9 s only the scheduler knows
    the first. Simulations state no such rate.
    """
    last = {(edge, iteration): row for row, (edge, iteration, _) in enumerate(rows)}
    return {event: row for event, row in last.items() if rows[row][2] == 0}
