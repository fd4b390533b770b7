"""Graphs in files of arrays: as they were written, or refused with what decides."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.errors import DataError
from emu.graph_data.imported import import_graph
from emu.graph_data.raw_graph import RawGraph
from emu.graph_data.readers.array_files import (
    _cut_values,
    read_npy,
    read_npz,
    read_torch,
)
from emu.graph_data.readers.split_arrays import SPLIT, Choices, split_part
from tests.graph_data.imports import imported, neighbours

FILES = Path(__file__).parent / "files"
NAMES = {
    "train": ("train_idx", "train_nid", "idx_train", "train_indices", "train"),
    "valid": ("val_idx", "valid_nid", "idx_valid", "val_indices", "valid"),
    "test": ("test_idx", "test_nid", "idx_test", "test_indices", "test"),
}
LAYOUTS = ("edge_index", "edges", "src", "csr", "coo", "dense")
drawn = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def write_npz(path: Path, arrays: dict[str, Any]) -> RawGraph:
    np.savez(path, allow_pickle=False, **arrays)
    return read_npz(path).check()


def write_torch(path: Path, arrays: dict[str, Any]) -> RawGraph:
    torch = pytest.importorskip("torch")
    parts = {name: arrays.pop(name) for name in SPLIT if name in arrays}
    content = {name: torch.tensor(np.asarray(a)) for name, a in arrays.items()}
    if parts:  # as ogb's get_idx_split
        content["split_idx"] = {name: torch.tensor(ids) for name, ids in parts.items()}
    torch.save(content, path)
    return read_torch(path).check()


def lay_out(layout: str, edges: Any, vertices: int) -> dict[str, Any]:
    """Return drawn edges in one of the ways that people write them."""
    matrix = np.zeros((vertices, vertices), np.int8)
    matrix[tuple(edges)] = 1
    rows, columns = np.nonzero(matrix)
    ends = {"row": rows, "col": columns, "shape": matrix.shape}
    return {
        "edge_index": {"edge_index": edges},
        "edges": {"edges": edges.T},
        "src": {"src": edges[0], "dst": edges[1]},
        "csr": {
            "indptr": np.concatenate([[0], np.cumsum(matrix.sum(1))]),
            "indices": columns,
            "shape": matrix.shape,
        },
        "coo": ends,
        "dense": {"adj": matrix},
    }[layout]


@drawn
@given(
    data=st.data(),
    layout=st.sampled_from(LAYOUTS),
    vertices=st.integers(3, 30),
    way=st.integers(-2, len(NAMES["train"]) - 1),
    label=st.sampled_from(["flat", "column", "float", "one-hot"]),
    write=st.sampled_from([write_npz, write_torch]),
)
def test_a_drawn_graph_comes_back(
    data: st.DataObject, layout: str, vertices: int, way: int, label: str, write: Any,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Masks of a byte or of truth values for a way below 0, else ids in any order."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    edges = rng.integers(0, vertices, (2, int(rng.integers(1, 90)))).astype("i4")
    labels = rng.integers(0, 3, vertices)
    labels[:2] = 2, 0
    part_of = rng.integers(0, 4, vertices)  # 3: in none
    part_of[1] = 0
    shaped = {
        "flat": labels,
        "column": labels[:, None],
        "float": labels.astype("f4"),
        "one-hot": np.eye(3, dtype="i8")[labels],
    }[label]
    arrays = {"x": rng.normal(size=(vertices, 2)), "y": shaped}
    for number, part in enumerate(SPLIT):
        ids = rng.permutation(np.flatnonzero(part_of == number))
        mask = part_of == number
        arrays |= (
            {f"{part}_mask": mask if way == -1 else mask.astype("u1")}
            if way < 0
            else {NAMES[part][way]: ids}
        )
    path = tmp_path / ("g.npz" if write is write_npz else "g.pt")
    graph = write(path, arrays | lay_out(layout, edges, vertices))

    assert graph.labels.tolist() == labels.tolist()
    for number, part in enumerate(SPLIT):
        assert (
            getattr(graph, part).tolist() == np.flatnonzero(part_of == number).tolist()
        )
    np.testing.assert_allclose(graph.rows(0, vertices), arrays["x"], rtol=1e-6)
    wanted = {frozenset(pair) for pair in edges.T.tolist() if pair[0] != pair[1]}
    indptr, indices = graph.structure.indptr, graph.structure.indices
    ends = np.repeat(np.arange(vertices), np.diff(indptr))
    assert {
        frozenset(p) for p in zip(ends.tolist(), indices.tolist(), strict=True)
    } == wanted


@pytest.mark.parametrize("kind", ["u1", "u2", "u4", "u8", "i1", "i8"])
def test_edges_may_be_of_any_whole_numbers(kind: str, tmp_path: Path) -> None:
    """Where nothing states the vertices, the highest end of an edge is the last one."""
    edges = np.array([[0, 3, 1], [1, 2, 6]], kind)
    np.savez(tmp_path / "g.npz", edge_index=edges)

    facts = import_graph(tmp_path / "g.npz", kind, feature_length=2, classes=2).facts

    assert (facts["vertices"], facts["edges"]) == (7, 6)


X, Y, ENDS = np.ones((9, 2)), np.arange(9) % 3, np.array([[0, 1], [1, 8]])
WHOLE: dict[str, Any] = {"edge_index": ENDS, "x": X, "y": Y}


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"train_idx": [1, 1]}, "the train split names vertex 1 twice"),
        ({"train_idx": [1], "test_idx": [2, 1]}, "vertex 1 is in the train and in the"),
        ({"train_idx": [9]}, r"names vertex 9, there are only 0\.\.8"),
        ({"train_idx": [-1]}, "names vertex -1"),
        ({"train_idx": np.empty(0, int)}, "train split is empty"),
        ({"val_idx": [1]}, "train split is empty or missing"),
        ({"train_idx": [0.0]}, "train_idx is float64: a mask or whole numbers"),
        ({"train_idx": Y % 2}, r"index array or mask\? --split-arrays ids or .* masks"),
        ({"train_mask": np.arange(9)}, r"train_mask holds 9 .*index array or mask\?"),
        ({"train_mask": [3, 4]}, r"train_mask holds 2 .*index array or mask\?"),
        ({"train_mask": np.ones((9, 9), bool)}, "an entry per vertex is needed"),
        ({"y": np.array([None] * 9)}, "y cannot be read: .* never unpickled"),
        ({"split_idx": np.array({"train": [1]})}, "split_idx cannot be read"),
        ({"edge_index": np.zeros((2, 0))}, "edges are float64, whole numbers"),
        ({"format": b"bsr", "edge_index": None}, "its matrix is b'bsr'"),
        ({"edge_index": None, "adj": X}, r"adjacency has shape \[9, 2\]"),
        ({"edge_index": [[0], [10**13]], "x": None}, "--features"),
        ({"num_nodes": 7}, "has 7 vertices and features of 9"),
        ({"num_nodes": [9, 4]}, "num_nodes is 4, 9, one whole number is needed"),
        ({"num_nodes": 9.5}, "num_nodes is 9.5, one whole number is needed"),
        ({"num_nodes": np.nan}, "num_nodes is nan, one whole number is needed"),
        ({"num_nodes": []}, "num_nodes is empty, one whole number is needed"),
        ({"num_nodes": 9, "n_nodes": 4}, "4 vertices in n_nodes, and elsewhere 9"),
        ({"edge_index": None, "row": [0], "col": [1], "shape": [9.5, 9.5]},
         "adjacency has shape"),
    ],
)  # fmt: skip
def test_what_is_open_or_wrong_is_said(
    arrays: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    arrays = {n: a for n, a in (WHOLE | arrays).items() if a is not None}
    np.savez(tmp_path / "g.npz", **arrays)

    with pytest.raises(DataError, match=problem):
        import_graph(tmp_path / "g.npz", "wrong")


@pytest.mark.parametrize(
    ("name", "array", "choice", "wanted"),
    [
        ("train_mask", [1, 1, 0, 0, 0, 0, 0, 0, 0], "masks", [0, 1]),
        ("train_mask", [5, 3], "ids", [3, 5]),
        ("train_idx", [0, 1, 0, 0, 0, 0, 0, 0, 1], "masks", [1, 8]),
        ("train_masks", np.eye(9, 2, dtype=bool), "", [1]),
    ],
)
def test_the_option_decides(
    name: str, array: Any, choice: str, wanted: list[int], tmp_path: Path
) -> None:
    np.savez(tmp_path / "g.npz", allow_pickle=False, **WHOLE, **{name: array})
    with pytest.raises(DataError, match="--split-"):
        import_graph(tmp_path / "g.npz", "open")
    choices = Choices(split_arrays=choice, split_number=None if choice else 1)

    assert imported(tmp_path / "g.npz", choices=choices).train.tolist() == wanted


@pytest.mark.parametrize("part", ["train trn training", "val dev valid", "test tst"])
def test_names_of_splits(part: str) -> None:
    stems = part.split()
    wanted = {"train": "train", "val": "valid", "test": "test"}[stems[0]]
    for stem in stems:
        for form in ("mask", "masks", "idx", "ids", "nid", "indices", "nodes"):
            names = f"{stem}_{form}", f"{form}_{stem}", f"split_{stem}", stem
            assert {split_part(name) for name in names} == {wanted}
    others = ("train_y", "x_test", "ids", "node_id", "text_mask", "split_idx", "latest")
    assert {split_part(name) for name in others} == {None}


def test_what_was_taken_for_what_is_said(tmp_path: Path) -> None:
    beside = {"edge_year": [1, 2], "node_year": Y, "features": X, "train_idx": [4]}
    np.savez(tmp_path / "g.npz", allow_pickle=False, **(WHOLE | beside))

    assert read_npz(tmp_path / "g.npz").split_origin == "train_idx of the file"
    facts = import_graph(tmp_path / "g.npz", "said").facts
    assert facts["notes"] == ["edges from edge_index, features from x, labels from y"]
    assert facts["left_out"] == ["3 arrays: edge_year, features, node_year"]


def test_edges_alone_in_an_npy_file(tmp_path: Path) -> None:
    three = np.array([[0, 1, 2], [1, 2, 3]])
    for array in (three, three.T, np.eye(4, k=1)):
        np.save(tmp_path / "e.npy", array)
        graph = imported(tmp_path / "e.npy", feature_length=2, classes=2)
        assert neighbours(graph) == [[1], [0, 2], [1, 3], [2]]
    np.save(tmp_path / "e.npy", ENDS)
    with pytest.raises(DataError, match=r"shape \(2, 2\): save it as edges or adj"):
        imported(tmp_path / "e.npy", feature_length=2, classes=2)


def test_sizes_are_checked_before_memory_is_taken(tmp_path: Path) -> None:
    """Views that repeat four bytes, zeros that unpack to gigabytes, shapes beyond."""
    torch = pytest.importorskip("torch")
    whole = {name: torch.tensor(array) for name, array in WHOLE.items()}
    view = torch.ones(1, 1).expand(9, 54_000_000)
    torch.save(whole | {"x": view}, tmp_path / "view.pt")
    packed = io.BytesIO()
    torch.save(whole | {"x": torch.zeros(10)}, packed)
    with (
        zipfile.ZipFile(packed) as good,
        zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for info in good.infolist():
            bomb.writestr(info.filename, good.read(info))
        bomb.writestr("archive/data/77", bytes(30_000_000))
    np.savez_compressed(
        tmp_path / "bomb.npz", **(WHOLE | {"x": np.zeros((9, 400_000))})
    )
    np.savez(tmp_path / "wide.npz", edge_index=[[0], [10**13]])
    head = tmp_path / "head.npy"
    np.save(head, np.zeros((2, 150), int))
    head.write_bytes(head.read_bytes().replace(b"(2, 150), }  ", b"(2, 15000), }"))
    for file, problem in (
        ("view.pt", "x would take 1.94 GB and repeats 4 bytes"),
        ("bomb.pt", "claims to unpack to 30.*save it without compression"),
        ("bomb.npz", "claims to unpack to 28.*save it without compression"),
        ("wide.npz", r"10000000000001 vertices .* would take .* are free in"),
        ("head.npy", r"shape \(2, 15000\), and 2400 bytes follow"),
    ):
        with pytest.raises(DataError, match=problem):
            import_graph(tmp_path / file, "large", feature_length=4, classes=2)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickles_are_refused_by_their_first_bytes(
    protocol: int, tmp_path: Path
) -> None:
    """As planetoid's ind.cora.graph, and .gpickle of networkx."""
    (tmp_path / "ind.cora.graph").write_bytes(pickle.dumps({0: [1]}, protocol))

    with pytest.raises(DataError, match=r"is a pickle, .* np\.savez"):
        import_graph(tmp_path / "ind.cora.graph", "pickled")


