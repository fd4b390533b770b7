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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.errors import DataError
from emu.graph_data.raw_graph import RawGraph, build_structure, count_loops
from emu.graph_data.readers import split_arrays
from emu.graph_data.readers.questions import count_left_out
from emu.graph_data.readers.split_arrays import NO_CHOICES, Choices
from emu.host.files import cache_home

Arrays = Mapping[str, NDArray[Any]]

#: Longer features are no feature vectors; rows of them are made dense.
WIDEST = 1 << 20


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """Features of ``vertices`` vertices, read in slices."""

    vertices: int
    length: int
    rows: Callable[[int, int], NDArray[np.float32]]
    """As in `RawGraph`."""

    @classmethod
    def dense(cls, array: NDArray[Any], origin: str) -> FeatureRows:
        """Return the rows of a matrix; DataError when it is none of real numbers."""
        if array.ndim != 2 or array.dtype.kind not in "fiub":
            raise DataError(
                f"features are {array.dtype} of shape {array.shape}, a number per "
                "vertex and feature is needed",
                path=origin,
            )
        vertices, length = array.shape
        return cls(vertices, length, lambda a, b: np.asarray(array[a:b], np.float32))


@dataclass(frozen=True, eq=False)
class FoundGraph:
    """Edges, and the other content of a file; nothing is checked yet."""

    sources: NDArray[Any]
    destinations: NDArray[Any]
    """Vertex ids of the edges."""
    origin: str
    vertices: int | None = None
    """Number of vertices; None where only rows per vertex show it."""
    features: FeatureRows | None = None
    labels: NDArray[Any] | None = None
    """A class per vertex, as numbers or texts; NaN, -1 and "" where there is none."""
    splits: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """``train``, ``valid``, ``test`` -> ids of vertices, or truth values of all."""
    owner: NDArray[np.int32] | None = None
    """Part of every vertex, where the graph comes partitioned."""
    ids: NDArray[Any] | None = None
    """Ids in the file by vertex, numbers or words; None where they are the vertices."""
    split_origin: str = ""
    """Where the split is from, for people."""
    notes: tuple[str, ...] = ()
    """Sentences: what was taken for what."""
    left_out: tuple[str, ...] = ()
    """Counts of what nobody asked for: columns, arrays, keys, files."""
    overlap: str = ""
    """As in `Choices`."""

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
        vertices, length = self.features.vertices, self.features.length
        for what, count in (("vertices", self.vertices), ("labels", len(self.labels))):
            if count not in {None, vertices}:
                problem = f"has {count} {what} and features of {vertices} vertices"
                raise self._wrong(problem)
        if not 0 < length <= WIDEST:
            raise self._wrong(f"has features of length {length}")
        check_size(vertices, length, self.origin)
        labels, classes, names = class_numbers(self.labels, self.origin)
        return RawGraph(
            build_structure(
                self.sources, self.destinations, vertices=vertices, origin=self.origin
            ),
            labels,
            **split_arrays.check_splits(
                self.splits, vertices, self.origin, self.overlap, self.ids
            ),
            classes=classes,
            feature_length=length,
            rows=self.features.rows,
            origin=self.origin,
            owner=self.owner,
            edges_given=len(self.sources),
            self_loops=count_loops(self.sources, self.destinations),
            class_names=names,
        )

    def _wrong(self, problem: str) -> DataError:
        return DataError(problem, path=self.origin)

    @property
    def highest(self) -> int:
        """Highest vertex of an edge, -1 without any."""
        return max(int(e.max(initial=-1)) for e in (self.sources, self.destinations))


def check_size(vertices: int, length: int, origin: str) -> None:
    """Refuse a graph whose features the disk of the cache cannot hold.

    Raises DataError, which says by how much they are larger.
    """
    home = cache_home()
    while not home.exists():
        home = home.parent
    size, free = 4 * vertices * length, shutil.disk_usage(home).free
    if size > free:
        raise DataError(
            f"{vertices} vertices with features of length {length} would take "
            f"{size / 1e9:.1f} GB, {free / 1e9:.1f} GB are free in {home}: is an id or "
            "a shape too large? XDG_CACHE_HOME names another disk",
            path=origin,
        )


