"""dgl's files read without dgl: as dgl reads them, or refused."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.graph_data.dataset import _silence
from emu.graph_data.readers.dgl_file import DglGraph, read_dgl, read_graph, read_tensors
from emu.graph_data.readers.dgl_parts import read_partitions
from emu.graph_data.readers.split_arrays import Choices
from tools.attacks.mutations import mutated

dgl = pytest.importorskip("dgl")
torch = pytest.importorskip("torch")

_TYPES = [torch.float32, torch.float64, torch.float16, torch.int8, torch.int32]
_TYPES += [torch.int64, torch.uint8, torch.bool]


def drawn_graph(rng: np.random.Generator) -> Any:
    """Return a graph with values of drawn types, of vertices and of edges."""
    vertices, edges = int(rng.integers(1, 50)), int(rng.integers(0, 200))
    width = torch.int32 if rng.random() < 0.5 else torch.int64
    ends = [torch.tensor(rng.integers(0, vertices, edges)).to(width) for _ in range(2)]
    graph = dgl.graph((ends[0], ends[1]), num_nodes=vertices)
    for frame, rows in ((graph.ndata, vertices), (graph.edata, edges)):
        for name in ("feat", "label", "ä b/c")[: rng.integers(4)]:
            shape = (rows, *rng.integers(1, 5, rng.integers(3)))
            drawn = torch.tensor(rng.integers(0, 2, shape))
            frame[name] = drawn.to(_TYPES[rng.integers(len(_TYPES))])
    layouts = ("coo", "csr", "csc")
    return graph.formats(layouts[rng.integers(3)]) if rng.random() < 0.6 else graph


@pytest.mark.parametrize("seed", range(25))
def test_a_graph_is_read_as_dgl_reads_it(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    path = tmp_path / "g.bin"
    labels = {"of the graph": torch.tensor([1.0])} if rng.random() < 0.5 else None
    dgl.save_graphs(str(path), [drawn_graph(rng)], labels)

    (loaded,), _ = dgl.load_graphs(str(path))
    wanted = loaded.formats(["coo", "csr", "csc"])  # CSR alone has no order of ids
    found = read_graph(path)
    assert next(iter(found.vertices.values()))["num_nodes"] == wanted.num_nodes()
    same_graph(wanted, found)


def same_graph(wanted: Any, found: DglGraph) -> None:
    (frame,), (edges,) = found.vertices.values(), found.edges.values()
    frame.pop("num_nodes")
    ends = [end.numpy() for end in wanted.edges(order="eid")]
    np.testing.assert_array_equal(edges, np.stack(ends))
    for ours, theirs in ((frame, wanted.ndata), (found.of_edges[0], wanted.edata)):
        same({name: values.numpy() for name, values in theirs.items()}, ours)


def same(wanted: dict[str, Any], found: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_partitions_are_read_as_dgl_reads_them(parts: int, tmp_path: Path) -> None:
    partitioned(tmp_path, parts)
    for part in tmp_path.glob("part*"):
        (wanted,), _ = dgl.load_graphs(str(part / "graph.dgl"))
        same_graph(wanted, read_graph(part / "graph.dgl"))
        features = dgl.data.utils.load_tensors(str(part / "node_feat.dgl"))
        same(
            {name: values.numpy() for name, values in features.items()},
            read_tensors(part / "node_feat.dgl"),
        )
    whole = read_partitions(tmp_path / "own.json")
    assert len(whole.sources) == 300
    assert whole.owner is not None
    assert np.unique(whole.owner).tolist() == [*range(parts)]


def partitioned(folder: Path, parts: int) -> None:
    rng = np.random.default_rng(parts)
    ends = [torch.tensor(rng.integers(0, 60, 300)) for _ in range(2)]
    graph = dgl.graph((ends[0], ends[1]), num_nodes=60)
    graph.ndata["feat"] = torch.tensor(rng.random((60, 3)))
    graph.ndata["label"] = torch.tensor(rng.integers(0, 3, 60))
    with _silence():
        dgl.distributed.partition_graph(
            graph, "own", parts, str(folder), part_method="random"
        )
        gc.collect()


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_ends_of_two_types_reach_as_far_as_their_own(
    layout: str, tmp_path: Path
) -> None:
    """Each layout names the last of two authors and five papers."""
    ends = (torch.tensor([0, 1]), torch.tensor([4, 3]))
    graph = dgl.heterograph(
        {("author", "writes", "paper"): ends},
        num_nodes_dict={"author": 2, "paper": 5},
    )
    dgl.save_graphs(str(tmp_path / "g.bin"), [graph.formats(layout)])

    found = read_dgl(tmp_path / "g.bin", Choices(flatten=True))

    pairs = sorted(zip(found.sources, found.destinations, strict=True))
    assert pairs == [(0, 2 + 4), (1, 2 + 3)]


def test_damaged_files_are_refused_within_bounds(tmp_path: Path) -> None:
    """Of 996 such files dgl's own reader ended the process at 66."""
    rng = np.random.default_rng(7)
    partitioned(tmp_path, 2)
    graph = dgl.graph((torch.arange(20), torch.arange(20).flip(0)))
    graph.ndata["feat"] = torch.ones(20, 2)
    dgl.save_graphs(str(tmp_path / "g.bin"), [graph.formats("csc")])
    readers: dict[str, Callable[[Path], object]] = {
        "g.bin": read_dgl,
        "own.json": read_partitions,
        "part1/graph.dgl": read_graph,
        "part1/node_feat.dgl": read_tensors,
    }
    refused = 0
    tracemalloc.start()
    for name, read in readers.items():
        path = tmp_path / name
        good = path.read_bytes()
        for _ in range(100):
            # The header is padded to 4 KB, which nobody reads.
            begin = 4096 if name.endswith(("bin", "graph.dgl")) else 0
            path.write_bytes(good[:begin] + mutated(good[begin:], rng))
            try:
                read(path)
            except DataError as error:
                refused += str(tmp_path) in str(error)
        path.write_bytes(good)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused > 250
    assert most < 20e6


@pytest.mark.parametrize(
    ("place", "byte", "problem"),
    [
        (0, 9, "an array of 9 dimensions and kind 2"),
        (4, 3, "an array of 1 dimensions and kind 3"),  # handles are no numbers
        (6, 2, "an array of 1 dimensions and kind 2"),  # two numbers in an entry
    ],
)
def test_an_array_of_no_known_numbers_is_refused(
    place: int, byte: int, problem: str, tmp_path: Path
) -> None:
    """Dimensions, kind, bits and lanes stand before its sides and its size."""
    path = tmp_path / "values"
    dgl.data.utils.save_tensors(str(path), {"a": torch.ones(2)})
    content = bytearray(path.read_bytes())
    values_begin = len(content) - 8
    header = values_begin - 8 - 8 - 8
    assert content[header:-24] == bytes([1, 0, 0, 0, 2, 32, 1, 0])

    content[header + place] = byte
    path.write_bytes(content)

    with pytest.raises(DataError, match=problem):
        read_tensors(path)
