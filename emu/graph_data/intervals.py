"""Vertex intervals of the parts of a graph, and the rows that other parts need.

Dorylus cuts every server's vertices into intervals of equal counts that have similar
numbers of edges to other intervals (Thorpe et al., OSDI 2021, 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from emu.graph_data.dataset import Dataset
from emu.graph_data.sampling import Structure

Cut = Literal["contiguous", "balanced"]
#: Share of the mean by which the edges between intervals of a balanced cut may differ.
CLOSE = 0.01


@dataclass(frozen=True, eq=False)
class IntervalCounts:
    """Sizes of the intervals of all parts, part-major."""

    vertices: NDArray[np.int64]
    """Shape (intervals of all parts,)."""
    edges: NDArray[np.int64]
    """Edges that a gather of each interval reads, likewise."""
    ghosts: NDArray[np.int64]
    """Vertices of each interval with an edge into each part, 0 for its own; shape
    (intervals of all parts, parts)."""
    sources: NDArray[np.int64]
    """Vertices of each part with an edge into each interval, 0 for its own part; of
    such a shape where they are counted, else empty."""


def cut_intervals(
    structure: Structure, owner: NDArray[np.int32], parts: int, each: int, how: Cut
) -> NDArray[np.int32]:
    """Return the interval of every vertex, numbered part by part: int32, (vertices,).

    The ``each`` intervals of a part differ by one vertex at most. ``contiguous`` cuts
    by vertex number, as the released code does; ``balanced`` with similar numbers of
    edges to other intervals, as the paper asks: vertices are dealt out by degree, there
    and back; then the intervals of a part that have most and fewest such edges swap
    vertices, until the two are within `CLOSE` times the mean or no swap brings them
    closer. Raises ValueError when a part has fewer vertices than intervals.
    """
    interval = np.empty(structure.vertices, np.int32)
    degree = np.diff(structure.indptr)
    for part in range(parts):
        mine = np.flatnonzero(owner == part)
        if len(mine) < each:
            raise ValueError(
                f"part {part} has {len(mine)} vertices, fewer than {each} intervals"
            )
        if how == "contiguous":
            sizes = [len(piece) for piece in np.array_split(mine, each)]
            dealt = np.repeat(np.arange(each), sizes)
        else:
            mine = mine[np.argsort(-degree[mine], kind="stable")]
            there = np.arange(2 * each)
            there[each:] = there[each - 1 :: -1] if each else there[:0]
            dealt = np.resize(there, len(mine))
        interval[mine] = part * each + dealt
    for part in range(parts) if how == "balanced" else ():
        numbers = range(part * each, (part + 1) * each)
        # Edges from other intervals into each.
        between = np.empty(each, np.int64)
        for place, number in enumerate(numbers):
            _, sources = _edges_into(structure, np.flatnonzero(interval == number))
            between[place] = np.count_nonzero(interval[sources] != number)
        # No swap takes an interval above the most or below the fewest edges, so that
        # there are fewer intervals at these two after each, and an end.
        while True:
            pair = int(between.argmax()), int(between.argmin())
            ends = int(between[pair[0]]), int(between[pair[1]])
            first, second = (numbers[place] for place in pair)
            close = ends[0] - ends[1] <= CLOSE * between.mean()
            swap = None if close else _swap(structure, interval, (first, second), ends)
            if swap is None:
                break
            (one, other), between[[*pair]] = swap
            interval[one], interval[other] = second, first
    return interval


def _swap(
    structure: Structure,
    interval: NDArray[np.int32],
    pair: tuple[int, int],
    between: tuple[int, int],
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return the vertices to swap, and the edges of both intervals afterwards.

    A vertex of degree d with c neighbours in an interval adds d - 2 c to its edges to
    others, and takes as many away where it leaves; two neighbours that swap leave an
    edge more on each side.
    """
    most, fewest = between
    mine, theirs = (np.flatnonzero(interval == number) for number in pair)
    row, source = _edges_into(structure, mine)
    losses, gains = _gains(interval, (row, source), len(mine), pair)
    other = _edges_into(structure, theirs)
    theirs_left, theirs_joined = _gains(interval, other, len(theirs), pair)
    # Of every vertex here the one there that brings the two nearest to each other.
    order = np.argsort(theirs_left + theirs_joined, kind="stable")
    sums = (theirs_left + theirs_joined)[order]
    aim = losses + gains - (most - fewest)
    above = np.minimum(np.searchsorted(sums, aim), len(sums) - 1)
    below = np.maximum(above - 1, 0)
    nearer = np.abs(sums[below] - aim) <= np.abs(sums[above] - aim)
    places = order[np.where(nearer, below, above)]
    count = structure.vertices
    edge = np.arange(len(mine)) * count + theirs[places]
    more = 2 * np.isin(edge, row * count + source)
    here = most - losses + theirs_left[places] + more
    there = fewest + gains - theirs_joined[places] + more
    apart = np.abs(here - there)
    apart[(np.maximum(here, there) > most) | (np.minimum(here, there) < fewest)] = most
    best = int(apart.argmin())
    if apart[best] >= most - fewest:
        return None
    vertices = int(mine[best]), int(theirs[places[best]])
    return vertices, (int(here[best]), int(there[best]))


