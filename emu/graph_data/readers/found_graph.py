"""A graph as its file states it: checked here, in one place for every format.

Arrays by the names that people give them: ``edge_index`` (2, E), ``edges`` (E, 2),
``adj_*`` (CSR), what ``scipy.sparse.save_npz`` writes, or a matrix ``adj``; ``x``,
``features``, or ``attr_*`` (CSR); ``y``, ``labels``; masks or ids of a split. CSR is as
in gnn-benchmark (Shchur et al., 2018), ``x`` and ``y`` are those of PyTorch Geometric,
``feat`` and ``label`` those of dgl. What nobody asks for, such as a second array for
one purpose, is counted.
"""

from __future__ import annotations

import shutil
from collections import UserDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from emu.array_types import Array, Ints, Rows, SmallInts
from emu.errors import DataError
from emu.graph_data.raw_graph import RawGraph, build_structure, count_loops
from emu.graph_data.readers import split_arrays
from emu.graph_data.readers.class_numbers import class_numbers
from emu.graph_data.readers.questions import count_left_out
from emu.graph_data.readers.split_arrays import NO_CHOICES, Choices
from emu.graph_data.readers.stated_vertices import (
    COUNTS,
    read_shape,
    read_stated_vertices,
    whole_number,
)
from emu.graph_data.sampling import rows_of
from emu.host.files import cache_home

Arrays = Mapping[str, Array]

#: Longer features are no feature vectors; rows of them are made dense.
WIDEST = 1 << 20


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """Features of ``vertices`` vertices, read in slices."""

    vertices: int
    length: int
    rows: Callable[[int, int], Rows]
    """As in `RawGraph`."""

    @classmethod
    def dense(cls, array: Array, origin: str) -> FeatureRows:
        """Return the rows of a matrix; DataError when it is none of real numbers."""
        are_real = array.dtype.kind in "fiub"
        if array.ndim != 2 or not are_real:
            raise DataError(
                f"features are {array.dtype} of shape {array.shape}, a number per "
                "vertex and feature is needed",
                path=origin,
            )

        vertices, length = array.shape
        return cls(vertices, length, rows=partial(_dense_rows, array))


def _dense_rows(array: Array, start: int, stop: int) -> Rows:
    # A slice at a time, so that a mapped file is never float32 as a whole.
    part = array[start:stop]
    # What float32 cannot hold becomes infinite, which is refused with its vertex.
    with np.errstate(over="ignore"):
        return np.asarray(part, np.float32)


