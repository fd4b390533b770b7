"""Rules by which columns are read, each at and beside its bound."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.graph_data.readers import split_arrays
from emu.graph_data.readers.class_numbers import class_numbers
from emu.graph_data.readers.columns import (
    Column,
    Keys,
    column_of_ids,
    count_common,
    join_columns,
    kind_of,
    real,
    whole,
    word_array,
)
from emu.graph_data.readers.edge_columns import (
    are_two_kinds,
    is_id,
    named_ends,
    pairs_of_ids,
    plausible_pairs,
    words_of,
)
from emu.graph_data.readers.edge_header import is_header, states_sizes
from emu.graph_data.readers.found_graph import (
    _sparse_rows,
    sparse_rows,
    value_names,
)
from emu.graph_data.readers.sides import fill_ids, join_sides


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("", "", np.nan),
        ("7", "integer", 7.0),
        ("+7.0", "integer", 7.0),
        ("-7", "number", -7.0),
        ("7.5", "number", 7.5),
        ("nan", "number", np.nan),
        ("7,5", "decimal comma", 7.5),
        ("-,5", "decimal comma", -0.5),
        ("True", "boolean", 1.0),
        ("false", "boolean", 0.0),
        ("2020-01", "date", np.nan),
        ("1.2.2020", "date", np.nan),
        ("1_0", "text", np.nan),
        ("x", "text", np.nan),
    ],
)
def test_kinds_of_fields(text: str, kind: str, number: float) -> None:
    """Each is a number where it can be read as one."""
    assert kind_of(text) == kind
    np.testing.assert_equal(real(text), number)


def test_whole_numbers_in_their_shortest_form() -> None:
    """Texts that are none have no form."""
    assert [whole(text) for text in ("007", "0", "00", "1.00", "+3", "-1", "x")] == [
        *("7", "0", "0", "1", "3", "", "")
    ]


@pytest.mark.parametrize(
    ("fields", "kind", "main_kind"),
    [
        (["1", "2.0"], "integer", "integer"),
        (["1", "2.5"], "number", "number"),
        (["1", "2.5", ""], "number", "number"),
        (["1", "2,5"], "decimal comma", "decimal comma"),
        (["x", "y"], "text", "text"),
        # Half of the fields that are not empty are numbers, or fewer.
        (["1", "1", "x", "y", ""], "text", "integer"),
        (["1", "2.5", "x", "y", ""], "text", "number"),
        (["1", "x", "y", ""], "text", "text"),
        (["true", "true", "x"], "text", "boolean"),
        (["", ""], "", ""),
    ],
)
def test_a_column_is_of_the_kind_of_most_fields(
    fields: list[str], kind: str, main_kind: str
) -> None:
    """One kind of all, or text, and what most are of."""
    column = Column.of(fields)
    assert (column.kind, column.main_kind) == (kind, main_kind)
    assert column.rows == len(fields)


def test_columns_of_numbers_know_their_rows_and_distinct_ones() -> None:
    """Whole ones from 0 are integers, others numbers; words may be padded."""
    numbers = Column(np.array([5, 3, 5, 0]))
    assert (numbers.kind, numbers.distinct.tolist()) == ("integer", [0, 3, 5])  # type: ignore[union-attr]
    assert not numbers.grows
    assert Column(np.array([1, 3, 4])).grows
    assert not Column(np.array([1, 3, 3])).grows
    assert Column(np.array([-1, 3])).kind == "number"
    assert Column(np.array([1.0, 3.0])).kind == "number"
    assert numbers.fields() == ["5", "3", "5", "0"]
    below = numbers.below("x")
    assert below.fields() == ["x", "5", "3", "5", "0"]
    assert numbers.below("3").fields() == ["3", "5", "3", "5", "0"]

    words = Column.of(["1.0", "1", "", "2"])
    assert words.distinct == {"1", "2"}
    padded = Column.of(["01", "1"])
    assert padded.distinct == {"01", "1"}
    assert (padded.is_padded, words.is_padded) == (True, False)
    assert padded.names_words(stated=None)
    assert not padded.names_words(stated=False)
    assert not words.names_words(stated=None)
    assert not Column.of(["x", "y"]).grows
    np.testing.assert_equal(Column.of(["x", "7", "x"]).real, [np.nan, 7.0, np.nan])


@pytest.mark.parametrize(
    ("fields", "may_be"),
    [(["1,500", "2,000"], True), (["1,500", "2,5"], False), (["1500"], False)],
)
def test_commas_may_part_thousands_where_all_may(
    fields: list[str], *, may_be: bool
) -> None:
    """One that is decimal shows that all are."""
    assert Column.of(fields).may_be_thousands == may_be


def test_ids_of_columns_are_numbered_together() -> None:
    """Numbers by value, words by name, also where gaps are too large for a table."""
    left, right = Column(np.array([7, 3])), Column(np.array([3, 9]))
    keys = join_columns([left, right], as_words=False)
    assert (keys.ids.tolist(), keys.codes.tolist()) == ([3, 7, 9], [[1, 0], [0, 2]])
    far = Column(np.array([10**12, 9]))
    keys = join_columns([left, far], as_words=False)
    assert keys.ids.tolist() == [3, 7, 9, 10**12]
    assert keys.codes.tolist() == [[1, 0], [3, 2]]

    texts = [Column.of(["10", "9"]), Column.of(["9.0", "007"])]
    keys = join_columns(texts, as_words=False)
    assert (keys.ids.tolist(), keys.codes.tolist()) == ([7, 9, 10], [[2, 1], [1, 0]])
    keys = join_columns([left, texts[0]], as_words=True)
    assert keys.ids.tolist() == ["10", "3", "7", "9"]
    # 18 digits are a number, of 19 some are not.
    long = join_columns([Column.of(["1" * 18, "2"])] * 2, as_words=False)
    assert long.ids.dtype == np.int64
    longer = join_columns([Column.of(["1" * 19, "2"])] * 2, as_words=False)
    assert longer.ids.tolist() == ["1" * 19, "2"]


def test_common_ids_are_counted_whatever_they_are_held_as() -> None:
    """Numbers of one column and words of the other meet as texts."""
    numbers = column_of_ids(np.array([1, 2, 3]))
    assert count_common(numbers, column_of_ids(np.array([3, 1, 8]))) == 2
    assert count_common(numbers, column_of_ids(np.array(["3", "x"]))) == 1
    assert column_of_ids(np.array(["b", "a"])).fields() == ["b", "a"]


def test_one_long_word_among_many_short_ones_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All words take the room of the longest: 9 times 4 letters for 12."""
    from emu.graph_data.readers import columns

    words = ["abcdefghi", "x", "y", "z"]
    monkeypatch.setattr(columns, "_ALWAYS_ALLOWED", 0)
    monkeypatch.setattr(columns, "_MOST_WIDENING", 3)
    assert word_array(words).tolist() == words
    monkeypatch.setattr(columns, "_MOST_WIDENING", 2)
    with pytest.raises(DataError, match="an id of 9 letters stands among 4 short ones"):
        word_array(words)
    monkeypatch.setattr(columns, "_ALWAYS_ALLOWED", 36)
    assert len(word_array(words)) == 4


