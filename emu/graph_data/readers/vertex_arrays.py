"""Values of vertices in arrays and JSON beside a graph: npy, npz and json.

Names of arrays are those of `found_graph`; ``ids`` or ``node_ids`` name the vertices of
rows. JSON is as GraphSAGE and GraphSAINT write it: ``class_map.json`` an object of id
and class, ``role.json`` one of part and ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import DataError
from emu.graph_data.readers import found_graph, split_arrays
from emu.graph_data.readers.columns import Column, whole, word_array
from emu.graph_data.readers.found_graph import FeatureRows
from emu.graph_data.readers.questions import count_left_out
from emu.graph_data.readers.split_arrays import SPLIT, Choices
from emu.graph_data.readers.text_table import TableOptions
from emu.graph_data.readers.vertex_table import PARTS, VertexTable, lists_of_ids
from emu.host.input_file import array_names, map_array, read_arrays, read_json

_IDS = ("ids", "node_ids", "node_id")
_NAMES = {"features": found_graph.FEATURES, "labels": found_graph.LABELS}


def read_npy(path: Path, kind: str) -> VertexTable:
    """Return the rows of an npy file, in order; of a split they are codes of parts.

    Raises DataError, OSError or ValueError when it is damaged.
    """
    if kind == "split":
        problem = (
            "is one array: --splits takes a table, json, or npz (train_mask, split)"
        )
        raise DataError(problem, path=str(path))
    return VertexTable(path, kind, map_array(path), None, "rows in order")


def read_npz(path: Path, kind: str, choices: Choices) -> VertexTable:
    """Return what an npz file says of vertices, as graphs in such files say it.

    Raises DataError when it has no such array, or it is open what one means.
    """
    names = array_names(path)
    ids = found_graph.first_name(names, _IDS)
    if kind == "split":
        chosen = split_arrays.split_names(names, choices)
    else:
        chosen = found_graph.value_names(names, _NAMES[kind], kind)
    if not chosen:
        wanted = ", ".join(_NAMES.get(kind, ("train_mask", "train_idx", "split")))
        raise DataError(f"holds no {kind} ({wanted})", path=str(path))

    arrays = read_arrays(path, [*chosen, *([ids] if ids else [])])
    others = sorted({*names} - {*chosen, ids})
    left_out = count_left_out("array", others)
    values: Any = [arrays[name] for name in chosen]
    if kind == "split":
        parts = split_arrays.sort_splits(arrays, choices, str(path))
        if all(members.dtype != bool for members in parts.values()):
            columns = [Column(members) for members in parts.values()]
            table = lists_of_ids(path, [*parts], columns, TableOptions())
            return replace(table, how=", ".join(chosen), left_out=left_out)
        values = _stack_masks(parts, path)
    elif len(chosen) > 1:  # a sparse matrix
        values = _dense(found_graph.sparse_rows(arrays, str(path)))
    else:
        values = values[0]
    return VertexTable(
        path=path,
        kind=kind,
        values=values,
        ids=arrays[ids].reshape(-1) if ids else None,
        how=f"{', '.join(chosen)}, {f'by id in {ids}' if ids else 'rows in order'}",
        left_out=left_out,
    )


def _dense(rows: FeatureRows | None) -> Any:
    return rows.rows(0, rows.vertices) if rows else None


def _stack_masks(parts: dict[str, NDArray[Any]], path: Path) -> NDArray[np.bool_]:
    """Return whether each vertex is in each part; DataError where lengths differ."""
    lengths = {len(mask) for mask in parts.values() if mask.dtype == bool}
    if len(lengths) > 1 or any(mask.dtype != bool for mask in parts.values()):
        raise DataError("has masks of several lengths, or beside ids", path=str(path))
    stacked = np.zeros((lengths.pop(), len(SPLIT)), bool)
    for part, mask in parts.items():
        stacked[:, SPLIT.index(part)] = mask
    return stacked


def read_mapping(path: Path, kind: str, options: TableOptions) -> VertexTable:
    """Return what JSON says of vertices: an object of ids and values, or rows.

    Raises DataError when it is something else.
    """
    content = read_json(path)
    if kind == "split":
        return _read_roles(path, content, options)
    if not isinstance(content, (dict, list)) or not content:
        raise DataError(f"holds no object of ids and {kind}", path=str(path))
    values = [*content.values()] if isinstance(content, dict) else content
    are_words = all(isinstance(value, str) for value in values)
    try:
        array: NDArray[Any] = word_array(values) if are_words else np.array(values)
    except ValueError as error:
        raise DataError(f"its {kind} differ in length", path=str(path)) from error
    if array.dtype.kind not in "iufbU":
        problem = f"its {kind} are no numbers or words: {values[0]!r:.60}"
        raise DataError(problem, path=str(path))
    ids = None
    if isinstance(content, dict):
        ids = _ids_of([*content], as_words=bool(options.words))
    how = "rows in order" if ids is None else "by id"
    return VertexTable(path, kind, array, ids, how)


def _read_roles(path: Path, content: Any, options: TableOptions) -> VertexTable:
    """Return the parts of an object of parts and ids."""
    if not isinstance(content, dict) or not content:
        raise DataError("holds no object of parts and ids", path=str(path))
    lists = {PARTS.get(str(key).lower(), ""): ids for key, ids in content.items()}
    are_parts = "" not in lists and len(lists) == len(content)
    if not are_parts or not all(isinstance(ids, list) for ids in lists.values()):
        names = ", ".join(content)
        problem = f"has keys {names:.80}: lists of ids are needed, for train (tr), "
        raise DataError(f"{problem}valid (va) and test (te)", path=str(path))
    columns = [Column.of(map(str, ids)) for ids in lists.values()]
    return lists_of_ids(path, [*lists], columns, options)


def _ids_of(words: Sequence[str], *, as_words: bool) -> NDArray[Any]:
    """Return ids as numbers, if all are whole."""
    are_whole = all(whole(word) == word for word in words)
    if as_words or not are_whole or max(map(len, words)) >= 19:
        return word_array(words)
    return np.array([*map(int, words)])
