"""Graphs that state how many vertices they have: MatrixMarket and METIS.

Below the first lines of a sparse matrix of MatrixMarket in coordinates
(https://math.nist.gov/MatrixMarket/formats.html) stands a table like any other: 10
million entries take 5.2 s of CPU and 364 MB.

The first line of a graph of METIS (manual of 5.1.0, 4.1.1) is ``vertices edges [fmt
[ncon]]``; a line per vertex follows with its size, its weights, and its neighbours from
1, each with the weight of the edge.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emu.array_types import Ints
from emu.errors import DataError
from emu.graph_data.readers import text_table
from emu.graph_data.readers.columns import Keys
from emu.graph_data.readers.found_graph import FoundGraph
from emu.graph_data.readers.questions import count_left_out
from emu.graph_data.readers.sides import join_sides
from emu.graph_data.readers.text_table import TableOptions, Tell, TextTable

_METIS = {".graph", ".metis"}
#: Numbers of a value of a matrix, by its type.
_VALUES = {
    "pattern": 0,
    "real": 1,
    "double": 1,
    "integer": 1,
    "unsigned-integer": 1,  # as scipy writes whole numbers without a sign
    "complex": 2,
}
#: Symmetries whose rows and columns are the same: half of the entries is stated.
_SYMMETRIC = {"symmetric", "skew-symmetric", "hermitian"}
_SYMMETRIES = {"general", *_SYMMETRIC}


def is_matrix(path: Path) -> bool:
    """Return True where the first line is that of MatrixMarket."""
    first_lines = text_table.first_lines(path)
    first = "".join(first_lines)
    words = first.lstrip("%").lower()
    return words.startswith("matrixmarket")


def read_matrix(path: Path, options: TableOptions) -> FoundGraph:
    """Return the graph of a sparse matrix; one that is not square is bipartite.

    Raises DataError when it is dense, or an entry is not as the first lines say.
    """
    table = text_table.open_table(path, options)
    forms = _read_forms(path, table)
    rows, columns, entries = _read_sizes(table)
    # The line of sizes stands where a table has its header, and is left out as one.
    table = table.decide(header=True)
    kind = forms[0]
    values = _VALUES[kind]
    width = 2 + values
    if table.width != width:
        problem = f"has {table.width} columns of {width} of {kind} entries"
        raise table.error(problem)

    ends = _read_entries(table, rows, columns)
    # A file that was cut off in copying is a table of fewer rows, and nothing else
    # shows it.
    _, count = ends.shape
    if count != entries:
        raise table.error(f"states {entries} entries and holds {count}")
    is_bipartite = _is_bipartite(table, forms, rows, columns)

    form = " ".join(forms)
    note = f"MatrixMarket, {form}: rows and columns are the ends"
    left_out = count_left_out("column", ["values"] if values else [])
    row_ids = np.arange(1, rows + 1)
    column_ids = np.arange(1, columns + 1)
    places = ends - 1
    # Rows and columns of a square matrix are the same vertices, unless stated
    # otherwise.
    if not is_bipartite:
        return FoundGraph(
            sources=places[0],
            destinations=places[1],
            origin=str(path),
            vertices=rows,
            ids=row_ids,
            notes=(note,),
            left_out=left_out,
        )
    return join_sides(
        left=Keys(row_ids, places[:1]),
        right=Keys(column_ids, places[1:]),
        names=("row", "column"),
        origin=str(path),
        notes=[note],
        left_out=left_out,
    )


def _read_forms(path: Path, table: TextTable) -> list[str]:
    """Return the type of entries and their symmetry, by the first line."""
    first_line = text_table.first_lines(path)[0]
    plain_line = first_line.lstrip("%").lower()
    _, *words = plain_line.split()
    forms = words[2:]
    is_sparse = words[:2] == ["matrix", "coordinate"]
    is_known = bool(forms) and forms[0] in _VALUES
    text = " ".join(words)
    if is_sparse and is_known:
        if len(forms) > 2 or not _SYMMETRIES.issuperset(forms[1:]):
            symmetries = ", ".join(sorted(_SYMMETRIES))
            problem = f"is MatrixMarket of {text!r}, its last word is one of "
            raise table.error(f"{problem}{symmetries}")
        return forms

    raise table.error(f"is MatrixMarket of {text!r}, matrix coordinate is read")


def _read_sizes(table: TextTable) -> list[int]:
    """Return the numbers of rows, columns and entries."""
    sizes = table.first_row
    are_numbers = all(map(str.isdecimal, sizes))
    if len(sizes) != 3 or not are_numbers:
        words = " ".join(sizes)
        raise table.error(f"states {words!r}; rows, columns and entries are needed")
    return [int(size) for size in sizes]


def _is_bipartite(
    table: TextTable,
    forms: list[str],
    rows: int,
    columns: int,
) -> bool:
    """Return True where rows and columns are vertices of two kinds.

    Raises DataError where they cannot be what the user says, or the symmetry.
    """
    stated = table.options.bipartite
    shape = f"{rows} rows and {columns} columns"
    if rows != columns and stated is False:
        raise table.error(f"has {shape}: it is bipartite")
    is_symmetric = not _SYMMETRIC.isdisjoint(forms)
    is_bipartite = rows != columns or bool(stated)
    # The entries that it leaves out would be edges that are missing.
    if is_bipartite and is_symmetric:
        form = " ".join(forms)
        problem = f"is {form} of {shape}: both are one kind of vertices"
        raise table.error(f"{problem}, as many of each, no --bipartite")
    return is_bipartite


def _read_entries(table: TextTable, rows: int, columns: int) -> Ints:
    """Return rows and columns of entries, from 1."""
    columns_read = table.read([0, 1]).values()
    are_numbers = all(column.words is None for column in columns_read)
    if are_numbers:
        ends = np.stack([column.values for column in columns_read])
        most = [[rows], [columns]]
        is_inside = (ends >= 1) & (ends <= most)
        if is_inside.all():
            # Whole tables pass at once; line by line is only to find the wrong one.
            return ends.astype(np.int64)

    def fits(fields: list[str]) -> bool:
        are_numbers = all(map(str.isdecimal, fields))
        if not are_numbers:
            return False
        row, column = map(int, fields)
        is_row = 1 <= row <= rows
        is_column = 1 <= column <= columns
        return is_row and is_column

    need = f"row and column from 1 to {rows} and {columns}"
    raise table.bad_line((0, 1), fits, need)


def read_metis(path: Path, tell: Tell | None = None) -> FoundGraph | None:
    """Return the graph of a file of METIS; None where it is none.

    It is one where lines, neighbours and their symmetry are as the first line says.
    Raises DataError when its name ends in .graph, and a line is not so; says which.
    """
    try:
        return _read_metis(path, tell)
    except (ValueError, OverflowError) as error:
        # By its name it was never said to be METIS: it is read as an edge list.
        if path.suffix not in _METIS:
            return None
        problem = f"is no METIS: {error}; an edge list is to be called .txt"
        raise DataError(problem, path=path) from error


@dataclass(frozen=True)
class _Form:
    """Form of the lines below the first one, as that states it."""

    vertices: int
    edges: int
    before: int
    """Numbers before the neighbours of a line."""
    step: int
    """Numbers per neighbour."""
    left_out: tuple[str, ...]

    @classmethod
    def of(cls, fields: list[str]) -> _Form:
        """Return what fields say; ValueError where they are not those of METIS."""
        if not 2 <= len(fields) <= 4:
            raise ValueError("the first line is not: vertices edges [fmt [ncon]]")

        vertices = int(fields[0])
        flags = "000"
        if len(fields) > 2:
            # Leading zeros may be left out: 1 is 001, weights of edges (manual of
            # 5.1.0, 4.1.1).
            flags = fields[2].rjust(3, "0")
        is_of_flags = len(flags) == 3 and set(flags) <= set("01")
        if not is_of_flags:
            raise ValueError(f"fmt is {flags}")
        if vertices < 1:
            raise ValueError(f"the first line states {vertices} vertices")

        has_size, has_weights, has_edge_weights = (flag == "1" for flag in flags)
        weights = int(has_weights)
        if has_weights and len(fields) > 3:
            weights = int(fields[3])
        left_out = []
        if has_size:
            left_out.append("sizes of vertices")
        if has_weights:
            left_out.append("weights of vertices")
        if has_edge_weights:
            left_out.append("weights of edges")
        return cls(
            vertices=vertices,
            edges=int(fields[1]),
            before=has_size + weights,
            step=1 + has_edge_weights,
            left_out=tuple(left_out),
        )

    @property
    def numbers(self) -> int:
        """Most numbers below the first line."""
        before_neighbours = self.vertices * self.before
        of_neighbours = 2 * self.edges * self.step
        return before_neighbours + of_neighbours


def _read_metis(path: Path, tell: Tell | None) -> FoundGraph:
    numbers = array("q")
    lengths = array("q")
    with text_table.open_lines(path, tell) as file:
        # An empty line is a vertex without neighbours: only comments are skipped.
        lines = (line for line in file if not line.startswith("%"))
        filled_lines = filter(str.strip, lines)
        first_line = next(filled_lines, "")
        first_fields = first_line.split()
        form = _Form.of(first_fields)
        for line in lines:
            fields = line.split()
            if len(lengths) >= form.vertices and fields:
                raise ValueError(f"more than {form.vertices} lines follow")
            lengths.append(len(fields))
            numbers.extend(map(int, fields))
            # A file may go on for long: it is left once it has more than it states.
            if len(numbers) > form.numbers:
                raise ValueError(f"more numbers follow than {form.edges} edges have")

    if len(numbers) < 2 * form.edges:  # memory would be taken for as many vertices
        raise ValueError(f"{len(numbers)} neighbours stand for {form.edges} edges")

    # Vertices without an edge at the end may lack their empty lines.
    counts = np.zeros(form.vertices, np.int64)
    stated_lengths = lengths[: form.vertices]
    counts[: len(lengths)] = stated_lengths
    neighbours = np.array(numbers, np.int64)
    sources, destinations = _take_edges(neighbours, counts, form)
    ids = np.arange(1, form.vertices + 1)
    note = f"METIS: neighbours of {form.vertices} vertices, a line each"
    return FoundGraph(
        sources=sources,
        destinations=destinations,
        origin=str(path),
        vertices=form.vertices,
        ids=ids,
        notes=(note,),
        left_out=form.left_out,
    )


def _take_edges(
    numbers: Ints,
    counts: Ints,
    form: _Form,
) -> tuple[Ints, Ints]:
    """Return both ends of every edge, from 0, if each stands at both of them."""
    before = form.before
    if (counts < before).any():
        raise ValueError(f"a line has fewer than {before} numbers before neighbours")
    rests = (counts - before) % form.step
    if rests.any():
        raise ValueError("a neighbour has no weight")

    vertices = len(counts)
    starts = np.cumsum(counts) - counts
    # Place of every number in its line, from the first neighbour on.
    vertex_numbers = np.arange(vertices)
    vertex_of_number = np.repeat(vertex_numbers, counts)
    starts_of_numbers = np.repeat(starts, counts)
    places_of_all = np.arange(len(numbers))
    places = places_of_all - starts_of_numbers - before
    is_neighbour = (places >= 0) & (places % form.step == 0)
    sources = vertex_of_number[is_neighbour]
    ends = numbers[is_neighbour] - 1
    if len(sources) != 2 * form.edges:
        raise ValueError(f"{len(sources)} neighbours stand for {form.edges} edges")
    is_outside = (ends < 0) | (ends >= vertices)
    is_loop = sources == ends
    is_wrong = is_outside | is_loop
    if is_wrong.any():
        raise ValueError(
            f"a neighbour is not from 1 to {vertices}, or the vertex itself"
        )

    # An edge that stands at both ends is the same in both directions.
    forth = sources * vertices + ends
    back = ends * vertices + sources
    # METIS demands it, and an edge list that looks like METIS hardly ever has it.
    forth.sort()
    back.sort()
    if not np.array_equal(forth, back):
        raise ValueError("an edge stands at one of its ends only")

    # Each edge once: both directions are made of it later.
    is_first = sources < ends
    return sources[is_first], ends[is_first]
