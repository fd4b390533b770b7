"""Read files of dgl: graphs of ``dgl.save_graphs``, partition folders of DistDGL.

dgl's formats hold arrays, no code, and are read by numpy alone. Homogeneous graphs
only. dgl's own reader does not check the lengths in a file: of 996 mutated files 66
ended the process, or took all memory. Here every length is held to what is left of the
file before anything is read for it. The layouts are those that dgl 0.5 to 2 write
(version 2 of ``dgl.save_graphs``, and ``dgl.data.utils.save_tensors``); a vector is a
count of eight bytes and that many entries, everything is little-endian.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError
from emu.graph_data.readers.found_graph import found_graph, left_out
from emu.input_file import one_error, open_input, read_json
from emu.names import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path
    from typing import TypeVar

    from numpy.typing import NDArray

    from emu.graph_data.readers.found_graph import FoundGraph

    _Entry = TypeVar("_Entry")

_GRAPHS, _VERSION, _HETEROGENEOUS = 0xDD2E4FF046B4A13F, 2, 2
_GRAPHS_BEGIN = 4096
_GRAPH, _META, _RELATION = 0xDD589FBE35224ABF, 0xDD3C5FFE20046ABF, 0xDD2E60F0F6B4A127
_COO, _CSR = 0xDD61FFD305DFF127, 0xDD6CD31205DFF127
_OF_COO, _OF_CSR, _OF_CSC = 1, 2, 4
_TENSORS, _ARRAY = 0xDD5A9FBE3FA2443F, 0xDD5E40F096B4A13F
_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
_MOST_DIMENSIONS = 8


@dataclass(frozen=True, eq=False)
class DglGraph:
    """A homogeneous graph as dgl has saved it."""

    vertices: int
    edges: NDArray[Any]
    """Sources and destinations, shape (2, edges), in the order of edge ids."""
    of_vertices: dict[str, NDArray[Any]]
    of_edges: dict[str, NDArray[Any]]
    """Name -> a row per vertex, or edge."""


def read_graph(path: Path) -> DglGraph:
    """Return the graph of a file of ``dgl.save_graphs``.

    Raises
    ------
    DataError
        When it is damaged, older than dgl 0.5, or is not one homogeneous graph.
    """
    with one_error(path), open_input(path) as file:
        content = _Content(file)
        content.expect(_GRAPHS, "a graph of dgl")
        version = content.number()
        if (version, content.number()) != (_VERSION, _HETEROGENEOUS):
            problem = f"is of dgl's format {version}, only that of dgl 0.5 and later "
            raise DataError(problem + "is read", path=str(path))
        graphs = content.number()
        file.seek(_GRAPHS_BEGIN)
        begin = content.number()
        content.named_arrays()  # of whole graphs
        if graphs != 1:
            raise _not_one(f"{graphs} graphs", path)
        if file.tell() != begin:
            raise ValueError(f"its graph is said to begin at {begin}")
        graph = _graph(content, path)
        content.expect(16, "positions")
        if content.vector().tolist() != [begin]:
            raise ValueError("its graph is said to begin at two places")
        content.expect(16, "end")
        content.end()
        return graph


def _not_one(what: str, path: Path) -> DataError:
    problem = f"holds {what}; one with one type of vertices and edges is needed"
    return DataError(problem, path=str(path))


def _graph(content: _Content, path: Path) -> DglGraph:
    content.expect(_GRAPH, "a graph")
    content.expect(_META, "types")
    types, _, _, relations, _ = content.compressed()
    if (types, len(relations), content.number()) != (1, 1, 1):
        raise _not_one("a graph of several types", path)
    vertices, edges = _relation(content)
    if content.vector().tolist() != [vertices]:
        raise ValueError(f"it has two numbers of vertices, {vertices} and another")
    of_vertices, of_edges = (
        _only(content.named_arrays() for _ in content.entries()) for _ in range(2)
    )
    for _ in range(2):  # the names of the two types
        _only(content.text() for _ in content.entries())
    for kind, frame, rows in (
        ("vertices", of_vertices, vertices),
        ("edges", of_edges, edges.shape[1]),
    ):
        for name, array in frame.items():
            if array.shape[:1] != (rows,):
                raise ValueError(f"{name} has shape {array.shape} for {rows} {kind}")
    return DglGraph(vertices, edges, of_vertices, of_edges)


def _only(entries: Iterator[_Entry]) -> _Entry:
    (entry,) = entries
    return entry


def _relation(content: _Content) -> tuple[int, NDArray[Any]]:
    """Return the number of vertices, and the edges."""
    content.expect(_RELATION, "edges")
    layout = content.number() & 0xFF
    content.number()  # layouts that dgl may make of it
    content.expect(_META, "types of edges")
    content.compressed()
    if layout == _OF_COO:
        content.expect(_COO, "edges")
        rows, columns = content.number(), content.number()
        ends = [content.array(), content.array()]
        order = content.array()
        content.skip(2)  # flags: they are in order
    elif layout in (_OF_CSR, _OF_CSC):
        rows, columns, indptr, indices, order = _checked_rows(content)
        own = np.repeat(np.arange(rows, dtype=indices.dtype), np.diff(indptr))
        ends = [own, indices] if layout == _OF_CSR else [indices, own]
    else:
        raise ValueError(f"edges are laid out in way {layout}")
    edges = np.stack(ends)
    if edges.ndim != 2 or rows != columns:
        raise ValueError(f"edges of shape {edges.shape} join {rows} with {columns}")
    if edges.size and not 0 <= edges.min() <= edges.max() < rows:
        raise ValueError(f"an edge leaves the {rows} vertices")
    return rows, _by_id(edges, order)


def _by_id(edges: NDArray[Any], order: NDArray[Any]) -> NDArray[Any]:
    if not len(order):  # they are in order
        return edges
    if not np.array_equal(np.sort(order), np.arange(edges.shape[1])):
        raise ValueError("its edge ids are not each edge's once")
    placed = np.empty_like(edges)
    placed[:, order] = edges
    return placed


def _checked_rows(content: _Content) -> tuple[int, int, Any, Any, Any]:
    rows, columns, indptr, indices, order = content.compressed()
    whole = indptr.shape == (rows + 1,) and indptr[0] == 0
    if not whole or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        raise ValueError("its row pointers do not fit its edges")
    return rows, columns, indptr, indices, order


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file of ``dgl.data.utils.save_tensors``.

    Raises
    ------
    DataError
        When it is damaged.
    """
    with one_error(path), open_input(path) as file:
        content = _Content(file)
        content.expect(_TENSORS, "tensors of dgl")
        count = content.number()
        arrays = content.named_arrays()
        if len(arrays) != count:
            raise ValueError(f"it holds {len(arrays)} arrays and announces {count}")
        content.end()
        return arrays


