"""Values of vertices in arrays and JSON beside a graph: npy, npz and json.

Names of arrays are those of `found_graph`; ``ids`` or ``node_ids`` name the vertices of
rows. JSON is as GraphSAGE and GraphSAINT write it: ``class_map.json`` an object of id
and class, ``role.json`` one of part and ids.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from emu.array_types import Array, Mask
from emu.errors import DataError
from emu.graph_data.readers import found_graph, split_arrays
from emu.graph_data.readers.columns import Column, whole, word_array
from emu.graph_data.readers.questions import count_left_out
from emu.graph_data.readers.split_arrays import SPLIT, Choices
from emu.graph_data.readers.text_table import TableOptions
from emu.graph_data.readers.vertex_table import PARTS, VertexTable, lists_of_ids
from emu.host.input_file import array_names, map_array, read_arrays, read_json
from emu.names import printable

_IDS = ("ids", "node_ids", "node_id")
_NAMES = {
    "features": found_graph.FEATURES,
    "labels": found_graph.LABELS,
}
_SPLIT_NAMES = ("train_mask", "train_idx", "split")


def read_npy(path: Path, kind: str) -> VertexTable:
    """Return the rows of an npy file, in order; of a split they are codes of parts.

    Raises DataError, OSError or ValueError when it is damaged.
    """
    # Ids, a mask or codes: one array without a name may be each of them.
    if kind == "split":
        raise DataError(
            "is one array: --splits takes a table, json, or npz (train_mask, split)",
            path=path,
        )
    values = map_array(path)
    return VertexTable(path=path, kind=kind, values=values)


def read_npz(path: Path, kind: str, choices: Choices) -> VertexTable:
    """Return what an npz file says of vertices, as graphs in such files say it.

    Raises DataError when it has no such array, or it is open what one means.
    """
    names = array_names(path)
    value_names = _names_of_values(names, kind, choices)
    if not value_names:
        known_names = _NAMES.get(kind, _SPLIT_NAMES)
        alternatives = ", ".join(known_names)
        raise DataError(f"holds no {kind} ({alternatives})", path=path)

    id_name = found_graph.first_name(names, _IDS)
    read_names = list(value_names)
    if id_name:
        read_names.append(id_name)
    arrays = read_arrays(path, read_names)
    origin = ", ".join(value_names)

    values: Any = arrays[value_names[0]]
    if kind == "split":
        parts = split_arrays.sort_splits(arrays, choices, str(path))
        has_mask = any(members.dtype == bool for members in parts.values())
        if not has_mask:
            table = _lists_of_parts(parts, path)
            # Lists name their vertices: other ids beside them say nothing more.
            left_out = _unread(names, value_names)
            return replace(table, how=origin, left_out=left_out)
        values = _stack_masks(parts, path)
    # Sparse features are four arrays of one matrix.
    elif len(value_names) > 1:
        values = None
        features = found_graph.sparse_rows(arrays, str(path))
        if features:
            values = features.rows(0, features.vertices)

    table = VertexTable(
        path=path,
        kind=kind,
        values=values,
        how=f"{origin}, rows in order",
        left_out=_unread(names, read_names),
    )
    if not id_name:
        return table
    # Ids may stand in a column of shape (rows, 1).
    ids = arrays[id_name].reshape(-1)
    how = f"{origin}, by id in {id_name}"
    return replace(table, ids=ids, how=how)


def _unread(names: list[str], read_names: list[str]) -> tuple[str, ...]:
    """Return what is left out of a file with arrays of these names."""
    unread_names = set(names) - set(read_names)
    return count_left_out("array", sorted(unread_names))


def _names_of_values(
    names: list[str],
    kind: str,
    choices: Choices,
) -> list[str]:
    """Return the names of the arrays that hold features, labels or a split."""
    if kind == "split":
        return split_arrays.split_names(names, choices)
    return found_graph.value_names(names, _NAMES[kind], kind)


def _lists_of_parts(parts: dict[str, Array], path: Path) -> VertexTable:
    """Return lists of ids, which name their vertices and need no rows in order."""
    columns = [Column(members) for members in parts.values()]
    return lists_of_ids(
        path,
        parts=list(parts),
        columns=columns,
        options=TableOptions(),
    )


def _stack_masks(parts: dict[str, Array], path: Path) -> Mask:
    """Return whether each vertex is in each part; DataError where lengths differ."""
    first_mask = next(iter(parts.values()))
    vertices = len(first_mask)
    shape = (vertices, len(SPLIT))
    matrix = np.zeros(shape, bool)
    for part, mask in parts.items():
        is_fit = mask.dtype == bool and len(mask) == vertices
        if not is_fit:
            raise DataError("has masks of several lengths, or beside ids", path=path)
        column = SPLIT.index(part)
        matrix[:, column] = mask
    return matrix


def read_mapping(
    path: Path,
    kind: str,
    options: TableOptions,
) -> VertexTable:
    """Return what JSON says of vertices: an object of ids and values, or rows.

    Raises DataError when it is something else.
    """
    content = read_json(path)
    if kind == "split":
        return _read_roles(path, content, options)
    is_known = isinstance(content, (dict, list))
    if not is_known or not content:
        raise DataError(f"holds no object of ids and {kind}", path=path)

    if isinstance(content, list):
        values = _value_array(content, kind, path)
        return VertexTable(path=path, kind=kind, values=values)
    entries = list(content.values())
    values = _value_array(entries, kind, path)
    ids = _ids_of(list(content), as_words=bool(options.words))
    return VertexTable(
        path=path,
        kind=kind,
        values=values,
        ids=ids,
        how="by id",
    )


def _value_array(values: list[Any], kind: str, path: Path) -> Array:
    """Return values as numbers or words; DataError where they are neither."""
    are_words = all(isinstance(value, str) for value in values)
    if are_words:
        return word_array(values)
    try:
        array = np.array(values)
    except ValueError as error:
        raise DataError(f"its {kind} differ in length", path=path) from error

    # numpy makes objects of None and of dictionaries.
    is_numeric = array.dtype.kind in "iufbU"
    if not is_numeric:
        known_kinds = (bool, int, float, str)
        odd_values = [value for value in values if not isinstance(value, known_kinds)]
        odd_value = odd_values[0] if odd_values else values[0]
        problem = f"its {kind} are no numbers or words: {odd_value!r:.60}"
        raise DataError(problem, path=path)
    return array


def _read_roles(
    path: Path,
    content: Any,
    options: TableOptions,
) -> VertexTable:
    """Return the parts of an object of parts and ids."""
    if not isinstance(content, dict) or not content:
        raise DataError("holds no object of parts and ids", path=path)

    lists = {}
    for key, ids in content.items():
        word = str(key).lower()
        part = PARTS.get(word, "")
        # Words of one part may differ: train and tr would state it twice.
        if isinstance(ids, list):
            _check_ids(key, ids, path)
            lists[part] = ids
    are_unknown = "" in lists or len(lists) < len(content)
    if are_unknown:
        names = ", ".join(content)
        raise DataError(
            f"has keys {names:.80}: lists of ids are needed, "
            "for train (tr), valid (va) and test (te)",
            path=path,
        )

    columns = []
    for ids in lists.values():
        column = Column.of(map(str, ids))
        columns.append(column)
    return lists_of_ids(
        path,
        parts=list(lists),
        columns=columns,
        options=options,
    )


def _check_ids(key: str, ids: Sequence[Any], path: Path) -> None:
    """Raise DataError where a list of ids has something else than numbers and words."""
    for value in ids:
        is_id = isinstance(value, (int, float, str)) and not isinstance(value, bool)
        if not is_id:
            text = printable(json.dumps(value), limit=40)
            problem = f"{key} has {text}: a list of ids is needed, numbers or words"
            raise DataError(problem, path=path)


def _ids_of(words: Sequence[str], *, as_words: bool) -> Array:
    """Return ids as numbers, if all are whole and int64 holds them."""
    # Only in their shortest form: as numbers 007 and 1.0 would not be what they were.
    are_whole = all(whole(word) == word for word in words)
    longest = max(map(len, words))
    # Numbers of 19 digits may be beyond int64.
    if as_words or not are_whole or longest >= 19:
        return word_array(words)
    numbers = [int(word) for word in words]
    return np.array(numbers)
