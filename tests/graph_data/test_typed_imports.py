"""Graphs of several types: all as one, one relation, or a line that names both."""

from __future__ import annotations

import gc
import gzip
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.errors import DataError
from emu.graph_data.dataset import _silence
from emu.graph_data.imported import import_graph
from emu.graph_data.readers.array_files import read_torch
from emu.graph_data.readers.dgl_file import read_dgl
from emu.graph_data.readers.dgl_parts import read_partitions
from emu.graph_data.readers.found_graph import FoundGraph
from emu.graph_data.readers.ogb_folder import read_ogb
from emu.graph_data.readers.split_arrays import Choices
from emu.graph_data.readers.typed_graph import TypedGraph, choose_types

FILES = Path(__file__).parent / "files"
FLAT = Choices(flatten=True)
Edges = dict[tuple[str, str, str], Any]


class Drawn:
    """Authors, papers and topics; papers have labels and a split, topics nothing."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.counts = {
            n: int(rng.integers(4, 30)) for n in ("author", "paper", "topic")
        }
        papers = self.counts["paper"]
        self.features = {
            name: rng.normal(size=(self.counts[name], width)).astype("f4")
            for name, width in (("author", 2), ("paper", 3))
        }
        self.labels = rng.integers(0, 3, papers)
        self.labels[0] = 0  # numbers that begin above 0 are names of classes
        self.train = np.sort(rng.permutation(papers)[: papers // 2 + 1])
        self.edges: Edges = {
            (a, name, b): np.stack(
                [rng.integers(0, self.counts[end], 40) for end in (a, b)]
            )
            for a, name, b in (
                ("author", "writes", "paper"),
                ("paper", "cites", "paper"),
                ("paper", "about", "topic"),
            )
        }

    def check(self, graph: FoundGraph, order: Any = None) -> None:
        """Compare with one graph of all types; ``order`` maps ids of types."""
        names = re.findall(r"(\w+) \(\d+\)", graph.notes[0])
        counts = [self.counts[name] for name in names]
        start = dict(zip(names, np.cumsum([0, *counts]), strict=False))
        new = {n: np.arange(self.counts[n]) for n in names} if order is None else order
        raw = graph.check()
        rows = raw.rows(0, sum(counts))
        kinds = np.repeat(np.arange(3), counts)
        np.testing.assert_array_equal(rows[:, -3:], np.eye(3)[kinds])
        for name in names:
            mine = rows[kinds == names.index(name), :-3][new[name]]
            wanted = np.zeros_like(mine)
            if name in self.features:
                wanted[:, : self.features[name].shape[1]] = self.features[name]
            np.testing.assert_array_equal(mine, wanted)
        papers = start["paper"] + new["paper"]
        assert raw.labels[papers].tolist() == self.labels.tolist()
        assert (raw.labels >= 0).sum() == self.counts["paper"]
        assert raw.train.tolist() == sorted(papers[self.train])
        both = [
            (start[a] + new[a][ends[0]], start[b] + new[b][ends[1]])
            for (a, _, b), ends in self.edges.items()
        ]
        wanted_edges = sorted(zip(*np.concatenate(both, 1).tolist(), strict=True))
        ends = graph.sources.tolist(), graph.destinations.tolist()
        assert sorted(zip(*ends, strict=True)) == wanted_edges

    def check_papers(self, graph: FoundGraph) -> None:
        """Compare with the graph of papers that cite papers."""
        raw = graph.check()
        np.testing.assert_array_equal(
            raw.rows(0, self.counts["paper"]), self.features["paper"]
        )
        assert raw.train.tolist() == self.train.tolist()
        ends = self.edges["paper", "cites", "paper"]
        assert sorted(zip(graph.sources, graph.destinations, strict=True)) == sorted(
            zip(*ends, strict=True)
        )


def write_torch(drawn: Drawn, path: Path) -> Path:
    """Write what HeteroData.to_dict() returns."""
    import torch

    content: dict[Any, Any] = {"_global_store": {}}
    for name in ("paper", "author", "topic"):
        content[name] = {"num_nodes": drawn.counts[name]}
    for name, rows in drawn.features.items():
        content[name] = {"x": torch.from_numpy(rows)}
    content["paper"] |= {
        "y": torch.from_numpy(drawn.labels), "train_idx": torch.from_numpy(drawn.train)
    }  # fmt: skip
    for key, ends in drawn.edges.items():
        content[key] = {"edge_index": torch.from_numpy(ends)}
    torch.save(content, path / "h.pt")
    return path / "h.pt"


def dgl_graph(drawn: Drawn) -> Any:
    dgl = pytest.importorskip("dgl")
    import torch

    ends = {key: tuple(torch.from_numpy(ends)) for key, ends in drawn.edges.items()}
    graph = dgl.heterograph(ends, num_nodes_dict=drawn.counts)
    for name, rows in drawn.features.items():
        graph.nodes[name].data["feat"] = torch.from_numpy(rows)
    mask = np.isin(np.arange(drawn.counts["paper"]), drawn.train)
    graph.nodes["paper"].data["label"] = torch.from_numpy(drawn.labels)
    graph.nodes["paper"].data["train_mask"] = torch.from_numpy(mask)
    return graph


def write_dgl(drawn: Drawn, path: Path) -> Path:
    import dgl

    graph = dgl_graph(drawn)
    layout = ("coo", "csc", "csr", None)[drawn.counts["topic"] % 4]
    graph = graph.formats(layout) if layout else graph
    dgl.save_graphs(str(path / "h.bin"), [graph])
    return path / "h.bin"


def table(path: Path, array: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        np.savetxt(file, array, "%.9g", ",")


def write_ogb(drawn: Drawn, path: Path) -> Path:
    """Write the layout of ogbn-mag."""
    raw = path / "raw"
    for (a, name, b), ends in drawn.edges.items():
        table(raw / "relations" / f"{a}___{name}___{b}" / "edge.csv.gz", ends.T)
    for name, rows in drawn.features.items():
        table(raw / "node-feat" / name / "node-feat.csv.gz", rows)
    table(raw / "node-label" / "paper" / "node-label.csv.gz", drawn.labels[:, None])
    for part, ids in (("train", drawn.train), ("valid", []), ("test", [])):
        table(path / "split" / "time" / "paper" / f"{part}.csv.gz", ids)
    counts = [
        ",".join(map(str, line)) for line in zip(*drawn.counts.items(), strict=True)
    ]
    relations = [",".join(key) for key in drawn.edges]
    for file, lines in (("num-node-dict", counts), ("triplet-type-list", relations)):
        with gzip.open(raw / f"{file}.csv.gz", "wt") as packed:
            packed.write("\n".join(lines) + "\n")
    return path


def test_a_relation_of_ogb_has_the_edges_that_it_states(tmp_path: Path) -> None:
    """As a graph of one type; its count is no file that is left out."""
    drawn = Drawn(3)
    path = write_ogb(drawn, tmp_path)
    relations = path / "raw" / "relations"
    for key, ends in drawn.edges.items():
        table(relations / "___".join(key) / "num-edge-list.csv.gz", [[ends.shape[1]]])
    assert read_ogb(path, FLAT).left_out == ()

    count = drawn.edges["paper", "cites", "paper"].shape[1]
    table(relations / "paper___cites___paper" / "num-edge-list.csv.gz", [[count + 7]])
    problem = rf"says {count + 7} edges, one relation of {count} is there"
    with pytest.raises(DataError, match=problem):
        read_ogb(path, FLAT)


WAYS: dict[str, Any] = {
    "pt": (write_torch, read_torch),
    "bin": (write_dgl, read_dgl),
    "ogb": (write_ogb, read_ogb),
}


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**32), way=st.sampled_from([*WAYS]))
def test_a_drawn_graph_of_types_comes_back(
    seed: int, way: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pytest.importorskip("torch")
    drawn = Drawn(seed)
    write, read = WAYS[way]
    path = write(drawn, tmp_path_factory.mktemp("typed"))

    with pytest.raises(DataError, match=r"--flatten .* --relation paper,cites,paper"):
        read(path, Choices())
    drawn.check(read(path, FLAT))
    drawn.check_papers(read(path, Choices(relation=("paper", "cites", "paper"))))
    for relation, problem in (
        (("author", "writes", "paper"), "joins two types"),
        (
            ("paper", "likes", "paper"),
            "holds no relation paper,likes,paper, but .*cites",
        ),
    ):
        with pytest.raises(DataError, match=problem):
            read(path, Choices(relation=relation))


@pytest.mark.parametrize(
    ("parts", "lacking"),
    [
        (["a/valid", "a/test"], "a/paper/train"),
        (["a/train", "a/test", "b/train", "b/valid", "b/test"], "a/paper/valid"),
        (["a/valid", "a/test", "b/train"], "b/paper/valid"),
    ],
)
def test_a_split_of_a_type_that_lacks_a_part_is_refused(
    parts: list[str], lacking: str, tmp_path: Path
) -> None:
    """Without train the split used to be drawn at random, over vertices for tests."""
    path = write_ogb(Drawn(0), tmp_path)
    shutil.rmtree(path / "split")
    for number, part in enumerate(parts):
        split, name = part.split("/")
        table(path / "split" / split / "paper" / f"{name}.csv.gz", [number % 3])
    with pytest.raises(DataError, match=f"holds no split/{lacking}.csv.gz") as caught:
        read_ogb(path, FLAT)
    assert caught.value.path == str(path)


def test_types_of_one_graph_take_one_split(tmp_path: Path) -> None:
    """Papers were split by time, and authors at random, without a word."""
    path = write_ogb(Drawn(0), tmp_path)
    for number, part in enumerate(("train", "valid", "test")):
        table(path / "split" / "random" / "author" / f"{part}.csv.gz", [number])
    problem = "would take split/random of author, split/time of paper: leave one split"
    with pytest.raises(DataError, match=problem):
        read_ogb(path, FLAT)
    cites = Choices(relation=("paper", "cites", "paper"))
    assert read_ogb(path, cites).splits

    for number, part in enumerate(("train", "valid", "test")):
        table(path / "split" / "random" / "paper" / f"{part}.csv.gz", [number])
    for choices in (FLAT, cites):
        notes = read_ogb(path, choices).notes
        assert any("split/random is taken of random, time" in note for note in notes)


def test_a_type_without_a_split_needs_none(tmp_path: Path) -> None:
    path = write_ogb(Drawn(0), tmp_path)
    shutil.rmtree(path / "split")
    assert not read_ogb(path, FLAT).splits


@pytest.mark.parametrize("seed", range(3))
def test_partitions_of_several_types(tmp_path: Path, seed: int) -> None:
    """Ids are dgl's new ones, by part; ``_ID`` in its files tells the old ones."""
    dgl = pytest.importorskip("dgl")
    drawn = Drawn(seed)
    with _silence():
        old, _ = dgl.distributed.partition_graph(
            dgl_graph(drawn), "own", 2, str(tmp_path), part_method="random",
            return_mapping=True,
        )  # fmt: skip
        gc.collect()
    graph = read_partitions(tmp_path / "own.json", FLAT)

    drawn.check(graph, {name: np.argsort(ids.numpy()) for name, ids in old.items()})
    assert graph.owner is not None
    assert np.unique(graph.owner).tolist() == [0, 1]


