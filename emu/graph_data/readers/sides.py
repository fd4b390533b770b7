"""Graphs whose edges join two kinds of vertices, a side for each."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from emu.array_types import Array
from emu.graph_data.readers.columns import Keys
from emu.graph_data.readers.found_graph import FoundGraph


def fill_ids(keys: Keys, count: int) -> Keys:
    """Return keys whose ids are 1 to ``count``, if they are among them."""
    ids = keys.ids
    are_words = ids.dtype.kind in "US"
    if are_words or not len(ids):
        return keys
    if ids[0] < 1 or ids[-1] > count:
        return keys
    # KONECT numbers from 1, and lists no vertex that has no edge.
    places = ids - 1
    all_ids = np.arange(1, count + 1)
    codes = places[keys.codes]
    return Keys(all_ids, codes)


def join_sides(
    left: Keys,
    right: Keys,
    names: tuple[str, ...],
    origin: str,
    notes: Iterable[str],
    left_out: tuple[str, ...] = (),
) -> FoundGraph:
    """Return a bipartite graph: first the vertices of the left side, then the right.

    An id that both sides have is called ``NAME:ID``.
    """
    lefts = len(left.ids)
    rights = len(right.ids)
    kinds = f"{lefts} of {names[0]}, {rights} of {names[1]}"

    ids: Array = np.concatenate([left.ids, right.ids])
    # Ids are those of the user: one that both sides have is named after its side.
    distinct = np.unique(ids)
    if len(distinct) < len(ids):
        sides = np.repeat(names, [lefts, rights])
        pairs = zip(sides, ids.tolist(), strict=True)
        ids = np.array([f"{name}:{vertex}" for name, vertex in pairs])
    return FoundGraph(
        sources=left.codes.reshape(-1),
        destinations=right.codes.reshape(-1) + lefts,
        origin=origin,
        ids=ids,
        vertices=len(ids),
        notes=(*notes, f"bipartite: {kinds}"),
        left_out=left_out,
    )
