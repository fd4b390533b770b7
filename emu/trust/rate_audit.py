"""Check that a schedule's rates are those that its rule gives, by the slow oracle."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.trust.guards.stated import stated_capacities, stated_hops
from emu.trust.reference_rates import POLICIES, Event, Flow, natural, remaining_paths
from emu.trust.violation import Findings, Violation, flow_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.problem import RateHistory, Realization, Schedule

#: Share of its narrowest link by which a rate may be off: rounding.
_EXACTNESS = 1e-6
#: Share of its bytes that a flow may miss and be served.
_ROUNDING = 1e-9


class _Assigned(NamedTuple):
    """State of a flow: bytes carried by ``since``, and a rate from then on."""

    carried: float
    rate: float
    since: float

    def at(self, time: float) -> float:
        return self.carried + self.rate * (time - self.since)


def rule_audit(schedule: Schedule, policy: str, expected: Realization) -> Findings:
    """Return the number of rates recomputed, and the first wrong one of every flow.

    At every instant at which a rate changed, the oracle is asked for the rates of all
    flows that are under way. It takes what they have carried from the history itself,
    so that one mistake is not found again in all that comes after it. A second takes
    some 10,000 rates.

    Parameters
    ----------
    policy
        A rule of `emu.trust.reference_rates`.
    expected
        Times and volumes that rules look ahead by.

    Raises
    ------
    ValueError
        When the schedule holds no rates, or there is no such rule.
    """
    if schedule.rates is None:
        raise ValueError("the schedule holds no rates")
    if policy not in POLICIES:
        raise ValueError(f"no rule is called {policy}: {', '.join(POLICIES)}")
    rule, checked, first = POLICIES[policy], 0, {}
    for time, flows, assigned in _instants(schedule, schedule.rates, expected):
        capacity = stated_capacities(schedule.problem, time)
        for flow in flows:
            flow.alone = min(capacity[link] for link in flow.hops)
        rule(flows, capacity)
        checked += len(flows)
        for flow, (event, found) in zip(flows, assigned.items(), strict=True):
            off = abs(found - flow.rate)
            if off > _EXACTNESS * flow.alone and event not in first:
                name = flow_name(schedule.problem.job, *event)
                first[event] = Violation(
                    "rule",
                    name,
                    off,
                    "B/s",
                    f"{name} has {found:g} B/s from {time:.6g} s on, {policy} gives "
                    f"{flow.rate:g}",
                )
    return checked, list(first.values())


def _instants(
    schedule: Schedule, rates: RateHistory, expected: Realization
) -> Iterator[tuple[float, list[Flow], dict[Event, float]]]:
    """Yield the time, the flows under way and their rates, of every change."""
    paths = remaining_paths(schedule.problem, expected)
    start = schedule.flow_start
    at = np.argwhere((schedule.flow_bytes > 0) & ~np.isnan(start))
    events: list[Event] = [(e, n) for e, n in at.tolist()]
    coming = sorted(events, key=lambda event: -start[event])
    hops = stated_hops(schedule.problem)
    assigned: dict[Event, _Assigned] = {}
    known: dict[Event, Flow] = {}
    rows = list(
        zip(
            rates.edge.tolist(),
            rates.iteration.tolist(),
            rates.rate.tolist(),
            strict=True,
        )
    )
    bounds = [*np.flatnonzero(np.diff(rates.time, prepend=-np.inf)).tolist(), len(rows)]
    for low, high in pairwise(bounds):
        time = float(rates.time[low])
        while coming and start[coming[-1]] <= time:
            event = coming.pop()
            if hops[event[0]]:
                known[event] = _flow(schedule, event, hops[event[0]], paths)
                assigned[event] = _Assigned(0.0, 0.0, time)
        for edge, iteration, rate in rows[low:high]:
            had = assigned.get((edge, iteration), _Assigned(0.0, 0.0, time))
            assigned[edge, iteration] = _Assigned(had.at(time), rate, time)
        for event, flow in list(known.items()):
            flow.left, flow.rate = flow.volume - assigned[event].at(time), 0.0
            if flow.left <= _ROUNDING * flow.volume:
                del known[event], assigned[event]
        yield time, list(known.values()), {e: assigned[e].rate for e in known}


def _flow(
    schedule: Schedule, event: Event, hops: tuple[str, ...], paths: dict[Event, float]
) -> Flow:
    (e, n), problem = event, schedule.problem
    edge, tasks = problem.job.edges[e], problem.job.tasks
    volume = float(schedule.flow_bytes[event])
    rank = natural(tasks[edge.destination].name), natural(tasks[edge.source].name)
    flow = Flow(e, n + edge.lag, rank, hops, volume, volume)
    flow.ready, flow.path_after = float(schedule.flow_ready[event]), paths[event]
    flow.job = tasks[edge.source].job_name
    return flow
