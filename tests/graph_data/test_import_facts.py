"""Facts of an import, what is made up for it, and replicas of parts, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.graph_data.dependencies import choose_replicas, split_by_costs
from emu.graph_data.imported import _make_up, summarize, summary_lines
from emu.graph_data.readers.found_graph import FoundGraph
from emu.graph_data.sampling import Structure
from emu.graph_data.whole_graph import Aggregation


def test_facts_count_what_came_and_what_was_dropped() -> None:
    """Two of nine edges are loops and four are doubles: three edges are left."""
    graph: Any = SimpleNamespace(
        structure=SimpleNamespace(
            vertices=6, indices=np.zeros(6), degrees=np.array([1, 2, 2, 1, 0, 0])
        ),
        labels=np.array([1, 1, -1, 0, 3, -1]),
        classes=4,
        class_names=("a", "b", "c", "d"),
        edges_given=9,
        self_loops=2,
        feature_length=7,
        train=np.array([0, 1, 3]),
        valid=np.array([4]),
        test=np.empty(0, int),
        owner=np.array([0, 2, 1, 1, 0, 0]),
    )
    facts = summarize(graph, "s.csv")
    assert facts == {
        "vertices": 6,
        "edges": 6,
        "edges_given": 9,
        "self_loops": 2,
        "doubles": 4,
        "isolated": 2,
        "classes": 4,
        "class_sizes": [1, 2, 0, 1],
        "class_names": ["a", "b", "c", "d"],
        "unlabelled": 2,
        "feature_length": 7,
        "train": 3,
        "valid": 1,
        "test": 0,
        "split_origin": "s.csv",
        "parts": 3,
    }
    assert summarize(graph, "")["split_origin"] == "the file"
    graph.train, graph.owner = graph.test, None
    drawn = summarize(graph, "s.csv")
    assert (drawn["split_origin"], drawn["parts"]) == ("drawn at random", 0)

    more = {"notes": ["a note"], "left_out": ["1 column: w"], "ids": "5 to 9"}
    assert summary_lines(facts | more) == [
        "a note",
        "left out: 1 column: w",
        "edges: 9 given; dropped: 2 self-loops, 4 doubles (in either direction)",
        "vertices: 6; 2 without an edge",
        "classes: a: 1, b: 2, c: 0, d: 1; 2 vertices without",
        "split: 3 train, 1 valid, 0 test, by s.csv",
        "ids: 5 to 9",
        "3 parts of its own: job.partitioner: imported",
    ]
    few = {"class_names": [], "unlabelled": 0, "train": 0, "parts": 0, "ids": ""}
    lines = summary_lines({**facts, **more, **few, "split_origin": "drawn"})
    assert lines[4:] == [
        "classes: 0: 1, 1: 2, 2: 0, 3: 1",
        "split: drawn, 60 : 20 : 20 of what has a label",
    ]


@pytest.mark.parametrize(("classes", "shown"), [(8, ", 7: 7"), (9, ", 7: 7, ...")])
def test_a_summary_shows_the_sizes_of_eight_classes(classes: int, shown: str) -> None:
    """Dots stand for those behind them."""
    facts = dict.fromkeys(
        ("unlabelled", "train", "self_loops", "doubles", "edges_given", "vertices"), 0
    )
    facts |= {"isolated": 0, "parts": 0, "ids": 0}
    sizes: Any = {"classes": classes, "class_names": [], "notes": [], "left_out": []}
    sizes |= {"class_sizes": [*range(classes)], "split_origin": "drawn"}
    lines = summary_lines(facts | sizes)
    assert lines[2].endswith(f"6: 6{shown}")


def test_what_is_made_up_is_of_all_vertices() -> None:
    """The highest end of an edge or a number that is stated says how many there are."""
    edges = FoundGraph(np.array([0, 3]), np.array([4, 1]), "edges")
    made = _make_up(edges, 3, 2)
    assert made.labels is not None
    assert np.bincount(made.labels).tolist() == [3, 2]
    assert made.features is not None
    assert (made.features.vertices, made.features.length) == (5, 3)
    assert made.features.rows(1, 4).shape == (3, 3)
    assert made.notes == (
        "features of length 3 are made up",
        "labels of 2 classes are made up",
    )
    stated = FoundGraph(np.array([0]), np.array([4]), "edges", vertices=7)
    labels = _make_up(stated, None, 7).labels
    assert labels is not None
    assert sorted(labels.tolist()) == [*range(7)]
    with pytest.raises(DataError, match="--classes exceeds 7 vertices"):
        _make_up(stated, None, 8)
    again = _make_up(made, 9, 4)
    assert again.notes[2:] == (
        "--feature-length was not needed: the file's own are taken",
        "--classes was not needed: the file's own are taken",
    )
    assert (again.features, again.labels) == (made.features, made.labels)


@pytest.mark.parametrize(
    ("rows", "last_layers"),
    [
        # Vertex 2 costs 1, its two edges 2 each, and the row of 3 that it reads 4.
        ([0.0, 9.0], [0, 0, 0, 0, 0]),
        ([0.0, 9.5], [0, 0, 1, 0, 0]),
        # 10 + 2 * 20 after its row of layer 1 (9), and the row of 3 (13 + 40).
        ([0.0, 9.0, 112.0], [0, 0, 0, 0, 0]),
        ([0.0, 9.0, 113.0], [0, 0, 2, 1, 0]),
        # With the row of 2 there: 3 costs 9, and 40 to be read.
        ([0.0, 9.5, 99.0], [0, 0, 1, 0, 0]),
        ([0.0, 9.5, 99.5], [0, 0, 2, 1, 0]),
    ],
)
def test_a_vertex_is_cached_where_its_row_costs_more(
    rows: list[float], last_layers: list[int]
) -> None:
    """A path of five vertices, of which a part owns the first two."""
    structure = Structure(
        indptr=np.array([0, 1, 3, 5, 7, 8]),
        indices=np.array([1, 0, 2, 1, 3, 2, 4, 3]),
    )
    is_own = np.array([True, True, False, False, False])
    costs = {
        "vertex": [1.0, 10.0, 0.0],
        "edge": [2.0, 20.0, 0.0],
        "input": [4.0, 40.0, 0.0],
        "row": rows,
    }
    assert choose_replicas(structure, is_own, costs).tolist() == last_layers


def test_a_part_computes_replicas_of_a_layer_and_holds_those_of_the_one_below() -> None:
    """Keep vertex 2 of a path of five after two layers, and so 3 after one."""
    structure: Any = Structure(
        indptr=np.array([0, 1, 3, 5, 7, 8]),
        indices=np.array([1, 0, 2, 1, 3, 2, 4, 3]),
    )
    dataset: Any = SimpleNamespace(
        structure=structure, owner=np.array([0, 0, 1, 1, 1], np.int32)
    )
    costs = {
        "vertex": [1.0, 10.0, 0.0],
        "edge": [2.0, 20.0, 0.0],
        "input": [4.0, 40.0, 0.0],
        "row": [0.0, 9.5, 99.5],
    }
    form = Aggregation("symmetric", loops=True)
    parts = [*split_by_costs(dataset, form, [costs])]
    assert [part.local.tolist() for part in parts] == [[0, 1, 2, 3], [0, 1, 2], [0, 1]]
    assert [part.held.tolist() for part in parts] == [[], [3], [2]]
    assert [part.remote.tolist() for part in parts] == [[4], [], []]
