"""Tables beside a graph: whose rows they are, by ids and in order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.graph_data.readers import array_files, typed_graph, vertex_join
from emu.graph_data.readers.found_graph import FoundGraph
from emu.graph_data.readers.vertex_join import join_tables
from emu.graph_data.readers.vertex_table import VertexTable


def graph_of(
    ids: Any = None, vertices: int | None = None, *, most: int = 3
) -> FoundGraph:
    """Return a path of vertices 0, 1 and so on, with ids of the file."""
    places = np.arange(most)
    return FoundGraph(
        sources=places[:-1],
        destinations=places[1:],
        origin="edges.txt",
        vertices=vertices,
        ids=None if ids is None else np.array(ids),
    )


def labels_of(values: Any, ids: Any = None, **known: Any) -> VertexTable:
    """Return classes of a table."""
    named = None if ids is None else np.array(ids)
    return VertexTable(Path("labels.txt"), "labels", np.array(values), named, **known)


def rows_of(values: Any, ids: Any = None, **known: Any) -> VertexTable:
    """Return features of a table."""
    named = None if ids is None else np.array(ids)
    rows = np.array(values, np.float32)
    return VertexTable(Path("rows.txt"), "features", rows, named, **known)


def test_values_go_to_the_vertices_that_they_name() -> None:
    """Rows come in any order; a vertex without a row has no class; ids stay."""
    features = rows_of([[30.0], [10.0], [20.0]], [9, 5, 7])
    labels = labels_of([1, 0], [7, 9], is_stated=True)
    found = join_tables(graph_of([5, 7, 9]), [features, labels])

    assert found.features is not None
    assert found.features.rows(0, 3).tolist() == [[10.0], [20.0], [30.0]]
    assert found.labels is not None
    assert found.labels.tolist() == [-1, 1, 0]
    assert found.ids is not None
    assert (found.vertices, found.ids.tolist()) == (3, [5, 7, 9])
    assert (found.label_origin, len(found.notes)) == ("labels.txt", 2)


def test_vertices_of_tables_alone_are_vertices_too() -> None:
    """They are numbered in order with the others, and edges follow."""
    labels = labels_of([2, 0, 1, 1], [9, 1, 5, 7])
    found = join_tables(graph_of([5, 7, 9]), [labels])
    assert found.ids is not None
    assert found.ids.tolist() == [1, 5, 7, 9]
    assert found.sources.tolist() == [1, 2]
    assert found.destinations.tolist() == [2, 3]
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 1, 2]
    # Numbers of one file and words of another meet as words; 0 to 2 need no ids.
    words = join_tables(
        graph_of([0, 1, 2]), [labels_of(["x", "y", "z"], ["2", "0", "1"])]
    )
    assert words.labels is not None
    assert words.labels.tolist() == ["y", "z", "x"]
    plain = join_tables(graph_of([0, 1, 2]), [labels_of([4, 5, 6], [2, 0, 1])])
    assert plain.ids is None


@pytest.mark.parametrize(
    ("ids", "rows", "order", "sources", "kept"),
    [
        ([0, 1, 3], 5, "", [0, 1], None),  # rows of vertices 0 to 4
        ([1, 2, 3], 4, "rows", [1, 2], None),
        ([1, 2, 3], 4, "ids", [0, 1], [1, 2, 3, 4]),
        ([5, 7, 9], 3, "ids", [0, 1], [5, 7, 9]),
        (["a", "b", "c"], 3, "ids", [0, 1], ["a", "b", "c"]),
    ],
)
def test_rows_in_order_belong_to_vertices_as_is_said(
    ids: list[Any], rows: int, order: str, sources: list[int], kept: list[Any] | None
) -> None:
    """Rows belong to 0, 1 and so on, to sorted ids, or to 1, 2 and so on."""
    found = join_tables(graph_of(ids), [labels_of([0] * rows)], order)
    assert found.sources.tolist() == sources
    assert (None if found.ids is None else found.ids.tolist()) == kept
    assert found.vertices == rows


@pytest.mark.parametrize(
    ("ids", "rows", "words"),
    [
        (
            [1, 2, 3],
            4,
            [r"of which vertices\? Edges name 1 to 3", "--order rows", "ids 1 to 4"],
        ),
        ([5, 7, 9], 3, ["for vertices 0 to 2, and an edge names 9", "ids 5 to 9"]),
        (["a", "b", "c"], 5, ["for vertices 0 to 4, and an edge names c"]),
        ([1, 2, 3], 3, ["an edge names 3", "ids 1 to 3 as they are sorted"]),
        ([0, 2, 5], 4, ["for vertices 0 to 3, and an edge names 5"]),
    ],
)
def test_rows_that_may_be_of_several_are_asked_about(
    ids: list[Any], rows: int, words: list[str]
) -> None:
    """Each reading with the option that decides."""
    with pytest.raises(DataError) as caught:
        join_tables(graph_of(ids), [labels_of([0] * rows)])
    for word in words:
        assert caught.match(word)


def test_rows_in_order_may_be_those_of_the_labels() -> None:
    """As many of each are needed, and labels with ids."""
    labels = labels_of([1, 0, 1], [9, 5, 7])
    rows = rows_of([[9.0], [5.0], [7.0]])
    found = join_tables(graph_of([5, 7, 9]), [labels, rows], "labels")
    assert found.features is not None
    assert found.features.rows(0, 3).tolist() == [[5.0], [7.0], [9.0]]
    with pytest.raises(DataError, match="2 features, 3 labels: --order labels needs"):
        join_tables(graph_of([5, 7, 9]), [labels, rows_of([[1.0], [2.0]])], "labels")
    with pytest.raises(DataError, match="takes the ids of --labels, and that has none"):
        join_tables(graph_of([5, 7, 9]), [labels_of([1, 0, 1]), rows], "labels")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (labels_of([0, 1], [5, 8], is_stated=True), None),
        (labels_of([0, 1, 1], [5, 7, 7], is_stated=True), "names vertex 7 2 times"),
        (
            rows_of([[1.0], [2.0]], [5, 9], is_stated=True),
            "has no features of vertex 7",
        ),
        (labels_of([0], [8], is_stated=True), "names no vertex that has an edge: 8"),
    ],
)
def test_tables_that_do_not_fit_the_vertices_are_refused(
    table: VertexTable, words: str | None
) -> None:
    """Twice the same, a row of features that lacks, or only vertices of its own."""
    if words is None:
        found = join_tables(graph_of([5, 7, 9]), [table])
        assert found.labels is not None
        assert found.labels.tolist() == [0, -1, 1, -1]
        return
    with pytest.raises(DataError, match=words):
        join_tables(graph_of([5, 7, 9]), [table])


@pytest.mark.parametrize(
    ("known", "ids", "words"),
    [
        ([5, 6, 7], [6, 7, 8], ["each were 1 lower", "--no-ids --order ids"]),
        ([0, 1, 2], [1, 2, 3], ["each were 1 lower", "--no-ids --order rows"]),
        ([5, 6, 8], [6, 7, 9], ["each were 1 lower", "--id-column NAME"]),
        ([5, 6, 7], [3, 4, 5], ["each were 2 higher", "--no-ids --order ids"]),
        ([5, 6, 7], [5, 6, 9], ["5, 6|4 vertices", "--id-column NAME"]),
    ],
)
def test_ids_that_meet_in_part_are_asked_about_with_their_shift(
    known: list[int], ids: list[int], words: list[str]
) -> None:
    """Consecutive ones may be rows in order as well."""
    with pytest.raises(DataError, match="meet the graph in part") as caught:
        join_tables(graph_of(known), [labels_of([0] * 3, ids)])
    for word in words:
        assert caught.match(word)
    assert ("would meet" in str(caught.value)) == ("each were" in words[0])


def test_a_shift_is_of_numbers_alone() -> None:
    """Words, and graphs without ids, have none."""
    assert vertex_join._find_shift(np.array(["a"]), np.array([1])) == 0
    assert vertex_join._find_shift(np.array([1]), {"a"}) == 0
    assert vertex_join._find_shift(np.array([1]), np.array([], int)) == 0
    assert vertex_join._find_shift(np.array([1, 2, 3]), np.array([0, 2])) == 1
    assert vertex_join._find_shift(np.array([1, 2]), np.array([0, 2])) == 0


def test_tables_in_order_have_as_many_rows() -> None:
    """The error names the first of two tables that have equal lengths."""
    tables = [labels_of([0, 1]), rows_of([[1.0]] * 3), rows_of([[2.0]] * 3)]
    with pytest.raises(
        DataError, match=r"^edges.txt: 3 features in rows.txt and 2 labels"
    ):
        join_tables(graph_of(), tables)


def test_vertices_are_as_many_as_edges_name_where_nothing_else_says_it() -> None:
    """A table without ids has a row for each vertex, and so states their number."""
    by_id = labels_of([0, 1], [0, 4], is_stated=True)
    assert join_tables(graph_of(), [labels_of([0] * 7)]).vertices == 7
    with pytest.raises(DataError, match="names vertex 4, which is not in the graph"):
        join_tables(graph_of(), [by_id])
    found = join_tables(graph_of(most=5), [by_id])
    assert found.labels is not None
    assert found.labels.tolist() == [0, -1, -1, -1, 1]


@pytest.mark.parametrize(
    ("content", "are"),
    [
        ({}, False),
        ({"x": np.arange(3)}, True),
        ({"x": np.arange(3), "y": np.zeros((2, 2))}, False),
        ({"x": {"a": np.arange(2)}}, True),
        ({"x": {"a": 5}}, False),
        (np.arange(3), True),
        (np.zeros((1, 1)), False),
        (7, False),
    ],
)
def test_slices_are_rows_of_beginnings_by_name(content: Any, *, are: bool) -> None:
    """Slices go by name, or by type and name."""
    assert array_files._are_slices(content) == are


def test_one_of_several_graphs_is_cut_out_of_their_tensors() -> None:
    """Arrays of ids are cut along the last axis, other arrays along the first."""
    merged = {
        "x": np.arange(10).reshape(5, 2),
        "edge_index": np.arange(8).reshape(2, 4),
        "_num_nodes": [2, 3],
        "num_nodes": 5,
        "name": "both",
    }
    slices = {"x": np.array([0, 2, 5]), "edge_index": np.array([0, 3, 4])}
    asked: list[int] = []

    def choose(count: int, _: str) -> int:
        asked.append(count)
        return 1

    choices: Any = SimpleNamespace(choose_graph=choose)
    for content in ((merged, slices), (merged, slices, "Data")):
        found = array_files.choose_graph(content, choices, "file")
        assert found["x"].tolist() == [[4, 5], [6, 7], [8, 9]]
        assert found["edge_index"].tolist() == [[3], [7]]
        assert (found["num_nodes"], found["name"]) == (3, "both")
    assert asked == [2, 2]
    several = [{"x": 1}, {"x": 2}, {"x": 3}]
    assert array_files.choose_graph(several, choices, "file") == {"x": 2}
    assert asked[-1] == 3
    for nothing in ([], [{"x": 1}, 7], 7):
        with pytest.raises(DataError, match="holds no graph with names"):
            array_files.choose_graph(nothing, choices, "file")


@pytest.mark.parametrize("bounds", [[0, 2, 4], [1, 2, 5], [0, 6, 5], [0, 2, 9]])
def test_slices_that_leave_out_rows_are_refused(bounds: list[int]) -> None:
    """Rows behind the last slice were in no graph, without a word."""
    merged = {"x": np.arange(5), "face": np.zeros((3, 5))}
    choices: Any = SimpleNamespace(choose_graph=lambda *_: 0)
    slices = {"x": np.array(bounds), "face": np.array([0, 2, 5])}
    with pytest.raises(DataError, match=r"slices of x are .*, write 0 to its 5 rows"):
        array_files.choose_graph((merged, slices), choices, "file")
    # What is never read may be cut along another axis.
    slices["x"] = np.array([0, 2, 5])
    found = array_files.choose_graph((merged, slices), choices, "file")
    assert found["x"].tolist() == [0, 1]


def test_lists_of_names_end_with_the_number_of_the_others() -> None:
    """A list that is short enough has every name, and no number."""
    most = typed_graph._MOST_LISTED
    names = [f"n{number}" for number in range(most + 2)]
    assert typed_graph._list(names[:most]) == " ".join(names[:most])
    assert typed_graph._list(names).endswith(f"n{most - 1} and 2 more")