def class_numbers(
    stated: NDArray[Any], origin: str
) -> tuple[NDArray[np.int32], int, tuple[str, ...]]:
    """Return the class of every vertex, -1 for none, their number, and their words.

    Numbers that begin above 0 (1 to 7, years) are words of classes. Raises DataError
    when they are not one class per vertex, as a number, a text, or a one-hot row.
    """
    labels, one_hot = stated, False
    if stated.ndim == 2 and stated.shape[1] > 1 and stated.dtype.kind in "biuf":
        one_hot = ((labels == 0) | (labels == 1)).all() and (labels.sum(1) <= 1).all()
        labels = np.where(labels.any(1), labels.argmax(1), -1) if one_hot else labels
    labels = labels.reshape(-1)
    problem = ""
    if len(labels) != len(stated):
        several = " (several classes per vertex)" if stated.ndim == 2 else ""
        problem = f"labels have shape {stated.shape}{several}, one class per vertex is "
        problem += "needed: name a file of them with --labels"
    elif labels.dtype.kind not in "iufbUS":
        problem = f"labels are {labels.dtype}, numbers or texts are needed"
    if problem:
        raise DataError(problem, path=origin)
    labels = labels.astype(np.int8) if labels.dtype.kind == "b" else labels
    words = labels.dtype.kind in "US"
    there = labels != (labels.dtype.type() if words else -1)
    if labels.dtype.kind == "f":
        there &= ~np.isnan(labels)
    if not there.any():
        raise DataError("no vertex has a label", path=origin)
    classes = labels[there]
    whole = not words and not one_hot and classes.max() < 1 << 53
    if words or (whole and classes.min() > 0 and (np.floor(classes) == classes).all()):
        names, codes = np.unique(classes, return_inverse=True)
        numbers = np.full(len(labels), -1, np.int32)
        numbers[there] = codes
        names = names if words else names.astype(np.int64)
        return numbers, len(names), (*map(str, names.tolist()),)
    labels = np.where(there, labels, -1)
    most = max(len(labels), 2)
    wrong = (labels < -1) | (labels >= most) | (np.floor(labels) != labels)
    if wrong.any():
        first = int(np.argmax(wrong))
        problem = f"vertex {first} has label {labels[first]}, classes count from 0 and "
        raise DataError(f"{problem}-1 stands for none", path=origin)
    return labels.astype(np.int32), int(labels.max()) + 1, ()


_EDGES = {"edge_index": 0, "edges": 1, "edge_list": 1}
_ENDS = (
    ("src", "dst"), ("row", "col"), ("source", "target"), ("senders", "receivers"),
)  # fmt: skip
#: Names of an adjacency.
MATRICES = ("adj", "A", "adj_matrix", "adjacency", "adjacency_matrix", "adj_t")
#: Names of features, dense; those in a file of torch may be sparse.
FEATURES = (
    "x", "features", "node_features", "feat", "feats", "feature", "node_feat", "X",
)  # fmt: skip
LABELS = ("y", "labels", "node_labels", "label", "node_label", "Y")
_COUNTS = ("num_nodes", "num_vertices", "n_nodes")
_CSR = ("indptr", "indices", "shape")

#: Every name that is looked at, besides those of splits.
NAMES = {
    *_EDGES, *(end for pair in _ENDS for end in pair), *MATRICES, *FEATURES, *LABELS,
    *_COUNTS, *_CSR, "format", *(f"adj_{part}" for part in _CSR),
    *(f"attr_{part}" for part in (*_CSR, "data")),
}  # fmt: skip


def is_read(name: str) -> bool:
    """Return True for the name of an array that may be read."""
    is_known = name in NAMES or name in split_arrays.NESTED
    is_split = name in split_arrays.CODES or split_arrays.split_part(name) is not None
    return is_known or is_split


