"""Machines and flows of the DGTP paper's simulation study."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu.errors import InfeasiblePlacement
from emu.reproduction.drawn_machines import (
    NIC_GBITS,
    draw_machines,
    peak_to_mean,
    scale_flows,
    with_peak_to_mean,
    with_room,
)
from emu.scenario import load

SMALL = {
    "job.dataset.scale": 0.002,
    "job.iterations": 3,
    "job.batch_size": 8,
    "placement": {"policy": "distdgl"},
}


@given(st.integers(0, 2**32), st.integers(1, 20))
def test_machines_are_drawn_within_the_papers_ranges(seed: int, count: int) -> None:
    machines = draw_machines(count, np.random.default_rng(seed))

    assert [machine["name"] for machine in machines] == [f"m{n}" for n in range(count)]
    for machine in machines:
        assert int(machine["nic"].split()[0]) in NIC_GBITS
        assert 32 <= int(machine["memory"].split()[0]) <= 128
        assert 4 <= machine["cpu"] <= 16
        assert 1 <= machine["gpu"] <= 4


def test_all_of_the_papers_ranges_are_drawn() -> None:
    machines = draw_machines(500, np.random.default_rng(0))

    assert {machine["cpu"] for machine in machines} == set(range(4, 17))
    assert {machine["gpu"] for machine in machines} == {1, 2, 3, 4}
    assert len({machine["nic"] for machine in machines}) == 3


FLOWS = st.lists(st.floats(1.0, 1e6), min_size=4, max_size=40)


@given(FLOWS, st.floats(0.0, 1.0))
def test_flows_get_the_ratio_and_keep_sum_and_order(
    sizes: list[float], share: float
) -> None:
    flows = np.array(sizes)
    steepest = peak_to_mean((flows / flows.max()) ** 64)
    if steepest < 1.001:
        return
    ratio = 1 + share * (steepest - 1)

    scaled = with_peak_to_mean(flows, ratio)

    assert peak_to_mean(scaled) == pytest.approx(ratio, rel=1e-6)
    assert scaled.sum() == pytest.approx(flows.sum())
    # Neighbours by size stay so; tiny ones may round to the same.
    assert (
        np.diff(scaled[np.argsort(flows, kind="stable")]) >= -1e-9 * scaled.max()
    ).all()


@pytest.mark.parametrize(("sizes", "ratio"), [([1.0, 1.0], 1.5), ([1.0, 2.0], 0.9)])
def test_no_power_gives_some_ratios(sizes: list[float], ratio: float) -> None:
    with pytest.raises(ValueError, match="cannot have a peak-to-mean ratio"):
        with_peak_to_mean(np.array(sizes), ratio)


def test_a_sampler_hands_on_what_it_gets() -> None:
    """Workers get as much more as their samplers do; parameters stay."""
    placed = emu.place(emu.load("testbed_products", SMALL))
    job = placed.problem.job
    before = placed.realization.volumes
    after = scale_flows(job, placed.realization, 2.5).volumes

    kinds = [
        (job.tasks[e.source].kind, job.tasks[e.destination].kind) for e in job.edges
    ]
    gathered = [n for n, pair in enumerate(kinds) if pair == ("graph_store", "sampler")]
    rest = [
        n
        for n, (source, _) in enumerate(kinds)
        if source not in {"graph_store", "sampler"}
    ]
    assert peak_to_mean(after[gathered]) == pytest.approx(2.5, rel=1e-6)
    assert (after[rest] == before[rest]).all()
    for number, edge in enumerate(job.edges):
        if kinds[number] != ("sampler", "worker"):
            continue
        own = [n for n in gathered if job.edges[n].destination == edge.source]
        growth = (after[own] - before[own]).sum(axis=0)
        assert np.abs(growth).max() > 1
        assert after[number] - before[number] == pytest.approx(growth)


@pytest.mark.nightly
def test_machines_are_drawn_until_the_job_has_room() -> None:
    small = emu.load("testbed_products", SMALL)
    drawn = with_room(small, seed=3)

    assert len(drawn.cluster.names) == len(small.cluster.names)
    assert emu.place(drawn, "ifs").tasks
    assert drawn.cluster != with_room(small, seed=4).cluster
    with pytest.raises(InfeasiblePlacement, match="none of 1000 draws"):
        with_room(load(small, {"job.demands.worker.gpu": 5}), seed=3)
