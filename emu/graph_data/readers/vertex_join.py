"""Join a graph with the tables beside it: number the vertices, place every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import DataError
from emu.graph_data.readers.columns import column_of_ids
from emu.graph_data.readers.found_graph import FeatureRows, FoundGraph
from emu.graph_data.readers.questions import Reading, ask
from emu.graph_data.readers.split_arrays import SPLIT
from emu.graph_data.readers.vertex_columns import KnownIds
from emu.graph_data.readers.vertex_table import VertexTable

#: Answers to which vertices rows in order belong.
ROWS, IDS, LABELS = "rows", "ids", "labels"


def join_tables(
    graph: FoundGraph, tables: Sequence[VertexTable], order: str = ""
) -> FoundGraph:
    """Return a graph with the features, labels and split of tables beside it.

    Vertices are numbered in order of their ids, those of tables among them. Rows in
    order belong to vertices 0, 1 and so on, or as ``order`` says: to ids as they are
    sorted, or to those of the labels. Raises DataError when a table names a vertex
    twice, lacks one, or nothing says to which vertices it belongs.
    """
    if graph.ids is None and not tables:
        return graph
    if order == LABELS:
        tables = _take_order(graph, tables)
    by_order = [table for table in tables if table.ids is None]
    _check_lengths(graph, by_order)
    for table in tables:
        if table.ids is not None and not table.is_stated:
            _check_meeting(graph, table)

    if graph.ids is None and graph.vertices is None:
        rows = graph.features.vertices if graph.features else None
        if rows is None and not by_order:
            rows = 1 + graph.highest
        graph = replace(graph, vertices=rows)
    if by_order and graph.vertices is None:
        graph = _take_rows(graph, by_order[0], tables, order)
    graph, ids = _number(graph, tables)
    for table in tables:
        graph = _add(graph, table, ids)
    is_sequence = ids.dtype.kind == "i" and np.array_equal(ids, np.arange(len(ids)))
    return replace(graph, ids=None if is_sequence else ids)


def _check_lengths(graph: FoundGraph, tables: Sequence[VertexTable]) -> None:
    rows_of = {len(table.values): table for table in reversed(tables)}
    if len(rows_of) > 1:
        counts = (f"{n} {t.kind} in {t.path.name}" for n, t in rows_of.items())
        raise DataError(" and ".join(counts), path=graph.origin)


def _check_meeting(graph: FoundGraph, table: VertexTable) -> None:
    """Refuse ids of which the table and the graph have each some alone."""
    ids = np.asarray(table.ids)
    known = KnownIds(graph)
    meeting = known.meet(column_of_ids(np.unique(ids)))
    if not meeting.is_in_part:
        return

    union = meeting.matched + meeting.strange + meeting.missing
    readings = [Reading("both have vertices alone", f"{union} vertices", "--ids")]
    lead = f"its {table.kind} by id meet the graph in part ({meeting})."
    theirs = known.column.distinct
    shift = _find_shift(ids, theirs) if isinstance(theirs, np.ndarray) else 0
    if shift:
        way = "lower" if shift > 0 else "higher"
        lead += f" They would meet in all if each were {abs(shift)} {way}."
    if shift and (np.diff(ids) == 1).all():
        order = ROWS if ids[0] == shift else IDS
        meaning = "rows in order are the graph's vertices"
        option = f"--no-ids --order {order}"
        readings.append(Reading(meaning, f"{len(ids)} vertices", option))
    else:
        readings.append(Reading("another column joins", "by name", "--id-column NAME"))
    raise ask(lead, readings, table.path)


def _find_shift(ids: NDArray[Any], theirs: NDArray[Any]) -> int:
    """Return by how much ids are higher than those of a graph, 0 if they are not."""
    if ids.dtype.kind != "i" or not len(theirs):
        return 0
    shift = int(ids.min()) - int(theirs[0])
    return shift if np.isin(theirs + shift, ids).all() else 0


def _take_order(graph: FoundGraph, tables: Sequence[VertexTable]) -> list[VertexTable]:
    """Return tables in order with the ids of the labels."""
    labels = next((t for t in tables if t.kind == LABELS and t.ids is not None), None)
    if labels is None:
        problem = "--order labels takes the ids of --labels, and that has none"
        raise DataError(problem, path=graph.origin)
    for table in tables:
        if table.ids is None and len(table.values) != len(labels.values):
            counts = f"{len(table.values)} {table.kind}, {len(labels.values)} labels"
            problem = f"{counts}: --order labels needs as many of each"
            raise DataError(problem, path=str(table.path))
    return [
        table
        if table.ids is not None
        else replace(
            table, ids=labels.ids, how=f"{table.how} of the labels' ids", is_stated=True
        )
        for table in tables
    ]


def _take_rows(
    graph: FoundGraph, table: VertexTable, tables: Sequence[VertexTable], order: str
) -> FoundGraph:
    """Return the graph with the vertices that the rows of a table belong to."""
    rows = len(table.values)
    ids = graph.ids
    if ids is None:
        return replace(graph, vertices=rows)
    are_numbers = ids.dtype.kind == "i"
    may_be_rows = are_numbers and ids.max(initial=-1) < rows
    if order == IDS:
        if len(ids) == rows:
            return replace(graph, vertices=rows)
        if are_numbers and ids[0] >= 1 and ids[-1] <= rows:
            return _renumber(graph, ids - 1, np.arange(1, rows + 1), rows)
    starts_at_one = are_numbers and len(ids) > 1 and ids[0] == 1
    if may_be_rows and (order == ROWS or not starts_at_one):
        return _renumber(graph, ids, None, rows)
    raise _ask_for_order(graph, table, tables, may_be_rows=may_be_rows)


def _renumber(
    graph: FoundGraph, places: NDArray[Any], ids: NDArray[Any] | None, vertices: int
) -> FoundGraph:
    """Return a graph with vertices at other places."""
    return replace(
        graph,
        sources=places[graph.sources],
        destinations=places[graph.destinations],
        ids=ids,
        vertices=vertices,
    )


def _ask_for_order(
    graph: FoundGraph,
    table: VertexTable,
    tables: Sequence[VertexTable],
    *,
    may_be_rows: bool,
) -> DataError:
    ids: NDArray[Any] = np.asarray(graph.ids)
    rows = len(table.values)
    readings = []
    if may_be_rows:
        counts = f"{rows - len(ids)} without an edge"
        readings.append(Reading(f"vertices 0 to {rows - 1}", counts, "--order rows"))
    is_from_one = ids.dtype.kind == "i" and ids[0] >= 1 and ids[-1] <= rows
    if is_from_one or len(ids) == rows:
        last = rows if is_from_one else ids[-1]
        counts = f"{rows - len(ids)} without an edge"
        meaning = f"ids {1 if is_from_one else ids[0]} to {last} as they are sorted"
        readings.append(Reading(meaning, counts, "--order ids"))
    if any(t.kind == LABELS and t.ids is not None for t in tables):
        readings.append(Reading("the ids of the labels", f"{rows} rows",
                                "--order labels"))  # fmt: skip
    question = (
        f"the {table.kind} of {table.path.name} are {rows} rows in order, for vertices "
        f"0 to {rows - 1}, and an edge names {ids[-1]}: give them a column of ids "
        "(--ids)"
    )
    if not readings:
        return DataError(question, path=graph.origin)
    which = f"the {table.kind} of {table.path.name} are {rows} rows in order: of which "
    which += f"vertices? Edges name {ids[0]} to {ids[-1]}."
    if not may_be_rows:
        which = f"{question}, or say which they are:"
    return ask(which, readings, table.path)


def _number(
    graph: FoundGraph, tables: Sequence[VertexTable]
) -> tuple[FoundGraph, NDArray[Any]]:
    """Return the graph with all vertices, and the ids of these."""
    ids = graph.ids if graph.ids is not None else np.arange(graph.vertices or 0)
    if graph.vertices is not None:
        return graph, ids
    arrays = [ids, *(table.ids for table in tables if table.ids is not None)]
    if len({array.dtype.kind for array in arrays}) > 1:
        arrays = [array.astype(str) for array in arrays]
    if arrays[1:]:
        own = arrays[0]
        ids = np.unique(np.concatenate(arrays))
        graph = _renumber(graph, np.searchsorted(ids, own), graph.ids, len(ids))
    return replace(graph, vertices=len(ids)), ids


def _places(
    table: VertexTable, named: NDArray[Any], ids: NDArray[Any], graph: FoundGraph
) -> NDArray[np.int64]:
    """Return the vertex of every row."""

    def refuse(problem: str) -> DataError:
        return DataError(problem, path=str(table.path))

    if named.dtype.kind != ids.dtype.kind:
        named, ids = named.astype(str), ids.astype(str)
    order = np.argsort(ids, kind="stable")
    found = np.searchsorted(ids, named, sorter=order)
    places = order[np.minimum(found, len(ids) - 1)].astype(np.int64)
    is_wrong = ids[places] != named
    if is_wrong.any():
        first = named[int(np.argmax(is_wrong))]
        raise refuse(f"names vertex {first!s}, which is not in the graph")

    counts = np.bincount(places, minlength=len(ids))
    if (counts > 1).any():
        twice = ids[int(np.argmax(counts > 1))]
        problem = f"names vertex {twice!s} {counts.max()} times (or --no-ids)"
        raise refuse(problem)
    if table.kind == "features" and not counts.all():
        raise refuse(f"has no features of vertex {ids[int(np.argmin(counts))]!s}")

    has_edge = np.zeros(len(ids), bool)
    has_edge[graph.sources] = True
    has_edge[graph.destinations] = True
    if not has_edge[places].any():
        raise refuse(f"names no vertex that has an edge: {named[0]!s} is its first")
    return places


def _add(graph: FoundGraph, table: VertexTable, ids: NDArray[Any]) -> FoundGraph:
    """Return the graph with the values of a table."""
    values = table.values
    places = None if table.ids is None else _places(table, table.ids, ids, graph)
    graph = replace(
        graph,
        notes=(*graph.notes, f"{table.kind}: {table.path.name}, {table.how}"),
        left_out=(
            *graph.left_out,
            *(f"{text} of {table.path.name}" for text in table.left_out),
        ),
    )
    if table.kind == "features":
        values = values if places is None else values[np.argsort(places)]
        rows = FeatureRows.dense(values, str(table.path))
        return replace(graph, features=rows)

    if table.kind == "labels" and values.dtype.kind in "bu":
        values = values.astype(np.int64)
    if places is not None:
        none: Any = {"U": "", "b": False}.get(values.dtype.kind, -1)
        shape = (graph.vertices or 0, *values.shape[1:])
        placed = np.full(shape, none, values.dtype)
        placed[places] = values
        values = placed
    if table.kind == "labels":
        return replace(graph, labels=values)
    masks = dict(zip(SPLIT, values.T, strict=True))
    return replace(graph, splits=masks, split_origin=table.path.name)