@pytest.mark.parametrize("number", [None, 0, 1, 2, 3])
def test_one_of_several_graphs_is_chosen(number: int | None, tmp_path: Path) -> None:
    """torch_geometric 2.8.1 has stored three of 5, 7 and 6 vertices; lists alike."""
    torch = pytest.importorskip("torch")
    graphs = [{n: torch.tensor(a) for n, a in WHOLE.items()} for _ in range(3)]
    for count, graph in zip((5, 7, 6), graphs, strict=True):
        graph |= {"x": torch.ones(count, 3), "y": torch.arange(count) % 2}
        graph["edge_index"] = graph["edge_index"] % count
    torch.save(graphs, tmp_path / "list.pt")
    choices = Choices(graph=number)
    for path in (tmp_path / "list.pt", FILES / "pytorch_geometric_stored.pt"):
        if number in (None, 3):
            with pytest.raises(DataError, match="3 graphs: --graph 0 to --graph 2"):
                read_torch(path, choices)
        else:
            assert (
                read_torch(path, choices).check().structure.vertices
                == (5, 7, 6)[number or 0]
            )
    torch.save(graphs[:1], tmp_path / "list.pt")
    assert read_torch(tmp_path / "list.pt").check().structure.vertices == 5


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", ["to_sparse_csr", "to_sparse_coo"])
def test_a_sparse_adjacency_is_read(tmp_path: Path, layout: str) -> None:
    torch = pytest.importorskip("torch")
    content = {name: torch.tensor(array) for name, array in WHOLE.items()}
    del content["edge_index"]
    content["adj_t"] = getattr(torch.eye(9).roll(1, 0), layout)()
    torch.save(content, tmp_path / "g.pt")

    assert neighbours(imported(tmp_path / "g.pt"))[3] == [2, 4]


