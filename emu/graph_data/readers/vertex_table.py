"""Tables with a row per vertex: features, labels and splits, by order or by id.

`join_tables` numbers the vertices, where edges and tables beside them name them by ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import DataError
from emu.graph_data.readers import text_table
from emu.graph_data.readers.edge_list import is_id, words_of
from emu.graph_data.readers.found_graph import FeatureRows, FoundGraph
from emu.graph_data.readers.split_arrays import SPLIT
from emu.graph_data.readers.text_table import TableOptions, TextTable
from emu.host.input_file import map_array

_CLASS = {
    "label", "labels", "class", "classes", "y", "target", "category", "community",
    "subject", "topic",
}  # fmt: skip
_PART = {"split", "set", "fold", "part", "subset", "train", "valid", "val", "test"}
_PART |= {"mask"}
_NO_CLASS = {
    "", "nan", "na", "none", "null", "-1", "unknown", "unlabeled", "unlabelled",
}  # fmt: skip
_PARTS = {
    "train": "train", "training": "train", "tr": "train",
    "valid": "valid", "val": "valid", "validation": "valid", "dev": "valid",
    "test": "test", "testing": "test", "te": "test",
    "": "", "none": "", "nan": "", "unlabeled": "", "unlabelled": "",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class VertexTable:
    """Values of vertices."""

    path: Path
    kind: str
    values: NDArray[Any]
    """A row or a value per vertex."""
    ids: NDArray[Any] | None
    """Vertex of every row; None where they are in order."""
    how: str
    """Columns taken and skipped, for people."""


def read_features(path: Path, options: TableOptions) -> VertexTable:
    """Return features: the numbers of every row, npy or text.

    Raises DataError with the line that is something else, or of another length.
    """
    if path.suffix == ".npy":
        return VertexTable(path, "features", map_array(path), None, "rows in order")
    table = _open(path, options)
    place = _id_column(table)
    beside = [not name or _is_beside(name) for name in table.names]  # or an index
    others = [
        column
        for column, field in enumerate(table.first_row)
        if (field and not text_table.is_number(field)) or (beside and beside[column])
    ]
    if place is None and not table.names and options.ids is None:
        place = _number_column(table, others)
    if table.width > 2 and table.first_row == (*map(str, range(table.width)),):
        raise table.error("begins 0, 1, 2: remove numbers of columns, or write 0.0, 1")
    columns = [c for c in range(table.width) if c not in {*others, place}]
    if not columns:
        raise table.error(f"has no column of numbers: {' '.join(table.first_row)!r}")
    try:
        values = table.read(columns, np.float32).T
    except (ValueError, OverflowError, UserWarning):
        values = np.full((1, 1), np.nan, np.float32)  # its line is named below
    if not np.isfinite(values).all():

        def fits(fields: list[str]) -> bool:
            are_numbers = all(map(text_table.is_number, fields))
            return are_numbers and all(np.isfinite(np.float32(f)) for f in fields)

        raise table.bad_line(columns, fits, f"{len(columns)} numbers")
    ids, by = _ids(table, place)
    how = f"{len(columns)} columns, {by}{table.skipped([*columns, place])}"
    return VertexTable(path, "features", np.ascontiguousarray(values), ids, how)


def _number_column(table: TextTable, words: Sequence[int]) -> int | None:
    """Return the first column of a table without names where it has ids.

    It has where it is of words, or has different whole numbers and words follow, the
    classes. Raises DataError when nothing says what its different whole numbers are.
    """
    if table.width == 1 or words[:1] == [0]:
        return words[0] if words else None
    first = [fields[0] for _, fields in table.rows()]
    if not all(map(text_table.whole, first)) or len({*first}) < len(first):
        return None
    if words:
        return 0
    raise table.error(
        "is column 1 the id of the vertex, or a value and the rows in order? "
        "--ids or --no-ids"
    )


def read_labels(path: Path, options: TableOptions) -> VertexTable:
    """Return the classes of a table, numbers from 0; -1 and "" where there is none.

    Raises DataError where several columns may have the classes, or the vertices' names.
    """
    if path.suffix == ".npy":
        return VertexTable(path, "labels", map_array(path), None, "rows in order")
    table = _open(path, options)
    place = _id_column(table)
    column = _class_column(table, place)
    place = _first_as_id(table, place, column)
    words = _read_column(table, column)
    # A class that no other row has may be the name of a column, or their number.
    alone, first = words[0] not in words[1:], table.first_row
    sizes = not table.names and table.width > 1 and first[0] == str(len(words) - 1)
    if alone and (sizes or table.open_header):
        problem = f"begins with sizes or names of columns, {' '.join(first)!r}: remove "
        raise table.error(f"{problem}them, or write label (id,label) above a row")
    values, note = _classes(words)
    classes = values[values != ("" if values.dtype.kind == "U" else -1)]
    many = len(classes) > 2 and len(np.unique(classes)) == len(classes)
    if many and (
        classes.dtype.kind == "U" or ((classes >= 0) & (classes % 1 == 0)).all()
    ):
        raise table.error(
            f"makes every vertex a class of its own by {table.name(column)}: name the "
            "column of classes with --label-column"
        )
    ids, by = _ids(table, place)
    how = f"{table.name(column)}, {by}{table.skipped([place, column])}{note}"
    return VertexTable(path, "labels", values, ids, how)


def read_splits(path: Path, options: TableOptions) -> VertexTable:
    """Return the part of every vertex, by a table or by a folder of lists of ids.

    Such a folder has a file each for train, valid and test. Raises DataError when a
    vertex has two parts, or a part is none of these.
    """
    if path.is_dir():
        stems = {file: file.name.split(".")[0].lower() for file in path.iterdir()}
        lists = {f: part for f in sorted(stems) if (part := _PARTS.get(stems[f], ""))}
        if "train" not in lists.values():
            raise DataError("holds no list of ids called train.txt", path=str(path))
        ids = []
        for file in lists:
            table = _open(file, options)
            if table.width != 1:
                problem = f"has {table.width} columns, an id per line is needed"
                raise table.error(problem)
            keys = text_table.read_keys(table, [0])
            ids.append(keys.ids[keys.codes[0]])
        parts = np.repeat([*lists.values()], [*map(len, ids)])
        return VertexTable(path, "split", parts, np.concatenate(ids), "lists of ids")
    table = _open(path, options)
    place = _id_column(table)
    columns = [c for c, name in enumerate(table.names) if {*words_of(name)} & _PART]
    if len(columns) > 1 or (table.width > 2 and not columns):
        raise table.error("needs one column with train, valid or test, and one of ids")
    column = columns[0] if columns else table.width - 1
    place = _first_as_id(table, place, column)
    words = [word.lower() for word in _read_column(table, column)]
    wrong = next((word for word in words if word not in _PARTS), None)
    if wrong is not None:
        raise table.error(f"has a part {wrong!r}: train, valid or test")
    parts = np.array([_PARTS[word] for word in words])
    return VertexTable(path, "split", parts, *_ids(table, place))


def _open(path: Path, options: TableOptions) -> TextTable:
    if not path.exists():
        raise DataError("there is no such file", path=str(path))
    if "".join(text_table.first_lines(path)).lstrip("%").startswith("MatrixMarket"):
        problem = "is MatrixMarket, a table with a row per vertex is needed"
        raise DataError(problem, path=str(path))
    return text_table.open_table(
        path,
        options,
        names_columns=lambda names: any(
            (is_id(name) or _is_beside(name)) and name.lower() not in _PARTS
            for name in names
        ),
    )


def _is_beside(name: str) -> bool:
    """Return True for names of classes and parts, which are no features."""
    return {*words_of(name)} - {"node", "id"} <= _CLASS | _PART and bool(name)


def _id_column(table: TextTable) -> int | None:
    """Return the column whose name says that it has ids; refuse one that may have."""
    if table.options.ids is False:
        return None
    columns = [column for column, name in enumerate(table.names) if is_id(name)]
    if columns or table.options.ids or (table.names and table.names[0]):
        exact = [c for c in columns if table.names[c].lower() in {"id", "node_id"}]
        columns = exact or columns or [0] * bool(table.options.ids)
        return columns[0] if columns else None
    if table.names:  # an index of pandas, or names of rows in R
        ids = [fields[0] for _, fields in table.rows()]
        if ids != [*map(str, range(len(ids)))]:
            raise table.error(
                "has a first column without a name: ids of the vertices, or to be "
                "skipped? --ids or --no-ids"
            )
    return None


def _first_as_id(table: TextTable, place: int | None, column: int) -> int | None:
    """Return the column of ids beside that of classes or parts; refuse if unclear."""
    alone = table.width == 1 or table.names[:1] == ("",)  # an index counts the rows
    if place is not None or table.options.ids is False or alone:
        return place
    if table.names or column == 0:
        raise table.error(
            f"has no column that is called id beside {table.name(column)}: is the "
            "first one the id, or are rows in order of vertices? --ids or --no-ids"
        )
    return 0


def _class_column(table: TextTable, place: int | None) -> int:
    if table.options.label_column is not None:
        return table.column(table.options.label_column, "--label-column")
    has_index = table.names[:1] == ("",)
    others = [c for c in range(has_index, table.width) if c != place]
    if len(others) == 1:
        return others[0]
    if table.names:
        words = [{*words_of(name)} - {"node", "id"} for name in table.names]
        others = [c for c in others if words[c] <= _CLASS]
    elif table.width == 2:
        others = [1]
    else:
        first = table.first_row
        others = [
            c for c in others if c and first[c] and not text_table.is_number(first[c])
        ]
    if len(others) != 1:
        raise table.error(
            f"has {table.width} columns: name that of the classes with --label-column"
        )
    return others[0]


def _ids(table: TextTable, column: int | None) -> tuple[NDArray[Any] | None, str]:
    """Return the vertex of every row, None where they are in order, and how so."""
    if column is None:
        return None, "rows in order"
    keys = text_table.read_keys(table, [column])
    return keys.ids[keys.codes[0]], f"by id in {table.name(column)}"


def _read_column(table: TextTable, column: int) -> list[str]:
    """Return a column as words; of a single column an empty line is a row too."""
    if table.width > 1:
        rows = [fields for _, fields in table.rows()]
        if any(len(fields) != table.width for fields in rows):
            raise table.bad_line((), lambda _: True, f"{table.width} columns")
        return [fields[column] for fields in rows]
    with text_table.open_lines(table.path, table.options.tell) as lines:
        words = [
            line.strip(' \t\r\n"')
            for number, line in enumerate(lines, 1)
            if number > table.lines_before and not line.startswith(table.comment)
        ]
    while words and not words[-1]:
        words.pop()
    return words


def _classes(words: list[str]) -> tuple[NDArray[Any], str]:
    """Return classes as numbers from 0 where all are numbers, else as words."""
    words_known = [word for word in words if word.lower() not in _NO_CLASS]
    if not all(map(text_table.is_number, words_known)):
        return np.array([w if w.lower() not in _NO_CLASS else "" for w in words]), ""
    numbers = [-1.0 if w.lower() in _NO_CLASS else float(w) for w in words]
    values = np.array(numbers)
    there = values[values != -1]
    odd = (there < 0) | (there % 1 != 0)
    # Those that begin above 0 are numbered where all labels are.
    if odd.any() or not len(there) or there.min() > 0 or there.max() < len(words):
        return values, ""
    distinct, codes = np.unique(there, return_inverse=True)
    values[values != -1] = codes
    text = f"{len(distinct)} numbers from {distinct[0]:g} to {distinct[-1]:g}"
    return values, f"; classes are the {text}"


def join_tables(graph: FoundGraph, tables: Sequence[VertexTable]) -> FoundGraph:
    """Return a graph with the features, labels and split of tables beside it.

    Vertices are numbered in order of their ids, those of tables among them. Where rows
    are in order of vertices, ids are the numbers of rows. Raises DataError when a table
    names a vertex twice, lacks one, or names one that is not there.
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
    return replace(graph, splits=masks, split_origin=name, notes=notes)
