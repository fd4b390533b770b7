"""Shares of the first layer: which machine adds up which edges of a mini-batch.

APT (Ma et al.) has four strategies. ``gdp``: the machine of the mini-batch computes all
of it. ``nfp``: every machine computes all of it, of its own columns of the features.
``snp``: the owner of an edge's source adds it up. ``dnp``: the owner of its destination
does, and draws it. A vertex's own row is added by its owner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from emu.graph_data import BatchPlan, Dataset, SampledBatch
from emu.graph_data.drawn_batches import DrawnBatch, draw_batch
from emu.graph_data.sampling import Ids, Positions, relabel
from emu.prediction.core import lib, structure
from emu.systems import Floats

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
        own_vertices = self.destinations[self.adds_own]
        return relabel(own_vertices, self.sources)


def computing(strategy: str, home: int, machines: int) -> range:
    """Return the machines with a share of a mini-batch of machine ``home``."""
    if strategy == "gdp":
        return range(home, home + 1)
    return range(machines)


def split(
    batch: SampledBatch,
    owner: NDArray[np.int32],
    strategy: str,
    machine: int,
) -> tuple[Positions, Share]:
    """Return the share of a machine, and the places of its destinations in S_1.

    ``owner``: machine that owns each vertex, shape (vertices,).
    """
    sources, ends = batch.edges[0]
    outputs = batch.sizes[1]
    destinations = batch.vertices[:outputs]
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
    places = np.flatnonzero(is_wanted)
    return places.astype(np.int32), share


@dataclass(frozen=True, eq=False)
class ShareCounts:
    """Counts of all shares, arrays of shape (samplers, machines, mini-batches)."""

    destinations: Floats
    edges: Floats
    inputs: Floats
    own: Floats
    """Destinations whose own rows are added."""
    rows: Floats
    """Distinct rows that a machine asks an owner for, for all shares of an iteration;
    shape (machines, owners, mini-batches)."""


# Volumes, operations and memory of one job ask for the same counts.
@lru_cache(maxsize=8)
def count_shares(
    dataset: Dataset,
    plan: BatchPlan,
    strategy: str,
    batches: int,
) -> ShareCounts:
    """Return the counts of the first mini-batches of every sampler."""
    counts = count_strategies(dataset, plan, [strategy], batches)
    return counts[strategy]


def count_strategies(
    dataset: Dataset,
    plan: BatchPlan,
    strategies: Iterable[str],
    batches: int,
) -> dict[str, ShareCounts]:
    """Return the counts of several strategies, for which batches are drawn once."""
    counters = {}
    for strategy in strategies:
        counters[strategy] = _Counter(dataset, plan.samplers, strategy, batches)

    train = plan.walk(dataset)
    for number in range(batches):
        for counter in counters.values():
            counter.begin()
        for sampler in range(plan.samplers):
            batch = draw_batch(dataset, plan, train, sampler, number, edges=True)
            for counter in counters.values():
                counter.add(batch, sampler, number)

    return {strategy: counter.result() for strategy, counter in counters.items()}


#: Who adds up the edges of layer 1, as the core calls it.
_WHO = {
    "gdp": lib.BY_HOME,
    "nfp": lib.BY_HOME,
    "snp": lib.BY_SOURCE,
    "dnp": lib.BY_DESTINATION,
}


class _Counter:
    """Counts of one strategy, which the core adds to batch by batch."""

    def __init__(
        self,
        dataset: Dataset,
        samplers: int,
        strategy: str,
        batches: int,
    ) -> None:
        machines = dataset.parts
        self._strategy = strategy
        self._machines = machines
        self._samplers = samplers
        self._owner = np.ascontiguousarray(dataset.owner, np.int32)
        # A bit for each machine.
        self._stride = -(-machines // 8)
        bits = (dataset.vertices, self._stride)
        self._asked = np.zeros(bits, np.uint8)
        self._latest = np.empty(machines, np.int64)

        shape = (batches, samplers, machines)
        self._destinations = np.zeros(shape)
        self._edges = np.zeros(shape)
        self._inputs = np.zeros(shape)
        self._own = np.zeros(shape)
        asked = (batches, machines, machines)
        self._rows = np.zeros(asked)

    def begin(self) -> None:
        """Begin with another iteration: what was asked for is asked for anew."""
        self._asked[:] = 0

    def add(self, batch: DrawnBatch, sampler: int, number: int) -> None:
        """Count the shares of mini-batch ``number`` of a sampler."""
        home = sampler * self._machines // self._samplers
        if self._strategy == "nfp":
            home = 0  # all of them compute the same, of their own columns
        place = (number, sampler)
        inputs, outputs = batch.sizes[:2]
        wanted = np.zeros((inputs, self._stride), np.uint8)
        sources = batch.sources
        assert sources is not None  # noqa: S101 - for mypy

        shared = structure(
            "Shared",
            by=_WHO[self._strategy],
            machines=self._machines,
            stride=self._stride,
            home=home,
            size=inputs,
            ends=outputs,
            vertex=batch.vertices.astype(np.int64),
            source=sources,
            drawn=batch.drawn[-1],
            owner=self._owner,
            wanted=wanted,
            asked=self._asked,
            latest=self._latest,
            destinations=self._destinations[place],
            edges=self._edges[place],
            inputs=self._inputs[place],
            own=self._own[place],
            rows=self._rows[number],
        )

        lib.count_shares(shared, len(sources))

    def result(self) -> ShareCounts:
        """Return the counts of all batches."""
        counted = (
            self._destinations,
            self._edges,
            self._inputs,
            self._own,
        )

        rows = self._rows
        if self._strategy == "nfp":
            for array in counted:
                of_first = array[:, :, :1]
                array[:, :, 1:] = of_first
            # Its own columns of whatever vertex.
            by_owner = rows[:, :1]
            distinct = by_owner.sum(axis=2, keepdims=True)
            rows = distinct * np.eye(self._machines)

        destinations, edges, inputs, own = map(_by_batch_last, counted)
        return ShareCounts(
            destinations=destinations,
            edges=edges,
            inputs=inputs,
            own=own,
            rows=_by_batch_last(rows),
        )


def _by_batch_last(counts: Floats) -> Floats:
    """Return an array by batch with the batches last."""
    moved = np.moveaxis(counts, 0, -1)
    return np.ascontiguousarray(moved)