@pytest.mark.parametrize("content", ["tensor", "list", "state"])
def test_tensors_without_names_are_no_graph(content: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    ends = torch.tensor(ENDS)
    unnamed = {"tensor": ends, "list": [ends, ends], "state": {"w": ends}}[content]
    torch.save(unnamed, tmp_path / "g.pt")

    with pytest.raises(DataError, match=r"holds no (graph with names|adj_ind)"):
        import_graph(tmp_path / "g.pt", "unnamed")


def test_an_npy_file_that_is_no_graph(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.T[:1])

    with pytest.raises(DataError, match="it needs two ends per edge"):
        read_npy(tmp_path / "x.npy")


def test_each_value_of_a_graph_of_several_is_cut_by_its_own_bounds() -> None:
    """The second has 3 of 5 vertices and 2 of 6 edges; what has no bounds is of all."""
    ends = np.arange(12).reshape(2, 6)
    values = {
        "x": np.arange(5),
        "edge_index": ends,
        "num_nodes": 5,
        "_num_nodes": [2, 3],
        "paper": {"y": np.arange(10, 15), "name": "all"},
        "about": {"version": 7},
    }
    of_vertices = np.array([0, 2, 5])
    of_edges = np.array([0, 4, 6])
    paper = {"y": of_vertices}
    bounds = {"x": of_vertices, "edge_index": of_edges, "paper": paper}
    graph = _cut_values(values, bounds, number=1, origin="file")

    assert graph["x"].tolist() == [2, 3, 4]
    assert graph["edge_index"].tolist() == ends[:, 4:].tolist()
    assert graph["num_nodes"] == 3
    assert graph["paper"]["y"].tolist() == [12, 13, 14]
    assert graph["paper"]["name"] == "all"
    assert graph["about"] == {"version": 7}
