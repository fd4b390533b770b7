"""Neighbour sampling as a pure function of (seed, sampler, iteration).

Every draw is a hash of (stream, hop, vertex, number of the draw): no generator state,
so it does not matter where a vertex is sampled, in which order, or together with which
others. A store that samples only its own vertices (multiround) and one that samples
the whole batch (oneshot) draw the same neighbours.

Must not know: features, files, processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.compiled_code import njit
from emu.stream_key import stream_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, eq=False)
class Structure:
    """In-neighbours of every vertex, compressed by destination (CSC)."""

    indptr: NDArray[np.int64]
    """int64, shape (vertices + 1,)."""
    indices: NDArray[Any]
    """int32 or int64, shape (edges,): sources of the edges into vertex v stand at
    ``indptr[v]:indptr[v + 1]``, sorted, without loops and duplicates."""

    @property
    def vertices(self) -> int:
        """Number of vertices."""
        return len(self.indptr) - 1


@dataclass(frozen=True, eq=False)
class SampledBatch:
    """The blocks of one mini-batch in DGL's order.

    Each set S_l is a prefix of S_{l-1}: destinations come first, then new sources in
    the order of their first edge. So one id list and L + 1 sizes describe all sets.
    """

    vertices: NDArray[np.int64]
    """S_0, int64; its first ``sizes[-1]`` entries are the seeds."""
    sizes: tuple[int, ...]
    """#S_0, ..., #S_L."""
    edges: tuple[tuple[NDArray[np.int32], NDArray[np.int32]], ...]
    """(source, destination) positions in S_0, int32, per block; input side first."""

    @property
    def seeds(self) -> NDArray[np.int64]:
        """The vertices whose labels the batch learns, S_L."""
        return self.vertices[: self.sizes[-1]]


@njit(inline="always")
def _mixed(value: np.uint64) -> np.uint64:
    # splitmix64's finalizer (Steele, Lea, Flood, OOPSLA 2014): every input bit
    # reaches every output bit.
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))


