"""Read files of dgl: graphs of ``dgl.save_graphs``, partition folders of DistDGL.

dgl's format holds arrays, no code. Homogeneous graphs only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError
from emu.graph_data.readers.dgl_binary import read_graph, read_tensors
from emu.graph_data.readers.named_arrays import found_graph, left_out
from emu.input_file import one_error, read_json
from emu.names import printable

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from emu.graph_data.readers.found_graph import FoundGraph


def read_dgl(path: Path) -> FoundGraph:
    """Return the graph of a ``.bin`` file.

    Raises
    ------
    DataError
        When it is damaged, or is not one homogeneous graph.
    """
    graph = read_graph(path)
    found = found_graph({**graph.of_vertices, "edge_index": graph.edges}, str(path))
    return replace(found, notes=left_out(sorted(graph.of_edges)))


def partition_json(folder: Path) -> Path | None:
    """Return the description of a DistDGL folder, None where it is not one.

    Raises
    ------
    DataError
        When several files describe partitions, or one is damaged.
    """
    found = [
        path
        for path in sorted(folder.glob("*.json"))
        if isinstance(content := read_json(path), dict) and "part-0" in content
    ]
    if len(found) > 1:
        names = ", ".join(printable(path.name) for path in found)
        problem = f"holds several descriptions of partitions ({names}): name one"
        raise DataError(problem, path=str(folder))
    return found[0] if found else None


def read_partitions(description: Path) -> FoundGraph:
    """Return the graph of a DistDGL folder, with the part of every vertex.

    Raises
    ------
    DataError
        When a part is missing or damaged, or they do not hold every vertex once.
    """
    with one_error(description):
        content = read_json(description)
        if "part-0" not in content:
            problem = "describes no partitions of DistDGL: holds no part-0"
            raise DataError(problem, path=str(description))
        kinds = [*content.get("ntypes", ()), *content.get("etypes", ())]
        if len(kinds) > 2:
            problem = f"has several types ({', '.join(map(printable, kinds[:4]))})"
            problem += "; one of vertices and one of edges is needed"
            raise DataError(problem, path=str(description))
        parts = [_Part(description, content, n) for n in range(content["num_parts"])]
        vertices, origin = int(content["num_nodes"]), str(description)
        owned = np.concatenate([part.ids for part in parts])
        every = np.arange(len(owned))
        if len(owned) != vertices or not np.array_equal(np.sort(owned), every):
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
        return replace(found, owner=owner, notes=left_out(parts[0].of_edges))


class _Part:
    """One part: the ids and values of its own vertices, and its own edges."""

    def __init__(self, description: Path, content: dict[str, Any], number: int) -> None:
        files = content[f"part-{number}"]
        graph = read_graph(_inside(description, files["part_graph"], number))
        ids = graph.of_vertices["_ID"]
        self.ids: NDArray[np.int64] = ids[graph.of_vertices["inner_node"] > 0]
        self.edges = ids[graph.edges[:, graph.of_edges["inner_edge"] > 0]]
        tensors = read_tensors(_inside(description, files["node_feats"], number))
        # "_N/feat": one type of vertices, with the default name.
        self.values = {name.split("/")[-1]: array for name, array in tensors.items()}
        of_edges: dict[str, Any] = {}
        if "edge_feats" in files:
            of_edges = read_tensors(_inside(description, files["edge_feats"], number))
        self.of_edges = sorted(name.split("/")[-1] for name in of_edges)


def _inside(description: Path, stated: str, number: int) -> Path:
    folder = description.parent.resolve()
    path = (folder / stated).resolve()
    if not path.is_relative_to(folder):
        problem = f"part {number} is said to be at {stated}, outside this folder"
        raise DataError(problem, path=str(description))
    if not path.is_file():
        raise DataError(f"part {number} of the graph is missing", path=str(path))
    return path
