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

from emu.array_types import Mask, SmallInts
from emu.graph_data import BatchPlan, Dataset, SampledBatch
from emu.graph_data.drawn_batches import DrawnBatch, draw_batch
from emu.graph_data.sampling import Ids, Positions, relabel
from emu.prediction.core import lib, pointer, structure
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
    adds_own: Mask
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
    owner: SmallInts,
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
    counters: dict[str, _WholeCounter | _PartCounter] = {}
    needs_edges = False
    for strategy in strategies:
        if strategy in _WHO:
            counters[strategy] = _PartCounter(dataset, plan.samplers, strategy, batches)
            needs_edges = True
        else:
            counters[strategy] = _WholeCounter(
                dataset, plan.samplers, strategy, batches
            )

    train = plan.walk(dataset)
    for number in range(batches):
        for counter in counters.values():
            counter.begin()
        for sampler in range(plan.samplers):
            batch = draw_batch(dataset, plan, train, sampler, number, edges=needs_edges)
            for counter in counters.values():
                counter.add(batch, sampler, number)

    return {strategy: counter.result() for strategy, counter in counters.items()}


def count_rows_of(
    dataset: Dataset, plan: BatchPlan, batches: int, samplers: Sequence[int]
) -> Floats:
    """Return the rows that a machine asks owners for, as `ShareCounts` of ``gdp``.

    Shape (owners, mini-batches). ``samplers``: those of the machine.
    """
    counter = _WholeCounter(dataset, plan.samplers, "gdp", batches)
    train = plan.walk(dataset)
    for number in range(batches):
        counter.begin()
        for sampler in samplers:
            batch = draw_batch(dataset, plan, train, sampler, number)
            counter.add(batch, sampler, number)
    # Only this machine's samplers were counted.
    rows: Floats = counter.result().rows.sum(axis=0)
    return rows


def count_least(
    dataset: Dataset,
    plan: BatchPlan,
    strategy: str,
    batches: int,
) -> ShareCounts:
    """Return counts of which none is above that of `count_strategies`.

    They follow from who owns the destinations, without an edge: whoever owns one has it
    in its share of ``snp`` or ``dnp``, and with ``nfp`` all have all.
    """
    machines = dataset.parts
    shape = (plan.samplers, machines, batches)
    nothing = np.zeros(shape)
    destinations = np.zeros(shape)

    train = plan.walk(dataset)
    owner = np.asarray(dataset.owner)
    for number in range(batches):
        for sampler in range(plan.samplers):
            batch = draw_batch(dataset, plan, train, sampler, number)
            outputs = batch.sizes[1]
            if strategy == "nfp":
                destinations[sampler, :, number] = outputs
                continue
            owners = owner[batch.vertices[:outputs]]
            destinations[sampler, :, number] = np.bincount(owners, minlength=machines)

    return ShareCounts(
        destinations=destinations,
        edges=nothing,
        inputs=nothing,
        own=nothing,
        rows=np.zeros((machines, machines, batches)),
    )


class _WholeCounter:
    """Counts of a strategy whose shares are whole mini-batches: ``gdp`` or ``nfp``."""

    def __init__(
        self,
        dataset: Dataset,
        samplers: int,
        strategy: str,
        batches: int,
    ) -> None:
        machines = dataset.parts
        self._is_everywhere = strategy == "nfp"
        self._machines = machines
        self._samplers = samplers
        self._owner = np.ascontiguousarray(dataset.owner, np.int32)
        # Who asked for each vertex last: a number per machine and iteration, above 0.
        self._asked = np.zeros(dataset.vertices, np.int32)
        self._first_number = 0

        self._inputs = np.zeros((samplers, batches))
        self._outputs = np.zeros((samplers, batches))
        self._edges = np.zeros((samplers, batches))
        self._rows = np.zeros((batches, machines, machines), np.int64)

    def begin(self) -> None:
        """Begin with another iteration: what was asked for is asked for anew."""
        self._first_number += self._machines

    def _home_of(self, sampler: int) -> int:
        if self._is_everywhere:
            return 0  # all of them compute the same, of their own columns
        return sampler * self._machines // self._samplers

    def add(self, batch: DrawnBatch, sampler: int, number: int) -> None:
        """Count the shares of mini-batch ``number`` of a sampler."""
        home = self._home_of(sampler)
        self._inputs[sampler, number] = batch.sizes[0]
        self._outputs[sampler, number] = batch.sizes[1]
        self._edges[sampler, number] = batch.last_counts.sum()
        lib.count_asked(
            pointer(batch.vertices),
            batch.vertices.dtype == np.int64,
            len(batch.vertices),
            pointer(self._owner),
            self._first_number + home,
            pointer(self._asked),
            pointer(self._rows[number, home]),
        )

    def result(self) -> ShareCounts:
        """Return the counts of all batches."""
        samplers = range(self._samplers)
        homes = [self._home_of(sampler) for sampler in samplers]
        computes = np.zeros((self._samplers, self._machines, 1))
        computes[samplers, homes] = 1.0
        rows = self._rows.astype(np.float64)
        if self._is_everywhere:
            computes[:] = 1.0
            # Its own columns of whatever vertex.
            distinct = rows[:, :1].sum(axis=2, keepdims=True)
            rows = distinct * np.eye(self._machines)

        outputs = computes * self._outputs[:, np.newaxis]
        return ShareCounts(
            destinations=outputs,
            edges=computes * self._edges[:, np.newaxis],
            inputs=computes * self._inputs[:, np.newaxis],
            own=outputs,
            rows=_by_batch_last(rows),
        )


#: Who adds up the edges of layer 1, as the core calls it.
_WHO = {
    "snp": lib.BY_SOURCE,
    "dnp": lib.BY_DESTINATION,
}


class _PartCounter:
    """Counts of a strategy that parts mini-batches, to which the core adds each."""

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
            size=inputs,
            ends=outputs,
            vertex=batch.vertices.astype(np.int64),
            source=sources,
            drawn=batch.last_counts,
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

        lib.count_shares(shared)

    def result(self) -> ShareCounts:
        """Return the counts of all batches."""
        return ShareCounts(
            destinations=_by_batch_last(self._destinations),
            edges=_by_batch_last(self._edges),
            inputs=_by_batch_last(self._inputs),
            own=_by_batch_last(self._own),
            rows=_by_batch_last(self._rows),
        )


def _by_batch_last(counts: Floats) -> Floats:
    """Return an array by batch with the batches last."""
    moved = np.moveaxis(counts, 0, -1)
    return np.ascontiguousarray(moved)
