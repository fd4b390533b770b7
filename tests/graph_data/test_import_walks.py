"""The walks of docs/own_graph.md: a graph of dgl, PyTorch Geometric and OGB in use."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emu.errors import DataError
from emu.graph_data.dataset import _silence, open_dataset
from emu.graph_data.imported import import_graph
from emu.scenario import load, prepare
from tests.graph_data.imports import neighbours

pytestmark = pytest.mark.usefixtures("read_here")

FILES = Path(__file__).parent / "files"


def makespan(name: str, folder: Path, **job: Any) -> float:
    """Simulate a job on an imported graph, as the walk ends."""
    told = {
        "cluster": {"machines": [{"count": 2, "nic": "1 Gbit/s"}]},
        "job": {
            "system": "dgtp",
            "dataset": name,
            "model": {"hidden": 4, "layers": 1},
            "fanouts": [3],
            "batch_size": 2,
            "iterations": 2,
            "times": dict.fromkeys(
                ("graph_store", "sampler", "worker", "parameter_server"), "1 ms"
            ),
            **job,
        },
    }
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(told))
    return prepare(load(file)).simulate().makespan


def partitioned(folder: Path, seed: int, **of_edges: Any) -> tuple[Path, Any]:
    """Partition a drawn graph with dgl; return the json file that DistGraph takes."""
    dgl = pytest.importorskip("dgl")
    import torch

    rng = np.random.default_rng(seed)
    count, edges = int(rng.integers(20, 60)), int(rng.integers(60, 300))
    graph = dgl.graph(
        tuple(torch.tensor(rng.integers(0, count, edges)) for _ in range(2)),
        num_nodes=count,
    )
    wide = torch.float64 if seed % 2 else torch.float32
    graph.ndata["feat"] = torch.arange(3.0 * count).reshape(count, 3).to(wide)
    graph.ndata["label"] = torch.tensor(rng.integers(0, 3, count))
    if seed % 3:
        graph.ndata["train_mask"] = torch.tensor(rng.random(count) < 0.6)
        graph.ndata["train_mask"][0] = True
    for name in of_edges:
        graph.edata[name] = torch.rand(edges)
    with _silence():
        dgl.distributed.partition_graph(
            graph, "own", 2, str(folder / "parts"), part_method="random",
            num_hops=1 + seed % 2,
        )  # fmt: skip
    return folder / "parts" / "own.json", graph


@pytest.mark.parametrize("seed", range(4))
def test_the_file_that_distgraph_is_given(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its edges are those of the graph that was partitioned, from any folder."""
    _, graph = partitioned(tmp_path, seed)
    monkeypatch.chdir(tmp_path)
    import_graph(Path("parts/own.json"), f"own{seed}")
    dataset = open_dataset(f"own{seed}", partitioner="imported", parts=2)

    original = dataset.gather(np.arange(dataset.vertices))[:, 0].astype(int) // 3
    assert sorted(original) == [*range(graph.num_nodes())]
    both: list[set[int]] = [set() for _ in range(graph.num_nodes())]
    for one, other in zip(*(end.tolist() for end in graph.edges()), strict=True):
        if one != other:
            both[one].add(other)
            both[other].add(one)
    for vertex, found in enumerate(neighbours(dataset)):
        assert {int(original[v]) for v in found} == both[original[vertex]]
        assert len(found) == len(set(found))
    labels = graph.ndata["label"].numpy()[original]
    np.testing.assert_array_equal(dataset.labels, labels)
    assert makespan(f"own{seed}", tmp_path, partitioner="imported") > 0


def test_what_edges_carry_is_left_out_and_said_so(tmp_path: Path) -> None:
    file, _ = partitioned(tmp_path, 1, w=1)
    facts = import_graph(file, "weighed").facts

    assert any(text.endswith(": w") for text in facts["left_out"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "holds no part-0"),
        ("[1]", "holds no part-0"),
        ("{", "own.json: "),
        ('{"part-0": {}}', "own.json: states no num_parts"),
    ],
)
def test_another_json_file_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "own.json").write_text(text)

    with pytest.raises(DataError, match=problem):
        import_graph(tmp_path / "own.json", "other")