@pytest.mark.parametrize(
    ("name", "words", "names_ids"),
    [
        ("fromNodeId", ["from", "node", "id"], True),
        ("NODE_ID", ["node", "id"], True),
        ("sourceid", ["source"], False),
        ("paperId", ["paper", "id"], True),
        ("user", ["user"], True),
        ("i", ["i"], False),
        ("index", ["index"], True),
        ("weight", ["weight"], False),
        ("", [], False),
    ],
)
def test_words_of_names(name: str, words: list[str], *, names_ids: bool) -> None:
    """Capitals and marks part them; id may follow some without either."""
    assert words_of(name) == words
    assert is_id(name) == names_ids


@pytest.mark.parametrize(
    ("names", "ends"),
    [
        (["time", "source", "target"], (1, 2)),
        (["to", "from"], (1, 0)),
        # A column of the word alone goes before others that have it.
        (["source_type", "source", "target"], (1, 2)),
        (["source_id", "target_id", "weight"], (0, 1)),
        (["source", "source", "target"], None),
        (["from_to", "x"], None),  # one column is no pair
        (["user", "rating", "item"], (0, 2)),
        (["user_age", "item"], None),
        (["node1", "node2", "w"], (0, 1)),
        (["id", "f1", "f2"], None),
        (["a", "b"], (0, 1)),
        (["Person.id", "Person.id", "x"], (0, 1)),
        (["n1", "n2", "m1", "m2"], None),
        (["x", "y"], None),
    ],
)
def test_ends_by_the_names_of_columns(
    names: list[str], ends: tuple[int, int] | None
) -> None:
    """Pairs of words, then kinds of vertices, then names that are alike."""
    assert named_ends(names) == ends


