"""Parts of DistDGL, joined by hand: two types of vertices in two parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.graph_data.readers.dgl_file import _by_id
from emu.graph_data.readers.dgl_parts import _join


def part(ids: list[int], kinds: list[int], edges: list[list[int]], **more: Any) -> Any:
    """Return a part as `_join` takes it."""
    return SimpleNamespace(
        ids=np.array(ids), kinds=np.array(kinds), edges=np.array(edges), **more
    )


def parts() -> Any:
    """Return parts of vertices 3, 0, 4 and 1, 2: 0 and 2 are of type a."""
    first = part(
        [3, 0, 4],
        [1, 0, 1],
        [[0, 3], [4, 1]],
        edge_kinds=np.array([0, 1]),
        values={"a/x": np.array([[10]]), "b/y/z": np.array([[13], [14]])},
        of_edges=["w"],
    )
    second = part(
        [1, 2],
        [1, 0],
        [[2], [1]],
        edge_kinds=np.array([0]),
        values={"a/x": np.array([[12]]), "b/y/z": np.array([[11]])},
        of_edges=["v", "w"],
    )
    return [first, second]


CONTENT: dict[str, Any] = {
    "num_nodes": 5,
    "ntypes": {"a": 0, "b": 1},
    "etypes": {"a:to:b": 0, "b:in:b": 1},
}


def test_vertices_of_parts_have_the_places_of_their_numbers() -> None:
    """Values, owners and edges follow; a name keeps its slashes."""
    graph = _join(parts(), CONTENT, "own.json")
    values = {
        kind: {name: array.tolist() for name, array in frame.items()}
        for kind, frame in graph.vertices.items()
    }
    assert values == {
        "a": {"num_nodes": 2, "x": [[10], [12]]},
        "b": {"num_nodes": 3, "y/z": [[11], [13], [14]]},
    }
    assert graph.owner is not None
    owners = {kind: owner.tolist() for kind, owner in graph.owner.items()}
    assert owners == {"a": [0, 1], "b": [1, 0, 0]}
    edges = {relation: ends.tolist() for relation, ends in graph.edges.items()}
    assert edges == {
        ("a", "to", "b"): [[0, 1], [2, 0]],
        ("b", "in", "b"): [[1], [0]],
    }
    assert graph.unread == ("w", "v")


def test_an_array_of_any_part_is_read_or_refused() -> None:
    """Those of the first part alone were read, and others left out without a word."""
    first, second = parts()
    second.values["b/late"] = np.array([[7]])
    with pytest.raises(DataError, match="has b/late in some parts, and not in part 0"):
        _join([first, second], CONTENT, "own.json")
    # A part without vertices of a type has nothing to say of them.
    first.kinds[:] = 1
    first.values = {
        "b/y/z": np.array([[13], [10], [14]]),
        "b/late": np.arange(3)[:, None],
    }
    del second.values["a/x"]
    second.values["a/last"] = np.array([[5]])
    graph = _join([first, second], CONTENT, "own.json")
    assert graph.vertices["a"]["last"].tolist() == [[5]]
    assert graph.vertices["b"]["late"].tolist() == [[1], [7], [0], [2]]


@pytest.mark.parametrize(
    "changes",
    [{"num_edges": 4}, {"etypes": {"a:to:b": 0}}, {"ntypes": {"a": 0}, "etypes": {}}],
)
def test_what_no_type_of_the_description_has_is_refused(
    changes: dict[str, Any],
) -> None:
    """Refuse parts of fewer edges than are described, or of kinds that are not."""
    _join(parts(), {**CONTENT, "num_edges": 3}, "own.json")
    with pytest.raises(DataError, match="of its ntypes and etypes the parts hold"):
        _join(parts(), {**CONTENT, **changes}, "own.json")


def test_a_relation_without_types_is_of_the_one_type() -> None:
    """As older versions of dgl name them."""
    only = part(
        [1, 0], [0, 0], [[0], [1]], edge_kinds=np.array([0]), values={}, of_edges=[]
    )
    graph = _join([only], {"num_nodes": 2, "etypes": {"cites": 0}}, "own.json")
    assert {relation: ends.tolist() for relation, ends in graph.edges.items()} == {
        ("_N", "cites", "_N"): [[0], [1]]
    }


@pytest.mark.parametrize("count", [4, 6])
def test_parts_that_hold_other_vertices_are_refused(count: int) -> None:
    """One too many or too few, or one that stands twice."""
    with pytest.raises(DataError, match=f"do not hold each of {count} vertices once"):
        _join(parts(), {**CONTENT, "num_nodes": count}, "own.json")
    twice = parts()
    twice[1].ids = np.array([3, 2])
    with pytest.raises(DataError, match="do not hold each of 5 vertices once"):
        _join(twice, CONTENT, "own.json")


def test_edges_stand_by_their_ids() -> None:
    """The edge at place 0 has id 2; an id that stands twice is refused."""
    edges = np.array([[10, 11, 12], [20, 21, 22]])
    ordered = _by_id(edges, np.array([2, 0, 1]))
    assert ordered.tolist() == [[11, 12, 10], [21, 22, 20]]
    assert _by_id(edges, np.empty(0, int)) is edges
    for order in ([0, 0, 1], [1, 2, 3], [0, 1]):
        with pytest.raises(ValueError, match="not each edge's once"):
            _by_id(edges, np.array(order))