class AskedArrays(Mapping[str, NDArray[Any]]):
    """Arrays by their names, and which of them nobody has asked for.

    ``others`` are names of what the file holds beside them, and is never read.
    """

    def __init__(self, arrays: Arrays, others: Iterable[str] = ()) -> None:
        self._arrays = {name: np.atleast_1d(array) for name, array in arrays.items()}
        self.unread = {*arrays, *others}

    @override
    def __getitem__(self, name: str) -> NDArray[Any]:
        array = self._arrays[name]
        self.unread.discard(name)
        return array

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    @override
    def __len__(self) -> int:
        return len(self._arrays)

    @override
    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    @property
    def left_out(self) -> tuple[str, ...]:
        """Count and names of what nobody has asked for."""
        return count_left_out("array", sorted(self.unread))


def graph_of_arrays(
    arrays: Arrays,
    origin: str,
    choices: Choices = NO_CHOICES,
    others: Iterable[str] = (),
) -> FoundGraph:
    """Return the graph that named arrays state; a file may hold others beside them.

    Raises DataError when there are no edges, or parts of a matrix do not fit.
    """
    asked = AskedArrays(arrays, others)
    sources, destinations, vertices, edges = find_edges(asked, origin)
    count = first_name(asked, _COUNTS)
    if count:
        vertices = _check_count(int(asked[count].reshape(-1)[0]), vertices, origin)

    feature = first_name(asked, FEATURES)
    label = first_name(asked, LABELS)
    if feature:
        features: FeatureRows | None = FeatureRows.dense(asked[feature], origin)
    else:
        features = sparse_rows(asked, origin)
    splits = split_arrays.sort_splits(asked, choices, origin)
    split = split_arrays.split_names(asked, choices)
    labels = asked[label] if label else None

    notes = [f"edges from {edges}"] if len(sources) else []
    notes += [f"features from {feature or 'attr_data'}"] if features else []
    if labels is not None:
        width = labels.shape[1] if labels.ndim == 2 else 1
        notes += [f"labels from {label}" + f" ({width} columns)" * (width > 1)]
    return FoundGraph(
        sources,
        destinations,
        origin,
        vertices=vertices,
        features=features,
        labels=labels,
        splits=splits,
        split_origin=f"{', '.join(split)} of the file" if split else "",
        notes=(", ".join(notes),) if notes else (),
        left_out=asked.left_out,
        overlap=choices.overlap,
    )


def _check_count(stated: int, vertices: int | None, origin: str) -> int:
    if vertices not in {None, stated}:
        problem = f"states {stated} vertices, its matrix has {vertices}"
        raise DataError(problem, path=origin)
    return stated


def first_name(arrays: Collection[str], names: Iterable[str]) -> str | None:
    """Return the first of the names that is there."""
    return next((name for name in names if name in arrays), None)


_Edges = tuple["NDArray[Any]", "NDArray[Any]", "int | None", str]


def find_edges(arrays: Arrays, origin: str) -> _Edges:
    """Return ends of edges, the number of vertices if it is stated, the array read.

    Raises DataError when there are none, or ends are no whole numbers.
    """
    pair = next((pair for pair in _ENDS if {*pair} <= {*arrays}), None)
    if key := first_name(arrays, _EDGES):
        sources, destinations, vertices, name = _listed_edges(arrays, key, origin)
    elif key := first_name(arrays, MATRICES):
        matrix = arrays[key]
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            problem = f"{key} is {matrix.dtype} of shape {matrix.shape}, a square "
            raise DataError(f"{problem}matrix of numbers is needed", path=origin)
        vertices = _square(matrix.shape, origin)
        sources, destinations = np.nonzero(matrix)
        name = key
    elif pair:
        sources, destinations = arrays[pair[0]], arrays[pair[1]]
        vertices = _square(arrays["shape"], origin) if "shape" in arrays else None
        name = pair[0]
    else:
        sources, destinations, vertices, name = _row_edges(arrays, origin)

    for ends in (sources, destinations):
        if ends.dtype.kind not in "iu":
            problem = f"edges are {ends.dtype}, whole numbers are needed"
            raise DataError(problem, path=origin)
    return sources, destinations, vertices, name


def _listed_edges(arrays: Arrays, key: str, origin: str) -> _Edges:
    """Return the edges of an array with two ends per edge."""
    edges = arrays[key]
    if edges.ndim != 2 or 2 not in edges.shape:
        problem = f"{key} has shape {edges.shape}, it needs two ends per edge"
        raise DataError(problem, path=origin)
    axis = _EDGES[key]
    if edges.shape[axis] != 2:
        axis = 1 - axis
    return edges.take(0, axis), edges.take(1, axis), None, key


