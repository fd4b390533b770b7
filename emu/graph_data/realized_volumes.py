"""Sizes of a job's mini-batches, from its samples; no feature is touched."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING

from emu.graph_data.batches import BatchPlan, batch_counts

if TYPE_CHECKING:
    from emu.graph_data.dataset import Dataset
    from emu.workloads import SampleCounts


@lru_cache(maxsize=4)  # one sample weighs what it weighs at every hidden width
def sampled_counts(
    dataset: Dataset, plan: BatchPlan, batches: int
) -> tuple[tuple[SampleCounts, ...], ...]:
    """Return the sample counts of every sampler, batch by batch.

    Raises
    ------
    ValueError
        When a sampler would have no training vertex.
    """
    structure, train = dataset.structure, dataset.train

    def count(sampler: int, iteration: int) -> SampleCounts:
        batch = plan.batch(structure, train, sampler, iteration)
        return batch_counts(batch, dataset.owner, dataset.parts)

    drawn = [(s, n) for s in range(plan.samplers) for n in range(batches)]
    with ThreadPoolExecutor(
        os.cpu_count()
    ) as pool:  # compiled sampling lets others run
        counts = [*pool.map(count, *zip(*drawn, strict=True))]
    return tuple(
        tuple(counts[first : first + batches])
        for first in range(0, len(counts), batches)
    )