@pytest.mark.parametrize(
    ("names", "are_two"),
    [
        (("user", "item"), True),
        (("source", "target"), False),
        (("source_user", "target_item"), None),
        (("source_user", "target_user"), False),
        (("source_user", "target"), False),
        (("node1", "node2"), False),
        (("id", "id"), False),
        (("item", "user"), None),
        (("x", "y"), None),
    ],
)
def test_kinds_of_vertices_by_the_names_of_ends(
    names: tuple[str, str], *, are_two: bool | None
) -> None:
    """Words of ends, what else they say, and kinds of both sides."""
    assert are_two_kinds(names) is are_two


def test_pairs_that_may_be_ends_share_ids() -> None:
    """The first two of a table, and others that have at least two more in common."""
    first = Column(np.array([1, 2, 2, 1]))
    second = Column(np.array([5, 6, 7, 1]))
    third = Column(np.array([1, 2, 7, 7]))
    words = Column.of(["a", "b", "c", "d"])
    columns = {0: first, 1: second, 2: third, 3: words}
    pairs = pairs_of_ids(columns)
    assert [pair.ends for pair in pairs] == [(0, 1), (0, 2), (1, 2)]
    assert [pair.common for pair in pairs] == [1, 2, 2]
    assert [pair.vertices for pair in pairs] == [5, 3, 5]
    assert [pair.overlap for pair in pairs] == [0.2, 2 / 3, 0.4]
    assert [pair.ends for pair in plausible_pairs(columns)] == [(0, 1), (0, 2), (1, 2)]
    # One id in common is there by chance, unless the first column only counts.
    less = columns | {2: Column(np.array([1, 8, 9, 9]))}
    assert [pair.ends for pair in plausible_pairs(less)] == [(0, 1)]
    counts = {0: Column(np.array([1, 2, 3, 9])), 1: second, 2: third}
    assert [pair.ends for pair in plausible_pairs(counts)] == [(0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("row", "left", "right", "states"),
    [
        (("5", "3"), [5, 0, 1, 4], [3, 1, 2, 5], True),
        (("5", "3"), [5, 0, 1, 6], [3, 1, 2, 5], False),
        (("5", "4"), [5, 0, 1, 4], [4, 1, 2, 5], False),
        (("2", "5", "3"), [2, 0, 1, 4], [5, 1, 2, 5], True),
        (("3", "9"), [3, 0, 1, 4], [9, 1, 2, 5], False),
        (("5", "x"), [5, 0, 1, 4], [3, 1, 2, 5], False),
        (("5", "0"), [5], [0], False),
    ],
)
def test_a_first_row_may_state_sizes(
    row: tuple[str, ...], left: list[int], right: list[int], *, states: bool
) -> None:
    """The number behind the first one states the count of rows; ids are in range."""
    columns = (Column(np.array(left)), Column(np.array(right)))
    assert states_sizes(row, *columns) == states


def table_of(
    header: tuple[str, ...], *columns: list[str], names: tuple[str, ...] | None = None
) -> Any:
    """Return a table by its first row and the columns below."""
    return SimpleNamespace(
        header=header,
        first_row=header,
        columns=dict(enumerate(map(Column.of, columns))),
        options=SimpleNamespace(columns=names),
        path="edges.txt",
    )


@pytest.mark.parametrize(
    ("header", "below", "names", "is_names"),
    [
        (("from", "to"), (["1", "2"], ["2", "3"]), None, True),
        (("x", "y"), (["1", "2"], ["2", "3"]), None, True),  # words above numbers
        (("1", "2"), (["1", "2"], ["2", "3"]), None, False),
        (("p", "q"), (["a", "b"], ["b", "c"]), ("p", "q"), True),  # as stated
        (("1", "q"), (["a", "b"], ["b", "c"]), ("1", "2"), False),
        (("", "q"), (["a", "b"], ["b", "c"]), None, True),
        (("source", "target"), (["a", "b"], ["b", "c"]), None, True),
        (("source", "target"), (["a", "source"], ["b", "c"]), None, None),
        (("ann", "bob"), (["ann", "b"], ["b", "c"]), None, False),
        (("u", "v"), (["u", "v"], ["v", "w"]), None, False),
        (("u", "v"), (["a", "b"], ["b", "c"]), None, None),
        (("ann", "bob"), (["a", "b"], ["b", "c"]), None, None),
    ],
)
def test_a_first_row_is_a_header_where_it_can_be_told(
    header: tuple[str, ...],
    below: tuple[list[str], ...],
    names: tuple[str, ...] | None,
    *,
    is_names: bool | None,
) -> None:
    """Else it is asked, with the edges that either answer leaves."""
    table = table_of(header, *below, names=names)
    if is_names is not None:
        assert is_header(table) is is_names
        return
    with pytest.raises(DataError, match=r"a header or an edge.*2 edges.*3 edges"):
        is_header(table)


@pytest.mark.parametrize(
    ("labels", "numbers", "count", "names"),
    [
        ([0, 1, -1, 1], [0, 1, -1, 1], 2, ()),
        ([3, 1, 3, 7], [1, 0, 1, 2], 3, ("1", "3", "7")),  # from above 0: names
        (["b", "", "a", "b"], [1, -1, 0, 1], 2, ("a", "b")),
        ([0.0, np.nan, 2.0, -1.0], [0, -1, 2, -1], 3, ()),
        ([[0, 1], [1, 0], [0, 0]], [1, 0, -1], 2, ()),
        ([True, False], [1, 0], 2, ()),
        ([[1], [0], [1]], [1, 0, 1], 2, ()),
    ],
)
def test_classes_are_numbers_from_zero(
    labels: Any, numbers: list[int], count: int, names: tuple[str, ...]
) -> None:
    """Words, numbers from above 0, rows with one 1, and -1 for none."""
    found, classes, words = class_numbers(np.array(labels), "file")
    assert (found.tolist(), classes, words) == (numbers, count, names)


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([-1, -1], "no vertex has a label"),
        ([0, -2, 1], "vertex 20 has label -2"),
        ([0, 1, 3], "vertex 30 has label 3"),
        ([0.0, 0.5, 1.0], r"vertex 20 has label 0\.5"),
        ([[1, 1], [0, 1]], "several classes per vertex"),
        ([[0, 2], [1, 0]], "several classes per vertex"),
        ([[[1]], [[2]]] * 2, None),
    ],
)
def test_labels_that_are_no_classes_are_refused(
    labels: Any, problem: str | None
) -> None:
    """The vertex is named as the user calls it; classes are fewer than vertices."""
    ids = np.array([10, 20, 30, 40])
    if problem is None:
        assert class_numbers(np.array(labels), "file", ids)[1] == 2
        return
    with pytest.raises(DataError, match=problem):
        class_numbers(np.array(labels), "file", ids)


