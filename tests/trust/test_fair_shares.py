"""Max-min shares of flows by arrays are those of the slow oracle, and by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.prediction.simulation import simulate
from emu.problem import CapacityChange, Problem, Realization, Schedule
from emu.scenario import load, prepare
from emu.testing.strategies import problems, random_problem
from emu.trust import fair_shares
from emu.trust.fair_shares import shares_of_max_min
from emu.trust.guards.evidence import list_capacities, list_hops
from emu.trust.rate_rules import Event, maxmin
from emu.trust.rated_flows import Flow


def slow_shares(
    schedule: Schedule, asked: list[Event]
) -> dict[Event, tuple[float, float]]:
    """Return what `shares_of_max_min` does, asking the slow oracle at every moment."""
    start = schedule.flow_start
    end = schedule.flow_end
    hops = list_hops(schedule.problem)
    flows = {
        (edge, n): Flow(edge, n, ("", "", 0, edge), hops[edge], volume=0.0, left=0.0)
        for edge, n in schedule.flows().tolist()
        if end[edge, n] > start[edge, n]
    }
    wanted = {
        event
        for event in flows
        for flow in asked
        if flow in flows
        and start[event] < end[flow]
        and end[event] > start[flow]
        and {*hops[event[0]]} & {*hops[flow[0]]}
    }
    moments = {change.time for change in schedule.problem.cluster.changes}
    moments |= {time[event] for event in flows for time in (start, end)}

    fair = dict.fromkeys(wanted, 0.0)
    for moment, next_moment in pairwise(sorted(moments)):
        active = [event for event in flows if start[event] <= moment < end[event]]
        maxmin(
            [flows[event] for event in active],
            list_capacities(schedule.problem, moment),
        )
        for event in wanted.intersection(active):
            fair[event] += flows[event].rate * (next_moment - moment)
    sizes = schedule.flow_bytes
    return {event: (sizes[event], fair[event]) for event in wanted if fair[event] > 0}


@settings(deadline=None, max_examples=80)
@given(
    drawn=problems(changes=True, cuts=True, links=True),
    policy=st.sampled_from(["fifo", "maxmin", "sebf_madd"]),
    seed=st.integers(0, 2**32 - 1),
    at_once=st.sampled_from([1, 7, 100_000]),
)
def test_shares_by_arrays_are_those_of_the_slow_oracle(
    drawn: tuple[Problem, Realization], policy: str, seed: int, at_once: int
) -> None:
    """Shares of some flows equal the oracle's, however many are asked at once."""
    problem, realization = drawn
    made = simulate(problem, realization, policy)
    rng = np.random.default_rng(seed)
    flows: list[Event] = [(edge, n) for edge, n in made.flows().tolist()]
    asked = [flow for flow in flows if rng.random() < 0.2]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fair_shares, "_AT_ONCE", at_once)
        found = shares_of_max_min(made, asked)

    slow = slow_shares(made, asked)
    assert found.keys() == slow.keys()
    for flow, shares in found.items():
        assert shares == pytest.approx(slow[flow], rel=1e-9, abs=0)


SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=40)
@given(SEEDS, st.sampled_from([1.0, 0.25]))
def test_flows_of_max_min_rates_have_what_these_give(seed: int, slow: float) -> None:
    problem, run = random_problem(np.random.default_rng(seed))
    third = simulate(problem, run, "maxmin").makespan / 3
    if slow < 1.0 and third > 0:
        link = problem.links[0]
        change = CapacityChange(third, link.name, slow * link.capacity)
        cluster = replace(problem.cluster, changes=(change,))
        problem = replace(problem, cluster=cluster)
    made = simulate(problem, run, "maxmin")
    flows = [(edge, n) for edge, n in made.flows().tolist()]

    found = shares_of_max_min(made, flows)

    for carried, fair in found.values():
        assert carried == pytest.approx(fair, rel=1e-6)
    moved = {at for at in flows if made.flow_end[at] > made.flow_start[at]}
    assert found.keys() == moved


def test_the_golden_job_with_older_flows_first_by_hand() -> None:
    """10 B of 24 to 32 s wait for two of 60 B, which go at 19 to 25 and 31 s."""
    made = prepare(load("golden", ["schedule.policy=fifo", "expect=null"])).simulate()
    names = made.problem.job.edge_names

    found = shares_of_max_min(made, [(names.index("ps0->w0"), 0)])

    carried, fair = (
        {(names[edge], n): each[i] for (edge, n), each in found.items()} for i in (0, 1)
    )
    first, second, late = ("s1->w0", 1), ("s1->w0", 2), ("ps0->w0", 0)
    assert carried == {first: 60.0, second: 60.0, late: 10.0}
    by_hand = {first: 5 * 10 + 1 * 5, second: 6 * 5, late: 1 * 5 + 6 * 5 + 1 * 10}
    assert fair == pytest.approx(by_hand)


@settings(deadline=None, max_examples=40)
@given(SEEDS, st.integers(1, 20))
def test_no_more_is_solved_at_once_than_asked_for(seed: int, at_once: int) -> None:
    """But for what one instant alone has beyond it."""
    rng = np.random.default_rng(seed)
    count = 30
    begin = rng.integers(0, count, 40)
    stop = begin + rng.integers(1, count, 40)
    is_asked = rng.random(40) < 0.3
    size = int(stop.max()) + 1
    under_way = [int(((begin <= n) & (n < stop)).sum()) for n in range(size)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fair_shares, "_AT_ONCE", at_once)
        parts = fair_shares._split_instants(begin, stop, is_asked, size)

    asked = [n for n in range(size) if (is_asked & (begin <= n) & (n < stop)).any()]
    assert np.concatenate(parts).tolist() == asked
    for part in parts:
        flows = [under_way[n] for n in part.tolist()]
        assert sum(flows) - max(flows, default=0) <= at_once
