"""What dgl has written: graphs of ``dgl.save_graphs``, partition folders of DistDGL.

dgl's format holds arrays, no code. Homogeneous graphs only.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError
from emu.graph_data.readers.named_arrays import found_graph
from emu.input_file import one_error, open_input, read_text
from emu.optional_library import import_library

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from emu.graph_data.readers.found_graph import FoundGraph


def _dgl(path: Path) -> Any:
    without = (
        "it has wheels up to Python 3.11; numpy.savez of edge_index, x and y does "
        "without"
    )
    return import_library("dgl", str(path), without)


def _graph(path: Path) -> Any:
    with one_error(path):
        with open_input(path):
            graphs, _ = _dgl(path).load_graphs(str(path))
        if len(graphs) != 1 or not graphs[0].is_homogeneous:
            raise DataError(
                f"holds {len(graphs)} graphs; one with one type of vertices and edges "
                "is needed",
                path=str(path),
            )
        return graphs[0]


def read_dgl(path: Path) -> FoundGraph:
    """Return the graph of a ``.bin`` file.

    Raises
    ------
    DataError
        When it is damaged, dgl is not installed, or it is not one homogeneous graph.
    """
    graph = _graph(path)
    arrays = {name: values.numpy() for name, values in graph.ndata.items()}
    arrays["edge_index"] = np.stack([end.numpy() for end in graph.edges()])
    return found_graph(arrays, str(path))


def partition_json(folder: Path) -> Path | None:
    """Return the description of a DistDGL folder, None where it is not one."""
    for path in sorted(folder.glob("*.json")):
        with one_error(path):
            content = json.loads(read_text(path))
            if isinstance(content, dict) and "part-0" in content:
                return path
    return None


def read_partitions(description: Path) -> FoundGraph:
    """Return the graph of a DistDGL folder, with the part of every vertex.

    Raises
    ------
    DataError
        When a part is missing or damaged, or they do not hold every vertex once.
    """
    with one_error(description):
        content = json.loads(read_text(description))
        parts = [_Part(description, content, n) for n in range(content["num_parts"])]
        vertices, origin = int(content["num_nodes"]), str(description)
        owned = np.concatenate([part.ids for part in parts])
        if not np.array_equal(np.sort(owned), np.arange(vertices)):
            problem = f"the parts do not hold each of {vertices} vertices once"
            raise DataError(problem, path=origin)
        order = np.argsort(owned)
        arrays = {
            name: np.concatenate([part.values[name] for part in parts])[order]
            for name in parts[0].values
        }
        arrays["edge_index"] = np.concatenate([part.edges for part in parts], axis=1)
        found = found_graph(arrays, origin)
        counts = [len(part.ids) for part in parts]
        owner = np.repeat(np.arange(len(parts), dtype=np.int32), counts)[order]
        return replace(found, owner=owner)


class _Part:
    """One part: the ids and values of its own vertices, and its own edges."""

    def __init__(self, description: Path, content: dict[str, Any], number: int) -> None:
        files = content[f"part-{number}"]
        graph = _graph(_inside(description, files["part_graph"], number))
        ids = graph.ndata["_ID"].numpy()
        self.ids: NDArray[np.int64] = ids[graph.ndata["inner_node"].numpy() > 0]
        inner = graph.edata["inner_edge"].numpy() > 0
        self.edges = np.stack([ids[end.numpy()[inner]] for end in graph.edges()])
        path = _inside(description, files["node_feats"], number)
        with one_error(path):
            tensors = _dgl(path).data.utils.load_tensors(str(path))
        # "_N/feat": one type of vertices, whose name nobody chose.
        self.values = {
            name.split("/")[-1]: tensor.numpy() for name, tensor in tensors.items()
        }


def _inside(description: Path, stated: str, number: int) -> Path:
    folder = description.parent.resolve()
    path = (folder / stated).resolve()
    if not path.is_relative_to(folder):
        problem = f"part {number} is said to be at {stated}, outside this folder"
        raise DataError(problem, path=str(description))
    if not path.is_file():
        raise DataError(f"part {number} of the graph is missing", path=str(path))
    return path
