"""Sparse matrices in coordinates, as of https://math.nist.gov/MatrixMarket/formats.html.

Below the first lines stands a table like any other: by the reader of tables 10 million
entries take 5.2 s of CPU and 364 MB.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from emu.graph_data.readers.edge_list import join_sides
from emu.graph_data.readers.found_graph import FoundGraph
from emu.graph_data.readers.text_table import (
    Keys,
    TableOptions,
    Tell,
    TextTable,
    first_lines,
    open_table,
)

_VALUES = {"pattern": 0, "real": 1, "double": 1, "integer": 1, "complex": 2}


def is_matrix(path: Path) -> bool:
    """Return True where the first line is that of MatrixMarket."""
    first = "".join(first_lines(path)).lstrip("%").lower()
    return first.startswith("matrixmarket")


def read_matrix(
    path: Path, options: TableOptions, tell: Tell | None = None
) -> FoundGraph:
    """Return the graph of a sparse matrix; one that is not square is bipartite.

    Raises DataError when it is dense, or an entry is not as the first lines say.
    """
    table, kind, (rows, columns, entries) = _open(path, tell)
    limits = np.array([[rows], [columns]])
    try:
        ends = table.read((0, 1), np.int64)
    except (ValueError, OverflowError, UserWarning):
        ends = np.zeros((2, 1), np.int64)
    if ((ends < 1) | (ends > limits)).any():

        def fits(fields: list[str]) -> bool:
            numbers = [int(text) if text.isdecimal() else 0 for text in fields]
            return 1 <= numbers[0] <= rows and 1 <= numbers[1] <= columns

        need = f"row and column from 1 to {rows} and {columns}"
        raise table.bad_line((0, 1), fits, need)
    if ends.shape[1] != entries:
        raise table.error(f"states {entries} entries and holds {ends.shape[1]}")
    rest = "; skipped: values" if _VALUES[kind[0]] else ""
    note = f"MatrixMarket, {' '.join(kind)}: rows and columns are the ends{rest}"
    ids = np.arange(1, rows + 1)
    if rows != columns and options.bipartite is False:
        raise table.error(f"has {rows} rows and {columns} columns: it is bipartite")
    if rows != columns or options.bipartite:
        sides = Keys(ids, ends[:1] - 1), Keys(np.arange(1, columns + 1), ends[1:] - 1)
        return join_sides(*sides, ("row", "column"), str(path), [note])
    ends -= 1
    return FoundGraph(ends[0], ends[1], str(path), rows, ids=ids, notes=(note,))


def _open(path: Path, tell: Tell | None) -> tuple[TextTable, list[str], list[int]]:
    """Return entries, their kind and symmetry, and rows, columns and entries."""
    kind = first_lines(path)[0].lstrip("%").lower().split()[1:]
    table = open_table(path, header=True, tell=tell)
    if kind[:2] != ["matrix", "coordinate"] or len(kind) < 3 or kind[2] not in _VALUES:
        words = " ".join(kind)
        raise table.error(f"is MatrixMarket of {words!r}, matrix coordinate is read")
    if len(table.sizes) != 3 or not all(map(str.isdecimal, table.sizes)):
        words = " ".join(table.sizes or table.names)
        raise table.error(f"states {words!r}; rows, columns and entries are needed")
    width = 2 + _VALUES[kind[2]]
    if table.width != width:
        problem = f"has {table.width} columns of {width} of {kind[2]} entries"
        raise table.error(problem)
    return table, kind[2:], [*map(int, table.sizes)]