class _Content:
    """A file that is read from its beginning to its end."""

    def __init__(self, file: BufferedReader) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size

    def _bytes(self, count: int) -> bytes:
        if count > self._size - self._file.tell():
            raise ValueError(f"it ends where {count} more bytes are announced")
        return self._file.read(count)

    def skip(self, count: int) -> None:
        self._bytes(count)

    def end(self) -> None:
        if self._file.tell() != self._size:
            raise ValueError("more follows where it should end")

    def number(self) -> int:
        return int.from_bytes(self._bytes(8), "little")

    def expect(self, mark: int, what: str) -> None:
        if self.number() != mark:
            raise ValueError(f"no {what} where they should begin")

    def entries(self) -> Iterator[int]:
        return iter(range(self.number()))

    def vector(self) -> NDArray[np.int64]:
        return np.frombuffer(self._bytes(8 * self.number()), "<i8")

    def named_arrays(self) -> dict[str, NDArray[Any]]:
        return {self.text(): self.array() for _ in self.entries()}

    def text(self) -> str:
        return self._bytes(self.number()).decode()

    def compressed(self) -> tuple[int, int, Any, Any, Any]:
        """Return rows, columns, pointers to rows, columns of entries, their ids."""
        self.expect(_CSR, "rows")
        found = self.number(), self.number(), self.array(), self.array(), self.array()
        self.skip(1)  # a flag: rows are in order
        return found

    def array(self) -> NDArray[Any]:
        self.expect(_ARRAY, "array")
        self.skip(16)  # reserved, and the device
        dimensions = int.from_bytes(self._bytes(4), "little")
        kind, bits, lanes = self._bytes(1)[0], self._bytes(1)[0], self._bytes(2)
        if dimensions > _MOST_DIMENSIONS or kind not in _KINDS or lanes != b"\x01\x00":
            raise ValueError(f"an array of {dimensions} dimensions and kind {kind}")
        shape = tuple(self.number() for _ in range(dimensions))
        dtype, size = np.dtype(f"<{_KINDS[kind]}{bits // 8}"), self.number()
        if size != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"an array of shape {shape} has {size} bytes")
        return np.frombuffer(self._bytes(size), dtype).reshape(shape)


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