@dataclass(frozen=True, eq=False)
class FoundGraph:
    """Edges, and the other content of a file; nothing is checked yet."""

    sources: Array
    destinations: Array
    """Vertex ids of the edges."""
    origin: str
    vertices: int | None = None
    """Number of vertices; None where only rows per vertex show it."""
    features: FeatureRows | None = None
    labels: Array | None = None
    """A class per vertex, as numbers or texts; NaN, -1 and "" where there is none."""
    label_origin: str = ""
    """The file that has them, where it is another."""
    splits: Mapping[str, Array] = field(default_factory=dict)
    """``train``, ``valid``, ``test`` -> ids of vertices, or truth values of all."""
    owner: SmallInts | None = None
    """Part of every vertex, where the graph comes partitioned."""
    ids: Array | None = None
    """Ids in the file by vertex, numbers or words; None where they are the vertices."""
    split_origin: str = ""
    """Where the split is from, for people."""
    notes: tuple[str, ...] = ()
    """Sentences: what was taken for what."""
    left_out: tuple[str, ...] = ()
    """Counts of what nobody asked for: columns, arrays, keys, files."""
    overlap: str = ""
    """As in `Choices`."""

    @property
    def counts(self) -> list[int]:
        """Numbers of vertices that are stated, and of rows of features and labels."""
        counts = []
        if self.vertices is not None:
            counts.append(self.vertices)
        if self.features:
            counts.append(self.features.vertices)
        if self.labels is not None:
            counts.append(len(self.labels))
        return counts

    def check(self) -> RawGraph:
        """Return the graph; where no split is stated it is empty, to be drawn.

        Raises DataError when something is missing, or does not fit the rest.
        """
        if self.features is None:
            raise self._wrong(
                "holds no features (x, features, node_features): name a file of them "
                "with --features, or have some made up with --feature-length 100"
            )
        if self.labels is None:
            raise self._wrong(
                "holds no labels (y, labels, node_labels): name a file of them with "
                "--labels, or have some made up with --classes 10"
            )

        # First of all, since it is cheap and a wrong number of vertices would make the
        # rest mislead.
        self._check_shape(self.features, len(self.labels))
        label_origin = self.label_origin or self.origin
        labels, classes, names = class_numbers(self.labels, label_origin, self.ids)
        # Edges are checked against the rows of features, which are one per vertex.
        structure = build_structure(
            self.sources,
            self.destinations,
            vertices=self.features.vertices,
            origin=self.origin,
        )
        splits = split_arrays.check_labelled_splits(
            self.splits,
            labels=labels,
            origin=self.origin,
            label_origin=label_origin,
            overlap=self.overlap,
            ids=self.ids,
        )

        return RawGraph(
            structure=structure,
            labels=labels,
            **splits,
            classes=classes,
            feature_length=self.features.length,
            rows=self.features.rows,
            origin=self.origin,
            owner=self.owner,
            edges_given=len(self.sources),
            self_loops=count_loops(self.sources, self.destinations),
            class_names=names,
        )

    def _check_shape(self, features: FeatureRows, labels: int) -> None:
        """Refuse numbers of vertices that differ, and features of no length."""
        counts = {"vertices": self.vertices, "labels": labels}
        for name, count in counts.items():
            if count not in {None, features.vertices}:
                raise self._wrong(
                    f"has {count} {name} and features of {features.vertices} vertices"
                )
        if not 0 < features.length <= WIDEST:
            raise self._wrong(f"has features of length {features.length}")
        check_size(features.vertices, features.length, self.origin)

    def _wrong(self, problem: str) -> DataError:
        return DataError(problem, path=self.origin)

    @property
    def highest(self) -> int:
        """Highest vertex of an edge, -1 without any."""
        return max(highest_id(self.sources), highest_id(self.destinations))


def highest_id(ends: Array) -> int:
    """Return the highest of some ends of edges, -1 of none."""
    # Not by `initial`: unsigned numbers have no -1.
    if not ends.size:
        return -1
    return int(ends.max())


def check_size(vertices: int, length: int, origin: str) -> None:
    """Refuse a graph whose features the disk of the cache cannot hold.

    Raises DataError, which says by how much they are larger.
    """
    home = cache_home()
    # The cache itself may not be there yet.
    while not home.exists():
        home = home.parent

    # float32. A wild id makes as many vertices, and fills the disk.
    size = 4 * vertices * length
    free = shutil.disk_usage(home).free
    if size > free:
        raise DataError(
            f"{vertices} vertices with features of length {length} would take "
            f"{size / 1e9:.1f} GB, {free / 1e9:.1f} GB are free in {home}: is an id or "
            "a shape too large? XDG_CACHE_HOME names another disk",
            path=origin,
        )


#: Names of lists of edges, and the axis on which both ends stand.
_EDGES = {"edge_index": 0, "edges": 1, "edge_list": 1}
#: Names of two arrays with an end each.
_ENDS = (
    ("src", "dst"),
    ("row", "col"),
    ("source", "target"),
    ("senders", "receivers"),
)
#: Names of an adjacency.
MATRICES = ("adj", "A", "adj_matrix", "adjacency", "adjacency_matrix", "adj_t")
#: The one whose rows are destinations, by convention of PyTorch Geometric.
TRANSPOSED = "adj_t"
#: Names of features, dense; those in a file of torch may be sparse.
FEATURES = (
    "x",
    "features",
    "node_features",
    "feat",
    "feats",
    "feature",
    "node_feat",
    "X",
)
LABELS = ("y", "labels", "node_labels", "label", "node_label", "Y")
_CSR = ("indptr", "indices", "shape")
_ATTRIBUTES = ("attr_shape", "attr_indptr", "attr_indices", "attr_data")

