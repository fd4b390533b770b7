"""Shares of max-min rates, of simulations that keep to these and one that does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.problem import CapacityChange
from emu.scenario import load, prepare
from emu.simulation import simulate
from emu.testing.strategies import random_problem
from emu.trust.rate_audit import shares_of_max_min

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
