"""Choice of a strategy by estimated cost, as APT makes it after a dry run.

Three terms, each of the machine that has most of it: structure that is sent and taken
in, rows that are fetched, and sums with their gradients, both ways. Nothing is said of
computing. What is drawn is left out: each edge is drawn once, whoever does it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emu.graph_data import BatchPlan, Dataset
from emu.problem.workloads import model_shapes
from emu.systems.apt.shares import (
    STRATEGIES,
    ShareCounts,
    count_least,
    count_strategies,
)

#: Mini-batches of each sampler that are drawn to estimate costs.
DRY_RUN = 4


def share_bytes(strategy: str, counts: ShareCounts) -> np.ndarray:
    """Return the bytes of every share's structure, as of `ShareCounts`."""
    ids = model_shapes.VERTEX_ID_BYTES
    edges = model_shapes.BLOCK_EDGE_BYTES * counts.edges
    if strategy == "snp":  # an edge is its source and the place of its end in one
        return ids * counts.destinations + edges
    if strategy == "dnp":  # owners draw the edges
        return ids * counts.destinations
    return ids * counts.inputs + edges


def estimate(
    strategy: str,
    counts: ShareCounts,
    row: int,
    width: int,
    byte_seconds: Sequence[float],
) -> float:
    """Return the seconds of a strategy's transfers, of as many batches as counted.

    ``row``, ``width``: bytes of a row of features, and of a sum; ``byte_seconds``: of
    every machine.
    """
    samplers, machines, _ = counts.edges.shape
    homes = np.arange(samplers) * machines // samplers
    seconds = np.asarray(byte_seconds)

    def both_ways(sizes: np.ndarray) -> float:
        """Return the most of what machines send and take in."""
        totals = np.zeros(machines)
        for sampler, home in enumerate(homes):
            of_sampler = sizes[sampler].sum(axis=1)
            of_sampler[home] = 0.0  # stays in its memory
            totals += of_sampler
            totals[home] += of_sampler.sum()
        return float((totals * seconds).max())

    rows = counts.rows.sum(axis=2)
    np.fill_diagonal(rows, 0.0)
    bytes_of_machine = row * rows.sum(axis=1)
    fetched = float((bytes_of_machine * seconds).max())
    # Sums forward, and their gradients back.
    sums = 2 * both_ways(width * counts.destinations)
    return both_ways(share_bytes(strategy, counts)) + fetched + sums


def choose(
    dataset: Dataset,
    plan: BatchPlan,
    batches: int,
    row: int,
    width: int,
    byte_seconds: Sequence[float],
) -> str:
    """Return the strategy of the smallest `estimate`, the first of equal ones.

    One that is no faster than ``gdp`` by the least counts that it may have is not
    counted: to count all four took a sixth of a comparison of systems.
    """
    batches = min(batches, DRY_RUN)
    first, *others = STRATEGIES
    counted = count_strategies(dataset, plan, [first], batches)
    cost_at_home = estimate(first, counted[first], row, width, byte_seconds)

    costs = {first: cost_at_home}
    for strategy in others:
        # Of fewer columns than machines some machine would have none.
        if strategy == "nfp" and dataset.feature_length < dataset.parts:
            continue
        least = count_least(dataset, plan, strategy, batches)
        # Sums of larger counts are no smaller, rounded or not.
        if estimate(strategy, least, row, width, byte_seconds) < cost_at_home:
            counted = count_strategies(dataset, plan, [strategy], batches)
            counts = counted[strategy]
            costs[strategy] = estimate(strategy, counts, row, width, byte_seconds)
    return min(costs, key=costs.__getitem__)
