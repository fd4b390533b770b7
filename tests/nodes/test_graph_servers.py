"""Graph servers of Dorylus: what tasks pull and leave there, stated by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import NodeMisbehaved
from emu_nodes.dorylus.graph_server import AttentionServer, GraphServer


def rows(*values: float) -> Any:
    """Return rows of one number each."""
    return np.array(values).reshape(-1, 1)


def server_of(kind: type, **settings: Any) -> Any:
    """Return a server of a model of two layers, without data."""
    server: Any = object.__new__(kind)
    server._settings = {"fuse": False, "rematerialize": False} | settings
    server._last = 1
    server.asked, server._values = {}, {}
    server.targets = lambda interval: f"targets of {interval}"
    return server


@pytest.mark.parametrize(
    ("step", "settings", "names"),
    [
        (("apply", 0), {"fuse": True}, {"ah": "ah0"}),
        (("apply", 1), {}, {"ah": "ah1"}),
        (("apply", 1), {"fuse": True}, {"ah": "ah1", "targets": "targets of 4"}),
        (("apply_back", 0), {}, {"ah": "ah0", "z": "z0", "gradient": "gathered"}),
        (
            ("apply_back", 0),
            {"rematerialize": True},
            {"ah": "ah0", "gradient": "gathered"},
        ),
        (("apply_back", 1), {}, {"ah": "ah1", "z": "z1", "targets": "targets of 4"}),
    ],
)
def test_a_task_pulls_what_its_layer_needs(
    step: tuple[str, int], settings: dict[str, bool], names: dict[str, str]
) -> None:
    server = server_of(GraphServer, **settings)
    for name in ("ah0", "ah1", "z0", "z1", "gathered"):
        server.values(4, 3)[name] = name
    assert server.pull(step, 4, 3) == names


@pytest.mark.parametrize(
    ("step", "names"),
    [
        (("apply", 0), {"rows": [10, 30]}),
        (("apply", 1), {"rows": "out0"}),
        (("apply_back", 0), {"rows": [10, 30], "gradient": "gathered"}),
        (("apply_back", 1), {"rows": "out0", "gradient": "gathered"}),
        (("edge_apply", 0), {"of": "read0"}),
        (("edge_apply", 1), {"of": "read1"}),
        (("edge_apply_back", 0), {"of": "read0", "gradient": "gradient"}),
        (
            ("edge_apply_back", 1),
            {"of": "read1", "scores": "out1", "targets": "targets of 4"},
        ),
    ],
)
def test_tasks_of_attention_pull_rows_or_what_edges_read(
    step: tuple[str, int], names: dict[str, Any]
) -> None:
    server = server_of(AttentionServer)
    server.features = np.array([10, 20, 30])
    server.rows_of = lambda _: np.array([0, 2])
    server.edges = lambda _: SimpleNamespace(both=lambda read: {"of": read})
    for name in ("out0", "out1", "read0", "read1", "gathered", "gradient"):
        server.values(4, 3)[name] = name
    found = server.pull(step, 4, 3)
    assert {
        name: array.tolist() if isinstance(array, np.ndarray) else array
        for name, array in found.items()
    } == names


def test_values_stay_until_the_last_task_of_their_epoch() -> None:
    """The backward pass of layer 0 ends an epoch; z is kept by its layer."""
    server = server_of(GraphServer)
    server.take_back(("apply", 0), 4, 3, {"z": 1, "h": 2})
    server.take_back(("apply", 1), 4, 3, {"z": 3})
    server.take_back(("apply_back", 1), 4, 3, {"gradient": 4})
    assert server.values(4, 3) == {"z0": 1, "h": 2, "z1": 3, "gradient": 4}
    server.take_back(("apply_back", 0), 5, 3, {"gradient": 5})
    server.take_back(("apply", 0), 4, 4, {"z": 6})
    assert {*server._values} == {(4, 3), (4, 4)}
    server.take_back(("apply_back", 0), 4, 3, {})
    assert {*server._values} == {(4, 4)}

    attention = server_of(AttentionServer)
    attention.take_back(("edge_apply", 1), 4, 3, {"attention": 7, "z": 8})
    assert attention.values(4, 3) == {"attention1": 7, "z1": 8}


def test_rows_of_others_have_their_places_and_strangers_are_refused() -> None:
    """Vertices 2, 5 and 8 are of this part, 3 and 9 remote; a later row replaces."""
    server = server_of(GraphServer)
    vertices = np.array([2, 5, 8, 3, 9])

    def positions(ids: Any) -> Any:
        places = {vertex: place for place, vertex in enumerate(vertices.tolist())}
        if not {*ids.tolist()} <= {*places}:
            raise ValueError("vertex 7 is not of it")
        return np.array([places[vertex] for vertex in ids.tolist()])

    server._dtype = np.dtype("float32")
    server._part = SimpleNamespace(
        vertices=vertices, local=vertices[:3], positions=positions
    )
    server._interval = np.array([0, 0, 4, 0, 0, 6, 0, 0, 4, 0])
    assert server.rows_of(4).tolist() == [0, 2]
    payloads = [
        {"ids6": np.array([9, 3]), "rows6": rows(1.0, 2.0), "other": 0},
        {"rows4": rows(3.0, 4.0)},
        {"ids5": np.array([3]), "rows5": rows(5.0)},
    ]
    vectors = server.assemble(payloads)
    assert vectors.ravel().tolist() == [3.0, 0.0, 4.0, 5.0, 1.0]
    assert vectors.dtype == np.float32
    with pytest.raises(NodeMisbehaved, match="ghosts of 6: vertex 7 is not of it"):
        server.assemble([{"ids6": np.array([7]), "rows6": rows(1.0)}])


def test_an_answer_counts_from_the_lambda_that_was_asked_last() -> None:
    """The third of four counts, and of a chunk asked once the first."""
    server = server_of(GraphServer)
    server.asked[4, 3, 1] = 3
    taken = [
        server.take((4, 3, 1), number, ("apply", 0), {"h": number})
        for number in (1, 2, 3, 4)
    ]
    assert taken == [False, False, True, True]
    assert server.values(4, 3) == {"h": 4}
    assert server.take((4, 5, 1), 1, ("apply", 0), {"h": 9})
    assert server.values(4, 5) == {"h": 9}


def test_sources_of_edges_are_told_apart_by_their_servers() -> None:
    """Places 0 to 2 are of this server 1, 3 of server 0, 4 and 5 of server 2."""
    server = server_of(AttentionServer)
    server._server = 1
    columns = np.array([5, 1, 3, 1, 0, 4], np.int32)
    server.edges = lambda _: SimpleNamespace(columns=columns)
    server._part = SimpleNamespace(local=range(3), owners=np.array([0, 2, 2]))
    found = {each: server._find_sources(4, each).tolist() for each in (0, 1, 2)}
    assert found == {0: [3], 1: [0, 1], 2: [4, 5]}


def test_gradients_of_sources_go_to_their_owners_with_their_numbers() -> None:
    """Sums of an interval's edges are of all vertices here; ids take 4 bytes."""
    server = server_of(AttentionServer)
    pushed: list[Any] = []

    def push_back(sources: Any, own: Any, *, count: int) -> Any:
        pushed.append((sources, own, count))
        return rows(1.0, 2.0, 3.0, 4.0)

    server.edges = lambda _: SimpleNamespace(push_back=push_back)
    server._part = SimpleNamespace(vertices=np.array([20, 50, 80, 30]))
    server._sources = lambda *_: np.array([1, 3])
    server.values(4, 3).update(of_sources="sources", of_own="own")
    server.push(4, 3)
    found = server.push_gradients(4, 3, 2)

    assert pushed == [("sources", "own", 4)]
    assert found["ids4"].tolist() == [50, 30]
    assert found["ids4"].dtype == np.int32
    assert found["rows4"].tolist() == [[2.0], [4.0]]


def test_gradients_of_all_intervals_add_up_and_newer_ones_replace() -> None:
    """Vertices 0, 1 and 2; interval 4 is of the first and the third."""
    server = server_of(AttentionServer)
    server._dtype = np.dtype("float64")
    server._part = SimpleNamespace(
        vertices=np.arange(3), positions=lambda vertices: vertices
    )
    server.rows_of = lambda _: np.array([0, 2])
    payloads = [
        {"ids7": np.array([0]), "rows7": rows(1000.0)},  # older
        {"ids5": np.array([0, 1]), "rows5": rows(1.0, 2.0)},
        {"ids7": np.array([2, 0]), "rows7": rows(10.0, 20.0)},
    ]
    assert server.sum_gradients(4, payloads).tolist() == [[21.0], [10.0]]