def test_a_data_of_pytorch_geometric(tmp_path: Path) -> None:
    facts = import_graph(FILES / "pytorch_geometric.pt", "geometric").facts

    assert facts["vertices"] > 0
    assert makespan("geometric", tmp_path, partitioner="hash") > 0


def saved(folder: Path, content: Any) -> Path:
    import torch

    torch.save(content, folder / "data.pt")
    return folder / "data.pt"


def graph_of_tensors(seed: int) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    ids = torch.int32 if seed % 2 else torch.int64
    return {
        "edge_index": torch.tensor(rng.integers(0, 30, (2, 90)), dtype=ids),
        "x": torch.tensor(rng.normal(size=(30, 4))),
        "y": torch.tensor(rng.integers(0, 3, 30)),
    }


@pytest.mark.parametrize("seed", range(2))
def test_notes_and_numbers_that_numpy_lacks(tmp_path: Path, seed: int) -> None:
    content = graph_of_tensors(seed)
    content |= {"edge_weight": content["x"][:, 0], "x": content["x"].bfloat16()}
    facts = import_graph(saved(tmp_path, content), f"bf{seed}").facts

    assert facts["left_out"] == ["1 array: edge_weight"]
    rows = open_dataset(f"bf{seed}").gather(np.arange(30))
    np.testing.assert_array_equal(rows, content["x"].float().numpy())


def test_sparse_labels_are_an_error(tmp_path: Path) -> None:
    content = graph_of_tensors(0)
    content["y"] = content["y"].to_sparse()

    with pytest.raises(DataError, match=r"y is sparse, save y\.to_dense\(\)"):
        import_graph(saved(tmp_path, content), "sparse")


@pytest.mark.filterwarnings("ignore:Sparse CS")
def test_a_matrix_by_columns_is_no_matter_for_a_dense_one(tmp_path: Path) -> None:
    """A dense matrix of a million vertices has terabytes; one by rows is read."""
    torch = pytest.importorskip("torch")
    content = graph_of_tensors(0)
    sources, destinations = content.pop("edge_index")
    matrix = torch.zeros(30, 30)
    matrix[destinations, sources] = 1
    content["adj_t"] = matrix.to_sparse_csc()
    with pytest.raises(DataError, match=r"adj_t is sparse, save adj_t\.to_sparse_csr"):
        import_graph(saved(tmp_path, content), "columns")
    content["adj_t"] = content["adj_t"].to_sparse_csr()
    assert import_graph(saved(tmp_path, content), "rows").facts["vertices"] == 30