#: Names of an adjacency by rows, as gnn-benchmark has them.
_ADJACENCY = {f"adj_{part}" for part in _CSR}
#: Every name that is looked at, besides those of splits.
NAMES = {"format"}.union(
    _ADJACENCY,
    _ATTRIBUTES,
    _EDGES,
    *_ENDS,
    MATRICES,
    FEATURES,
    LABELS,
    COUNTS,
    _CSR,
)


def is_read(name: str) -> bool:
    """Return True for the name of an array that may be read."""
    is_known = name in NAMES or name in split_arrays.NESTED
    is_code = name in split_arrays.CODES
    is_split = is_code or split_arrays.split_part(name) is not None
    return is_known or is_split


class AskedArrays(UserDict[str, Array]):
    """Arrays by their names, and which of them nobody has asked for.

    ``others`` are names of what the file holds beside them, and is never read.
    """

    def __init__(self, arrays: Arrays, others: Iterable[str] = ()) -> None:
        # num_nodes is often a number alone, which has no length.
        with_length = {name: np.atleast_1d(arrays[name]) for name in arrays}
        super().__init__(with_length)
        self.unread = set(arrays)
        self.unread.update(others)

    @override
    def __getitem__(self, name: str) -> Array:
        array = super().__getitem__(name)
        self.unread.discard(name)
        return array

    @property
    def left_out(self) -> tuple[str, ...]:
        """Count and names of what nobody has asked for."""
        names = sorted(self.unread)
        return count_left_out("array", names)


def graph_of_arrays(
    arrays: Arrays,
    origin: str,
    choices: Choices = NO_CHOICES,
    others: Iterable[str] = (),
) -> FoundGraph:
    """Return the graph that named arrays state; a file may hold others beside them.

    Raises DataError when there are no edges, or parts of a matrix do not fit.
    """
    asked_arrays = AskedArrays(arrays, others)
    edges = find_edges(asked_arrays, origin)
    vertices = read_stated_vertices(asked_arrays, edges.vertices, origin)
    notes = []
    if len(edges.sources):
        notes.append(f"edges from {edges.array}")

    feature_name = first_name(asked_arrays, FEATURES)
    features: FeatureRows | None
    if feature_name:
        features = FeatureRows.dense(asked_arrays[feature_name], origin)
    else:
        features = sparse_rows(asked_arrays, origin)
    if features:
        notes.append(f"features from {feature_name or 'attr_data'}")

    splits = split_arrays.sort_splits(asked_arrays, choices, origin)
    names_of_splits = split_arrays.split_names(asked_arrays, choices)
    split_names = ", ".join(names_of_splits)

    labels = None
    label_name = first_name(asked_arrays, LABELS)
    if label_name:
        labels = asked_arrays[label_name]
        note = f"labels from {label_name}"
        if labels.ndim == 2 and labels.shape[1] > 1:
            note += f" ({labels.shape[1]} columns)"
        notes.append(note)
    split_origin = f"{split_names} of the file" if split_names else ""
    sentence = ", ".join(notes)
    return FoundGraph(
        sources=edges.sources,
        destinations=edges.destinations,
        origin=origin,
        vertices=vertices,
        features=features,
        labels=labels,
        splits=splits,
        split_origin=split_origin,
        notes=(sentence,) if notes else (),
        left_out=asked_arrays.left_out,
        overlap=choices.overlap,
    )


