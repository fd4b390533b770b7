"""Neighbour sampling as a pure function of (seed, sampler, iteration).

Every draw is a hash of (stream, hop, vertex, number of the draw): no generator state,
so it does not matter where a vertex is sampled, in which order, or with which others. A
store that samples only its own vertices (multiround) and one that samples the whole
batch (oneshot) draw the same neighbours. Must not know: features, files, processes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from emu.array_types import Array, Ints, SmallInts
from emu.host.stream_key import stream_key
from emu.prediction.core import lib, pointer

#: Numbers of vertices, or of edges, int64; places among some vertices, int32.
Ids: TypeAlias = Ints
Positions: TypeAlias = SmallInts


def bounds_of(counts: Array) -> Array:
    """Return where ranges of these lengths begin, and where the last one ends."""
    ends = np.cumsum(counts)
    return np.concatenate([[0], ends])


def rows_of(indptr: Ids) -> Ids:
    """Return the row of every entry of a compressed matrix."""
    rows = np.arange(len(indptr) - 1)
    counts = np.diff(indptr)
    return np.repeat(rows, counts)


def entries_of(indptr: Ids, rows: Ids) -> tuple[Ids, Ids]:
    """Return the row pointers of some rows of a compressed matrix, and their entries.

    Those of row i are ``entries[pointers[i]:pointers[i + 1]]``, places in the matrix.
    """
    starts = indptr[rows]
    counts = indptr[rows + 1] - starts
    pointers = bounds_of(counts)
    # Consecutive numbers, each row's moved to where the row begins: no loop over rows.
    shifts = starts - pointers[:-1]
    places = np.arange(pointers[-1])
    entries = places + np.repeat(shifts, counts)
    return pointers, entries


@dataclass(frozen=True, eq=False)
class Structure:
    """In-neighbours of every vertex, compressed by destination (CSC)."""

    indptr: Ids
    """int64, shape (vertices + 1,)."""
    indices: Array
    """int32 or int64, shape (edges,): sources of the edges into vertex v stand at
    ``indptr[v]:indptr[v + 1]``, sorted, without loops and duplicates."""

    @property
    def vertices(self) -> int:
        """Number of vertices."""
        return len(self.indptr) - 1

    @property
    def degrees(self) -> Ids:
        """Number of neighbours of every vertex."""
        return np.diff(self.indptr)

    @cached_property
    def most_neighbours(self) -> int:
        """Number of neighbours of the vertex that has the most."""
        most = self.degrees.max(initial=0)
        return int(most)

    def neighbours(self, vertices: Ids) -> tuple[Ids, Ids]:
        """Return the neighbours of vertices, one's after another's.

        Those of vertex i are ``neighbours[indptr[i]:indptr[i + 1]]``; both int64.
        """
        indptr, entries = entries_of(self.indptr, vertices)
        neighbours = self.indices[entries]
        return indptr, neighbours.astype(np.int64)

    def draw(
        self,
        frontier: Ids,
        fanout: int,
        key: np.uint64,
    ) -> tuple[Ids, Positions]:
        """Return at most ``fanout`` neighbours of each vertex, and whose they are.

        Places in ``frontier`` say whose: in its order. ``key`` decides which.
        """
        indptr = pointer(self.indptr)
        vertices = pointer(frontier)
        # Counted first, so that the arrays have their size at once.
        count = lib.picked_edges(indptr, vertices, len(frontier), fanout)
        sources = np.empty(count, np.int64)
        destinations = np.empty(count, np.int32)

        # Places drawn so far of one vertex, which Floyd's algorithm compares.
        places = np.empty(fanout, np.int64)
        lib.picked(
            indptr,
            vertices,
            len(frontier),
            fanout,
            key,
            pointer(self.indices),
            self.indices.dtype == np.int64,
            pointer(places),
            pointer(sources),
            pointer(destinations),
        )
        return sources, destinations


@dataclass(frozen=True, eq=False)
class SampledBatch:
    """The blocks of one mini-batch in DGL's order.

    Each set S_l is a prefix of S_{l-1}: destinations come first, then new sources in
    the order of their first edge. So one id list and L + 1 sizes describe all sets.
    """

    vertices: Ids
    """S_0, int64; its first ``sizes[-1]`` entries are the seeds."""
    sizes: tuple[int, ...]
    """#S_0, ..., #S_L."""
    edges: tuple[tuple[Positions, Positions], ...]
    """(source, destination) positions in S_0, int32, per block; input side first."""

    @property
    def seeds(self) -> Ids:
        """The vertices whose labels the batch learns, S_L."""
        return self.vertices[: self.sizes[-1]]


def sample_neighbours(
    structure: Structure,
    frontier: Ids,
    *,
    fanout: int,
    stream: np.uint64,
    hop: int,
) -> tuple[Ids, Ids]:
    """Draw min(in-degree, fanout) distinct in-neighbours of every frontier vertex.

    The frontier may be in any order, any part of the true one. ``stream`` is the key of
    (seed, sampler, iteration), see `stream_key`; hop 1 is next to the seeds, and a
    vertex draws afresh in every hop. Returns sources and destinations: int64 vertex ids
    of the sampled edges, grouped in the order of ``frontier``. Raises ValueError when
    the fanout is below 1 or a frontier vertex does not exist.
    """
    sources, positions = _sample_frontier(
        structure,
        frontier=frontier,
        fanout=fanout,
        stream=stream,
        hop=hop,
    )
    return sources, frontier[positions]


