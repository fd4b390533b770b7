"""Lists of edges in text: which columns are the ends, and of how many kinds they are.

Names of columns decide, the first line of KONECT (http://konect.cc: ``% bip ...``), or
options. Without a header the first two columns are the ends, as in SNAP's lists. Below
the first lines of a sparse matrix of MatrixMarket in coordinates
(https://math.nist.gov/MatrixMarket/formats.html) stands a table like any other: 10
million entries take 5.2 s of CPU and 364 MB.

The first line of a graph of METIS (manual of 5.1.0, 4.1.1) is ``vertices edges [fmt
[ncon]]``; a line per vertex follows with its size, its weights, and its neighbours from
1, each with the weight of the edge.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import DataError
from emu.graph_data.readers import text_table
from emu.graph_data.readers.found_graph import FoundGraph
from emu.graph_data.readers.text_table import Keys, TableOptions, Tell, TextTable

#: Names of the two ends of an edge; an earlier pair goes before a later one.
_ENDS = (
    ("source", "target"), ("source", "destination"), ("source", "dest"),
    ("source", "dst"), ("source", "sink"), ("src", "dst"), ("src", "dest"),
    ("src", "target"), ("src", "tgt"), ("src", "trg"), ("from", "to"), ("u", "v"),
    ("head", "tail"), ("citing", "cited"), ("follower", "followee"),
    ("sender", "receiver"), ("parent", "child"), ("i", "j"), ("row", "col"),
    ("row", "column"), ("start", "end"), ("subject", "object"),
)  # fmt: skip
#: Kinds of vertices on the two sides of a bipartite list.
_LEFT = {
    "u", "user", "reviewer", "rater", "customer", "author", "person", "actor", "member",
    "reader",
}  # fmt: skip
_RIGHT = {
    "i", "item", "movie", "product", "book", "paper", "business", "asin", "track",
    "song", "artist", "group", "game", "event", "film", "article", "shop",
}  # fmt: skip
#: Words that say no more than that a column has vertices.
_PLAIN = {"id", "ids", "node", "nodes", "vertex", "vertices", "idx", "index", "key"}
#: Files of MovieLens that have no header: users and items, two kinds.
_RATINGS = re.compile(r"u\w?\.(data|base|test)$|.*ratings?\b", re.IGNORECASE)
_KONECT = re.compile(r"%\s*(sym|asym|bip)\b", re.IGNORECASE)
_METIS = {".graph", ".metis"}
#: Numbers of a value of a matrix, by its type.
_VALUES = {"pattern": 0, "real": 1, "double": 1, "integer": 1, "complex": 2}
_SIZES = re.compile(r"%\s*(\d+)\s+(\d+)\s+(\d+)\s*$")


def words_of(name: str) -> list[str]:
    """Return the words of a column's name: ``fromNodeId`` has from, node and id."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+", name)
    words = [part.lower() for part in parts]
    ends_known = {"node", *_LEFT, *_RIGHT, *(end for pair in _ENDS for end in pair)}
    return [w.removesuffix("id") if w[:-2] in ends_known else w for w in words]


def read_edge_list(path: Path, options: TableOptions) -> FoundGraph:
    """Return the graph of an edge list; its ids are numbered in order.

    Raises DataError with the line that is no edge, or the option that states the ends.
    """
    lines = text_table.first_lines(path, 2)
    konect = _KONECT.match(lines[0]) if lines else None
    table = text_table.open_table(
        path,
        options,
        header=False if konect and options.header is None else options.header,
        # Letters above words may be vertices as well.
        names_columns=lambda n: len(max(n, key=len)) > 1 and _named_ends(n) is not None,
    )
    ends, bipartite, how = _ends(table)
    says = konect or table.names or options.columns is not None or "by" in how
    if not says and bipartite is not None and table.width > 2:
        _check_rows(table)
    if konect and options.bipartite is None:
        bipartite = konect[1].lower() == "bip"
        how += f", {konect[0][1:].strip()} by the first line"
    notes = (f"ends: {how}{table.skipped(ends)}",)
    sizes = _SIZES.match(lines[1]) if konect and len(lines) > 1 else None
    counts = (int(sizes[2]), int(sizes[3])) if sizes else (0, 0)
    if bipartite or bipartite is None:
        sides = [text_table.read_keys(table, [column]) for column in ends]
        if bipartite is None and len(np.intersect1d(sides[0].ids, sides[1].ids)):
            raise table.error(
                f"{' and '.join(map(table.name, ends))} have ids in common: two kinds "
                "of vertices or one? --bipartite or --no-bipartite"
            )
        names = [table.names[c] for c in ends] if table.names else ["left", "right"]
        left, right = map(_fill, sides, counts)
        return join_sides(left, right, (*names,), str(path), notes)
    keys = text_table.read_keys(table, ends)
    if not konect:
        _check_first(table, keys)
    elif counts[0] == counts[1]:
        keys = _fill(keys, counts[0])
    sources, destinations = keys.codes
    count = len(keys.ids) if konect and counts[0] else None
    return FoundGraph(
        sources, destinations, str(path), count, ids=keys.ids, notes=notes
    )