def test_a_hetero_data_of_pytorch_geometric_is_read_without_it() -> None:
    """torch_geometric 2.8.1 has written it: 2 authors, 4 papers, 3 institutes."""
    pytest.importorskip("torch")
    raw = read_torch(FILES / "pytorch_geometric_hetero.pt", FLAT).check()

    assert raw.labels.tolist() == [0, 1, 1, 0, *[-1] * 5]
    assert (raw.train.tolist(), raw.test.tolist()) == ([0, 1], [2, 3])
    assert raw.rows(3, 6).tolist() == [
        [9, 10, 11, 1, 0, 0], [0, 1, 0, 0, 1, 0], [2, 3, 0, 0, 1, 0]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("vertices", "edges", "problem"),
    [
        (
            {"a": {"y": np.zeros(3)}, "b": {"y": np.zeros(3)}},
            [[0], [0]],
            "labels of a b",
        ),
        ({"a": {"num_nodes": np.array(3)}}, [[3], [0]], "edge of r leaves the 3 .* a"),
        ({"a": {"x": np.ones((3, 1)), "y": np.zeros(4)}}, [[0], [0]], "a has 3 and 4"),
    ],
)
def test_types_that_do_not_fit(
    vertices: dict[str, Any], edges: Any, problem: str
) -> None:
    graph = TypedGraph("h", vertices, {("a", "r", "b"): np.array(edges)})

    with pytest.raises(DataError, match=problem):
        choose_types(graph, FLAT)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", ["to_sparse_csr", "to_sparse_coo"])
