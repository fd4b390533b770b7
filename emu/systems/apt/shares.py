"""Shares of the first layer: which machine adds up which edges of a mini-batch.

APT (Ma et al.) has four strategies. ``gdp``: the machine of the mini-batch computes all
of it. ``nfp``: every machine computes all of it, of its own columns of the features.
``snp``: the owner of an edge's source adds it up. ``dnp``: the owner of its destination
does, and draws it. A vertex's own row is added by its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from emu.graph_data import BatchPlan, Dataset, SampledBatch
from emu.graph_data.sampling import Ids, Positions, relabel

STRATEGIES = ("gdp", "nfp", "snp", "dnp")


@dataclass(frozen=True, eq=False)
class Share:
    """Sums of one mini-batch's first layer that one machine adds up."""

    destinations: Ids
    """Vertices whose sums it adds to."""
    sources: Ids
    """Vertex at the beginning of every edge that it adds up."""
    ends: Ids
    """Place among ``destinations`` of every edge's end; they ascend."""
    adds_own: NDArray[np.bool_]
    """True for each of the destinations whose own row is added as well."""

    @cached_property
    def inputs(self) -> tuple[Ids, Positions]:
        """Vertices whose rows it needs, and the place of every source among them.

        Those of destinations whose own rows it adds are first, in their order.
        """
        return relabel(self.destinations[self.adds_own], self.sources)


def computing(strategy: str, home: int, machines: int) -> range:
    """Return the machines with a share of a mini-batch of machine ``home``."""
    return range(home, home + 1) if strategy == "gdp" else range(machines)


def split(
    batch: SampledBatch, owner: NDArray[np.int32], strategy: str, machine: int
) -> tuple[Positions, Share]:
    """Return the share of a machine, and the places of its destinations in S_1.

    ``owner``: machine that owns each vertex, shape (vertices,).
    """
    sources, ends = batch.edges[0]
    destinations = batch.vertices[: batch.sizes[1]]
    source_vertices = batch.vertices[sources]
    adds_own = owner[destinations] == machine
    is_wanted = adds_own.copy()
    match strategy:
        case "snp":
            is_added = owner[source_vertices] == machine
            is_wanted[ends[is_added]] = True
        case "dnp":
            is_added = adds_own[ends]
        case _:
            is_added = np.ones(len(ends), np.bool_)
            adds_own = np.ones(len(destinations), np.bool_)
            is_wanted = adds_own

    numbers = np.cumsum(is_wanted) - 1
    share = Share(
        destinations=destinations[is_wanted],
        sources=source_vertices[is_added],
        ends=numbers[ends[is_added]],
        adds_own=adds_own[is_wanted],
    )
    return np.flatnonzero(is_wanted).astype(np.int32), share


@dataclass(frozen=True, eq=False)
class ShareCounts:
    """Counts of all shares, arrays of shape (samplers, machines, mini-batches)."""

    destinations: NDArray[np.float64]
    edges: NDArray[np.float64]
    inputs: NDArray[np.float64]
    own: NDArray[np.float64]
    """Destinations whose own rows are added."""
    rows: NDArray[np.float64]
    """Distinct rows that a machine asks an owner for, for all shares of an iteration;
    shape (machines, owners, mini-batches)."""


# Volumes, operations and memory of one job ask for the same counts.
@lru_cache(maxsize=8)
def count_shares(
    dataset: Dataset, plan: BatchPlan, strategy: str, batches: int
) -> ShareCounts:
    """Return the counts of the first mini-batches of every sampler."""
    return count_strategies(dataset, plan, [strategy], batches)[strategy]


def count_strategies(
    dataset: Dataset, plan: BatchPlan, strategies: Iterable[str], batches: int
) -> dict[str, ShareCounts]:
    """Return the counts of several strategies, for which batches are drawn once."""
    machines = dataset.parts
    shape = (plan.samplers, machines, batches)
    counts = {
        strategy: ShareCounts(
            destinations=np.zeros(shape),
            edges=np.zeros(shape),
            inputs=np.zeros(shape),
            own=np.zeros(shape),
            rows=np.zeros((machines, machines, batches)),
        )
        for strategy in strategies
    }
    owner = np.asarray(dataset.owner)
    train = plan.walk(dataset)
    for number in range(batches):
        drawn = [
            plan.batch(dataset.structure, train, sampler, number)
            for sampler in range(plan.samplers)
        ]
        for strategy, of_strategy in counts.items():
            _count_iteration(drawn, owner, strategy, number, of_strategy)
    return counts


def _count_iteration(
    drawn: Sequence[SampledBatch],
    owner: NDArray[np.int32],
    strategy: str,
    number: int,
    counts: ShareCounts,
) -> None:
    """Count the shares of mini-batch ``number`` of every sampler."""
    samplers, machines, _ = counts.inputs.shape
    needed: list[list[Ids]] = [[] for _ in range(machines)]
    for sampler, batch in enumerate(drawn):
        home = sampler * machines // samplers
        computing_machines = computing(strategy, home, machines)
        if strategy == "nfp":  # all of them compute the same, of their own columns
            computing_machines = computing_machines[:1]
        for machine in computing_machines:
            _, share = split(batch, owner, strategy, machine)
            inputs, _ = share.inputs
            place = (sampler, machine, number)
            counts.destinations[place] = len(share.destinations)
            counts.edges[place] = len(share.sources)
            counts.inputs[place] = len(inputs)
            counts.own[place] = share.adds_own.sum()
            needed[machine].append(inputs)

    if strategy == "nfp":
        for array in (counts.destinations, counts.edges, counts.inputs, counts.own):
            array[:, 1:, number] = array[:, :1, number]
        # Its own columns of whatever vertex.
        np.fill_diagonal(counts.rows[:, :, number], len(_distinct(needed[0])))
        return
    for machine, inputs_of_shares in enumerate(needed):
        vertices = _distinct(inputs_of_shares)
        owned = np.bincount(owner[vertices], minlength=machines)
        counts.rows[machine, :, number] = owned


def _distinct(inputs_of_shares: Sequence[Ids]) -> Ids:
    """Return the vertices of some shares: what several need is asked for once."""
    # `np.unique` hashes them, which takes ten times as long as to sort.
    vertices = np.sort(np.concatenate(inputs_of_shares))
    is_first = np.diff(vertices, prepend=-1) > 0
    return vertices[is_first]
