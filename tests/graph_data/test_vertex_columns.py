"""Columns of tables beside a graph: ids, classes, parts and features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.graph_data.readers.columns import Column
from emu.graph_data.readers.found_graph import FoundGraph
from emu.graph_data.readers.vertex_columns import (
    KnownIds,
    choose_class,
    choose_features,
    choose_id,
    first_as_id,
    is_beside,
    is_part,
    names_vertices,
    number_column,
    one_hot_columns,
)


class Table:
    """A table by the names of its columns, and their fields."""

    path = "table.csv"

    def __init__(self, names: str, *columns: list[str], **options: Any) -> None:
        self.names = tuple(names.split(",")) if names else ()
        self.columns = dict(enumerate(map(Column.of, columns)))
        self.width = len(columns)
        self.options = type("Options", (), {"__getattr__": lambda *_: None})()
        vars(self.options).update(options)

    def name(self, place: int) -> str:
        """Return how a column is called."""
        return self.names[place] if self.names else f"column {place + 1}"

    def option(self, place: int) -> str:
        """Return how an option names a column."""
        return self.name(place)

    def column(self, name: str, _: str) -> int:
        """Return the place of a column."""
        return self.names.index(name)

    def error(self, problem: str) -> DataError:
        """Return an error of this table."""
        return DataError(problem, path=self.path)


def table_of(names: str, *columns: str, **options: Any) -> Any:
    """Return a table; fields of a column are parted by blanks."""
    return Table(names, *(column.split() for column in columns), **options)


def known_ids(*ids: int) -> KnownIds:
    """Return the ids of a graph."""
    nothing = np.empty(0, np.int64)
    return KnownIds(FoundGraph(nothing, nothing, "edges", ids=np.array(ids)))


@pytest.mark.parametrize(
    ("name", "beside", "part"),
    [
        ("label", True, False),
        ("node_label", True, False),
        ("split", True, True),
        ("train_mask", True, True),
        ("target_score", False, False),
        ("f1", False, False),
        ("", False, False),
    ],
)
def test_names_of_classes_and_parts_are_no_features(
    name: str, *, beside: bool, part: bool
) -> None:
    """All of their words say it, beside those of vertices."""
    assert (is_beside(name), is_part(name)) == (beside, part)


def test_a_row_of_parts_is_no_header() -> None:
    """One name that is no code of a part is enough."""
    parts = {"train": "train", "test": "test"}
    assert not names_vertices(["train", "Test"], parts)
    assert names_vertices(["train", "label"], parts)
    assert not names_vertices(["x", "7"], parts)


def test_ids_of_a_graph_are_those_of_the_file_or_of_its_edges() -> None:
    """A graph without ids whose number of vertices is known has the ids from 0."""
    ends = np.array([4, 1]), np.array([1, 7])
    stated = known_ids(5, 9).column
    counted = KnownIds(FoundGraph(*ends, "edges", vertices=3)).column
    found = KnownIds(FoundGraph(*ends, "edges")).column
    assert [c.values.tolist() for c in (stated, counted, found)] == [
        [5, 9],
        [0, 1, 2],
        [1, 4, 7],
    ]
    meeting = known_ids(1, 2, 3).meet(Column(np.array([3, 2, 8, 8])))
    assert (meeting.matched, meeting.strange, meeting.missing) == (2, 1, 1)
    assert meeting.is_in_part
    assert str(meeting) == "2 of the graph's 3 ids, 1 others"
    for ids in ([1, 2, 3], [1, 2], [1, 2, 3, 4], [8, 9]):
        assert not known_ids(1, 2, 3).meet(Column(np.array(ids))).is_in_part


@pytest.mark.parametrize(
    ("table", "known", "place"),
    [
        (table_of("a,node_id,x", "1 2", "3 4", "5 6"), None, 1),
        (table_of("x,y", "1 2", "3 4"), None, None),
        (table_of("x,y", "1 2", "3 4", ids=True), None, 0),
        (table_of("a,id", "1 2", "3 4", ids=False), None, None),
        (table_of("a,id", "1 2", "3 4", id_column="a"), None, 0),
        (table_of(",x", "0 1", "3 4"), None, None),  # an index of pandas
        # Of two the plain name, the one that joins, or the one that joins more.
        (table_of("paperId,id", "1 2", "3 4"), None, 1),
        (table_of("paperId,userId", "1 2", "3 4"), None, 0),
        (table_of("paperId,id", "1 2", "3 4"), known_ids(1, 2), 0),
        (table_of("paperId,id", "1 9", "1 2"), known_ids(1, 2), 1),
    ],
)
def test_the_column_that_names_vertices(
    table: Any, known: KnownIds | None, place: int | None
) -> None:
    """An option, a name or joining values decide which column names vertices."""
    assert choose_id(table, known, ()) == place


@pytest.mark.parametrize(
    ("table", "known"),
    [
        (table_of(",x", "0 2", "3 4"), None),
        (table_of("paperId,id", "1 2", "1 2"), known_ids(1, 2)),
        (table_of("paperId,id", "1 2", "1 9"), known_ids(1, 2)),
        (table_of("paperId,id", "8 9", "8 9"), known_ids(1, 2)),
    ],
)
def test_columns_of_which_two_may_name_vertices_are_asked_about(
    table: Any, known: KnownIds | None
) -> None:
    """A plain name wins only where it joins more."""
    with pytest.raises(DataError, match="id"):
        choose_id(table, known, ())


def test_a_column_of_values_is_no_id() -> None:
    """A column that is stated to hold values is none, even if it is called id."""
    table = table_of("id,userId", "1 2", "3 4")
    assert choose_id(table, None, (0,)) == 1


@pytest.mark.parametrize(
    ("table", "place", "value", "found"),
    [
        (table_of("", "1 2", "3 4"), None, 1, 0),
        (table_of("", "1 2", "3 4"), 1, 1, 1),
        (table_of("", "1 2", "3 4", ids=False), None, 1, None),
        (table_of("", "1 2"), None, 0, None),
        (table_of(",x", "0 1", "3 4"), None, 1, None),
    ],
)
def test_the_first_column_is_the_id_beside_one_of_values(
    table: Any, place: int | None, value: int, found: int | None
) -> None:
    """The first column is the id where nothing else says which column is."""
    assert first_as_id(table, place, value) == found


@pytest.mark.parametrize(
    ("table", "value"),
    [
        (table_of("x,label", "1 2", "3 4"), 1),
        (table_of("", "1 2", "3 4"), 0),
    ],
)
def test_a_first_column_that_may_be_the_id_is_asked_about(
    table: Any, value: int
) -> None:
    """Names that call none an id leave it open, as do values in front."""
    with pytest.raises(DataError, match="has no column that is called id"):
        first_as_id(table, None, value)


@pytest.mark.parametrize(
    ("table", "known", "place"),
    [
        (table_of("", "a b", "1 2"), None, 0),
        (table_of("", "1 2"), None, None),
        (table_of("", "1.5 2", "1 2"), None, None),
        (table_of("", "1 1", "1 2"), None, None),  # numbers that recur
        (table_of("", "1 2", "a b"), None, 0),
        (table_of("", "8 9", "1 2"), known_ids(1, 2), None),
    ],
)
def test_a_first_column_of_features_may_have_ids(
    table: Any, known: KnownIds | None, place: int | None
) -> None:
    """Words, or different numbers beside words; those of no vertex are values."""
    assert number_column(table, known) == place


def test_numbers_that_may_be_ids_or_values_are_asked_about() -> None:
    """One of the graph's is enough."""
    for known in (None, known_ids(2, 5)):
        with pytest.raises(DataError, match="is column 1 the id of the vertex"):
            number_column(table_of("", "1 2", "3 4"), known)


