"""Vertices by number, where edges and tables beside them name them by ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import DataError
from emu.graph_data.readers.found_graph import FeatureRows, FoundGraph
from emu.graph_data.readers.split_arrays import SPLIT
from emu.graph_data.readers.vertex_table import VertexTable


def join_tables(graph: FoundGraph, tables: Sequence[VertexTable]) -> FoundGraph:
    """Return a graph with the features, labels and split of tables beside it.

    Vertices are numbered in order of their ids, those of tables among them. Where rows
    are in order of vertices, ids are the numbers of rows.

    Raises DataError when a table names a vertex twice, lacks one, or names one that is
    not there.
    """
    if graph.ids is None and not tables:
        return graph
    by_order = [table for table in tables if table.ids is None]
    if graph.ids is None and graph.vertices is None:
        rows = graph.features.vertices if graph.features else None
        if rows is None and not by_order:
            rows = 1 + graph.highest
        graph = replace(graph, vertices=rows)
    rows_of = {len(table.values): table for table in reversed(by_order)}
    if len(rows_of) > 1:
        counts = (f"{n} {t.kind} in {t.path.name}" for n, t in rows_of.items())
        raise DataError(" and ".join(counts), path=graph.origin)
    if by_order and graph.vertices is None:
        graph = _take_rows(graph, by_order[0])
    ids = graph.ids if graph.ids is not None else np.arange(graph.vertices or 0)
    if graph.vertices is None:
        arrays = [ids, *(table.ids for table in tables if table.ids is not None)]
        if len({array.dtype.kind for array in arrays}) > 1:
            arrays = [array.astype(str) for array in arrays]
        if arrays[1:]:
            own, ids = arrays[0], np.unique(np.concatenate(arrays))
            at = np.searchsorted(ids, own)
            one, other = at[graph.sources], at[graph.destinations]
            graph = replace(graph, sources=one, destinations=other)
        graph = replace(graph, vertices=len(ids))
    for table in tables:
        graph = _add(graph, table, ids)
    sequence = ids.dtype.kind == "i" and np.array_equal(ids, np.arange(len(ids)))
    return replace(graph, ids=None if sequence else ids)


def _take_rows(graph: FoundGraph, table: VertexTable) -> FoundGraph:
    """Return the graph with the numbers of a table's rows as vertices."""
    rows, ids = len(table.values), graph.ids
    if ids is None:
        return replace(graph, vertices=rows)
    if ids.dtype.kind != "i" or ids.max(initial=-1) >= rows:
        problem = (
            f"the {table.kind} of {table.path.name} are {rows} rows in order, for "
            f"vertices 0 to {rows - 1}, and an edge names {ids[-1]}: give them a "
            "column of ids (--ids)"
        )
        raise DataError(problem, path=graph.origin)
    sources, destinations = ids[graph.sources], ids[graph.destinations]
    return replace(
        graph, sources=sources, destinations=destinations, ids=None, vertices=rows
    )


def _places(
    table: VertexTable, named: NDArray[Any], ids: NDArray[Any], graph: FoundGraph
) -> NDArray[np.int64]:
    """Return the vertex of every row."""

    def refuse(problem: str) -> DataError:
        return DataError(problem, path=str(table.path))

    if named.dtype.kind != ids.dtype.kind:
        named, ids = named.astype(str), ids.astype(str)
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids, named, sorter=order)
    places = order[np.minimum(at, len(ids) - 1)].astype(np.int64)
    wrong = ids[places] != named
    if wrong.any():
        first = named[int(np.argmax(wrong))]
        raise refuse(f"names vertex {first!s}, which is not in the graph")
    counts = np.bincount(places, minlength=len(ids))
    if (counts > 1).any():
        twice = ids[int(np.argmax(counts > 1))]
        problem = f"names vertex {twice!s} {counts.max()} times (or --no-ids)"
        raise refuse(problem)
    if table.kind == "features" and not counts.all():
        raise refuse(f"has no features of vertex {ids[int(np.argmin(counts))]!s}")
    ends = np.zeros(len(ids), bool)
    ends[graph.sources] = ends[graph.destinations] = True
    if not ends[places].any():
        raise refuse(f"names no vertex that has an edge: {named[0]!s} is its first")
    return places


def _add(graph: FoundGraph, table: VertexTable, ids: NDArray[Any]) -> FoundGraph:
    values = table.values
    places = None if table.ids is None else _places(table, table.ids, ids, graph)
    notes = (*graph.notes, f"{table.kind}: {table.path.name}, {table.how}")
    if table.kind == "features":
        values = values if places is None else values[np.argsort(places)]
        rows = FeatureRows.dense(values, str(table.path))
        return replace(graph, features=rows, notes=notes)
    if places is not None:
        none: Any = "" if values.dtype.kind == "U" else -1
        array = np.full(graph.vertices or 0, none, values.dtype)
        array[places] = values
        values = array
    if table.kind == "labels":
        return replace(graph, labels=values, notes=notes)
    masks, name = {part: values == part for part in SPLIT}, table.path.name
    return replace(graph, masks=masks, splits={}, split_origin=name, notes=notes)