@pytest.mark.parametrize(
    ("ids", "count", "filled"),
    [
        ([1, 3], 3, [1, 2, 3]),
        ([1, 4], 3, [1, 4]),
        ([0, 3], 3, [0, 3]),
        (["1", "3"], 3, ["1", "3"]),
        ([], 3, []),
    ],
)
def test_vertices_without_edges_are_there_where_ids_count_from_one(
    ids: list[Any], count: int, filled: list[Any]
) -> None:
    """Codes go on naming the same ids."""
    keys = Keys(np.array(ids), np.array([[1, 0]]) if ids else np.zeros((1, 0), int))
    found = fill_ids(keys, count)
    assert found.ids.tolist() == filled
    assert found.ids[found.codes].tolist() == keys.ids[keys.codes].tolist()


def test_two_sides_are_one_graph_with_the_left_one_first() -> None:
    """Ids that both have are called by their side."""
    left = Keys(np.array([1, 2]), np.array([[0, 1, 1]]))
    right = Keys(np.array([5, 6, 7]), np.array([[2, 0, 1]]))
    found = join_sides(left, right, ("user", "item"), "file", ["a note"])
    assert found.sources.tolist() == [0, 1, 1]
    assert found.destinations.tolist() == [4, 2, 3]
    assert (found.vertices, found.ids.tolist()) == (5, [1, 2, 5, 6, 7])  # type: ignore[union-attr]
    assert found.notes == ("a note", "bipartite: 2 of user, 3 of item")

    both = join_sides(left, Keys(np.array([2]), right.codes * 0), ("u", "i"), "f", [])
    assert both.ids.tolist() == ["u:1", "u:2", "i:2"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("train_mask", "train"),
        ("test_idx", "test"),
        ("val_mask", "valid"),
        ("features", None),
    ],
)
def test_parts_of_splits_by_the_names_of_arrays(name: str, part: str | None) -> None:
    """A name that belongs to no split has no part."""
    assert split_arrays.split_part(name) == part