def first_name(arrays: Collection[str], names: Iterable[str]) -> str | None:
    """Return the first of the names that is there."""
    return next((name for name in names if name in arrays), None)


@dataclass(frozen=True, eq=False)
class FoundEdges:
    """Edges that arrays state."""

    sources: Array
    destinations: Array
    array: str
    """Name of the first array that they are read from."""
    vertices: int | None = None
    """Number of vertices, if it is stated."""


def find_edges(arrays: Arrays, origin: str) -> FoundEdges:
    """Return the edges that arrays state.

    Raises DataError when there are none, or ends are no whole numbers.
    """
    list_name = first_name(arrays, _EDGES)
    matrix = first_name(arrays, MATRICES)
    names = set(arrays)
    pairs = [pair for pair in _ENDS if names.issuperset(pair)]
    # A list goes first: a matrix beside it may be made of it.
    if list_name:
        edges = _listed_edges(arrays[list_name], list_name, origin)
    elif matrix:
        edges = _matrix_edges(arrays[matrix], matrix, origin)
    elif pairs:
        source, destination = pairs[0]
        vertices = None
        if "shape" in arrays:
            vertices = _square(arrays["shape"], origin)
        edges = FoundEdges(
            sources=arrays[source],
            destinations=arrays[destination],
            array=source,
            vertices=vertices,
        )
    else:
        edges = _row_edges(arrays, origin)

    for ends in (edges.sources, edges.destinations):
        if ends.dtype.kind not in "iu":
            problem = f"edges are {ends.dtype}, whole numbers are needed"
            raise DataError(problem, path=origin)
    return edges


def _listed_edges(ends: Array, name: str, origin: str) -> FoundEdges:
    """Return the edges of an array with two ends per edge."""
    if ends.ndim != 2 or 2 not in ends.shape:
        problem = f"{name} has shape {ends.shape}, it needs two ends per edge"
        raise DataError(problem, path=origin)

    # Two rows by convention of PyTorch Geometric, two columns by that of lists.
    # Of two edges both axes have two: there the convention decides.
    axis = _EDGES[name]
    if ends.shape[axis] != 2:
        axis = 1 - axis
    return FoundEdges(
        sources=ends.take(0, axis),
        destinations=ends.take(1, axis),
        array=name,
    )