@pytest.mark.parametrize(
    ("table", "place", "column"),
    [
        (table_of("id,x,label", "1 2", "3 4", "5 6"), 0, 2),
        (table_of("id,x", "1 2", "3 4"), 0, 1),
        (table_of("a,b", "1 2", "3 4", label_column="a"), None, 0),
        (table_of(",x", "0 1", "3 4"), None, 1),
        (table_of("", "1 2", "3 4"), None, 1),
        (table_of("", "1 2", "3 4", "a b"), None, 2),
        (table_of("", "a b", "3 4", "c d"), None, 2),
        (table_of("", "1 0 0", "0 1 0", "0 0 1"), None, None),
        (table_of("a,b,c,d", "7 8 9", "1 0 0", "0 1 0", "0 0 1"), 0, None),
    ],
)
def test_the_column_of_the_classes(
    table: Any, place: int | None, column: int | None
) -> None:
    """The class column is stated, named, the only one, or words among numbers."""
    assert choose_class(table, place) == column


@pytest.mark.parametrize(
    "table",
    [
        table_of("a,b,c", "1 2", "3 4", "5 6"),
        table_of("label,class,x", "1 2", "3 4", "5 6"),
        table_of("", "1 2", "a b", "c d"),
    ],
)
def test_classes_that_several_columns_may_have_are_asked_about(table: Any) -> None:
    """Either no column has the name of a class, or two have."""
    with pytest.raises(DataError, match="has 3 columns: name that of the classes"):
        choose_class(table, None)


@pytest.mark.parametrize(
    ("columns", "place", "found"),
    [
        (["1 0 0", "0 1 0", "0 0 1"], None, [0, 1, 2]),
        (["7 8 9", "1 0 0", "0 1 0", "0 0 1"], 0, [1, 2, 3]),
        (["1 0", "0 1"], None, []),
        (["1 0 0", "0 1 1", "0 0 1"], None, []),
        (["2 0 0", "0 1 0", "-1 0 1"], None, []),
        (["1 0 0", "0 1 0", "0 0 0"], None, []),
        (["1 0 0", "0 1 0", "0 0 1.5"], None, []),
        (["true false", "false true", "false false"], None, [0, 1, 2]),
    ],
)
def test_columns_with_one_1_in_each_row_are_classes(
    columns: list[str], place: int | None, found: list[int]
) -> None:
    """Three at least."""
    assert one_hot_columns(table_of("", *columns), place) == found


def test_features_are_columns_of_numbers_that_have_no_other_use() -> None:
    """Neither ids, classes, an index nor words; commas have to be clear."""
    rows = ("1 2", "0.5 1", "3 4", "a b", "true false", "0,5 1,25")
    table = table_of("id,f,label,w,b,c", *rows)
    assert choose_features(table) == [1, 4, 5]
    assert choose_features(table_of(",x", "0 1", "3 4")) == [1]
    assert choose_features(table_of("", "0 1", "a b", "3 4")) == [0, 2]
    with pytest.raises(DataError, match="x has numbers as 1,234: decimals or"):
        choose_features(table_of("x", "1,500 2,000"))
