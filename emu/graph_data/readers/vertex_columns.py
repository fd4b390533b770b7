"""Which columns of a table beside a graph have ids, classes, parts and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from typing_extensions import override

from emu.graph_data.readers.columns import (
    BOOLEAN,
    COMMA,
    INTEGER,
    NUMBER,
    TEXT,
    Column,
    column_of_ids,
    count_common,
)
from emu.graph_data.readers.edge_columns import is_id, words_of
from emu.graph_data.readers.found_graph import FoundGraph
from emu.graph_data.readers.questions import Reading, ask
from emu.graph_data.readers.text_table import TextTable

_NAMES = """
label labels class classes y target category community subject topic
split set fold part subset train valid val test mask
"""
#: Words in names of columns of classes, and of parts.
_CLASS_LINE, _PART_LINE = _NAMES.strip().splitlines()
_CLASS = set(_CLASS_LINE.split())
_PART = set(_PART_LINE.split())
#: Words that say of a name that it is one of vertices.
_OF_VERTICES = {"node", "id"}
#: Names of ids that go before others, where they join no fewer vertices.
_FIRST_IDS = {"id", "node_id"}
#: Columns from which 0 and 1 in each, one 1 per row, are classes.
_FEWEST_ONE_HOT = 3
#: Kinds of columns whose fields can be features.
NUMERIC = {INTEGER, NUMBER, COMMA, BOOLEAN}


def is_beside(name: str) -> bool:
    """Return True for names of classes and parts, which are no features."""
    # A name like node_label is of a class as well; one like target_score may be a
    # feature.
    words = set(words_of(name)) - _OF_VERTICES
    return bool(name) and words <= _CLASS | _PART


def is_part(name: str) -> bool:
    """Return True for names of parts of a split."""
    words = set(words_of(name))
    return not words.isdisjoint(_PART)


def names_vertices(names: Sequence[str], parts: Mapping[str, str]) -> bool:
    """Return True where words in a first row are names that are known."""
    headings = [name for name in names if is_id(name) or is_beside(name)]
    # A first row of parts alone, train or test, is a row: these are values, too.
    return any(name.lower() not in parts for name in headings)


@dataclass(frozen=True, eq=False)
class KnownIds:
    """The ids of a graph that a table beside it may name."""

    graph: FoundGraph

    @cached_property
    def column(self) -> Column:
        """Ids of all vertices, or of those that have an edge."""
        graph = self.graph
        if graph.ids is not None:
            return column_of_ids(graph.ids)
        if graph.vertices is not None:
            places = np.arange(graph.vertices)
            return Column(places)
        ends = np.concatenate([graph.sources, graph.destinations])
        distinct = np.unique(ends)
        return Column(distinct.astype(np.int64))

    def meet(self, column: Column) -> Meeting:
        """Return how many ids a column and the graph have in common."""
        common = count_common(column, self.column)
        return Meeting(
            matched=common,
            strange=len(column.distinct) - common,
            missing=len(self.column.distinct) - common,
        )


@dataclass(frozen=True)
class Meeting:
    """Counts of ids that a table and a graph have in common, or alone."""

    matched: int
    strange: int
    """Ids of the table that the graph does not have."""
    missing: int
    """Ids of the graph that the table does not have."""

    @property
    def is_in_part(self) -> bool:
        """True where both have ids that the other does not have."""
        return bool(self.matched and self.strange and self.missing)

    @override
    def __str__(self) -> str:
        count = self.matched + self.missing
        return f"{self.matched} of the graph's {count} ids, {self.strange} others"


def choose_id(
    table: TextTable,
    known: KnownIds | None,
    others: Sequence[int],
) -> int | None:
    """Return the column that names vertices, None where rows are in order.

    ``others`` are columns that hold the values. Raises DataError with the columns that
    may be it, or where nothing says whether there is one.
    """
    options = table.options
    if options.id_column is not None:
        return table.column(options.id_column, "--id-column")
    if options.ids is False:
        return None

    named = [place for place, name in enumerate(table.names) if is_id(name)]
    id_columns = [place for place in named if place not in others]
    if len(id_columns) > 1:
        return _best_id(table, id_columns, known)
    if id_columns:
        return id_columns[0]
    if options.ids:
        return 0

    has_index = table.names[:1] == ("",)
    first = table.columns[0]
    # pandas writes the number of each row under no name: that is no id.
    counts_rows = True
    if has_index:
        numbers = np.arange(first.rows)
        counts_rows = np.array_equal(first.real, numbers)
    if not counts_rows:
        raise table.error(
            "has a first column without a name: ids of the vertices, or to be skipped? "
            "--ids or --no-ids"
        )
    return None


def _best_id(
    table: TextTable,
    places: list[int],
    known: KnownIds | None,
) -> int:
    """Return which of several columns of ids joins; DataError where two may."""
    plain = [place for place in places if table.names[place].lower() in _FIRST_IDS]
    # Without a graph nothing says which joins: the plainest name, else the first.
    if known is None:
        candidates = plain or places
        return candidates[0]

    meetings = {place: known.meet(table.columns[place]) for place in places}
    matched = {place: meeting.matched for place, meeting in meetings.items()}
    joining = [place for place in places if matched[place]]
    if len(joining) == 1:
        return joining[0]
    candidates = joining or places
    best = max(candidates, key=matched.__getitem__)
    rest = [matched[place] for place in joining if place != best]
    # A plain id wins only where it joins more than any other does.
    most_of_rest = max(rest, default=0)
    if best in plain and matched[best] > most_of_rest:
        return best

    readings = []
    for place in candidates:
        reading = Reading(
            meaning=table.name(place),
            counts=str(meetings[place]),
            option=f"--id-column {table.option(place)}",
        )
        readings.append(reading)
    raise ask("has several columns of ids: which joins?", readings, table.path)


def first_as_id(
    table: TextTable,
    place: int | None,
    value: int,
) -> int | None:
    """Return the column of ids beside one of classes or parts.

    Raises DataError where the first may be it, and nothing says so.
    """
    has_index = table.names[:1] == ("",)  # which counts the rows
    is_alone = table.width == 1 or has_index
    is_settled = place is not None or table.options.ids is False
    if is_settled or is_alone:
        return place

    # A header that calls no column an id leaves it open, and a wrong guess would give
    # vertices the labels of others.
    if table.names or value == 0:
        raise table.error(
            f"has no column that is called id beside {table.name(value)}: is the first "
            "one the id, or are rows in order of vertices? --ids or --no-ids (or "
            "--id-column NAME)"
        )
    return 0


def number_column(table: TextTable, known: KnownIds | None) -> int | None:
    """Return the first column of features without names where it has ids.

    It has where it is of words, or has different whole numbers and words follow, the
    classes. Raises DataError where its numbers may be ids as well as values.
    """
    first = table.columns[0]
    kinds = {column.main_kind for column in table.columns.values()}
    has_words = TEXT in kinds
    if first.main_kind == TEXT:
        return 0
    if table.width == 1:
        return None

    if first.main_kind != INTEGER:
        return None
    # Ids are distinct: numbers that recur are values.
    recurs = len(first.distinct) < first.rows
    if recurs:
        return None
    if has_words:
        return 0
    # Numbers that are no ids of the graph are values.
    joins = known is None or known.meet(first).matched > 0
    if not joins:
        return None
    raise table.error(
        "is column 1 the id of the vertex, or a value and the rows in order? "
        "--ids or --no-ids"
    )


def choose_class(table: TextTable, place: int | None) -> int | None:
    """Return the column of the classes; None where each class has a column of 0 and 1.

    Raises DataError where several may have them.
    """
    label_column = table.options.label_column
    if label_column is not None:
        return table.column(label_column, "--label-column")
    has_index = table.names[:1] == ("",)
    # An index of pandas is the first column and has no name: it is no class.
    others = [c for c in table.columns if c != place and c >= has_index]
    if len(others) == 1:
        return others[0]

    if table.names:
        class_columns = []
        for c in others:
            words = set(words_of(table.names[c]))
            words -= _OF_VERTICES
            if words and words <= _CLASS:
                class_columns.append(c)
    elif table.width == 2:
        class_columns = [1]
    else:
        # Classes as words in a table of numbers; the first column may be words for ids.
        of_words = [c for c in others if table.columns[c].main_kind == TEXT]
        class_columns = [c for c in of_words if c]
    if len(class_columns) == 1:
        return class_columns[0]
    if one_hot_columns(table, place):
        return None
    raise table.error(
        f"has {table.width} columns: name that of the classes with --label-column"
    )


def one_hot_columns(table: TextTable, place: int | None) -> list[int]:
    """Return the columns of which each row has one 1 and else 0; empty if none are."""
    others = [c for c in table.columns if c != place]
    kinds = {table.columns[c].main_kind for c in others}
    may_be_binary = kinds <= {INTEGER, BOOLEAN}
    if len(others) < _FEWEST_ONE_HOT or not may_be_binary:
        return []
    values = np.stack([table.columns[c].real for c in others])
    is_binary = (values == 0) | (values == 1)
    have_one = values.sum(0) == 1
    if is_binary.all() and have_one.all():
        return others
    return []


def choose_features(table: TextTable) -> list[int]:
    """Return the columns of numbers, and of what can be a number, as True and False.

    Raises DataError where commas may part decimals or thousands.
    """
    places = []
    for place, column in table.columns.items():
        name = ""
        if table.names:
            name = table.names[place]
        is_index = bool(table.names) and not name
        has_other_use = is_id(name) or is_beside(name) or is_index

        # A column without a name among named ones is the index that pandas writes.
        if has_other_use or column.main_kind not in NUMERIC:
            continue
        # 1,234 may be 1.234 or 1234.
        if column.may_be_thousands:
            raise table.error(
                f"{table.name(place)} has numbers as 1,234: decimals or thousands? "
                "Write them with a dot, or without a comma"
            )
        places.append(place)
    return places