def _matrix_edges(matrix: Array, name: str, origin: str) -> FoundEdges:
    """Return the edges of a dense adjacency."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        problem = f"{name} is {matrix.dtype} of shape {matrix.shape}, a square "
        raise DataError(f"{problem}matrix of numbers is needed", path=origin)

    vertices = _square(matrix.shape, origin)
    sources, destinations = np.nonzero(matrix)
    if name == TRANSPOSED:
        sources, destinations = destinations, sources
    return FoundEdges(
        sources=sources,
        destinations=destinations,
        array=name,
        vertices=vertices,
    )


def _row_edges(arrays: Arrays, origin: str) -> FoundEdges:
    """Return the edges of a CSR or CSC matrix, by names of scipy or as adj_*."""
    stated_formats = arrays.get("format", b"csr")
    formats = np.reshape(stated_formats, -1)
    layout = formats[0]
    if layout not in (b"csr", b"csc", "csr", "csc"):
        problem = f"its matrix is {layout.item()!r}, save one that is .tocsr()"
        raise DataError(problem, path=origin)

    # Names of scipy, else those of gnn-benchmark.
    is_of_scipy = "indptr" in arrays and "indices" in arrays
    prefix = "" if is_of_scipy else "adj_"
    names = [f"{prefix}{part}" for part in _CSR]
    missing = [name for name in names if name not in arrays]
    if missing and prefix:
        lacking = "adj_indices"
        if len(missing) < len(_CSR):
            lacking = ", ".join(missing)
        problem = f"holds no {lacking}, and neither edge_index nor edges"
        raise DataError(problem, path=origin)

    pointer_name, index_name, shape_name = names
    indptr = arrays[pointer_name]
    indices = arrays[index_name]
    rows = len(indptr) - 1
    stated_shape = arrays.get(shape_name, [rows, rows])
    vertices = _square(stated_shape, origin)
    pointers = check_rows(
        indptr,
        indices=indices,
        rows=vertices,
        kind=prefix or "its ",
        origin=origin,
    )
    return FoundEdges(
        sources=rows_of(pointers),
        destinations=indices,
        array=pointer_name,
        vertices=vertices,
    )


def _square(shape: Any, origin: str) -> int:
    sides = [whole_number(side) for side in np.reshape(shape, -1)]
    if len(sides) != 2 or sides[0] is None or sides[0] != sides[1]:
        raise DataError(
            f"its adjacency has shape {sides}: it joins two kinds of vertices, a "
            "square one is needed",
            path=origin,
        )
    return sides[0]


def check_rows(
    indptr: Array,
    indices: Array,
    rows: int,
    kind: str,
    origin: str,
) -> Ints:
    """Return the row pointers of a CSR matrix, int64; DataError if they do not fit."""
    fits = (
        indptr.dtype.kind in "iu"
        and indptr.shape == (rows + 1,)
        and indptr[0] == 0
        and indptr[-1] == len(indices)
        # Differences of unsigned numbers are never below 0, and repeat() writes beyond
        # its memory where their sum overflows.
        and bool(np.all(indptr[:-1] <= indptr[1:]))
    )
    if not fits:
        raise DataError(f"{kind}indptr does not fit {kind}indices", path=origin)
    return indptr.astype(np.int64)


def value_names(
    names: Collection[str],
    known: Iterable[str],
    kind: str,
) -> list[str]:
    """Return the names of arrays that hold features, or labels; none where none do."""
    name = first_name(names, known)
    if name:
        return [name]
    if kind != "features":
        return []
    parts = [f"attr_{part}" for part in (*_CSR, "data")]
    if not set(names).issuperset(parts):
        return []
    return parts


def sparse_rows(arrays: Arrays, origin: str) -> FeatureRows | None:
    """Return the features of a CSR matrix; None where there is none.

    Raises DataError when its parts do not fit.
    """
    missing = [name for name in _ATTRIBUTES if name not in arrays]
    if len(missing) == len(_ATTRIBUTES):
        return None
    if missing:
        names = ", ".join(missing)
        raise DataError(f"holds no {names}", path=origin)

    shape, indptr, indices, data = (arrays[name] for name in _ATTRIBUTES)
    vertices, width = read_shape("attr_shape", shape, origin)
    if not 0 < width <= WIDEST:
        raise DataError(f"has features of length {width}", path=origin)
    pointers = check_rows(
        indptr,
        indices=indices,
        rows=vertices,
        kind="attr_",
        origin=origin,
    )
    if len(data) != len(indices):
        problem = f"{len(data)} attr_data stand for {len(indices)} attr_indices"
        raise DataError(problem, path=origin)
    # Checked once and here: `_sparse_rows` writes by them.
    is_below = indices < 0
    is_beyond = indices >= width
    is_wrong = is_below | is_beyond
    if is_wrong.any():
        entry = int(np.argmax(is_wrong))
        problem = f"attr_indices leave the {width} columns at entry {entry}"
        raise DataError(problem, path=origin)

    rows = partial(_sparse_rows, pointers, indices, data, width)
    return FeatureRows(vertices, width, rows)


def _sparse_rows(
    pointers: Array,
    indices: Array,
    data: Array,
    width: int,
    start: int,
    stop: int,
) -> Rows:
    entries = slice(pointers[start], pointers[stop])
    row = rows_of(pointers[start : stop + 1])
    shape = (stop - start, width)
    dense = np.zeros(shape, np.float32)
    places = (row, indices[entries])
    # As `_dense_rows`; of an entry that stands twice the two are added.
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(dense, places, data[entries])
    return dense
