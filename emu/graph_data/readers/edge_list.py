"""Lists of edges in text: columns with the ends, or a vertex and its neighbours.

Options decide, then names of columns, the first line of KONECT (http://konect.cc:
``% bip ...``), then what all rows show (`edge_columns`). Where a second reading is as
plausible, it is asked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from emu.graph_data.readers import text_table
from emu.graph_data.readers.columns import (
    EMPTY,
    INTEGER,
    TEXT,
    Column,
    Keys,
    is_number,
    join_columns,
    whole,
)
from emu.graph_data.readers.edge_columns import (
    Pair,
    are_two_kinds,
    named_ends,
    pairs_of_ids,
    plausible_pairs,
)
from emu.graph_data.readers.edge_header import (
    check_second_row,
    check_sizes,
    is_header,
)
from emu.graph_data.readers.found_graph import FoundGraph
from emu.graph_data.readers.questions import Reading, ask, count_left_out, size_of
from emu.graph_data.readers.sides import fill_ids, join_sides
from emu.graph_data.readers.text_table import TableOptions, TextTable

#: Files of MovieLens that have no header: users and items, two kinds.
_RATINGS = re.compile(r"u\w?\.(data|base|test)$|.*ratings?\b", re.IGNORECASE)
#: First line of KONECT: symmetric, asymmetric or bipartite.
_KONECT = re.compile(r"%\s*(sym|asym|bip)\b", re.IGNORECASE)
#: Its second line: edges, and vertices of either side.
_SIZES = re.compile(r"%\s*(\d+)\s+(\d+)\s+(\d+)\s*$")
#: Comment of SNAP with the number of edges.
_EDGES = re.compile(r"#.*\bedges:?\s*(\d[\d,]*)", re.IGNORECASE)
#: Lines that may state sizes.
_COMMENTS = 8
#: For a line with more or fewer columns than those before.
_HINT = " (or --neighbours, if each line has a vertex and its neighbours)"
#: Names of the two kinds where no column has one.
_SIDES = ("left", "right")
#: Columns of a table without names that are looked at, and readings that are asked.
_MOST_COLUMNS = 8
_MOST_ASKED = 3
#: Columns from which a square table may be a matrix though it is not symmetric.
_WIDE = 4


@dataclass(frozen=True)
class Ends:
    """The columns that are taken for the ends of edges."""

    columns: tuple[int, int]
    two_kinds: bool | None
    """True where they number vertices of two kinds; None where nothing says so."""
    reason: str


def read_edge_list(path: Path, options: TableOptions) -> FoundGraph:
    """Return the graph of an edge list; its ids are numbered in order.

    Raises DataError with the line that is no edge, or with every reading that is
    plausible and the option that decides.
    """
    table = text_table.open_table(path, options)
    table = replace(table, hint=_HINT)
    lines = [*text_table.first_lines(path, 2), "", ""]
    konect = _KONECT.match(lines[0])
    # One field above several is most likely a number of edges.
    has_one_field = len(table.first_row) == 1 < table.width
    if options.header is None and has_one_field:
        first = table.first_row[0]
        raise table.error(f"the first line, {first!r}, is no edge; if so, --header")
    if table.width < 2:
        raise table.error(
            f"has one column, {table.row[0]!r}; an edge has two ends, with "
            "blanks, tabs, or one of , ; | :: between (--header if it is no edge)"
        )

    is_konect = konect is not None
    table = _read_columns(table, is_konect=is_konect)
    # KONECT states its sizes in comments, and a header is no number.
    has_header = bool(table.names) or options.header is not None
    if not konect and not has_header:
        check_sizes(table)
    ends = _choose_ends(table, is_konect=is_konect)
    counts = (0, 0)
    if konect:
        ends = _take_konect(ends, konect, options)
        sizes = _SIZES.match(lines[1])
        if sizes:
            counts = (int(sizes[2]), int(sizes[3]))

    pair = [table.columns[end] for end in ends.columns]
    as_words = _are_words(table, ends.columns, *pair)
    graph = _build(table, ends=ends, columns=pair, counts=counts, as_words=as_words)
    # Last, since only a table of words can have a second header that passes for a row.
    check_second_row(table, ends.columns, pair)

    unused = table.left_out(ends.columns)
    left_out = count_left_out("column", unused)
    if table.has_attributes:
        left_out += ("attributes of edges, in braces",)

    note = f"ends: {ends.reason}"
    count_notes = _count_stated(path, pair[0])
    return replace(
        graph,
        notes=(note, *graph.notes, *count_notes),
        left_out=left_out,
    )


def _take_konect(
    ends: Ends,
    line: re.Match[str],
    options: TableOptions,
) -> Ends:
    """Return the ends with their kinds, as the first line of KONECT states them."""
    two_kinds = options.bipartite
    if two_kinds is None:
        word = line[1].lower()
        two_kinds = word == "bip"
    first_line = line[0]
    kind = first_line[1:].strip()
    reason = f"{ends.reason}, {kind} by the first line"
    return replace(ends, reason=reason, two_kinds=two_kinds)


def _count_stated(path: Path, column: Column) -> list[str]:
    """Return a note where comments of SNAP or KONECT state another number of edges."""
    for line in text_table.first_lines(path, _COMMENTS):
        match = _EDGES.match(line) or _SIZES.match(line)
        # A note, no error: the rows are what counts.
        if match is None:
            continue
        # 1,049,866 as well as 1049866.
        digits = match[1].replace(",", "")
        stated = int(digits)
        if stated != column.rows:
            return [f"{stated} edges are stated, {column.rows} are there"]
    return []


def _build(
    table: TextTable,
    ends: Ends,
    columns: Sequence[Column],
    counts: tuple[int, int],
    *,
    as_words: bool,
) -> FoundGraph:
    """Return the graph of two columns; KONECT may state how many ids there are."""
    notes = []
    if as_words and columns[0].main_kind == INTEGER:
        notes.append("ids are words")
    # None means that nothing says so: sides are numbered apart, and compared below.
    if ends.two_kinds is not False:
        sides = [join_columns([column], as_words=as_words) for column in columns]
        if ends.two_kinds is None:
            _check_kinds(table, ends.columns, sides)
        names = _SIDES
        if table.names:
            source, destination = ends.columns
            names = (table.names[source], table.names[destination])
        left, right = sides
        left_count, right_count = counts
        return join_sides(
            left=fill_ids(left, left_count),
            right=fill_ids(right, right_count),
            names=names,
            origin=str(table.path),
            notes=notes,
        )

    keys = join_columns(columns, as_words=as_words)
    # One kind of vertices has one count, which KONECT states twice.
    count, other_count = counts
    if count == other_count:
        keys = fill_ids(keys, count)
    sources, destinations = keys.codes
    # None lets rows of a table beside the list say how many vertices there are.
    vertices = len(keys.ids) if count else None
    return FoundGraph(
        sources=sources,
        destinations=destinations,
        origin=str(table.path),
        vertices=vertices,
        ids=keys.ids,
        notes=tuple(notes),
    )


def _read_columns(table: TextTable, *, is_konect: bool) -> TextTable:
    """Return the table with its header decided, and its columns that may be ends."""
    has_header = table.options.header
    if has_header is None and is_konect:
        has_header = False
    is_decided = has_header is not None or not text_table.starts_with_words(table)
    if is_decided:
        table = table.decide(header=bool(has_header))
        wanted = _wanted_columns(table, table.names)
        columns = table.read_ids(wanted)
        return replace(table, columns=columns)

    # Read without the first row: only what is below shows whether that has names.
    number = table.lines_before + 1
    below = replace(table, lines_before=number)
    wanted = _wanted_columns(table, table.header)
    columns = below.read_ids(wanted)
    table = replace(table, columns=columns)
    if is_header(table):
        return table.decide(header=True)
    if len(table.first_row) != table.width:
        need = f"{table.width} columns"
        raise table.wrong_line(number, table.first_row, need)
    table = table.decide(header=False)
    wanted = _wanted_columns(table, ())
    # Words that only looked like names of ends have chosen the columns.
    if not columns.keys() >= set(wanted):
        columns = table.read_ids(wanted)
        return replace(table, columns=columns)
    return text_table.put_on_top(table)


def _wanted_columns(table: TextTable, names: tuple[str, ...]) -> list[int]:
    """Return the columns that are read: those that are named ends, else the first."""
    if table.options.columns:
        stated = [name.strip() for name in table.options.columns]
        places = [place for place, name in enumerate(names) if name in stated]
        # A column is stated by its name or by its number from 1.
        numbers = [int(name) for name in stated if name.isdecimal()]
        places += [number - 1 for number in numbers]
        wanted = [place for place in range(table.width) if place in places]
        # One column at least: that the names are wrong is told with all of them at
        # hand.
        return wanted or [0]

    # A header goes before a comment, which may be of anything.
    for words in (names, table.words_above):
        ends = _ends_by_name(table, words)
        if ends:
            return list(ends)
    count = min(table.width, _MOST_COLUMNS)
    return list(range(count))


def _ends_by_name(table: TextTable, names: tuple[str, ...]) -> tuple[int, int] | None:
    """Return the ends that words of a header or a comment name, if they do."""
    if len(names) != table.width:
        return None
    return named_ends(names)


def _choose_ends(table: TextTable, *, is_konect: bool) -> Ends:
    """Return the columns of the ends; DataError with all that they may be."""
    if table.options.columns is not None:
        return _stated_ends(table, table.options.columns)

    for names in (table.names, table.words_above):
        ends = _ends_by_name(table, names)
        if ends is not None:
            source, destination = ends
            end_names = [names[source], names[destination]]
            reason = f"columns {source + 1}, {destination + 1} by their names, "
            reason += " and ".join(end_names)
            two_kinds = _two_kinds(table, end_names)
            return Ends(ends, two_kinds, reason)
    # Columns with names are never guessed: the names say that their order is free.
    if table.names:
        raise _ask_for_names(table)

    # Two columns leave no choice; KONECT and MovieLens fix theirs.
    is_open = table.width > 2 and not is_konect
    if is_open and not _may_rate(table):
        _check_pairs(table)
    two_kinds = _two_kinds(table)
    return Ends((0, 1), two_kinds, "columns 1, 2")


def _stated_ends(table: TextTable, stated: tuple[str, ...]) -> Ends:
    places = [table.column(name, "--columns") for name in stated]
    if len(places) != 2 or len(set(places)) != 2:
        raise table.error("--columns names two columns: --columns source,target")

    source, destination = places
    names = [table.names[place] for place in places if table.names]
    source_name = table.name(source)
    destination_name = table.name(destination)
    reason = f"{source_name} and {destination_name} by --columns"
    two_kinds = _two_kinds(table, names)
    ends = (source, destination)
    return Ends(ends, two_kinds, reason)


def _two_kinds(table: TextTable, names: Sequence[str] = ()) -> bool | None:
    """Return whether ends are of two kinds, None where names and file do not say."""
    if table.options.bipartite is not None:
        return table.options.bipartite
    if names:
        return are_two_kinds(names)
    # Without any hint ends are of one kind, as in SNAP's lists.
    if _may_rate(table):
        return None
    return False


def _may_rate(table: TextTable) -> bool:
    """Return True for a file that may have ratings of MovieLens."""
    is_named_so = _RATINGS.match(table.path.name) is not None
    return is_named_so or table.separator == "::"


def _readings(
    table: TextTable,
    pairs: Iterable[Pair],
    edges: int,
) -> list[Reading]:
    readings = []
    for pair in list(pairs)[:_MOST_ASKED]:
        source, destination = pair.ends
        source_name = table.name(source)
        destination_name = table.name(destination)
        columns = f"{table.option(source)},{table.option(destination)}"
        reading = Reading(
            meaning=f"{source_name} and {destination_name}",
            counts=size_of(pair.vertices, edges),
            option=f"--columns {columns}",
        )
        readings.append(reading)

    return readings


def _ask_for_names(table: TextTable) -> Exception:
    """Return a question for the ends among columns with names that do not say."""
    all_pairs = pairs_of_ids(table.columns)
    pairs = sorted(all_pairs, key=lambda pair: -pair.overlap)
    shown_names = [name or "(index)" for name in table.names]
    names = ", ".join(shown_names)
    question = f"has columns {names}: which are the ends?"
    if not pairs:
        return table.error(f"{question} No two have ids; --columns A,B names them")

    edges = table.columns[0].rows
    readings = _readings(table, pairs, edges)
    # Without names that tell, the kinds are as open as the columns.
    kinds = "with --bipartite or --no-bipartite"
    last = readings.pop()
    readings += [
        replace(last, option=f"{last.option}, {kinds}"),
        Reading("if that line is an edge", "one more", "--no-header"),
    ]
    return ask(question, readings, table.path)


def _check_pairs(table: TextTable) -> None:
    """Refuse columns without names of which others may be the ends as well."""
    rows = table.columns[0].rows
    # As many rows as columns: each entry may stand for an edge.
    are_two_of_many = rows == 2 and table.width > _WIDE
    if rows == table.width or are_two_of_many:
        _refuse_matrix(table)

    pairs = plausible_pairs(table.columns)
    if not pairs:
        return
    first_pair = pairs[0]
    are_first_two = first_pair.ends == (0, 1)
    if are_first_two and len(pairs) == 1:
        return

    first_fields = table.first_row[:_MOST_COLUMNS]
    fields = " ".join(first_fields)
    question = f"begins with {fields!r}: which two columns are ids?"
    readings = _readings(table, pairs, rows)
    # Every column has ids in common with every other: lines may be lists of neighbours.
    all_pairs = math.comb(len(table.columns), 2)
    are_all = len(pairs) == all_pairs
    if not are_first_two:
        other = Reading(
            meaning="column 1 and column 2",
            counts="of two kinds",
            option="--columns 1,2 --words",
        )
        readings.append(other)
    elif are_all and all(pair.common for pair in pairs):
        edges = rows * (table.width - 1)
        other = Reading(
            meaning="a vertex and its neighbours",
            counts=f"{edges:,} edges",
            option="--neighbours",
        )
        readings.append(other)
    raise ask(question, readings, table.path)


def _refuse_matrix(table: TextTable) -> None:
    rows = [fields for _, fields in table.rows()]
    is_square = len(rows) == table.width
    is_symmetric = False
    if is_square:
        transposed = zip(*rows, strict=True)
        columns = [list(column) for column in transposed]
        is_symmetric = rows == columns

    may_be_dense = table.width > _WIDE and all(map(is_number, rows[0]))
    if is_symmetric or may_be_dense:
        raise table.error(
            f"may be a matrix of {len(rows)} rows, {table.width} columns: write two "
            "ids per line, or name their columns, --columns 1,2"
        )


def _are_words(
    table: TextTable,
    ends: tuple[int, int],
    left: Column,
    right: Column,
) -> bool:
    """Return whether ids are words; DataError with a line that has no two ids."""
    as_words = table.options.words
    if as_words is None:
        # Words in one column make both words: an id has one form.
        kinds = {left.main_kind, right.main_kind}
        as_words = TEXT in kinds
        as_words = as_words and left.is_id and right.is_id

    def fits(fields: list[str]) -> bool:
        if as_words:
            return all(fields)
        return all(map(whole, fields))

    gaps = left.kinds[EMPTY] + right.kinds[EMPTY]
    has_gaps = gaps > 0
    are_numbers = left.kind == right.kind == INTEGER
    if has_gaps or not (as_words or are_numbers):
        need = "two vertex ids"
        if not as_words:
            need += ", whole numbers from 0 (or --words)"
        if table.width > 2:
            need += ", by --columns"
        raise table.bad_line(ends, fits, need)

    is_padded = left.is_padded or right.is_padded
    if table.options.words is None and is_padded:
        return _check_padded(table, left, right)
    return as_words


def _check_padded(table: TextTable, left: Column, right: Column) -> bool:
    """Return True: ids that begin with zeros are words, if none is another's number."""
    kinds = {left.main_kind, right.main_kind}
    if TEXT not in kinds:
        # Where no two ids are one number, both answers give one graph.
        columns = [left, right]
        word_keys = join_columns(columns, as_words=True)
        number_keys = join_columns(columns, as_words=False)
        words = len(word_keys.ids)
        numbers = len(number_keys.ids)

        if words != numbers:
            word_graph = size_of(words, left.rows)
            number_graph = size_of(numbers, left.rows)
            readings = [
                Reading("as words", word_graph, "--words"),
                Reading("as numbers", number_graph, "--no-words"),
            ]
            question = "has ids with zeros in front: is 007 also 7?"
            raise ask(question, readings, table.path)
    return True


def _check_kinds(
    table: TextTable,
    ends: tuple[int, int],
    sides: Sequence[Keys],
) -> None:
    """Refuse sides with ids in common where nothing says that they are two kinds."""
    left, right = sides
    # Sides without an id in common give the same graph either way.
    common_ids = np.intersect1d(left.ids, right.ids)
    common = len(common_ids)
    if not common:
        return

    vertices = len(left.ids) + len(right.ids)
    edges = left.codes.size
    end_names = map(table.name, ends)
    names = " and ".join(end_names)
    question = f"{names} have {common} ids in common: two kinds of vertices or one?"
    graph_of_two = size_of(vertices, edges)
    graph_of_one = size_of(vertices - common, edges)
    readings = [
        Reading("two", graph_of_two, "--bipartite"),
        Reading("one", graph_of_one, "--no-bipartite"),
    ]
    raise ask(question, readings, table.path)
