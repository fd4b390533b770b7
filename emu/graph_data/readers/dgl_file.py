"""Read files of dgl: graphs of ``dgl.save_graphs``, and tensors.

dgl's formats hold arrays, no code, and are read by numpy alone. dgl's own reader does
not check the lengths in a file: of 996 mutated files 66 ended the process, or took all
memory. Here every length is held to what is left of the file before anything is read
for it. The layouts are those that dgl 0.5 to 2 write (version 2 of ``dgl.save_graphs``,
and ``dgl.data.utils.save_tensors``); a vector is a count of eight bytes and that many
entries, everything is little-endian.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from emu.array_types import Array, Ints
from emu.errors import DataError
from emu.graph_data.readers.found_graph import FoundGraph, check_rows
from emu.graph_data.readers.split_arrays import NO_CHOICES, Choices
from emu.graph_data.readers.typed_graph import Relation, TypedGraph, choose_types
from emu.host.input_file import one_error, open_input

#: Marks that stand before each thing in a file.
_GRAPHS = 0xDD2E4FF046B4A13F
_GRAPH = 0xDD589FBE35224ABF
_META = 0xDD3C5FFE20046ABF
_RELATION = 0xDD2E60F0F6B4A127
_COO = 0xDD61FFD305DFF127
_CSR = 0xDD6CD31205DFF127
_TENSORS = 0xDD5A9FBE3FA2443F
_ARRAY = 0xDD5E40F096B4A13F

_VERSION = 2
_HETEROGENEOUS = 2
_GRAPHS_BEGIN = 4096
#: Layouts of edges.
_OF_COO = 1
_OF_CSR = 2
_OF_CSC = 4
#: Kinds of numbers; numpy has no bfloat.
_KINDS = {0: "i", 1: "u", 2: "f", 4: "bfloat", 6: "b"}
#: Beyond it a damaged count would be read as that many sides.
_MOST_DIMENSIONS = 8

#: Arrays by their names.
Frame = dict[str, Array]


@dataclass(frozen=True, eq=False)
class DglGraph:
    """A graph as dgl has saved it, with any number of types."""

    vertices: dict[str, Frame]
    """Type -> name -> a row per vertex; ``num_nodes`` is their number."""
    edges: dict[Relation, Array]
    """Edges of each relation, shape (2, edges), in the order of edge ids."""
    of_edges: list[Frame]
    """Values of each relation: name -> a row per edge."""


def read_graph(path: Path) -> DglGraph:
    """Return the graph of a file of ``dgl.save_graphs`` that holds one of one type.

    Raises DataError when it is damaged, older than dgl 0.5, or of several.
    """
    graphs, _ = _read_graphs(path)
    if len(graphs) == 1:
        (graph,) = graphs
        is_homogeneous = len(graph.vertices) == len(graph.edges) == 1
        if is_homogeneous:
            return graph
    problem = "holds several graphs or types; one homogeneous graph is needed"
    raise DataError(problem, path=path)


def _read_graphs(path: Path) -> tuple[list[DglGraph], Frame]:
    """Return the graphs of a file, and the arrays beside them (labels)."""
    with one_error(path), open_input(path) as file:
        content = _Content(file)
        content.expect(_GRAPHS, "a graph of dgl")
        version = content.number()
        kind = content.number()
        is_known = version == _VERSION and kind == _HETEROGENEOUS
        if not is_known:
            problem = f"is of dgl's format {version}, only that of dgl 0.5 and later "
            raise DataError(f"{problem}is read", path=path)

        count = content.number()
        # The header has a page of its own.
        file.seek(_GRAPHS_BEGIN)
        begin = content.number()
        beside = content.read_named_arrays()
        if file.tell() != begin:
            raise ValueError(f"its graph is said to begin at {begin}")

        starts = []
        graphs = []
        for _ in range(count):
            begin_of_graph = file.tell()
            graph = _graph(content)
            starts.append(begin_of_graph)
            graphs.append(graph)

        # A vector of positions follows, by its length in bytes.
        length = 8 * (count + 1)
        content.expect(length, "positions")
        stated_starts = content.vector()
        if stated_starts.tolist() != starts:
            raise ValueError("its graphs are said to begin elsewhere")
        content.expect(length, "end")
        content.end()
        return graphs, beside


def _graph(content: _Content) -> DglGraph:
    content.expect(_GRAPH, "a graph")
    content.expect(_META, "types")
    types, _, pointers, targets, order = content.read_compressed()
    counts_of_targets = np.diff(pointers)
    # The types form a graph, too: its edges are the relations.
    type_numbers = np.arange(types)
    sources = np.repeat(type_numbers, counts_of_targets)
    pairs_of_types = np.stack([sources, targets])
    ordered_pairs = _by_id(pairs_of_types, order)
    ends: list[list[int]] = ordered_pairs.T.tolist()

    announced = content.number()
    if announced != len(ends):
        raise ValueError("it announces another number of relations than it has")
    relations = [_relation(content) for _ in ends]
    edges = [array for _, array in relations]

    sizes = content.vector()
    counts = sizes.tolist()
    pairs = [(sizes[source], sizes[target]) for source, target in ends]
    # Numbers of vertices stand twice: per type, and with each relation.
    stated_pairs = [pair for pair, _ in relations]
    if len(counts) != types or pairs != stated_pairs:
        raise ValueError(f"it has two numbers of vertices, {counts} and others")

    frames = content.frames()
    edge_frames = content.frames()
    names = content.texts()
    edge_names = content.texts()
    _check_frames(frames, counts, names)
    edge_counts = [array.shape[1] for array in edges]
    _check_frames(edge_frames, edge_counts, edge_names)

    vertices = dict(zip(names, frames, strict=True))
    for frame, count in zip(frames, counts, strict=True):
        frame["num_nodes"] = np.array(count)
    edges_by_relation = {}
    rows = zip(ends, edge_names, edges, strict=True)
    for (source, target), name, array in rows:
        relation = (names[source], name, names[target])
        edges_by_relation[relation] = array
    return DglGraph(vertices, edges=edges_by_relation, of_edges=edge_frames)


def _check_frames(
    frames: list[Frame],
    counts: list[int],
    names: list[str],
) -> None:
    """Refuse frames that are not one per type, with a row for each of its members."""
    types = len(counts)
    if len(frames) != types or len(names) != types:
        raise ValueError("it has more or fewer frames than types")
    for frame, count in zip(frames, counts, strict=True):
        for name, array in frame.items():
            if array.shape[:1] != (count,):
                raise ValueError(f"{name} has shape {array.shape} for {count} rows")


def _relation(content: _Content) -> tuple[tuple[int, int], Array]:
    """Return the numbers of sources and destinations there are, and the edges."""
    content.expect(_RELATION, "edges")
    layout = content.number() & 0xFF
    content.number()  # layouts that dgl may make of it
    content.expect(_META, "types of edges")
    # The graph of types once more: of one relation it says nothing new.
    content.read_compressed()
    if layout == _OF_COO:
        content.expect(_COO, "edges")
        columns = content.number()
        rows = content.number()
        sources = content.array()
        destinations = content.array()
        ends = [sources, destinations]
        order = content.array()
        content.take(2)  # flags: they are in order
    elif layout in (_OF_CSR, _OF_CSC):
        rows, columns, starts, indices, order = content.read_compressed()
        origin = content.name
        indptr = check_rows(starts, indices, rows=rows, kind="its ", origin=origin)
        row_ids = np.arange(rows, dtype=indices.dtype)
        counts = np.diff(indptr)
        row_of_entry = np.repeat(row_ids, counts)
        ends = [row_of_entry, indices]
    else:
        raise ValueError(f"edges are laid out in way {layout}")

    sizes = (rows, columns)
    # CSC is CSR of the reverse: rows are destinations.
    if layout == _OF_CSC:
        sizes = (columns, rows)
        ends.reverse()
    edges = np.stack(ends)
    if edges.ndim != 2:
        raise ValueError(f"edges have shape {edges.shape}")
    # Held to its own type, which may have fewer vertices than another.
    for row, most in zip(edges, sizes, strict=True):
        if not row.size:
            continue
        begins_inside = row.min() >= 0
        ends_inside = row.max() < most
        if not begins_inside or not ends_inside:
            raise ValueError(f"an edge leaves the {most} vertices")
    return sizes, _by_id(edges, order)


def _by_id(edges: Array, order: Array) -> Array:
    if not len(order):  # they are in order
        return edges
    # A file may say anything: numbers that are doubled would leave edges out.
    _, count = edges.shape
    sorted_ids = np.sort(order)
    all_ids = np.arange(count)
    has_each_once = np.array_equal(sorted_ids, all_ids)
    if not has_each_once:
        raise ValueError("its edge ids are not each edge's once")
    by_id = np.empty_like(edges)
    by_id[:, order] = edges
    return by_id


def read_tensors(path: Path) -> Frame:
    """Return the arrays of ``dgl.data.utils.save_tensors``; DataError when damaged."""
    with one_error(path), open_input(path) as file:
        content = _Content(file)
        content.expect(_TENSORS, "tensors of dgl")
        count = content.number()
        arrays = content.read_named_arrays()
        if len(arrays) != count:
            raise ValueError(f"it holds {len(arrays)} arrays and announces {count}")
        content.end()
        return arrays


class _Content:
    """A file that is read from its beginning to its end."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        status = os.fstat(file.fileno())
        self._size = status.st_size
        self.name = str(file.name)

    def take(self, count: int) -> bytes:
        # Before anything is read: a length may say any number.
        rest = self._size - self._file.tell()
        if count > rest:
            raise ValueError(f"it ends where {count} more bytes are announced")
        return self._file.read(count)

    def end(self) -> None:
        if self._file.tell() != self._size:
            raise ValueError("more follows where it should end")

    def number(self) -> int:
        word = self.take(8)
        return int.from_bytes(word, "little")

    def expect(self, mark: int, content: str) -> None:
        if self.number() != mark:
            raise ValueError(f"{content} should begin where something else stands")

    def entries(self) -> range:
        count = self.number()
        return range(count)

    def vector(self) -> Ints:
        size = 8 * self.number()
        content = self.take(size)
        return np.frombuffer(content, "<i8")

    def read_named_arrays(self) -> Frame:
        arrays = {}
        for _ in self.entries():
            name = self.text()
            arrays[name] = self.array()
        return arrays

    def frames(self) -> list[Frame]:
        return [self.read_named_arrays() for _ in self.entries()]

    def texts(self) -> list[str]:
        return [self.text() for _ in self.entries()]

    def text(self) -> str:
        length = self.number()
        return self.take(length).decode()

    def read_compressed(self) -> tuple[int, int, Any, Any, Any]:
        """Return rows, columns, pointers to rows, columns of entries, their ids."""
        self.expect(_CSR, "rows")
        columns = self.number()
        rows = self.number()
        indptr = self.array()
        indices = self.array()
        order = self.array()
        self.take(1)  # a flag: rows are in order
        return rows, columns, indptr, indices, order

    def array(self) -> Array:
        self.expect(_ARRAY, "array")
        self.take(16)  # reserved, and the device
        dimension_bytes = self.take(4)
        dimensions = int.from_bytes(dimension_bytes, "little")
        (kind,) = self.take(1)
        (bits,) = self.take(1)
        lanes = self.take(2)
        # More lanes would be several numbers in one entry.
        is_known = kind in _KINDS and lanes == b"\x01\x00"
        if dimensions > _MOST_DIMENSIONS or not is_known:
            raise ValueError(f"an array of {dimensions} dimensions and kind {kind}")

        sides = [self.number() for _ in range(dimensions)]
        shape = tuple(sides)
        letter = _KINDS[kind]
        is_bfloat = letter == "bfloat" and bits == 16
        form = f"{letter}{bits // 8}"
        if is_bfloat:
            form = "u2"
        dtype = np.dtype(f"<{form}")
        size = self.number()
        # Python's numbers do not overflow: no shape wraps around to a small size.
        entries = math.prod(shape)
        expected_size = entries * dtype.itemsize
        if size != expected_size:
            raise ValueError(f"an array of shape {shape} has {size} bytes")

        content = self.take(size)
        values = np.frombuffer(content, dtype)
        array = values.reshape(shape)
        if not is_bfloat:
            return array
        # The upper half of a number of four bytes.
        words = array.astype("<u4") << 16
        return words.view("<f4")


def read_dgl(path: Path, choices: Choices = NO_CHOICES) -> FoundGraph:
    """Return the graph of a ``.bin`` file.

    Raises DataError when it is damaged, or of several graphs or types, none chosen.
    """
    origin = str(path)
    graphs, beside = _read_graphs(path)
    number = choices.choose_graph(len(graphs), origin)
    graph = graphs[number]
    # Arrays beside are of no graph: with several none could be told to have them.
    if len(graphs) == len(graph.vertices) == 1:
        # As ogb saves its graphs: a row per vertex, beside the graph.
        (frame,) = graph.vertices.values()
        count = int(frame["num_nodes"])
        shape = (count,)
        arrays_beside = list(beside.items())
        for name, array in arrays_beside:
            has_row_each = array.shape[:1] == shape
            if has_row_each and name not in frame:
                frame[name] = beside.pop(name)

    edge_arrays = set().union(*graph.of_edges)
    unread = sorted(edge_arrays) + sorted(beside)
    typed_graph = TypedGraph(
        origin=origin,
        vertices=graph.vertices,
        edges=graph.edges,
        unread=tuple(unread),
    )
    return choose_types(typed_graph, choices)
