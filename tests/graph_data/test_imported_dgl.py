"""Graphs and partitions that dgl has written."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.graph_data.dataset import _silence, open_dataset, partition
from emu.graph_data.imported import import_graph
from emu.graph_data.synthetic_graph import synthetic_source
from tests.graph_data.imports import edge_cut, imported, neighbours


def dgl_graph() -> Any:
    import dgl
    import torch

    rng = np.random.default_rng(0)
    ends = [torch.tensor(rng.integers(0, 40, 200)) for _ in range(2)]
    graph = dgl.graph((ends[0], ends[1]), num_nodes=40)
    graph.ndata["feat"] = torch.arange(80.0).reshape(40, 2)
    graph.ndata["label"] = torch.tensor(rng.integers(0, 3, 40))
    graph.ndata["train_mask"] = torch.arange(40) < 25
    return graph


def test_a_graph_of_dgl_is_read(tmp_path: Path) -> None:
    dgl = pytest.importorskip("dgl")
    graph = dgl_graph()
    dgl.save_graphs(str(tmp_path / "g.bin"), [graph])
    dataset = imported(tmp_path / "g.bin")

    both = dgl.to_simple(dgl.to_bidirected(dgl.remove_self_loop(graph)))
    assert dataset.edges == both.num_edges()
    assert neighbours(dataset)[7] == sorted(both.predecessors(7).tolist())
    assert dataset.train.tolist() == list(range(25))


def test_metis_dgl_asks_dgl_for_parts_of_the_whole_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two calls of its METIS may differ: 7 of 96 did, and six pairs of one process."""
    dgl = pytest.importorskip("dgl")
    torch = pytest.importorskip("torch")
    structure = synthetic_source("products-like", scale=0.001, seed=0).load().structure
    ends = structure.indices, np.repeat(np.arange(2449), np.diff(structure.indptr))
    given = np.arange(2449) % 4

    def of_dgl(graph: Any, parts: int) -> Any:
        assert (graph.num_nodes(), parts) == (2449, 4)
        asked = np.stack([end.numpy() for end in graph.edges()])
        order, wanted = np.lexsort(asked), np.lexsort(ends)
        np.testing.assert_array_equal(asked[:, order], np.stack(ends)[:, wanted])
        return torch.from_numpy(given)

    monkeypatch.setattr(dgl, "metis_partition_assignment", of_dgl)
    np.testing.assert_array_equal(partition(structure, 4, "metis-dgl"), given)


def test_metis_cuts_no_more_than_that_of_dgl_and_is_always_the_same() -> None:
    pytest.importorskip("dgl")
    structure = synthetic_source("products-like", scale=0.001, seed=0).load().structure
    own = partition(structure, 4, "metis")

    assert own.tobytes() == partition(structure, 4, "metis").tobytes()
    of_dgl = partition(structure, 4, "metis-dgl")
    assert edge_cut(structure, own) < edge_cut(structure, of_dgl)
    assert np.bincount(own).max() <= 1.01 * 2449 / 4


def test_what_only_dgl_can_do_says_so_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)

    with pytest.raises(DataError, match=r"partitioner: metis-dgl: needs dgl.* metis "):
        open_dataset("products-like", scale=0.001, parts=2, partitioner="metis-dgl")


@pytest.fixture
def distdgl(tmp_path: Path) -> Path:
    """Partition a graph as DistDGL does, and return the folder."""
    dgl = pytest.importorskip("dgl")
    folder = tmp_path / "parts"
    graph = dgl_graph()
    with _silence():
        dgl.distributed.partition_graph(
            graph, "own", 2, str(folder), part_method="random"
        )
        gc.collect()
    return folder


def test_partitions_of_distdgl_keep_their_vertices(distdgl: Path) -> None:
    """Ids are those of DistDGL, which orders vertices by part; features tell which."""
    import_graph(distdgl, "own")
    dataset = open_dataset("own", partitioner="imported", parts=2)
    ranges = json.loads((distdgl / "own.json").read_text())["node_map"]["_N"]

    for part, (first, last) in enumerate(ranges):
        assert np.flatnonzero(dataset.owner == part).tolist() == [*range(first, last)]
    rows = dataset.gather(np.arange(40))
    original = rows[:, 0].astype(int) // 2  # feature 0 of vertex v is 2 v
    whole = imported_graph(dgl_graph(), distdgl.parent)
    renamed = [sorted(original[one].tolist()) for one in neighbours(dataset)]
    assert renamed == [neighbours(whole)[v] for v in original]
    assert dataset.labels.tolist() == whole.labels[original].tolist()


def imported_graph(graph: Any, folder: Path) -> Any:
    import dgl

    dgl.save_graphs(str(folder / "whole.bin"), [graph])
    return imported(folder / "whole.bin")


def test_an_assignment_for_other_machines_is_refused(distdgl: Path) -> None:
    import_graph(distdgl, "own")

    with pytest.raises(DataError, match="imported in 2 parts, the job has 3"):
        open_dataset("own", partitioner="imported", parts=3)
    with pytest.raises(DataError, match="needs a graph that was imported with its"):
        open_dataset("products-like", scale=0.001, partitioner="imported", parts=2)


@pytest.mark.parametrize("file", ["part1/graph.dgl", "part0/node_feat.dgl"])
def test_a_missing_part_is_named(file: str, distdgl: Path) -> None:
    (distdgl / file).unlink()

    with pytest.raises(DataError, match=f"{file}: part {file[4]} of the graph is miss"):
        imported(distdgl)


def test_parts_lie_in_their_folder(distdgl: Path) -> None:
    stated = json.loads((distdgl / "own.json").read_text())
    stated["part-1"]["part_graph"] = "../../elsewhere.dgl"
    (distdgl / "own.json").write_text(json.dumps(stated))

    with pytest.raises(DataError, match="outside this folder"):
        imported(distdgl)