def test_rows_of_adj_t_are_destinations(tmp_path: Path, layout: str) -> None:
    """Its shape states how many there are, of a type without anything else as well."""
    torch = pytest.importorskip("torch")
    matrix = torch.zeros(5, 3)  # topics by papers
    matrix[0, 1] = matrix[2, 0] = 1
    content = {
        "paper": {"x": torch.ones(3, 2), "y": torch.tensor([0, 1, 0])},
        ("paper", "about", "topic"): {"adj_t": getattr(matrix, layout)()},
    }
    torch.save(content, tmp_path / "h.pt")
    found = read_torch(tmp_path / "h.pt", FLAT)

    ends = zip(found.sources.tolist(), found.destinations.tolist(), strict=True)
    assert sorted(ends) == [(0, 5), (1, 3)]
    assert found.vertices == 8
    content["topic"] = {"num_nodes": 4}
    torch.save(content, tmp_path / "h.pt")
    with pytest.raises(DataError, match=r"\(topic\): states 4 .*, and elsewhere 5"):
        read_torch(tmp_path / "h.pt", FLAT)


def test_several_graphs_of_dgl_and_labels_beside_them(tmp_path: Path) -> None:
    """Labels beside the graph are those of ogb, where they have a row per vertex."""
    dgl = pytest.importorskip("dgl")
    import torch

    graphs = [dgl.rand_graph(count, 20) for count in (5, 7, 6)]
    for graph in graphs:
        graph.ndata["feat"] = torch.ones(graph.num_nodes(), 2).bfloat16() * 1.5
    labels = {"labels": torch.arange(7)[:, None] % 3, "glabel": torch.ones(1)}
    dgl.save_graphs(str(tmp_path / "g.bin"), graphs, labels)
    with pytest.raises(DataError, match="3 graphs: --graph 0 to --graph 2"):
        read_dgl(tmp_path / "g.bin")
    graph = read_dgl(tmp_path / "g.bin", Choices(graph=1))
    assert (graph.vertices, graph.labels) == (7, None)

    dgl.save_graphs(str(tmp_path / "g.bin"), graphs[1:2], labels)
    raw = read_dgl(tmp_path / "g.bin").check()
    assert raw.labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert (raw.rows(0, 7) == 1.5).all()


def test_partitions_for_graphbolt_alone_are_named(tmp_path: Path) -> None:
    part = '{"part_graph_graphbolt": "part0/fused_csc_sampling_graph.pt"}'
    (tmp_path / "own.json").write_text(
        f'{{"num_parts": 1, "num_nodes": 3, "part-0": {part}}}'
    )

    with pytest.raises(DataError, match=r"GraphBolt alone: .* use_graphbolt=False"):
        import_graph(tmp_path, "bolt")
