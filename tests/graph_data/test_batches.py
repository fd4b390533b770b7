"""Seeds: every epoch once, everywhere the same, as many for every worker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from emu.graph_data import BatchPlan, Dataset, SampledBatch
from emu.graph_data.caches import batch_counts
from emu.graph_data.drawn_batches import DrawnBatch

PLAN = BatchPlan(seed=1, samplers=3, batch_size=4, fanouts=(2, 3))
SETTINGS = {
    "seed": 1,
    "workers": 3,
    "samplers_per_worker": 2,
    "batch_size": 8,
    "fanouts": [2, 3],
    "epoch": "shard",
}


def epoch_of(plan: BatchPlan, train: np.ndarray, sampler: int, epoch: int) -> list[int]:
    steps = plan.steps_per_epoch(len(train))
    first = epoch * steps
    batches = [plan.seeds(train, sampler, first + n) for n in range(steps)]
    return [int(vertex) for batch in batches for vertex in batch]


@pytest.mark.parametrize("epoch", ["replicate", "shard", "local"])
def test_seeds_after_each_step_are_those_of_all_batches(epoch: str) -> None:
    """17 vertices among 3 samplers: shards are as long as the shortest, shares not."""
    plan = replace(PLAN, batch_size=2, epoch=epoch)
    train = np.arange(17)
    seen = [
        sum(len(plan.seeds(train, sampler, step)) for sampler in range(3))
        for step in range(20)
    ]
    steps = np.arange(1, 21)
    assert plan.seeds_after(17, steps).tolist() == np.cumsum(seen).tolist()


def test_a_longer_shard_ends_its_epoch_with_the_shortest() -> None:
    """Of 3 vertices, the second of two shards holds 2.

    The first test here: a batch beyond the end of an epoch lets the others hang.
    """
    plan = replace(PLAN, samplers=2, batch_size=2, epoch="shard")

    assert len(plan.seeds(np.arange(3), 1, 0)) == 1


@given(st.integers(1, 200), st.integers(1, 50), st.integers(0, 2**40))
def test_replicate_walks_the_whole_training_set_each_epoch(
    count: int, batch_size: int, seed: int
) -> None:
    plan = replace(PLAN, batch_size=batch_size, seed=seed)
    train = np.arange(count) * 7

    for epoch in range(2):
        assert sorted(epoch_of(plan, train, 1, epoch)) == train.tolist()


@given(st.integers(3, 200), st.integers(1, 50))
def test_shards_are_disjoint_and_walk_equally_far(count: int, batch_size: int) -> None:
    plan = replace(PLAN, batch_size=batch_size, epoch="shard")
    train = np.arange(count) * 7
    walks = [epoch_of(plan, train, sampler, 0) for sampler in range(3)]
    seen = [vertex for walk in walks for vertex in walk]

    assert {len(walk) for walk in walks} == {count // 3}
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(train.tolist())


def test_shards_cover_the_training_set_over_some_epochs() -> None:
    """What the shortest shard's length leaves out differs from epoch to epoch."""
    plan = replace(PLAN, epoch="shard")
    train = np.arange(11)
    seen = {v for e in range(40) for s in range(3) for v in epoch_of(plan, train, s, e)}

    assert seen == set(range(11))


@dataclass(frozen=True, eq=False)
class Owned:
    """The part of a data set that `BatchPlan.walk` reads."""

    train: NDArray[np.int64]
    owner: NDArray[np.int32]
    parts: int


@given(
    st.integers(1, 8),
    st.integers(1, 6),
    st.integers(1, 30),
    st.integers(0, 2**32 - 1),
    st.floats(0.2, 5.0),
)
def test_local_walks_every_vertex_once_and_stays_with_its_owner(
    samplers: int, stores: int, batch_size: int, seed: int, skew: float
) -> None:
    rng = np.random.default_rng(seed)
    train = np.sort(rng.permutation(300)[: int(rng.integers(samplers, 200))])
    shares = rng.random(stores) ** skew
    owner = rng.choice(stores, 300, p=shares / shares.sum()).astype(np.int32)
    plan = BatchPlan(seed, samplers, batch_size, (2,), "local")
    walked = plan.walk(cast("Dataset", Owned(train, owner, stores)))
    walks = [epoch_of(plan, walked, s, 0) for s in range(samplers)]
    sizes = {len(walk) for walk in walks}

    assert max(sizes) - min(sizes) <= 1
    assert sorted(v for walk in walks for v in walk) == train.tolist()
    steps = {plan.steps_per_epoch(len(walked))}
    assert steps == {max(1, -(-min(sizes) // batch_size))}
    homes = min(samplers, stores)
    for home in range(homes):  # no vertex goes elsewhere while its owner has room
        here = [s for s in range(samplers) if s * homes // samplers == home]
        own = {v for v in train.tolist() if int(owner[v]) * homes // stores == home}
        at_home = {v for s in here for v in walks[s]}
        assert own <= at_home or at_home <= own


def test_epochs_and_samplers_walk_in_different_orders() -> None:
    train = np.arange(100)
    walks = {tuple(epoch_of(PLAN, train, s, e)) for s in range(3) for e in range(3)}

    assert len(walks) == 9


def test_the_permutation_is_uniform() -> None:
    """Where vertex 0 stands in 6,000 epochs of 10: chi-square, 0.1 % level."""
    train = np.arange(10)
    plan = replace(PLAN, batch_size=10)
    places = [plan.seeds(train, 0, n).tolist().index(0) for n in range(6000)]
    counts = np.bincount(places, minlength=10)

    assert ((counts - 600) ** 2 / 600).sum() < 27.9


def test_settings_of_a_job_become_a_plan() -> None:
    plan = BatchPlan.from_settings(SETTINGS)

    assert plan == BatchPlan(1, 6, 4, (2, 3), "shard")
    assert [plan.hop_fanout(hop) for hop in (1, 2)] == [3, 2]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"batch_size": 7}, "7 does not divide"),
        ({"batch_size": 0}, "at least 1"),
        ({"fanouts": [2, 0]}, "at least 1"),
        ({"fanouts": []}, "at least 1"),
        ({"epoch": "once"}, "not replicate, shard or local"),
    ],
)
def test_impossible_plans_are_refused(
    change: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        BatchPlan.from_settings({**SETTINGS, **change})


def test_too_few_training_vertices_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        replace(PLAN, epoch="shard").seeds(np.arange(2), 0, 0)


def test_counts_by_hand() -> None:
    """Seeds 4, 5; 4 <- 0, 5 <- 0; then 0 <- 2. Owners: even 0, odd 1."""
    batch = SampledBatch(
        vertices=np.array([4, 5, 0, 2]),
        sizes=(4, 3, 2),
        edges=(
            (np.array([3], np.int32), np.array([2], np.int32)),
            (np.array([2, 2], np.int32), np.array([0, 1], np.int32)),
        ),
    )
    counts = batch_counts(DrawnBatch.of(batch), np.arange(6, dtype=np.int32) % 2, 2)

    assert counts.owned == (3, 1)
    assert (counts.edges, counts.seeds, counts.inputs) == (3, 2, 4)
    assert (counts.outputs, counts.first_edges) == (3, 1)
    assert counts.frontier_owned == ((1, 1), (2, 1))
    assert counts.answered == ((1, 1), (1, 0))