def _fill(keys: Keys, count: int) -> Keys:
    """Return keys whose ids are 1 to ``count``, if they are among them."""
    ids = keys.ids
    if ids.dtype.kind in "US" or not len(ids) or ids[0] < 1 or ids[-1] > count:
        return keys
    return Keys(np.arange(1, count + 1), (ids - 1)[keys.codes])


def join_sides(
    left: Keys, right: Keys, names: tuple[str, ...], origin: str, notes: Iterable[str]
) -> FoundGraph:
    """Return a bipartite graph: first the vertices of the left side, then the right.

    An id that both sides have is called ``NAME:ID``.
    """
    counts = len(left.ids), len(right.ids)
    ids: NDArray[Any] = np.concatenate([left.ids, right.ids])
    kinds = f"{counts[0]} of {names[0]}, {counts[1]} of {names[1]}"
    if len(np.unique(ids)) < len(ids):
        pairs = zip(np.repeat(names, counts), ids.tolist(), strict=True)
        ids = np.array([f"{name}:{one}" for name, one in pairs])
    return FoundGraph(
        left.codes.reshape(-1),
        right.codes.reshape(-1) + counts[0],
        origin,
        ids=ids,
        vertices=len(ids),
        notes=(*notes, f"bipartite: {kinds}"),
    )


def _ends(table: TextTable) -> tuple[tuple[int, ...], bool | None, str]:
    """Return the columns of the ends, whether they are of two kinds, and how so."""
    two = table.options.bipartite
    if two is None and not table.names:
        unclear = table.separator == "::" or _RATINGS.match(table.path.name)
        two = None if unclear else False
    if table.options.columns is not None:
        ends = tuple(table.column(name, "--columns") for name in table.options.columns)
        if len({*ends}) != 2:
            raise table.error("--columns names two columns: --columns source,target")
        if two is None and table.names:
            two = _of_two_kinds([table.names[c] for c in ends])
        return ends, two, f"{' and '.join(map(table.name, ends))} by --columns"
    if table.width < 2:
        raise table.error(
            f"has one column, {table.first_row[0]!r}; an edge has two ends, with "
            "blanks, tabs, or one of , ; | :: between (--header if it is no edge)"
        )
    names = table.names or table.comment_names
    named = _named_ends(names)
    if named is not None:
        if table.options.bipartite is None:
            two = _of_two_kinds([names[c] for c in named])
        numbers = ", ".join(str(column + 1) for column in named)
        ends_text = " and ".join(names[column] for column in named)
        return named, two, f"columns {numbers} by their names, {ends_text}"
    if table.names:
        columns = [name or "(index)" for name in table.names]
        ids = {"", "id", "index"}  # of a row; what follows the ends may be a time
        others = [name for name in table.names if name.lower() not in ids]
        pair = ",".join(others[:2] if others[1:] else columns[-2:])
        raise table.error(
            f"has columns {', '.join(columns)}: which are the ends? --columns {pair}, "
            "with --bipartite or --no-bipartite; if that is an edge, --no-header"
        )
    return (0, 1), two, "columns 1, 2"


def _check_rows(table: TextTable) -> None:
    """Refuse three columns without names that may be something else than edges.

    Its first column may be an index or a time, the second a relation, or it a matrix.
    """
    are_numbers = [*map(text_table.is_number, table.first_row[:3])]
    if are_numbers[0] != are_numbers[1] or not any(are_numbers):
        raise table.error(
            f"begins with {' '.join(table.first_row[:3])!r}: which two are ids, is one "
            "a relation? --columns 1,3 or --columns 1,2 or --columns 2,3"
        )
    rows = [fields for _, fields in islice(table.rows(), table.width + 1)]
    square = {len(rows), *map(len, rows)} == {table.width}
    symmetric = square and rows == [[*column] for column in zip(*rows, strict=True)]
    if symmetric or (len(rows) == 2 and table.width > 4):
        raise table.error(
            f"may be a matrix of {len(rows)} rows, {table.width} columns: write two "
            "ids per line, or name their columns, --columns 1,2"
        )
    last = -1.0
    for _, fields in table.rows() if len(rows) > 1 else ():
        whole = len(fields) == table.width and all(map(text_table.whole, fields[:3]))
        if not whole or float(fields[0]) <= last:
            return
        last = float(fields[0])
    if last >= 0:
        raise table.error(
            "column 1 grows from row to row: an index, a time, or ends of edges? "
            "--columns 2,3 or --columns 1,2"
        )