def ogb(folder: Path, *, packed: bool, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Write a folder as ogb leaves it, as text or as npz."""
    rng = np.random.default_rng(seed)
    content: dict[str, NDArray[Any]] = {
        "edge": rng.integers(0, 30, (90, 2)),
        "node-feat": rng.normal(size=(30, 4)).astype(np.float32),
        "node-label": rng.integers(0, 3, (30, 1)),
        "num-node-list": np.array([[30]]),
    }
    (folder / "raw").mkdir(parents=True)
    if packed:
        np.savez(
            folder / "raw" / "data.npz",
            edge_index=content["edge"].T,
            node_feat=content["node-feat"],
        )
        labels = content["node-label"].astype(np.float32)
        np.savez(folder / "raw" / "node-label.npz", node_label=labels)
    else:
        for name, array in content.items():
            table(folder / "raw" / f"{name}.csv.gz", array)
    for number, part in enumerate(("train", "valid", "test")):
        table(folder / "split" / "time" / f"{part}.csv.gz", np.arange(number, 30, 3))
    return content


def table(path: Path, array: NDArray[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        np.savetxt(file, array, "%.9g", ",")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_folder_of_ogb(tmp_path: Path, *, packed: bool, seed: int) -> None:
    content = ogb(tmp_path / "ogbn_own", packed=packed, seed=seed)
    name = f"ogb{seed}{packed}"
    assert import_graph(tmp_path / "ogbn_own", name).facts["notes"] == []
    dataset = open_dataset(name)

    np.testing.assert_array_equal(dataset.gather(np.arange(30)), content["node-feat"])
    np.testing.assert_array_equal(dataset.labels, content["node-label"][:, 0])
    assert dataset.valid.tolist() == [*range(1, 30, 3)]
    first, *_ = content["edge"][content["edge"][:, 0] != content["edge"][:, 1]]
    assert first[0] in neighbours(dataset)[first[1]]
    assert first[1] in neighbours(dataset)[first[0]]
    assert makespan(name, tmp_path, partitioner="hash") > 0


def test_what_is_not_read_of_a_folder_of_ogb_is_said(tmp_path: Path) -> None:
    ogb(tmp_path, packed=False)
    table(tmp_path / "raw" / "edge-feat.csv.gz", np.ones(90))
    table(tmp_path / "split" / "a" / "train.csv.gz", np.arange(3))
    for first, part in ((3, "valid"), (6, "test")):
        ids = np.arange(first, first + 3)
        table(tmp_path / "split" / "a" / f"{part}.csv.gz", ids)
    facts = import_graph(tmp_path, "notes").facts

    assert facts["notes"] == ["of the splits a, time the first"]
    others = [f"split/time/{part}.csv.gz" for part in ("test", "train", "valid")]
    assert facts["left_out"] == [f"4 files: raw/edge-feat.csv.gz, {', '.join(others)}"]
    assert facts["train"] == 3


@pytest.mark.parametrize(
    ("change", "options", "problem"),
    [
        (lambda raw: table(raw / "num-node-list.csv.gz", np.array([[10], [20]])), {},
         r"num-node-list\.csv\.gz: says 10, 20 vertices, one graph of 30 labels"),
        (lambda raw: table(raw / "num-node-list.csv.gz", np.array([[33]])), {},
         "says 33 vertices"),
        (lambda raw: table(raw / "num-edge-list.csv.gz", np.array([[91]])), {},
         r"num-edge-list\.csv\.gz: says 91 edges, one graph of 90 is there"),
        (lambda raw: (raw / "node-feat.csv.gz").unlink(), {},
         r"holds no features .*--feature-length 100"),
        (lambda raw: table(raw / "node-label.csv.gz", np.ones((30, 112))), {},
         r"shape \(30, 112\) \(several classes per vertex\).*--labels"),
    ],
)  # fmt: skip
def test_a_folder_of_ogb_that_cannot_be(
    tmp_path: Path, change: Any, options: dict[str, Any], problem: str
) -> None:
    ogb(tmp_path, packed=False)
    change(tmp_path / "raw")

    with pytest.raises(DataError, match=problem):
        import_graph(tmp_path, "wrong", **options)


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        ("torch_geometric.data.batch", "DynamicInheritanceGetter", "get_example"),
        ("torch_geometric.edge_index", "EdgeIndex", r"as_tensor\(\)"),
        ("torch_sparse.tensor", "SparseTensor", r"to_edge_index\(data.adj_t.t\(\)\)"),
        ("dgl.heterograph", "DGLGraph", "dgl.save_graphs"),
        ("somebody", "Else", r"data.to_dict\(\)"),
    ],
)
def test_a_class_that_is_not_loaded_gets_a_hint_that_works_for_it(
    tmp_path: Path,
    module: str,
    name: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    made = type(name, (), {"__module__": module})
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        package = ".".join(parts[:length])
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    setattr(sys.modules[module], name, made)
    path = saved(tmp_path, graph_of_tensors(0) | {"edge_index": made()})

    with pytest.raises(DataError, match=hint):
        import_graph(path, "refused")


@pytest.mark.parametrize("names", [("a", "b"), ("own", "mine", "third")])
def test_several_descriptions_in_one_folder_are_named(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    (tmp_path / "notes.json").write_text("[]")
    for name in names:
        (tmp_path / f"{name}.json").write_text('{"part-0": {}, "num_parts": 1}')

    listed = ", ".join(f"{name}.json" for name in sorted(names))
    with pytest.raises(DataError, match=rf"\({listed}\): name one"):
        import_graph(tmp_path, "several")
