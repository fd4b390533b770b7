"""Mini-batches as they are counted, kept for who counts them again.

What a batch holds follows from graph and plan, and from no partition: each number of
stores that is tried, and each system of a table, counts the same batches.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from emu.array_types import Ints, SmallInts
from emu.graph_data.batches import BatchPlan
from emu.graph_data.dataset import Dataset
from emu.graph_data.sampling import (
    MOST_PLACES,
    Ids,
    SampledBatch,
    Structure,
    check_frontier,
    places_of,
)
from emu.host.stream_key import stream_key
from emu.prediction.core import ffi, lib, pointer

#: Bytes of the batches that a process keeps at most: those of 16 workers of 150 seeds,
#: for 20 iterations on 122,000 vertices, take 100 MB.
MOST_KEPT = 256_000_000


@dataclass(frozen=True, eq=False)
class DrawnBatch:
    """The vertices of a mini-batch, and how many neighbours each has drawn."""

    vertices: Ints | SmallInts
    """As of `SampledBatch`."""
    sizes: tuple[int, ...]
    counts: SmallInts
    """Edges of every vertex of a frontier, hop behind hop from the seeds."""
    sources: SmallInts | None = None
    """Places among ``vertices`` of the sources of the last hop's edges, which come in
    the order of their destinations; None where they were not asked for."""

    @classmethod
    def of(cls, batch: SampledBatch, *, edges: bool = False) -> DrawnBatch:
        """Return what is counted of a sampled batch, ``edges``: with its sources."""
        frontiers = reversed(batch.sizes[1:])
        positions = [destinations for _, destinations in reversed(batch.edges)]
        drawn = []
        for destinations, size in zip(positions, frontiers, strict=True):
            counts = np.bincount(destinations, minlength=size)
            drawn.append(counts.astype(np.int32))
        vertices: Ints | SmallInts = batch.vertices
        # Half the bytes, for every graph of fewer than 2 billion vertices.
        if vertices.max(initial=0) <= np.iinfo(np.int32).max:
            vertices = vertices.astype(np.int32)
        sources = batch.edges[0][0] if edges else None
        return cls(vertices, batch.sizes, np.concatenate(drawn), sources)

    @property
    def last_counts(self) -> SmallInts:
        """Edges of every vertex of the last frontier."""
        return self.counts[-self.sizes[1] :]

    @property
    def size(self) -> int:
        """Bytes of its arrays."""
        sources = 0 if self.sources is None else self.sources.nbytes
        return self.vertices.nbytes + self.counts.nbytes + sources


class KeptBatches:
    """Batches that were asked for last, of ``most`` bytes in all; for any threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._batches = OrderedDict[Hashable, DrawnBatch]()
        self._lock = threading.Lock()

    def find(
        self,
        key: Hashable,
        draw: Callable[[], DrawnBatch],
        *,
        edges: bool = False,
    ) -> DrawnBatch:
        """Return the batch of a key, which ``draw`` draws where it is not kept.

        ``edges``: with the sources of its last hop, which ``draw`` then has as well.
        """
        with self._lock:
            kept = self._batches.get(key)
            if kept is not None and (kept.sources is not None or not edges):
                self._batches.move_to_end(key)
                return kept
        # Without the lock: samplers draw side by side.
        batch = draw()
        with self._lock:
            # Another thread may have drawn it meanwhile.
            replaced = self._batches.pop(key, None)
            self._size += batch.size - (replaced.size if replaced else 0)
            self._batches[key] = batch
            while self._size > self._most:
                _, oldest = self._batches.popitem(last=False)
                self._size -= oldest.size
        return batch


_KEPT = KeptBatches(MOST_KEPT)
#: Bytes of a graph's neighbours up to which counting copies them.
_MOST_COPIED = 256_000_000


#: Copied structures by what they are of: all numbers of parts have the same.
_copied = OrderedDict[tuple[int, ...], Structure]()
_MOST_STRUCTURES = 2


def structure_of(dataset: Dataset) -> Structure:
    """Return the structure of a graph, its neighbours in memory of this process.

    Pages of a mapped file are small: to find them took a quarter of drawing a batch.
    """
    known = _copied.get(dataset.graph)
    if known is not None:
        return known
    structure = dataset.structure
    is_listed = type(structure) is Structure
    if not is_listed or structure.indices.nbytes > _MOST_COPIED:
        return structure

    copied = replace(structure, indices=np.array(structure.indices))
    _copied[dataset.graph] = copied
    if len(_copied) > _MOST_STRUCTURES:
        _copied.popitem(last=False)
    return copied