def test_codes_say_which_vertices_are_in_which_part() -> None:
    """A code that no vertex has makes its part empty, also where it is longer."""
    values = np.array(["tr", "te", "tr", "xx", "va"])
    masks, rest = split_arrays.parts_of_codes(values, ["tr", "va", "te"], "split", "f")
    assert masks.T.tolist() == [
        [True, False, True, False, False],
        [False, False, False, False, True],
        [False, True, False, False, False],
    ]
    assert rest == "; 1 vertices of xx are in no part"
    masks, _ = split_arrays.parts_of_codes(values, ["tr", "te"], "split", "f")
    assert masks.sum(0).tolist() == [2, 1, 0]
    masks, rest = split_arrays.parts_of_codes(
        values, ["tr", "test", "te"], "split", "f"
    )
    assert masks.sum(0).tolist() == [2, 0, 1]
    assert rest == "; 2 vertices of va, xx are in no part"
    gaps = np.array(["tr", "te", ""])
    masks, rest = split_arrays.parts_of_codes(gaps, ["tr", "te"], "split", "f")
    assert masks.sum(0).tolist() == [1, 1, 0]
    assert rest.startswith("; 1 vertices of ")
    numbers = np.array([[0], [1], [0]])
    masks, rest = split_arrays.parts_of_codes(numbers, ["0", "1"], "split", "f")
    assert (masks.sum(0).tolist(), rest) == ([2, 1, 0], "")


@pytest.mark.parametrize(
    ("codes", "problem"),
    [
        ([], r"holds codes te \(1\), tr \(2\): which is which"),
        (["tr"], "which is which"),
        (["tr", "tr"], "which is which"),
        (["tr", "te", "a", "b"], "which is which"),
        (["no", "te"], "no vertex has 'no'"),
    ],
)
def test_codes_of_parts_are_two_or_three_that_differ(
    codes: list[str], problem: str
) -> None:
    """The code of train is that of a vertex at least."""
    values = np.array(["tr", "te", "tr"])
    with pytest.raises(DataError, match=problem):
        split_arrays.parts_of_codes(values, codes, "split", "f")


