"""Join a graph with the tables beside it: number the vertices, place every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from emu.array_types import Array, Ints
from emu.errors import DataError
from emu.graph_data.readers.columns import column_of_ids
from emu.graph_data.readers.found_graph import FeatureRows, FoundGraph
from emu.graph_data.readers.questions import Reading, ask
from emu.graph_data.readers.split_arrays import SPLIT
from emu.graph_data.readers.vertex_columns import KnownIds
from emu.graph_data.readers.vertex_table import VertexTable

#: Answers to which vertices rows in order belong.
ROWS = "rows"
IDS = "ids"
LABELS = "labels"
#: What a vertex has that no row names, by the kind of values; of numbers -1.
_MISSING: dict[str, Any] = {"U": "", "b": False}


def join_tables(
    graph: FoundGraph,
    tables: Sequence[VertexTable],
    order: str = "",
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
    in_order = [table for table in tables if table.ids is None]
    _check_lengths(graph, in_order)
    for table in tables:
        # An option has said that ids are those of the graph: some may be alone.
        if table.ids is not None and not table.is_stated:
            _check_meeting(graph, table)

    # Rows in order say how many vertices there are, edges the least.
    if graph.ids is None and graph.vertices is None:
        if graph.features:
            graph = replace(graph, vertices=graph.features.vertices)
        elif not in_order:
            graph = replace(graph, vertices=1 + graph.highest)
    if in_order and graph.vertices is None:
        graph = _take_rows(
            graph,
            table=in_order[0],
            tables=tables,
            order=order,
        )

    graph, ids = _number(graph, tables)
    for table in tables:
        graph = _add(graph, table, ids)
    # Ids 0, 1, 2 and so on are the vertices themselves: nothing has to be kept.
    places = np.arange(len(ids))
    is_sequence = ids.dtype.kind == "i" and np.array_equal(ids, places)
    return replace(graph, ids=None if is_sequence else ids)


def _check_lengths(graph: FoundGraph, tables: Sequence[VertexTable]) -> None:
    # In reverse, so that of equal lengths the first table is named.
    tables_by_rows = {len(table.values): table for table in reversed(tables)}
    if len(tables_by_rows) > 1:
        counts = []
        for rows, table in tables_by_rows.items():
            counts.append(f"{rows} {table.kind} in {table.path.name}")
        problem = " and ".join(counts)
        raise DataError(problem, path=graph.origin)


def _check_meeting(graph: FoundGraph, table: VertexTable) -> None:
    """Refuse ids of which the table and the graph have each some alone."""
    ids = np.asarray(table.ids)
    graph_ids = KnownIds(graph)
    unique_ids = np.unique(ids)
    distinct_ids = column_of_ids(unique_ids)
    meeting = graph_ids.meet(distinct_ids)
    if not meeting.is_in_part:
        return

    union = meeting.matched + meeting.strange + meeting.missing
    readings = [Reading("both have vertices alone", f"{union} vertices", "--ids")]
    question = f"its {table.kind} by id meet the graph in part ({meeting})."
    # The usual mistake has a name: ids that count from 1 beside ids from 0.
    shift = _find_shift(ids, graph_ids.column.distinct)
    if shift:
        direction = "lower" if shift > 0 else "higher"
        question += f" They would meet in all if each were {abs(shift)} {direction}."
    # Consecutive ids are as good as rows in order, and that is an option. Of words,
    # which have no differences, the shift is 0.
    is_consecutive = False
    if shift:
        steps = np.diff(ids)
        is_consecutive = bool((steps == 1).all())
    if is_consecutive:
        order = ROWS if ids[0] == shift else IDS
        other = Reading(
            meaning="rows in order are the graph's vertices",
            counts=f"{len(ids)} vertices",
            option=f"--no-ids --order {order}",
        )
    else:
        other = Reading("another column joins", "by name", "--id-column NAME")
    raise ask(question, [*readings, other], table.path)


def _find_shift(ids: Array, graph_ids: Array | set[str]) -> int:
    """Return by how much ids are higher than those of a graph, 0 if they are not."""
    if not isinstance(graph_ids, np.ndarray) or ids.dtype.kind != "i":
        return 0
    if not len(graph_ids):
        return 0

    # Ids from 1 beside ids from 0, most often.
    lowest = int(graph_ids[0])
    lowest_of_table = int(ids.min())
    shift = lowest_of_table - lowest
    shifted_ids = graph_ids + shift
    is_met = np.isin(shifted_ids, ids)
    if is_met.all():
        return shift
    return 0


def _take_order(graph: FoundGraph, tables: Sequence[VertexTable]) -> list[VertexTable]:
    """Return tables in order with the ids of the labels."""
    labels = _labels_by_id(tables)
    if not labels:
        problem = "--order labels takes the ids of --labels, and that has none"
        raise DataError(problem, path=graph.origin)

    ids_of_labels = labels[0].ids
    classes = len(labels[0].values)
    tables_by_id = []
    for table in tables:
        rows = len(table.values)
        if table.ids is not None:
            tables_by_id.append(table)
            continue
        if rows != classes:
            problem = f"{rows} {table.kind}, {classes} labels: --order labels needs "
            raise DataError(f"{problem}as many of each", path=table.path)
        how = f"{table.how} of the labels' ids"
        with_ids = replace(table, ids=ids_of_labels, how=how, is_stated=True)
        tables_by_id.append(with_ids)
    return tables_by_id


def _labels_by_id(tables: Sequence[VertexTable]) -> list[VertexTable]:
    labels = [table for table in tables if table.kind == LABELS]
    return [table for table in labels if table.ids is not None]


def _take_rows(
    graph: FoundGraph,
    table: VertexTable,
    tables: Sequence[VertexTable],
    order: str,
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
        # Vertices without an edge are missing among the ids: rows have them all, from
        # 1.
        are_from_one = are_numbers and ids[0] >= 1 and ids[-1] <= rows
        if are_from_one:
            ids_of_rows = np.arange(1, rows + 1)
            return _renumber(
                graph,
                places=ids - 1,
                ids=ids_of_rows,
                vertices=rows,
            )

    # Ids from 1 may be rows from 0: that is asked.
    starts_at_one = are_numbers and len(ids) > 1 and ids[0] == 1
    if may_be_rows and (order == ROWS or not starts_at_one):
        return _renumber(
            graph,
            places=ids,
            ids=None,
            vertices=rows,
        )
    # Any guess here would give vertices the rows of others, and nothing later would
    # show it.
    raise _ask_for_order(graph, table, tables, may_be_rows=may_be_rows)


def _renumber(
    graph: FoundGraph,
    places: Array,
    ids: Array | None,
    vertices: int,
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
    ids: Array = np.asarray(graph.ids)
    first = ids[0]
    last = ids[-1]
    rows = len(table.values)
    last_row = rows - 1
    alone_count = rows - len(ids)
    alone = f"{alone_count} without an edge"
    readings = []
    if may_be_rows:
        meaning = f"vertices 0 to {last_row}"
        readings.append(Reading(meaning, alone, "--order rows"))
    is_from_one = ids.dtype.kind == "i" and first >= 1 and last <= rows
    if is_from_one or len(ids) == rows:
        span = f"1 to {rows}" if is_from_one else f"{first} to {last}"
        meaning = f"ids {span} as they are sorted"
        readings.append(Reading(meaning, alone, "--order ids"))
    if _labels_by_id(tables):
        meaning = "the ids of the labels"
        readings.append(Reading(meaning, f"{rows} rows", "--order labels"))

    question = f"the {table.kind} of {table.path.name} are {rows} rows in order"
    if may_be_rows:
        question += f": of which vertices? Edges name {first} to {last}."
        return ask(question, readings, table.path)
    question += (
        f", for vertices 0 to {last_row}, and an edge names {last}: give them a "
        "column of ids (--ids)"
    )
    if not readings:
        return DataError(question, path=graph.origin)
    return ask(f"{question}, or say which they are:", readings, table.path)


def _number(
    graph: FoundGraph, tables: Sequence[VertexTable]
) -> tuple[FoundGraph, Array]:
    """Return the graph with all vertices, and the ids of these."""
    ids = graph.ids
    if ids is None:
        ids = np.arange(graph.vertices or 0)
    if graph.vertices is not None:
        return graph, ids

    stated_ids = [table.ids for table in tables if table.ids is not None]
    arrays = [ids, *stated_ids]
    kinds = {array.dtype.kind for array in arrays}
    if len(kinds) > 1:
        # Numbers of one file and words of another meet as words.
        arrays = [array.astype(str) for array in arrays]

    if len(arrays) > 1:
        all_ids = np.concatenate(arrays)
        ids = np.unique(all_ids)
        # Every id of the graph is among all ids: the search always hits.
        places = np.searchsorted(ids, arrays[0])
        graph = _renumber(
            graph,
            places=places,
            ids=graph.ids,
            vertices=len(ids),
        )
    return replace(graph, vertices=len(ids)), ids


def _places(
    table: VertexTable,
    named: Array,
    ids: Array,
    graph: FoundGraph,
) -> Ints:
    """Return the vertex of every row."""

    def refuse(problem: str) -> DataError:
        return DataError(problem, path=table.path)

    if named.dtype.kind != ids.dtype.kind:
        named = named.astype(str)
        ids = ids.astype(str)
    # Ids of a bipartite graph are by side, not sorted.
    order = np.argsort(ids, kind="stable")
    ranks = np.searchsorted(ids, named, sorter=order)
    # What is beyond all ids is held against the last, and found wrong.
    present_ranks = np.minimum(ranks, len(ids) - 1)
    places = order[present_ranks].astype(np.int64)
    is_wrong = ids[places] != named
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        first = named[row]
        raise refuse(f"names vertex {first!s}, which is not in the graph")

    counts = np.bincount(places, minlength=len(ids))
    is_double = counts > 1
    if is_double.any():
        vertex = int(np.argmax(is_double))
        twice = ids[vertex]
        raise refuse(f"names vertex {twice!s} {counts.max()} times (or --no-ids)")
    # A label may be missing, and a part; a row of features may not.
    if table.kind == "features" and not counts.all():
        vertex = int(np.argmin(counts))
        raise refuse(f"has no features of vertex {ids[vertex]!s}")

    has_edge = np.zeros(len(ids), bool)
    has_edge[graph.sources] = True
    has_edge[graph.destinations] = True
    # Ids that meet only isolated vertices are most likely ids of something else.
    if not has_edge[places].any():
        raise refuse(f"names no vertex that has an edge: {named[0]!s} is its first")
    return places


def _add(graph: FoundGraph, table: VertexTable, ids: Array) -> FoundGraph:
    """Return the graph with the values of a table."""
    values = table.values
    places = None
    if table.ids is not None:
        places = _places(
            table,
            named=table.ids,
            ids=ids,
            graph=graph,
        )
    name = table.path.name
    note = f"{table.kind}: {name}, {table.how}"
    left_out = [f"{text} of {name}" for text in table.left_out]
    graph = replace(
        graph,
        notes=(*graph.notes, note),
        left_out=(*graph.left_out, *left_out),
    )

    if table.kind == "features":
        if places is not None:
            # Places are a permutation here, and its inverse sorts the rows.
            order = np.argsort(places)
            values = values[order]
        rows = FeatureRows.dense(values, str(table.path))
        return replace(graph, features=rows)

    if table.kind == "labels" and values.dtype.kind in "bu":
        # Neither type holds -1, which stands for no class.
        values = values.astype(np.int64)
    if places is not None:
        # Rows of vertices that the table does not name.
        missing: Any = _MISSING.get(values.dtype.kind, -1)
        shape = (graph.vertices or 0, *values.shape[1:])
        vertex_values = np.full(shape, missing, values.dtype)
        vertex_values[places] = values
        values = vertex_values
    if table.kind == "labels":
        return replace(
            graph,
            labels=values,
            label_origin=str(table.path),
        )
    masks = dict(zip(SPLIT, values.T, strict=True))
    return replace(graph, splits=masks, split_origin=name)