def _gains(
    interval: NDArray[np.int32],
    edges: tuple[NDArray[np.int64], NDArray[Any]],
    count: int,
    pair: tuple[int, int],
) -> list[NDArray[np.int64]]:
    """Return what ``count`` vertices add to the edges of each of two intervals."""
    row, source = edges
    near = interval[source]
    degree = np.bincount(row, minlength=count)
    return [degree - 2 * np.bincount(row[near == i], minlength=count) for i in pair]


def _edges_into(
    structure: Structure, vertices: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the place of each edge's end among ``vertices``, and its source."""
    indptr, sources = structure.neighbours(vertices)
    return np.repeat(np.arange(len(vertices)), np.diff(indptr)), sources


def interval_counts(
    structure: Structure,
    interval: NDArray[np.int32],
    parts: int,
    each: int,
    *,
    sources: bool = False,
) -> IntervalCounts:
    """Return the sizes of the intervals of `cut_intervals`.

    The structure is symmetric: the ghosts of the backward pass are those of the forward
    pass. To count sources as well takes six times as long.
    """
    count = parts * each
    part = interval // each
    needs = np.zeros((structure.vertices, parts), dtype=bool)
    step = 1 << 20
    for first in range(0, structure.vertices, step):
        last = min(first + step, structure.vertices)
        begin = structure.indptr[first]
        end = structure.indptr[last]
        degree = np.diff(structure.indptr[first : last + 1])
        needs[structure.indices[begin:end], np.repeat(part[first:last], degree)] = True
    needs[np.arange(structure.vertices), part] = False
    ghosts = np.zeros((count, parts), np.int64)
    np.add.at(ghosts, interval, needs)
    degree = np.diff(structure.indptr)
    edges = np.bincount(interval, weights=degree, minlength=count).astype(np.int64)
    vertices = np.bincount(interval, minlength=count)
    pushes = np.zeros((count if sources else 0, parts), np.int64)
    for number in range(len(pushes)):
        _, around = structure.neighbours(np.flatnonzero(interval == number))
        pushes[number] = np.bincount(part[np.unique(around)], minlength=parts)
        pushes[number, number // each] = 0
    return IntervalCounts(vertices, edges, ghosts, pushes)


@lru_cache(maxsize=4)
def count_intervals(
    dataset: Dataset, each: int, how: Cut, *, sources: bool = False
) -> IntervalCounts:
    """Return `interval_counts` of a data set's parts; raises as `cut_intervals`."""
    structure = dataset.structure
    owner = dataset.owner
    parts = dataset.parts
    cut = cut_intervals(structure, owner, parts, each, how)
    return interval_counts(structure, cut, parts, each, sources=sources)