def draw_batch(
    dataset: Dataset,
    plan: BatchPlan,
    train: Ints,
    sampler: int,
    iteration: int,
    *,
    edges: bool = False,
) -> DrawnBatch:
    """Return the batch of one (sampler, iteration); raises as `BatchPlan.batch`.

    ``train``: the plan's `walk` of the data set; ``edges``: with its last hop's.
    """
    # A walk near the owners depends on the parts of the graph.
    graph = dataset.folder if plan.epoch == "local" else dataset.graph
    key = graph, plan, sampler, iteration

    def draw() -> DrawnBatch:
        structure = structure_of(dataset)
        # The core reads lists of neighbours, which drawn graphs have not.
        is_listed = type(structure) is Structure
        if not is_listed or structure.vertices > MOST_PLACES:
            batch = plan.batch(structure, train, sampler, iteration)
            return DrawnBatch.of(batch, edges=edges)
        return draw_counts(
            structure,
            plan.seeds(train, sampler, iteration),
            fanouts=plan.fanouts,
            stream=plan.stream(sampler, iteration),
            edges=edges,
        )

    return _KEPT.find(key, draw, edges=edges)


def draw_counts(
    structure: Structure,
    seeds: Ids,
    *,
    fanouts: Sequence[int],
    stream: np.uint64,
    edges: bool,
) -> DrawnBatch:
    """Return what is counted of the batch that `sample_batch` returns.

    No list of edges is made, which took half of the time.
    """
    check_frontier(structure, seeds)
    hops = len(fanouts)
    # As dgl has them, the last fanout is that of the seeds.
    of_hops = np.array(fanouts[::-1], np.int64)
    keys = [stream_key(int(stream), hop) for hop in range(1, hops + 1)]
    sizes = np.empty(hops + 1, np.int64)
    sizes[0] = len(seeds)

    # Not by the number of vertices: a file of others may list one of them twice.
    most = min(max(fanouts), structure.most_neighbours)
    room = _room_of(structure.vertices, hops, most)
    room.vertices[: len(seeds)] = seeds
    room.places[seeds] = np.arange(len(seeds))
    draw = partial(
        lib.draw_hops,
        pointer(structure.indptr),
        pointer(structure.indices),
        structure.indices.dtype == np.int64,
        pointer(np.array(keys, np.uint64)),
        pointer(of_hops),
    )
    arrays = [pointer(sizes), *room.pointers]

    sources = None
    if edges:
        draw(0, hops - 1, *arrays, ffi.NULL)
        sources = _new_sources(structure, room.vertices, int(sizes[-2]), fanouts[0])
        draw(hops - 1, hops, *arrays, pointer(sources))
    else:
        draw(0, hops, *arrays, ffi.NULL)

    *frontiers, size = sizes.tolist()
    return DrawnBatch(
        vertices=room.vertices[:size].copy(),
        sizes=(size, *reversed(frontiers)),
        counts=room.drawn[: sum(frontiers)].copy(),
        sources=sources,
    )


def _new_sources(
    structure: Structure, vertices: SmallInts, size: int, fanout: int
) -> SmallInts:
    """Return room for the sources of a last hop, of so many of the vertices."""
    total = lib.counted_draws(
        pointer(structure.indptr), pointer(vertices), size, fanout
    )
    return np.empty(total, np.int32)


@dataclass(frozen=True, eq=False)
class _Room:
    """Arrays of a thread, in which it draws one batch after the other."""

    places: SmallInts
    """Place of each vertex, see `places_of`."""
    vertices: SmallInts
    """Vertices of the batch; the last may be written twice."""
    drawn: SmallInts
    """Edges of every vertex of a frontier, hop behind hop."""
    edges: Ints
    """Those that are drawn before it is looked where they lead."""

    @cached_property
    def pointers(self) -> list[Any]:
        """Addresses for the core, in its order."""
        arrays = (self.drawn, self.edges, self.places, self.vertices)
        return [pointer(array) for array in arrays]


_of_thread = threading.local()


def _room_of(vertices: int, hops: int, fanout: int) -> _Room:
    """Return this thread's room for batches of a graph.

    New memory took a tenth of the time of a batch of 6,000 vertices.
    """
    room: _Room | None = getattr(_of_thread, "room", None)
    places = places_of(vertices)
    drawn = hops * vertices
    edges = lib.DRAWN_AT_ONCE + fanout
    if room is not None:
        # In no size below the last one: plans may take turns, of which one needs more
        # here and another there.
        drawn = max(drawn, len(room.drawn))
        edges = max(edges, len(room.edges))
        is_same_size = (len(room.drawn), len(room.edges)) == (drawn, edges)
        if room.places is places and is_same_size:
            return room

    room = _Room(
        places=places,
        # As many as there are places, which may be those of a larger graph.
        vertices=np.empty(len(places) + 1, np.int32),
        drawn=np.empty(drawn, np.int32),
        edges=np.empty(edges, np.int64),
    )
    _of_thread.room = room
    return room
