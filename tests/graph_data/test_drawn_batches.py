"""Batches that are kept: what is counted of them, and how many a process keeps."""

from __future__ import annotations

import numpy as np
import pytest

from emu.graph_data import BatchPlan
from emu.graph_data.caches import batch_counts, count_samples
from emu.graph_data.dataset import open_dataset
from emu.graph_data.drawn_batches import DrawnBatch, KeptBatches
from emu.graph_data.sampling import SampledBatch


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


def test_a_batch_is_drawn_once_while_it_is_kept() -> None:
    size = DrawnBatch.of(_batch(4)).size
    kept = KeptBatches(2 * size)
    drawn = []

    def ask(key: str) -> None:
        def draw() -> SampledBatch:
            drawn.append(key)
            return _batch(4)

        assert kept.find(key, draw).sizes == (4, 1)

    for key in ("a", "b", "a", "c", "a", "b"):
        ask(key)

    # The one that was asked for longest ago makes room.
    assert drawn == ["a", "b", "c", "b"]


def test_a_batch_beyond_all_room_is_returned_and_not_kept() -> None:
    kept = KeptBatches(1)
    for _ in range(2):
        batch = kept.find("large", lambda: _batch(9))
        assert batch.drawn[0].tolist() == [8]


def test_graphs_that_differ_are_told_apart_and_partitions_are_not() -> None:
    one, other = (open_dataset("products-like", scale=0.001, parts=p) for p in (1, 2))
    assert one.graph == other.graph
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
        def draw() -> SampledBatch:
            drawn.append(key)
            return _batch(4)

        return kept.find(key, draw, edges=edges)

    assert ask("a", edges=False).sources is None
    assert ask("a", edges=True).sources is not None
    # Who needs none takes them as well.
    assert ask("a", edges=False).sources is not None
    # What was replaced no longer counts: there is room for a second.
    ask("b", edges=True)
    ask("a", edges=True)
    assert drawn == ["a", "a", "b"]