def _row_edges(arrays: Arrays, origin: str) -> _Edges:
    """Return the edges of a CSR or CSC matrix, by names of scipy or as adj_*."""
    layout = np.asarray(arrays.get("format", b"csr")).reshape(-1)[0]
    if layout not in (b"csr", b"csc", "csr", "csc"):
        problem = f"its matrix is {layout.item()!r}, save one that is .tocsr()"
        raise DataError(problem, path=origin)
    prefix = "" if "indptr" in arrays and "indices" in arrays else "adj_"
    names = tuple(f"{prefix}{part}" for part in _CSR)
    missing = [name for name in names if name not in arrays]
    if missing and prefix:
        what = ", ".join(missing) if len(missing) < len(_CSR) else "adj_indices"
        problem = f"holds no {what}, and neither edge_index nor edges"
        raise DataError(problem, path=origin)

    indptr = arrays[names[0]]
    indices = arrays[names[1]]
    vertices = _square(arrays.get(names[2], [len(indptr) - 1] * 2), origin)
    pointers = check_rows(indptr, indices, vertices, prefix or "its ", origin)
    rows = np.repeat(np.arange(vertices), np.diff(pointers))
    return rows, indices, vertices, names[0]


def _square(shape: Any, origin: str) -> int:
    sides = [int(side) for side in np.reshape(shape, -1)]
    if len(sides) != 2 or sides[0] != sides[1]:
        problem = f"its adjacency has shape {sides}: it joins two kinds of vertices, a "
        raise DataError(problem + "square one is needed", path=origin)
    return sides[0]


def check_rows(
    indptr: NDArray[Any], indices: NDArray[Any], rows: int, kind: str, origin: str
) -> NDArray[np.int64]:
    """Return the row pointers of a CSR matrix, int64; DataError if they do not fit."""
    whole = (
        indptr.dtype.kind in "iu"
        and indptr.shape == (rows + 1,)
        and indptr[0] == 0
        and indptr[-1] == len(indices)
        # Differences of unsigned numbers are never below 0, and repeat() writes beyond
        # its memory where their sum overflows.
        and bool(np.all(indptr[:-1] <= indptr[1:]))
    )
    if not whole:
        raise DataError(f"{kind}indptr does not fit {kind}indices", path=origin)
    return indptr.astype(np.int64)


def value_names(names: Collection[str], known: Iterable[str], kind: str) -> list[str]:
    """Return the names of arrays that hold features, or labels; none where none do."""
    name = first_name(names, known)
    if name or kind != "features":
        return [name] if name else []
    parts = [f"attr_{part}" for part in (*_CSR, "data")]
    return parts if {*parts} <= {*names} else []


def sparse_rows(arrays: Arrays, origin: str) -> FeatureRows | None:
    """Return the features of a CSR matrix; None where there is none.

    Raises DataError when its parts do not fit.
    """
    keys = [f"attr_{part}" for part in ("shape", "indptr", "indices", "data")]
    if not any(name in arrays for name in keys):
        return None
    missing = [name for name in keys if name not in arrays]
    if missing:
        raise DataError(f"holds no {', '.join(missing)}", path=origin)
    shape, indptr, indices, data = (arrays[name] for name in keys)
    rows, width = int(shape[0]), int(shape[1])
    if not 0 < width <= WIDEST:
        raise DataError(f"has features of length {width}", path=origin)
    indptr = check_rows(indptr, indices, rows, "attr_", origin)
    wrong = (indices < 0) | (indices >= width)
    if len(data) != len(indices) or wrong.any():
        raise DataError(
            f"attr_indices leave the {width} columns at entry {int(np.argmax(wrong))}",
            path=origin,
        )

    def dense(start: int, stop: int) -> NDArray[np.float32]:
        slots = slice(indptr[start], indptr[stop])
        part = np.zeros((stop - start, width), np.float32)
        row = np.repeat(np.arange(stop - start), np.diff(indptr[start : stop + 1]))
        np.add.at(part, (row, indices[slots]), data[slots])  # an entry may stand twice
        return part

    return FeatureRows(rows, width, dense)
