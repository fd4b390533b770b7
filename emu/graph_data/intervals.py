"""Vertex intervals of the parts of a graph, and the rows that other parts need.

Dorylus cuts every server's vertices into intervals of equal counts that have similar
numbers of edges to other intervals (Thorpe et al., OSDI 2021, 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from emu.graph_data.array_types import Array, Ints, Mask, SmallInts
from emu.graph_data.dataset import Dataset
from emu.graph_data.sampling import Structure

Cut = Literal["contiguous", "balanced"]
#: Share of the mean by which the edges between intervals of a balanced cut may differ.
CLOSE = 0.01


@dataclass(frozen=True, eq=False)
class IntervalCounts:
    """Sizes of the intervals of all parts, part-major."""

    vertices: Ints
    """Shape (intervals of all parts,)."""
    edges: Ints
    """Edges that a gather of each interval reads, likewise."""
    ghosts: Ints
    """Vertices of each interval with an edge into each part, 0 for its own; shape
    (intervals of all parts, parts)."""
    sources: Ints
    """Vertices of each part with an edge into each interval, 0 for its own part; of
    such a shape where they are counted, else empty."""


def cut_intervals(
    structure: Structure, owner: SmallInts, parts: int, each: int, how: Cut
) -> SmallInts:
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
        vertices = np.flatnonzero(owner == part)
        if len(vertices) < each:
            raise ValueError(
                f"part {part} has {len(vertices)} vertices, fewer than {each} intervals"
            )
        if how == "contiguous":
            sizes = [len(piece) for piece in np.array_split(vertices, each)]
            dealt = np.repeat(np.arange(each), sizes)
        else:
            vertices = vertices[np.argsort(-degree[vertices], kind="stable")]
            forth = np.arange(each)
            dealt = np.resize(np.append(forth, forth[::-1]), len(vertices))
        interval[vertices] = part * each + dealt
    if how == "balanced":
        for part in range(parts):
            _balance(structure, interval, range(part * each, (part + 1) * each))
    return interval


def _balance(structure: Structure, interval: SmallInts, numbers: range) -> None:
    """Swap vertices of some intervals, in place, until their outer edges are close."""
    # Edges from other intervals into each.
    between = np.empty(len(numbers), np.int64)
    for place, number in enumerate(numbers):
        _, sources = _edges_into(structure, np.flatnonzero(interval == number))
        between[place] = np.count_nonzero(interval[sources] != number)

    # No swap takes an interval above the most or below the fewest edges, so that there
    # are fewer intervals at these two after each, and an end.
    while True:
        most = int(between.argmax())
        fewest = int(between.argmin())
        if between[most] - between[fewest] <= CLOSE * between.mean():
            return
        pair = (numbers[most], numbers[fewest])
        edges = (int(between[most]), int(between[fewest]))
        swap = _best_swap(structure, interval, pair, edges)
        if swap is None:
            return
        between[most], between[fewest] = swap.edges
        first, second = swap.vertices
        interval[first], interval[second] = pair[1], pair[0]


class _Swap(NamedTuple):
    """A vertex of each of two intervals, and the outer edges of both afterwards."""

    vertices: tuple[int, int]
    edges: tuple[int, int]


def _best_swap(
    structure: Structure,
    interval: SmallInts,
    pair: tuple[int, int],
    edges: tuple[int, int],
) -> _Swap | None:
    """Return the swap that brings two intervals nearest to each other, if one does.

    A vertex of degree d with c neighbours in an interval adds d - 2 c to its edges to
    others, and takes as many away where it leaves; two neighbours that swap leave an
    edge more on each side.

    ``pair``: the intervals with the most and the fewest of ``edges`` to others.
    """
    most, fewest = edges
    leaving, joining = (np.flatnonzero(interval == number) for number in pair)
    row, source = _edges_into(structure, leaving)
    losses, gains = _gains(interval, (row, source), len(leaving), pair)
    into = _edges_into(structure, joining)
    in_most, in_fewest = _gains(interval, into, len(joining), pair)

    # Of every vertex of the first the one of the second that fits it best.
    order = np.argsort(in_most + in_fewest, kind="stable")
    sums = (in_most + in_fewest)[order]
    aim = losses + gains - (most - fewest)
    above = np.minimum(np.searchsorted(sums, aim), len(sums) - 1)
    below = np.maximum(above - 1, 0)
    is_below_nearer = np.abs(sums[below] - aim) <= np.abs(sums[above] - aim)
    places = order[np.where(is_below_nearer, below, above)]

    edge = np.arange(len(leaving)) * structure.vertices + joining[places]
    between_them = 2 * np.isin(edge, row * structure.vertices + source)
    first = most - losses + in_most[places] + between_them
    second = fewest + gains - in_fewest[places] + between_them
    apart = np.abs(first - second)
    is_worse = (np.maximum(first, second) > most) | (np.minimum(first, second) < fewest)
    apart[is_worse] = most
    best = int(apart.argmin())
    if apart[best] >= most - fewest:
        return None
    return _Swap(
        vertices=(int(leaving[best]), int(joining[places[best]])),
        edges=(int(first[best]), int(second[best])),
    )


def _gains(
    interval: SmallInts,
    edges: tuple[Ints, Array],
    count: int,
    pair: tuple[int, int],
) -> list[Ints]:
    """Return what ``count`` vertices add to the edges of each of two intervals."""
    row, source = edges
    source_interval = interval[source]
    degree = np.bincount(row, minlength=count)
    gains = []
    for number in pair:
        inside = np.bincount(row[source_interval == number], minlength=count)
        gains.append(degree - 2 * inside)
    return gains


def _edges_into(structure: Structure, vertices: Ints) -> tuple[Ints, Ints]:
    """Return the place of each edge's end among ``vertices``, and its source."""
    indptr, sources = structure.neighbours(vertices)
    return np.repeat(np.arange(len(vertices)), np.diff(indptr)), sources


def interval_counts(
    structure: Structure,
    interval: SmallInts,
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
    ghosts = np.zeros((count, parts), np.int64)
    np.add.at(ghosts, interval, _needs(structure, part, parts))
    degree = np.diff(structure.indptr)
    edges = np.bincount(interval, weights=degree, minlength=count)

    pushes = np.zeros((count if sources else 0, parts), np.int64)
    for number in range(len(pushes)):
        _, neighbours = structure.neighbours(np.flatnonzero(interval == number))
        pushes[number] = np.bincount(part[np.unique(neighbours)], minlength=parts)
        pushes[number, number // each] = 0
    return IntervalCounts(
        vertices=np.bincount(interval, minlength=count),
        edges=edges.astype(np.int64),
        ghosts=ghosts,
        sources=pushes,
    )


def _needs(structure: Structure, part: SmallInts, parts: int) -> Mask:
    """Return which other parts read each vertex: bool, (vertices, parts)."""
    needs = np.zeros((structure.vertices, parts), dtype=bool)
    step = 1 << 20  # vertices: of all edges at once the indices take gigabytes
    for first in range(0, structure.vertices, step):
        last = min(first + step, structure.vertices)
        indptr = structure.indptr[first : last + 1]
        sources = structure.indices[indptr[0] : indptr[-1]]
        needs[sources, np.repeat(part[first:last], np.diff(indptr))] = True
    needs[np.arange(structure.vertices), part] = False
    return needs


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
