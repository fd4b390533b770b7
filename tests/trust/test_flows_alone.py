"""Flows alone on their way, and machines that send at once, by their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.simulation import simulate
from emu.testing.strategies import random_problem
from emu.trust.prediction import lone_rates, most_senders

if TYPE_CHECKING:
    from emu.problem import Schedule


def met(made: Schedule, flow: tuple[int, int], port: int) -> list[tuple[int, int]]:
    """Return the flows over a link that move while ``flow`` does, itself included."""
    start, end = made.flow_start[flow], made.flow_end[flow]
    return [
        (e, n)
        for e, n in made.flows().tolist()
        if port in made.problem.hops[e]
        and made.flow_start[e, n] < end
        and made.flow_end[e, n] > start
    ]


SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=25)
@given(SEEDS)
def test_a_flow_alone_is_one_that_meets_no_other(seed: int) -> None:
    made = simulate(*random_problem(np.random.default_rng(seed)))
    capacity, wanted = made.problem.links.capacities, dict[int, int]()
    for e, n in made.flows().tolist():
        hops = made.problem.hops[e]
        moves = made.flow_end[e, n] > made.flow_start[e, n]
        if moves and all(met(made, (e, n), port) == [(e, n)] for port in hops):
            for port in hops:
                if capacity[port] == min(capacity[[*hops]]):
                    wanted[port] = wanted.get(port, 0) + 1

    found = lone_rates(made)
    assert {port: len(rates) for port, rates in found.items()} == wanted
    for share in (share for rates in found.values() for share in rates):
        assert share == pytest.approx(1.0)  # a flow alone has all there is


@settings(deadline=None, max_examples=25)
@given(SEEDS)
def test_senders_at_once_are_those_whose_flows_overlap(seed: int) -> None:
    made = simulate(*random_problem(np.random.default_rng(seed)))
    job, at = made.problem.job, made.problem.placement.machine_of
    for port in range(len(made.problem.links)):
        crowds = [
            {
                at[job.edges[e].source]
                for e, n in met(made, (edge, k), port)
                if made.flow_start[e, n] <= made.flow_start[edge, k]
            }
            for edge, k in made.flows().tolist()
            if port in made.problem.hops[edge]
            and made.flow_end[edge, k] > made.flow_start[edge, k]
        ]
        assert most_senders(made, port) == max(map(len, crowds), default=0)
