"""Batches that are kept: what is counted of them, and how many a process keeps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from emu.graph_data import BatchPlan, caches, sample_batch
from emu.graph_data.caches import (
    CachePlan,
    batch_counts,
    count_samples,
    count_with_cache,
)
from emu.graph_data.dataset import open_dataset
from emu.graph_data.drawn_batches import (
    DrawnBatch,
    KeptBatches,
    _room_of,
    draw_counts,
    structure_of,
)
from emu.graph_data.sampling import SampledBatch, Structure
from emu.host.stream_key import stream_key
from emu.problem.workloads import SampleCounts


def _batch(size: int) -> SampledBatch:
    """Return a batch of one seed, with so many neighbours."""
    sources = np.arange(1, size, dtype=np.int32)
    return SampledBatch(
        vertices=np.arange(size),
        sizes=(size, 1),
        edges=((sources, np.zeros(size - 1, np.int32)),),
    )


@pytest.mark.parametrize("epoch", ["replicate", "shard", "local"])
@pytest.mark.parametrize("partitioner", ["metis", "hash"])
def test_counts_of_kept_batches_are_those_of_batches_drawn_anew(
    epoch: str, partitioner: str
) -> None:
    plan = BatchPlan(3, samplers=2, batch_size=7, fanouts=(3, 4), epoch=epoch)
    for parts in (1, 2, 3):
        dataset = open_dataset(
            "products-like", scale=0.001, parts=parts, partitioner=partitioner
        )
        found = count_samples(dataset, plan, 3)

        train = plan.walk(dataset)
        for sampler in range(2):
            for iteration in range(3):
                batch = plan.batch(dataset.structure, train, sampler, iteration)
                owner = dataset.owner
                counts = batch_counts(DrawnBatch.of(batch), owner, parts)
                assert found[sampler][iteration] == counts


def test_batches_of_rows_with_other_caches_are_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And anew of another plan: 2 samplers with 3 batches each, twice."""
    counted = []

    def count(batch: DrawnBatch, owner: Any, stores: int) -> SampleCounts:
        counted.append(batch)
        return batch_counts(batch, owner, stores)

    monkeypatch.setattr(caches, "batch_counts", count)
    dataset = open_dataset("products-like", scale=0.001, parts=2)
    plan = BatchPlan(20261130, samplers=2, batch_size=7, fanouts=(3, 4))
    without = count_samples(dataset, plan, 3)
    for rows in (5, 50):
        cache = CachePlan("lru", rows, 0, (0, 1))
        beside = count_samples(dataset, plan, 3, cache)
        assert beside[0][0].owned == without[0][0].owned
        assert (len(beside[0][0].hits), without[0][0].hits) == (2, ())
    assert len(counted) == 2 * 3

    count_samples(dataset, replace(plan, seed=20261129), 3)
    assert len(counted) == 2 * (2 * 3)


def test_a_batch_is_drawn_once_while_it_is_kept() -> None:
    size = DrawnBatch.of(_batch(4)).size
    kept = KeptBatches(2 * size)
    drawn = []

    def ask(key: str) -> None:
        def draw() -> DrawnBatch:
            drawn.append(key)
            return DrawnBatch.of(_batch(4))

        assert kept.find(key, draw).sizes == (4, 1)

    for key in ("a", "b", "a", "c", "a", "b"):
        ask(key)

    # The one that was asked for longest ago makes room.
    assert drawn == ["a", "b", "c", "b"]


def test_a_batch_beyond_all_room_is_returned_and_not_kept() -> None:
    kept = KeptBatches(1)
    for _ in range(2):
        batch = kept.find("large", lambda: DrawnBatch.of(_batch(9)))
        assert batch.counts.tolist() == [8]


def test_graphs_that_differ_are_told_apart_and_partitions_are_not() -> None:
    one, other = (open_dataset("products-like", scale=0.001, parts=p) for p in (1, 2))
    assert one.graph == other.graph
    assert structure_of(one) is structure_of(other)  # in memory once
    assert open_dataset("products-like", scale=0.001, seed=1).graph != one.graph
    assert open_dataset("products-like", scale=0.002).graph != one.graph


def test_a_batch_without_its_edges_is_drawn_again_for_who_counts_them() -> None:
    bare = DrawnBatch.of(_batch(4)).size
    with_edges = DrawnBatch.of(_batch(4), edges=True)
    assert with_edges.sources is not None
    assert with_edges.sources.tolist() == [1, 2, 3]
    assert with_edges.size > bare

    kept = KeptBatches(2 * with_edges.size)
    drawn = []

    def ask(key: str, *, edges: bool) -> DrawnBatch:
        def draw() -> DrawnBatch:
            drawn.append(key)
            return DrawnBatch.of(_batch(4), edges=edges)

        return kept.find(key, draw, edges=edges)

    assert ask("a", edges=False).sources is None
    assert ask("a", edges=True).sources is not None
    # Who needs none takes them as well.
    assert ask("a", edges=False).sources is not None
    # What was replaced no longer counts: there is room for a second.
    ask("b", edges=True)
    ask("a", edges=True)
    assert drawn == ["a", "a", "b"]