@pytest.mark.parametrize(
    ("name", "array", "stated", "is_mask"),
    [
        ("train", np.array([True, False]), "", True),
        ("train_mask", np.array([0, 1], np.uint8), "", True),
        ("train_mask", np.array([0, 1, 1]), "", None),
        ("train", np.array([0, 1, 5]), "", False),
        ("train", np.array([0, 1]), "", False),
        ("train", np.array([0, 1, 1]), "", None),
        ("train", np.array([0, 1, 1]), "masks", True),
        ("train", np.array([0, 1, 1]), "ids", False),
        ("train", np.array([0, 1, 2]), "masks", None),
        ("train", np.array([0.0, 1.0]), "", None),
    ],
)
def test_masks_are_told_from_ids_by_type_name_and_values(
    name: str, array: Any, stated: str, *, is_mask: bool | None
) -> None:
    """An array that may be either is an error that asks which it is."""
    choices: Any = SimpleNamespace(split_arrays=stated)
    if is_mask is None:
        with pytest.raises(DataError, match="mask"):
            split_arrays._is_mask(name, array, choices, "f")
        return
    assert split_arrays._is_mask(name, array, choices, "f") == is_mask


def test_sparse_features_are_made_dense_by_ranges_of_rows() -> None:
    """Entries of rows 1 to 2 alone; of one that stands twice the two are added."""
    pointers = np.array([0, 1, 4, 5])
    indices = np.array([0, 2, 0, 2, 1])
    data = np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32)
    assert _sparse_rows(pointers, indices, data, 3, 0, 3).tolist() == [
        *([1.0, 0.0, 0.0], [3.0, 0.0, 6.0], [0.0, 5.0, 0.0])
    ]
    assert _sparse_rows(pointers, indices, data, 3, 1, 2).tolist() == [[3.0, 0.0, 6.0]]
    assert _sparse_rows(pointers, indices, data, 3, 2, 3).tolist() == [[0.0, 5.0, 0.0]]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"attr_data": np.zeros(1)}, "1 attr_data stand for 2 attr_indices"),
        ({"attr_indices": np.array([0, 3])}, "leave the 3 columns at entry 1"),
        ({"attr_indices": np.array([-1, 2])}, "leave the 3 columns at entry 0"),
        ({"attr_shape": np.array([2, 0])}, "has features of length 0"),
        ({"attr_shape": np.array([2, 3, 7])}, "two whole numbers are needed"),
        ({"attr_shape": np.array([2.5, 3.5])}, "two whole numbers are needed"),
        ({"attr_indptr": np.array([0, 2])}, "attr_indptr does not fit attr_indices"),
        (
            {
                "attr_indptr": np.array([0, 0, 0]),
                "attr_indices": np.empty(0, int),
                "attr_data": np.zeros(1),
            },
            "1 attr_data stand for 0 attr_indices",
        ),
        ({"attr_data": None}, "holds no attr_data"),
    ],
)
def test_sparse_features_whose_parts_do_not_fit_are_refused(
    changes: dict[str, Any], problem: str
) -> None:
    """Two rows of three columns; each error names the part that is wrong."""
    arrays: dict[str, Any] = {
        "attr_shape": np.array([2, 3]),
        "attr_indptr": np.array([0, 1, 2]),
        "attr_indices": np.array([0, 2]),
        "attr_data": np.array([1.0, 2.0], np.float32),
    }
    found = sparse_rows(arrays, "file")
    assert found is not None
    assert found.rows(0, 2).tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]
    assert sparse_rows({}, "file") is None
    broken = {name: a for name, a in (arrays | changes).items() if a is not None}
    with pytest.raises(DataError, match=problem):
        sparse_rows(broken, "file")


def test_features_of_a_file_are_one_array_or_all_parts_of_a_sparse_one() -> None:
    """One part that lacks makes them none."""
    parts = ["attr_shape", "attr_indptr", "attr_indices", "attr_data"]
    known = ["x", "features"]
    assert value_names(["x", *parts], known, "features") == ["x"]
    assert sorted(value_names(["y", *parts], known, "features")) == sorted(parts)
    assert value_names(["y", *parts[1:]], known, "features") == []
    assert value_names(["y", *parts], known, "labels") == []
