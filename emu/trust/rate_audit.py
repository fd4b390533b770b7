"""Check that a schedule's rates are those that its rule gives, by the slow oracle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np

from emu.problem import RateHistory, Realization, Schedule
from emu.trust.coflow_rules import note_coflows, time_in_queue
from emu.trust.guards.evidence import list_capacities, list_hops
from emu.trust.rate_rules import (
    POLICIES,
    Event,
    Rates,
    ask_rule,
    rank_of,
    remaining_paths,
)
from emu.trust.rated_flows import Flow
from emu.trust.violation import Findings, Violation, flow_name

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
#: Edge, iteration and rate.
_RateRow: TypeAlias = tuple[int, int, float]


class _Assigned(NamedTuple):
    """State of a flow: bytes carried by ``since``, and a rate from then on."""

    carried: float
    rate: float
    since: float

    def at(self, time: float) -> float:
        return self.carried + self.rate * (time - self.since)


def rule_audit(
    schedule: Schedule,
    policy: str,
    expected: Realization,
    own: Rates | None = None,
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
        names = ", ".join(POLICIES)
        raise ValueError(f"no rule is called {policy}: {names}")
    problem = schedule.problem
    rule = POLICIES[policy] if own is None else ask_rule(problem, own)

    count = 0
    violations: dict[Event, Violation] = {}
    instants = _instants(
        schedule,
        schedule.rates,
        expected,
        with_queues=policy == "aalo",
    )
    for time, flows, rates in instants:
        capacity = list_capacities(problem, time)
        for flow in flows:
            flow.alone = min(capacity[link] for link in flow.hops)
        _settle_ties(flows, rates)
        rule(flows, capacity)
        count += len(flows)

        pairs = zip(flows, rates.items(), strict=True)
        for flow, (event, rate) in pairs:
            distance = abs(rate - flow.rate)
            is_off = distance > _EXACTNESS * flow.alone
            if is_off and event not in violations:
                name = flow_name(problem.job, *event)
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
    queues: dict[str, list[Flow]] = defaultdict(list)
    served = set()
    for flow, rate in zip(flows, rates.values(), strict=True):
        first_port = flow.hops[0]
        queues[first_port].append(flow)
        if rate > 0:
            served.add(flow)

    for queue in queues.values():
        first = min(flow.ready for flow in queue)
        close = [flow for flow in queue if flow.ready - first < _CLOSE]
        if len(close) < 2:
            continue
        for flow in served.intersection(close):
            flow.ready = first - _CLOSE


def _next_demotion(flows: list[Flow], now: float) -> float:
    """Return when a coflow goes to its next queue, infinity if a flow ends before.

    What is of one instant with that end, or with now, is looked at with the rates that
    change then.
    """
    ends = []
    for flow in flows:
        if flow.rate > 0:
            seconds = flow.left / flow.rate
            ends.append(now + seconds)
    # Where nothing moves no coflow goes to its next queue.
    soonest = min(ends, default=now)
    demotion = now + time_in_queue(flows)
    earliest = now * (1 + _TIE)
    latest = soonest * (1 - _TIE)
    return demotion if earliest < demotion < latest else inf


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
        rates = {}
        for event, flow in flows.items():
            state = assigned[event]
            rates[event] = state.rate
            rest = flow.volume - state.at(now)
            flow.left = max(rest, 0.0)
            flow.rate = 0.0  # until the rule has set it
        yield now, under_way, rates
        now = _next_demotion(under_way, now)


def _list_flows(schedule: Schedule, expected: Realization) -> dict[Event, Flow]:
    """Return the flows between machines as rules know them, in the order of starts."""
    problem = schedule.problem
    job = problem.job
    paths = remaining_paths(problem, expected)
    hops = list_hops(problem)
    has_bytes = schedule.flow_bytes > 0
    has_begun = has_bytes & ~np.isnan(schedule.flow_start)
    flow_rows = np.argwhere(has_begun).tolist()
    events: list[Event] = [(position, n) for position, n in flow_rows]
    events.sort(key=schedule.flow_start.__getitem__)

    flows = {}
    for event in events:
        position, n = event
        if not hops[position]:
            continue
        edge = job.edges[position]
        # What a run carried, and not what was expected: it ends with that.
        volume = float(schedule.flow_bytes[event])
        flows[event] = Flow(
            edge=position,
            # The iteration that the flow is needed for, by which rules rank it.
            turn=n + edge.lag,
            rank=rank_of(job, position),
            hops=hops[position],
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
    steps = np.diff(rates.time, prepend=-np.inf)
    changes = np.flatnonzero(steps).tolist()

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
            event = (edge, iteration)
            # What it has carried so far is kept, and the new rate counts from here.
            state = assignments.get(event)
            carried = 0.0 if state is None else state.at(time)
            assignments[event] = _Assigned(carried, rate, time)

        for event, flow in list(flows.items()):
            carried = assignments[event].at(time)
            bytes_left = flow.volume - carried
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
        rate_of = {event: assignments[event].rate for event in flows}
        yield time, [*under_way], rate_of


def _rows_of(rates: RateHistory) -> list[_RateRow]:
    """Return edge, iteration and rate of every row."""
    edges = rates.edge.tolist()
    iterations = rates.iteration.tolist()
    numbers = rates.rate.tolist()
    return list(zip(edges, iterations, numbers, strict=True))


def _list_stops(rows: list[_RateRow]) -> dict[Event, int]:
    """Return the row with which each flow ends, where its last rate is 0.

    That is so in a run: of two flows that end within 1e-9 s only the scheduler knows
    the first. Simulations state no such rate.
    """
    last_row: dict[Event, int] = {}
    for row, (edge, iteration, _) in enumerate(rows):
        last_row[edge, iteration] = row

    stops = {}
    for event, row in last_row.items():
        _, _, rate = rows[row]
        if rate == 0:
            stops[event] = row
    return stops
