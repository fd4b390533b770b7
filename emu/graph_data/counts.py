"""Counts of all batches of a job, and of what its stores send of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.graph_data.batches import BatchPlan
from emu.graph_data.caches import CachePlan, SamplerCache
from emu.graph_data.dataset import Dataset
from emu.graph_data.sampling import SampledBatch
from emu.problem.workloads import SampleCounts


def batch_counts(
    batch: SampledBatch,
    owner: NDArray[np.int32],
    stores: int,
    hits: NDArray[np.bool_] | None = None,
) -> SampleCounts:
    """Count what each store owns of a mini-batch, without touching features.

    ``hits``: which of its vertices' rows the sampler has, None without a cache.
    """

    def per_store(positions: slice | NDArray[Any]) -> tuple[int, ...]:
        return tuple(np.bincount(owners[positions], minlength=stores).tolist())

    owners = np.asarray(owner)[batch.vertices]
    return SampleCounts(
        owned=per_store(slice(None)),
        edges=sum(len(source) for source, _ in batch.edges),
        seeds=batch.sizes[-1],
        outputs=batch.sizes[1],
        first_edges=len(batch.edges[0][0]),
        frontier_owned=tuple(per_store(slice(n)) for n in batch.sizes[:0:-1]),
        answered=tuple(per_store(vertices) for _, vertices in batch.edges[::-1]),
        hits=() if hits is None else per_store(hits),
    )


@lru_cache(maxsize=4)  # one sample weighs what it weighs at every hidden width
def count_samples(
    dataset: Dataset, plan: BatchPlan, batches: int, cache: CachePlan | None = None
) -> tuple[tuple[SampleCounts, ...], ...]:
    """Return the sample counts of every sampler, batch by batch.

    Raises ValueError when a sampler would have no training vertex.
    """
    structure, train = dataset.structure, plan.walk(dataset)

    def count(
        sampler: int, iteration: int, held: SamplerCache | None = None
    ) -> SampleCounts:
        batch = plan.batch(structure, train, sampler, iteration)
        hits = None if held is None else held.look(batch.vertices)
        return batch_counts(batch, dataset.owner, dataset.parts, hits)

    def count_in_order(sampler: int) -> tuple[SampleCounts, ...]:
        assert cache is not None  # noqa: S101 - for mypy
        held = SamplerCache(dataset, plan, cache, sampler)
        return tuple(count(sampler, n, held) for n in range(batches))

    pairs = [(s, n) for s in range(plan.samplers) for n in range(batches)]
    # Compiled sampling lets others run.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        if cache is not None:
            return tuple(pool.map(count_in_order, range(plan.samplers)))
        counts = [*pool.map(count, *zip(*pairs, strict=True))]
    firsts = range(0, len(counts), batches)
    return tuple(tuple(counts[first : first + batches]) for first in firsts)


def count_job(
    settings: Mapping[str, Any], dataset: Dataset, batches: int
) -> tuple[tuple[SampleCounts, ...], ...]:
    """Return `count_samples` of ``Job.settings``, with the cache that they state.

    Raises ValueError as `BatchPlan.from_settings` and `count_samples`.
    """
    plan = BatchPlan.from_settings(settings)
    cache = CachePlan.from_settings(settings, dataset.feature_length)
    return count_samples(dataset, plan, batches, cache)
