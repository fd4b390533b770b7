"""The first lines of an edge list: names of columns, sizes, or edges."""

from __future__ import annotations

from collections.abc import Sequence

from emu.graph_data.readers.columns import (
    EMPTY,
    INTEGER,
    TEXT,
    Column,
    is_number,
    kind_of,
)
from emu.graph_data.readers.edge_columns import named_ends
from emu.graph_data.readers.questions import Reading, ask
from emu.graph_data.readers.text_table import TextTable


def is_header(table: TextTable) -> bool:
    """Return whether the first row has names; DataError where it may as well be one."""
    first = table.header
    columns = table.columns
    names = table.options.columns
    names_are_stated = names and not any(word.isdecimal() for word in names)
    has_index = table.first_row[0] == ""  # that of pandas has no name
    no_numbers = {TEXT, EMPTY}
    number_columns = [
        place for place, column in columns.items() if column.main_kind not in no_numbers
    ]
    # The header may have fewer names than there are columns.
    over_numbers = [first[place] for place in number_columns if place < len(first)]
    is_over_numbers = any(kind_of(name) == TEXT for name in over_numbers)
    if names_are_stated or has_index or is_over_numbers:
        return True

    has_ends = named_ends(first) is not None
    # A name that stands below as well is an id.
    words_below: set[str] = set()
    ends = sorted(columns)[:2]
    for end in ends:
        words_below.update(columns[end].words or ())
    recurs = [first[end] in words_below for end in ends]
    # Ends are called u and v, and vertices of small examples likewise.
    longest = max(first, key=len)
    are_letters = len(longest) == 1
    if has_ends and not are_letters and not any(recurs):
        return True
    # A number is no name, whatever stands beside it.
    if any(map(is_number, table.first_row)):
        return False
    if any(recurs) and not has_ends:
        return False
    if all(recurs) and are_letters:
        return False

    first_column = min(columns)
    rows = columns[first_column].rows
    words = " ".join(table.first_row)
    question = f"is the first line, {words!r}, a header or an edge?"
    raise _ask_for_header(
        table,
        question=question,
        meaning="a header",
        edges=rows,
    )


def _ask_for_header(
    table: TextTable,
    question: str,
    meaning: str,
    edges: int,
) -> Exception:
    """Return a question whether the first line is an edge; ``edges`` follow it."""
    counts = f"{edges:,} edges"
    if meaning == "sizes":
        counts += " follow"
    readings = [
        Reading(meaning, counts, "--header"),
        Reading("an edge", f"{edges + 1:,} edges", "--no-header"),
    ]
    return ask(question, readings, table.path)


def check_second_row(
    table: TextTable,
    ends: tuple[int, int],
    columns: Sequence[Column],
) -> None:
    """Refuse words below names that may be a second header, as string,string."""
    first, second = (table.row[end] for end in ends)
    are_words = columns[0].main_kind == TEXT
    # A row of types says the same of both columns: string,string.
    if not table.names or not are_words or first != second:
        return

    counts = [column.fields().count(first) for column in columns]
    is_alone = counts == [1, 1] and columns[0].rows > 1
    if is_alone and table.options.header is None:
        number = table.lines_before + 1
        words = f"{first} {second}"
        raise table.error(
            f"line {number}, {words!r}, may be a second "
            "header: remove it, or the one above and state --no-header, --columns"
        )


def check_sizes(table: TextTable) -> None:
    """Refuse a first row of numbers that may say how many rows follow."""
    all_columns = list(table.columns.values())
    columns = all_columns[:2]
    if len(columns) < 2:
        return

    are_whole = all(column.kind == INTEGER for column in columns)
    if are_whole and states_sizes(table.row, *columns):
        words = " ".join(table.row)
        question = f"the first line, {words!r}, may state sizes."
        edges = columns[0].rows - 1
        raise _ask_for_header(
            table,
            question=question,
            meaning="sizes",
            edges=edges,
        )


def states_sizes(
    row: tuple[str, ...],
    left: Column,
    right: Column,
) -> bool:
    """Return True where a first row of numbers says how many rows follow.

    Those have no id beyond the sizes.
    """
    are_numbers = all(map(is_number, row))
    if not are_numbers or left.rows < 2:
        return False

    sizes = [float(field) for field in row]
    # The first number is of vertices, one of the others of rows.
    if left.rows - 1 not in sizes[1:]:
        return False

    # An id beyond the sizes shows that the first row is none of these.
    highest_left = left.real[1:].max()
    highest_right = right.real[1:].max()
    highest = max(highest_left, highest_right)
    most = max(sizes[:2])
    return bool(highest <= most)