@njit(nogil=True)
def _picked(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    frontier: NDArray[np.int64],
    fanout: int,
    key: np.uint64,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    total = 0
    for vertex in frontier:
        total += min(indptr[vertex + 1] - indptr[vertex], fanout)
    sources = np.empty(total, np.int64)
    destinations = np.empty(total, np.int32)
    chosen = np.empty(fanout, np.int64)
    end = 0
    for position, vertex in enumerate(frontier):
        first = indptr[vertex]
        degree = indptr[vertex + 1] - first
        taken = min(degree, fanout)
        own = _mixed(key + np.uint64(vertex) * _GOLDEN)
        for draw in range(taken):
            pick = np.int64(draw)
            if degree > fanout:
                # Floyd (Bentley, Floyd, CACM 1987): a uniform subset, one hash each.
                # 32 bits of hash times the range: bias below range / 2^32.
                last = degree - taken + draw
                bits = _mixed(own + np.uint64(draw + 1) * _GOLDEN) >> np.uint64(32)
                pick = np.int64((bits * np.uint64(last + 1)) >> np.uint64(32))
                for earlier in range(draw):
                    if chosen[earlier] == pick:
                        pick = last
                        break
                chosen[draw] = pick
            sources[end] = indices[first + pick]
            destinations[end] = position
            end += 1
    return sources, destinations


def sample_neighbours(
    structure: Structure,
    frontier: NDArray[np.int64],
    *,
    fanout: int,
    stream: np.uint64,
    hop: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw min(in-degree, fanout) distinct in-neighbours of every frontier vertex.

    Parameters
    ----------
    frontier
        Vertex ids, any order, any part of the true frontier.
    stream
        Key of (seed, sampler, iteration), see `stream_key`.
    hop
        1 next to the seeds; a vertex draws afresh in every hop.

    Returns
    -------
    sources, destinations
        int64 vertex ids of the sampled edges, grouped in the order of ``frontier``.

    Raises
    ------
    ValueError
        When the fanout is below 1 or a frontier vertex does not exist.
    """
    sources, positions = _sampled(structure, frontier, fanout, stream, hop)
    return sources, frontier[positions]


def _sampled(
    structure: Structure,
    frontier: NDArray[np.int64],
    fanout: int,
    stream: np.uint64,
    hop: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    if fanout < 1:
        raise ValueError(f"a fanout of {fanout} samples nothing")
    if len(frontier) and not (
        frontier.min() >= 0 and frontier.max() < structure.vertices
    ):
        raise ValueError(
            f"the frontier names vertices outside 0..{structure.vertices - 1}"
        )
    key = stream_key(int(stream), hop)
    return _picked(structure.indptr, structure.indices, frontier, fanout, key)


@njit(nogil=True)
def _relabelled(
    known: NDArray[np.int64], ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    capacity = 16
    while capacity < 2 * (len(known) + len(ids)):
        capacity *= 2
    mask = np.uint64(capacity - 1)
    slots = np.full(capacity, -1, np.int32)  # position in `vertices`, -1 is free
    vertices = np.empty(len(known) + len(ids), np.int64)
    positions = np.empty(len(ids), np.int32)
    count = 0
    for number in range(len(known) + len(ids)):
        given = number < len(known)
        vertex = known[number] if given else ids[number - len(known)]
        slot = _mixed(np.uint64(vertex)) & mask
        while slots[slot] >= 0 and vertices[slots[slot]] != vertex:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot] = count
            vertices[count] = vertex
            count += 1
        if not given:
            positions[number - len(known)] = slots[slot]
    return vertices[:count].copy(), positions


def relabel(
    known: NDArray[np.int64], ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Give vertices positions by first appearance, ``known`` before ``ids``.

    Parameters
    ----------
    known
        Distinct vertex ids.
    ids
        Vertex ids, repetitions allowed.

    Returns
    -------
    vertices, positions
        Distinct ids (int64), and the position of each of ``ids`` among them (int32).
    """
    return _relabelled(known, ids)


class GrowingBatch:
    """A batch under construction, hop by hop from its seeds.

    Parameters
    ----------
    seeds
        Distinct vertex ids, int64.
    """

    def __init__(self, seeds: NDArray[np.int64]) -> None:
        self.frontier = seeds
        self._sizes = [len(seeds)]
        self._edges: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []

    def grow(self, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> None:
        """Add the sampled edges of one hop, in whatever order vertices were served.

        Raises
        ------
        ValueError
            When an edge leads to a vertex outside the frontier.
        """
        reached, destination = relabel(self.frontier, destinations)
        if len(reached) > len(self.frontier):
            stranger = reached[len(self.frontier)]
            raise ValueError(f"vertex {stranger} was not in the frontier")
        if np.any(destination[1:] < destination[:-1]):
            # Edges of one vertex come together from one store, so a stable sort
            # restores the order in which a single sampler would have drawn.
            order = np.argsort(destination, kind="stable")
            sources, destination = sources[order], destination[order]
        self.add(sources, destination)

    def add(self, sources: NDArray[np.int64], destination: NDArray[np.int32]) -> None:
        """Add one hop's edges, ordered by ``destination``: frontier positions."""
        self.frontier, source = relabel(self.frontier, sources)
        self._sizes.append(len(self.frontier))
        self._edges.append((source, destination))

    def finished(self) -> SampledBatch:
        """Return the batch grown so far."""
        return SampledBatch(
            self.frontier, tuple(self._sizes[::-1]), tuple(self._edges[::-1])
        )


def sample_batch(
    structure: Structure,
    seeds: NDArray[np.int64],
    *,
    fanouts: Sequence[int],
    stream: np.uint64,
) -> SampledBatch:
    """Sample the blocks of one mini-batch.

    Parameters
    ----------
    seeds
        Distinct vertex ids, int64.
    fanouts
        In DGL's order: the last number belongs to the seeds' hop.
    stream
        Key of (seed, sampler, iteration), see `stream_key`.

    Raises
    ------
    ValueError
        As `sample_neighbours`.
    """
    batch = GrowingBatch(seeds)
    for hop, fanout in enumerate(reversed(fanouts), start=1):
        batch.add(*_sampled(structure, batch.frontier, fanout, stream, hop))
    return batch.finished()


def warm_up() -> None:
    """Load the compiled sampler, for a process that others are forked from.

    numba takes 0.3 s to load its machine code from its cache; a fork server that calls
    this once spares every node process of it. Starts no thread.
    """
    indptr, indices = np.array([0, 1, 2]), np.array([1, 0], np.int32)
    for array in (indptr, indices):
        array.flags.writeable = False  # as mapped arrays are: a type of its own
    structure = Structure(indptr, indices)
    sample_batch(structure, np.zeros(1, np.int64), fanouts=[1], stream=stream_key(0))