def _named_ends(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the columns whose names say that they are ends; None if none do."""
    words = [words_of(name) for name in names]
    bare = [[word for word in each if word not in _PLAIN] or each for each in words]
    pairs = [({one}, {other}, exact) for one, other in _ENDS for exact in (True, False)]
    for *sides, exact in (*pairs, (_LEFT, _RIGHT, True)):
        fit = [
            (c, {*each}) for c, each in enumerate(bare) if len(each) == 1 or not exact
        ]
        one, other = ([c for c, each in fit if each & side] for side in sides)
        if len(one) == len(other) == 1 and one != other:
            return one[0], other[0]
    stems = [*enumerate(map(_numbered, names))]
    alike = [
        (a, b) for (a, one), (b, other) in combinations(stems, 2) if one == other != ""
    ]
    if len(names) == 2 and names[0] == names[1]:  # geom-gcn's node_id, node_id
        return 0, 1
    # Of a table of vertices, id,f1,f2, these are features.
    of_vertices = any(each and {*each} <= _PLAIN for each in words)
    return alike[0] if len(alike) == 1 and not of_vertices else None


def _numbered(name: str) -> str:
    """Return what node1, node2, id_a, id_b have in common; "" of other names."""
    match = re.fullmatch(r"(.*?)[ _.-]?([012]|(?<![A-Za-z0-9])[abAB])", name)
    return f"{match[1]}-" if match else ""


def _of_two_kinds(names: Sequence[str]) -> bool | None:
    """Return whether two names are of kinds that differ; None if they do not say."""
    words = [{*words_of(name)} - _PLAIN for name in names]
    for one, other in _ENDS:
        if one in words[0] and other in words[1]:
            rest = words[0] - {one}, words[1] - {other}
            return None if all(rest) and rest[0] != rest[1] else False
    alike = _numbered(names[0]) and _numbered(names[0]) == _numbered(names[1])
    if names[0] == names[1] or alike:
        return False
    return True if words[0] & _LEFT and words[1] & _RIGHT else None


def _check_first(table: TextTable, keys: Keys) -> None:
    """Refuse a first line that may be a header of words, or the sizes of the graph."""
    if table.options.header is not None:
        return
    first_line = " ".join(table.names or table.first_row)
    unclear = keys.ids.dtype.kind == "U" and bool(np.isin(table.names, keys.ids).any())
    if table.open_header:
        counts = np.bincount(keys.codes.reshape(-1), minlength=len(keys.ids))
        unclear = any(counts[keys.codes[:, 0]] < 2)
    if unclear:
        raise table.error(
            f"is the first line, {first_line!r}, a header or an edge? "
            "--header or --no-header"
        )
    numbers = not table.names and all(map(text_table.is_number, table.first_row))
    if numbers and keys.ids.dtype.kind == "i":
        first = [float(text) for text in table.first_row]
        rest = keys.codes[:, 1:]
        fits = rest.size and keys.ids[int(rest.max())] <= max(first[:2])
        if fits and rest.shape[1] in first[1:]:
            raise table.error(
                f"the first line, {first_line!r}, may state sizes: as many edges "
                "follow. --header or --no-header?"
            )


def is_id(name: str) -> bool:
    """Return True where the name of a column is that of ids: id, node_id, paperId."""
    words = words_of(name)
    kinds = _PLAIN | (_LEFT | _RIGHT) - {"i", "u"}
    return bool(words) and (words[-1] == "id" or {*words} <= kinds)


def is_matrix(path: Path) -> bool:
    """Return True where the first line is that of MatrixMarket."""
    first = "".join(text_table.first_lines(path)).lstrip("%").lower()
    return first.startswith("matrixmarket")


def read_matrix(path: Path, options: TableOptions) -> FoundGraph:
    """Return the graph of a sparse matrix; one that is not square is bipartite.

    Raises DataError when it is dense, or an entry is not as the first lines say.
    """
    kind = text_table.first_lines(path)[0].lstrip("%").lower().split()[1:]
    table = text_table.open_table(path, options, header=True)
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
    rows, columns, entries = map(int, table.sizes)
    try:
        ends = table.read((0, 1), np.int64)
    except (ValueError, OverflowError, UserWarning):
        ends = np.zeros((2, 1), np.int64)
    if (ends < 1).any() or (ends > [[rows], [columns]]).any():

        def fits(fields: list[str]) -> bool:
            numbers = [int(text) if text.isdecimal() else 0 for text in fields]
            return 1 <= numbers[0] <= rows and 1 <= numbers[1] <= columns

        need = f"row and column from 1 to {rows} and {columns}"
        raise table.bad_line((0, 1), fits, need)
    if ends.shape[1] != entries:
        raise table.error(f"states {entries} entries and holds {ends.shape[1]}")
    rest = "; skipped: values" if width > 2 else ""
    note = f"MatrixMarket, {' '.join(kind[2:])}: rows and columns are the ends{rest}"
    ids = np.arange(1, rows + 1)
    if rows != columns and options.bipartite is False:
        raise table.error(f"has {rows} rows and {columns} columns: it is bipartite")
    if rows != columns or options.bipartite:
        sides = Keys(ids, ends[:1] - 1), Keys(np.arange(1, columns + 1), ends[1:] - 1)
        return join_sides(*sides, ("row", "column"), str(path), [note])
    ends -= 1
    return FoundGraph(ends[0], ends[1], str(path), rows, ids=ids, notes=(note,))


def read_metis(path: Path, tell: Tell | None = None) -> FoundGraph | None:
    """Return the graph of a file of METIS; None where it is none.

    It is one where lines, neighbours and their symmetry are as the first line says.
    Raises DataError when its name ends in .graph, and a line is not so; says which.
    """
    try:
        return _read_metis(path, tell)
    except ValueError as error:
        if path.suffix not in _METIS:
            return None
        problem = f"is no METIS: {error}; an edge list is to be called .txt"
        raise DataError(problem, path=str(path)) from error


def _read_metis(path: Path, tell: Tell | None) -> FoundGraph:
    with text_table.open_lines(path, tell) as file:
        lines = (line for line in file if not line.startswith("%"))
        header = next((line for line in lines if line.strip()), "").split()
        if not 2 <= len(header) <= 4:
            raise ValueError("the first line is not: vertices edges [fmt [ncon]]")
        vertices, edges = int(header[0]), int(header[1])
        flags = header[2].rjust(3, "0") if len(header) > 2 else "000"
        if len(flags) != 3 or {*flags} - {*"01"} or vertices < 1:
            raise ValueError(f"fmt is {flags}")
        size, weighs, step = int(flags[0]), flags[1] == "1", 1 + int(flags[2])
        before = size + weighs * int((header[3:] or ["1"])[0])
        numbers, lengths = array("q"), array("q")
        for line in lines:
            fields = line.split()
            if len(lengths) >= vertices and fields:
                raise ValueError(f"more than {vertices} lines follow")
            lengths.append(len(fields))
            numbers.extend(map(int, fields))
            if len(numbers) > vertices * before + 2 * edges * step:
                raise ValueError(f"more numbers follow than {edges} edges have")
    if len(numbers) < 2 * edges:  # ids; memory would be taken for as many vertices
        raise ValueError(f"{len(numbers)} neighbours stand for {edges} edges")
    # Vertices without an edge at the end may lack their empty lines.
    counts = np.zeros(vertices, np.int64)
    counts[: len(lengths)] = lengths[:vertices]
    parts = ["sizes of vertices"] * size + ["weights of vertices"] * weighs
    parts += ["weights of edges"] * (step - 1)
    rest = f"; skipped: {', '.join(parts)}" if parts else ""
    return FoundGraph(
        *_take_edges(np.array(numbers, np.int64), counts, before, step, edges),
        str(path),
        vertices,
        ids=np.arange(1, vertices + 1),
        notes=(f"METIS: neighbours of {vertices} vertices, a line each{rest}",),
    )


def _take_edges(
    numbers: NDArray[np.int64],
    counts: NDArray[np.int64],
    before: int,
    step: int,
    edges: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return both ends of every edge, from 0, if each stands at both of them."""
    if ((counts < before) & (counts > 0)).any() or (before and (counts == 0).any()):
        raise ValueError(f"a line has fewer than {before} numbers before neighbours")
    if ((counts - before) % step).any():
        raise ValueError("a neighbour has no weight")
    starts, vertices = np.cumsum(counts) - counts, len(counts)
    place = np.arange(len(numbers)) - np.repeat(starts, counts)
    is_end = (place >= before) & ((place - before) % step == 0)
    sources, ends = np.repeat(np.arange(vertices), counts)[is_end], numbers[is_end] - 1
    if len(sources) != 2 * edges:
        raise ValueError(f"{len(sources)} neighbours stand for {edges} edges")
    if (ends < 0).any() or (ends >= vertices).any() or (sources == ends).any():
        problem = f"a neighbour is not from 1 to {vertices}, or the vertex itself"
        raise ValueError(problem)
    forth, back = sources * vertices + ends, ends * vertices + sources
    if not np.array_equal(np.sort(forth), np.sort(back)):
        raise ValueError("an edge stands at one of its ends only")
    return sources[sources < ends], ends[sources < ends]
