"""Graphs on their way to another host: whole, the same, or not kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from emu.errors import DataError
from emu.graph_data import copied_graphs
from emu.graph_data.copied_graphs import GraphCopy, GraphFiles, is_here, list_graphs
from emu.graph_data.imported import import_graph, imports_home
from emu.graph_data.sources import source_of

EDGES = "a,b\nb,c\nc,d\nd,a\n"
DATASET = {"name": "mine", "scale": 1.0, "seed": 3, "root": ""}


@pytest.fixture
def graph(tmp_path: Path) -> GraphFiles:
    (tmp_path / "e.csv").write_text(EDGES)
    import_graph(tmp_path / "e.csv", "mine", feature_length=3, classes=2)
    return GraphFiles.of(DATASET)


def sent_to_another_host(
    graph: GraphFiles, home: Path, monkeypatch: pytest.MonkeyPatch
) -> GraphCopy:
    """Return the copy that a host with its own cache has received in pieces."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    copy = GraphCopy(graph.dataset, graph.fingerprint)
    is_last = False
    while not is_last:
        file, content, is_last = graph.piece(copy.received)
        copy.add(file, content)
    return copy


@pytest.mark.parametrize("piece", [1, 7, 1 << 22])
def test_a_copy_is_the_graph(
    graph: GraphFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    original = {path.name: path.read_bytes() for path in graph.paths}
    with mock.patch.object(copied_graphs, "PIECE", piece):
        copy = sent_to_another_host(graph, tmp_path / "there", monkeypatch)
    assert not is_here(DATASET, graph.fingerprint)

    copy.keep()

    folder = imports_home() / "mine"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == original
    assert is_here(DATASET, graph.fingerprint)
    assert [path.name for path in imports_home().iterdir()] == ["mine"]
    assert copy.received == graph.size


def test_a_damaged_copy_is_not_kept(
    graph: GraphFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = sent_to_another_host(graph, tmp_path / "there", monkeypatch)
    copy.add("manifest.json", b" ")
    copy.add("labels.npy", b"\0")

    with pytest.raises(DataError, match="damaged"):
        copy.keep()

    assert not any(imports_home().iterdir())


def test_another_graph_of_that_name_is_refused(
    graph: GraphFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    (tmp_path / "e.csv").write_text(f"{EDGES}a,c\n")
    import_graph(tmp_path / "e.csv", "mine", feature_length=3, classes=2)

    with pytest.raises(DataError, match=r"another graph here .* emu data clear mine"):
        is_here(DATASET, graph.fingerprint)


def test_a_second_agent_of_one_host_finds_it_kept(
    graph: GraphFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sent_to_another_host(graph, tmp_path / "there", monkeypatch)
    with mock.patch("os.getpid", return_value=7):
        second = sent_to_another_host(graph, tmp_path / "there", monkeypatch)
    first.keep()
    second.keep()

    assert [path.name for path in imports_home().iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["../mine.npy", "a/b", "", "..", "/etc/passwd"])
@pytest.mark.usefixtures("graph")
def test_a_name_of_a_file_leads_nowhere(name: str) -> None:
    copy = GraphCopy({**DATASET, "name": "other"}, "none")

    with pytest.raises(DataError, match="no name of a file"):
        copy.add(name, b"x")
    copy.discard()


def test_an_npz_file_of_a_folder_is_sent_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data" / "mine"
    folder.mkdir(parents=True)
    edges = np.array([[0, 1, 2], [1, 2, 0]])
    arrays: dict[str, Any] = {"edge_index": edges, "x": np.eye(3), "y": [0, 1, 1]}
    np.savez(folder / "mine.npz", allow_pickle=False, **arrays)
    monkeypatch.setenv("EMU_DATA", str(tmp_path / "data"))
    (graph,) = list_graphs([DATASET, DATASET])
    monkeypatch.delenv("EMU_DATA")

    sent_to_another_host(graph, tmp_path / "there", monkeypatch).keep()

    assert source_of(DATASET).fingerprint == graph.fingerprint


def test_graphs_that_are_made_up_are_not_sent() -> None:
    assert [*list_graphs([{**DATASET, "name": "products-like"}])] == []