def _sample_frontier(
    structure: Structure,
    frontier: Ids,
    fanout: int,
    stream: np.uint64,
    hop: int,
) -> tuple[Ids, Positions]:
    if fanout < 1:
        raise ValueError(f"a fanout of {fanout} samples nothing")
    check_frontier(structure, frontier)

    key = stream_key(int(stream), hop)
    return structure.draw(frontier, fanout, key)


def check_frontier(structure: Structure, frontier: Ids) -> None:
    """Raise ValueError where a vertex of a frontier does not exist."""
    # The compiled sampler reads the pointers of a vertex without a check.
    last_vertex = structure.vertices - 1
    if len(frontier) and not 0 <= frontier.min() <= frontier.max() <= last_vertex:
        raise ValueError(f"the frontier names vertices outside 0..{last_vertex}")


def relabel(known: Ids, ids: Ids) -> tuple[Ids, Positions]:
    """Give vertices positions by first appearance, ``known`` before ``ids``.

    Returns the distinct ids (int64), and the position of each of ``ids`` among them
    (int32). Known ones are distinct, ids may repeat.
    """
    most = len(known) + len(ids)
    last_slot = max(2 * most - 1, 15)  # half of the slots stay free
    slot_bits = last_slot.bit_length()
    # A hash table of open addresses; 1 << bits, since the compiled code masks hashes.
    slots = np.full(1 << slot_bits, -1, np.int32)

    vertices = np.empty(most, np.int64)
    positions = np.empty(len(ids), np.int32)
    count = lib.relabelled(
        pointer(known),
        len(known),
        pointer(ids),
        len(ids),
        pointer(slots),
        len(slots),
        pointer(vertices),
        pointer(positions),
    )
    # A copy, so that the room for ids that repeat is freed.
    distinct = vertices[:count]
    return distinct.copy(), positions


#: Vertices of a graph up to which each thread that samples keeps a place of all: 8 MB.
MOST_PLACES = 2_000_000
_of_thread = threading.local()


def places_of(vertices: int) -> Positions:
    """Return this thread's place of each vertex, whatever other batches have left."""
    places: Positions | None = getattr(_of_thread, "places", None)
    if places is None or len(places) < vertices:
        places = np.zeros(vertices, np.int32)
        _of_thread.places = places
    return places


def relabel_by_place(
    known: Ids,
    ids: Ids,
    places: Positions,
) -> tuple[Ids, Positions]:
    """Return what `relabel` does, by a place of each vertex where it hashes."""
    most = len(known) + len(ids)
    vertices = np.empty(most, np.int64)
    positions = np.empty(len(ids), np.int32)

    count = lib.placed(
        pointer(known),
        len(known),
        pointer(ids),
        len(ids),
        pointer(places),
        pointer(vertices),
        pointer(positions),
    )
    distinct = vertices[:count]
    return distinct.copy(), positions


class GrowingBatch:
    """A batch under construction, hop by hop from its seeds: distinct ids, int64.

    ``vertices``: those of the graph, where they are known; 0 else.
    """

    def __init__(self, seeds: Ids, vertices: int = 0) -> None:
        self.frontier = seeds
        # A sampled batch of 20,000 vertices took 0.4 ms to hash.
        self._places = None
        if 0 < vertices <= MOST_PLACES:
            self._places = places_of(vertices)
        self._sizes = [len(seeds)]
        self._edges: list[tuple[Positions, Positions]] = []

    def grow(self, sources: Ids, destinations: Ids) -> None:
        """Add the sampled edges of one hop, in whatever order vertices were served.

        Raises ValueError when an edge leads to a vertex outside the frontier.
        """
        # A frontier is distinct: what is new to it was never asked for.
        vertices, destination = relabel(self.frontier, destinations)
        if len(vertices) > len(self.frontier):
            stranger = vertices[len(self.frontier)]
            raise ValueError(f"vertex {stranger} was not in the frontier")
        descends = destination[1:] < destination[:-1]
        if descends.any():
            # Edges of one vertex come together from one store, so a stable sort
            # restores the order in which a single sampler would have drawn.
            order = np.argsort(destination, kind="stable")
            sources = sources[order]
            destination = destination[order]
        self.add(sources, destination)

    def add(self, sources: Ids, destination: Positions) -> None:
        """Add one hop's edges, ordered by ``destination``: frontier positions."""
        if self._places is None:
            self.frontier, source = relabel(self.frontier, sources)
        else:
            found = relabel_by_place(self.frontier, sources, self._places)
            self.frontier, source = found
        self._sizes.append(len(self.frontier))
        edges = (source, destination)
        self._edges.append(edges)

    def finish(self) -> SampledBatch:
        """Return the batch grown so far."""
        # Grown from the seeds, kept from the input side, as DGL's blocks are.
        return SampledBatch(
            vertices=self.frontier,
            sizes=tuple(self._sizes[::-1]),
            edges=tuple(self._edges[::-1]),
        )


def sample_batch(
    structure: Structure,
    seeds: Ids,
    *,
    fanouts: Sequence[int],
    stream: np.uint64,
) -> SampledBatch:
    """Sample the blocks of one mini-batch.

    Seeds are distinct vertex ids, int64. Fanouts are in DGL's order: the last number
    belongs to the seeds' hop. ``stream`` and errors are those of `sample_neighbours`.
    """
    batch = GrowingBatch(seeds, structure.vertices)

    # DGL states the seeds' fanout last, and the seeds are sampled first.
    from_seeds = reversed(fanouts)
    for hop, fanout in enumerate(from_seeds, start=1):
        edges = _sample_frontier(
            structure,
            frontier=batch.frontier,
            fanout=fanout,
            stream=stream,
            hop=hop,
        )
        batch.add(*edges)
    return batch.finish()
