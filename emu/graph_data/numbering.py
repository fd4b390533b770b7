"""Vertices by number, where edges and tables beside them name them by ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import DataError
from emu.graph_data.readers.found_graph import FeatureRows, FoundGraph
from emu.graph_data.readers.vertex_table import VertexTable, split_masks


def join_tables(graph: FoundGraph, tables: Sequence[VertexTable]) -> FoundGraph:
    """Return a graph with the features, labels and split of tables beside it.

    Vertices are numbered in order of their ids, those of tables among them. Where rows
    are in order of vertices, ids are the numbers of rows.

    Raises
    ------
    DataError
        When a table names a vertex twice, lacks one, or names one that is not there.
    """
    if graph.ids is None and not tables:
        return graph
    by_order = [table for table in tables if table.ids is None]
    if graph.ids is None and graph.vertices is None:
        rows = graph.features.vertices if graph.features else None
        if rows is None and tables and not by_order:
            ends = graph.sources, graph.destinations
            rows = 1 + max(int(end.max(initial=-1)) for end in ends)
        graph = replace(graph, vertices=rows)
    for table in by_order[1:]:
        if len(table.values) != len(by_order[0].values):
            one, other = (
                f"{len(part.values)} {part.kind} in {part.path.name}"
                for part in (by_order[0], table)
            )
            raise DataError(f"{other} and {one}", path=graph.origin)
    if by_order and graph.vertices is None:
        graph = _take_rows(graph, by_order[0])
    ids = graph.ids if graph.ids is not None else np.arange(graph.vertices or 0)
    ids_of_tables = [table.ids for table in tables if table.ids is not None]
    if graph.vertices is None:
        if {array.dtype.kind for array in ids_of_tables} - {ids.dtype.kind}:
            ids = ids.astype(str)
            ids_of_tables = [array.astype(str) for array in ids_of_tables]
        every = (
            np.unique(np.concatenate([ids, *ids_of_tables])) if ids_of_tables else ids
        )
        graph = _renumber(graph, ids, every)
        ids = every
    for table in tables:
        graph = _add(graph, table, _places(table, ids, graph))
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


def _renumber(graph: FoundGraph, ids: NDArray[Any], every: NDArray[Any]) -> FoundGraph:
    graph = replace(graph, vertices=len(every))
    if np.array_equal(every, ids):
        return graph
    places = np.searchsorted(every, ids)
    return replace(
        graph, sources=places[graph.sources], destinations=places[graph.destinations]
    )


def _places(
    table: VertexTable, ids: NDArray[Any], graph: FoundGraph
) -> NDArray[np.int64] | None:
    """Return the vertex of every row; None where they are in order."""
    if table.ids is None:
        return None

    def refuse(problem: str) -> DataError:
        return DataError(problem, path=str(table.path))

    named = table.ids
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


def _add(
    graph: FoundGraph, table: VertexTable, places: NDArray[np.int64] | None
) -> FoundGraph:
    values = table.values
    notes = (*graph.notes, f"{table.kind}: {table.path.name}, {table.how}")
    if table.kind == "features":
        if places is not None:
            values = values[np.argsort(places)]
        rows = FeatureRows.dense(values, str(table.path))
        return replace(graph, features=rows, notes=notes)
    if places is not None:
        none: Any = "" if values.dtype.kind == "U" else -1
        array = np.full(graph.vertices or 0, none, values.dtype)
        array[places] = values
        values = array
    if table.kind == "labels":
        return replace(graph, labels=values, notes=notes)
    masks = split_masks(values)
    return replace(
        graph, masks=masks, splits={}, split_origin=table.path.name, notes=notes
    )