@given(
    seed=st.integers(0, 99),
    fanouts=st.lists(st.integers(1, 8), min_size=1, max_size=3),
    wide=st.booleans(),
    edges=st.booleans(),
)
def test_what_is_counted_without_lists_is_that_of_the_sampled_batch(
    *, seed: int, fanouts: list[int], wide: bool, edges: bool
) -> None:
    rng = np.random.default_rng(seed)
    vertices = int(rng.integers(2, 60))
    # Some vertices have none, some more neighbours than any fanout.
    is_edge = rng.random((vertices, vertices)) < rng.random(vertices)[:, None] ** 3
    degrees = is_edge.sum(axis=1)
    structure = Structure(
        indptr=np.concatenate([[0], np.cumsum(degrees)]),
        indices=np.nonzero(is_edge)[1].astype(np.int64 if wide else np.int32),
    )
    for number in range(3):  # each finds what the one before has left
        seeds = rng.permutation(vertices)[: rng.integers(1, vertices + 1)]
        stream = stream_key(seed, number)
        sampled = sample_batch(structure, seeds, fanouts=fanouts, stream=stream)
        expected = DrawnBatch.of(sampled, edges=edges)
        found = draw_counts(
            structure, seeds, fanouts=fanouts, stream=stream, edges=edges
        )

        assert found.sizes == expected.sizes
        assert found.size == expected.size
        np.testing.assert_array_equal(found.vertices, expected.vertices)
        np.testing.assert_array_equal(found.counts, expected.counts)
        np.testing.assert_array_equal(found.last_counts, expected.last_counts)
        if edges:
            np.testing.assert_array_equal(found.sources, expected.sources)

        owner = rng.integers(0, 4, vertices).astype(np.int32)
        hits = rng.random(len(found.vertices)) < 0.5
        early = rng.permutation(vertices)[:5]
        counts = batch_counts(found, owner, 5)
        counted = count_with_cache(counts, found.vertices, owner, hits, early)
        assert counted == _counts_by_hand(sampled, owner, 5, hits, early)


@pytest.mark.parametrize("fanout", [50_000, 19_000])
def test_neighbours_that_are_listed_again_are_drawn_again(fanout: int) -> None:
    """As a file of others may hold them: more neighbours than there are vertices."""
    degrees = [20_000, 1, 0]
    structure = Structure(
        indptr=np.concatenate([[0], np.cumsum(degrees)]),
        indices=np.arange(sum(degrees), dtype=np.int32) % 3,
    )
    seeds, stream = np.array([1, 0]), stream_key(1)
    sampled = sample_batch(structure, seeds, fanouts=(2, fanout), stream=stream)
    expected = DrawnBatch.of(sampled, edges=True)

    found = draw_counts(
        structure, seeds, fanouts=(2, fanout), stream=stream, edges=True
    )

    assert found.sizes == expected.sizes
    np.testing.assert_array_equal(found.vertices, expected.vertices)
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_array_equal(found.sources, expected.sources)


def test_plans_that_take_turns_share_a_room() -> None:
    """One has more hops, the other draws more neighbours of a vertex."""
    plans = [(9, 3, 2), (9, 1, 1000)]
    for vertices, hops, fanout in plans:
        _room_of(vertices, hops, fanout)

    rooms = {id(_room_of(*plan)) for plan in 3 * plans}
    assert len(rooms) == 1


def _counts_by_hand(
    batch: SampledBatch,
    owner: NDArray[np.int32],
    stores: int,
    hits: NDArray[np.bool_],
    early: NDArray[np.int64],
) -> SampleCounts:
    """Return the counts of a batch, store by store and hop by hop."""

    def count(vertices: Any) -> tuple[int, ...]:
        counts = Counter(owner[vertices].tolist())
        return tuple(counts[store] for store in range(stores))

    vertices = batch.vertices
    frontiers = [vertices[:size] for size in reversed(batch.sizes[1:])]
    destinations = [ends for _, ends in reversed(batch.edges)]
    return SampleCounts(
        owned=count(vertices),
        edges=sum(map(len, destinations)),
        seeds=batch.sizes[-1],
        outputs=batch.sizes[1],
        first_edges=len(destinations[-1]),
        frontier_owned=tuple(map(count, frontiers)),
        answered=tuple(count(vertices[ends]) for ends in destinations),
        hits=count(vertices[hits]),
        ahead=count(early),
    )


def test_what_is_counted_begins_at_vertices_of_the_graph() -> None:
    structure = Structure(np.array([0, 1, 2]), np.array([1, 0], np.int32))
    for seed in (-1, 2):
        with pytest.raises(ValueError, match=r"outside 0\.\.1"):
            draw_counts(
                structure,
                np.array([seed]),
                fanouts=[1],
                stream=stream_key(1),
                edges=False,
            )
