"""A graph as its file states it: checked here, in one place for every format.

Arrays by the names that people give them: ``edge_index`` (2, E), ``edges`` (E, 2) or
``adj_indptr``, ``adj_indices`` (CSR); ``x``, ``features``, ``node_features``, or
``attr_*`` (CSR); ``y``, ``labels``, ``node_labels``; ``train_mask``, ``val_mask``,
``test_mask``, also in the plural. CSR is as in gnn-benchmark (Shchur et al., 2018),
``x`` and ``y`` are those of PyTorch Geometric, ``feat`` and ``label`` those of dgl.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError
from emu.graph_data.raw_graph import RawGraph, build_structure, count_loops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]

#: Longer features are no feature vectors; rows of them are made dense.
WIDEST = 1 << 20
SPLIT = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """Features of ``vertices`` vertices, read in slices."""

    vertices: int
    length: int
    rows: Callable[[int, int], NDArray[np.float32]]
    """As in `RawGraph`."""

    @classmethod
    def dense(cls, array: NDArray[Any], origin: str) -> FeatureRows:
        """Return the rows of a matrix.

        Raises
        ------
        DataError
            When it is no matrix of real numbers.
        """
        if array.ndim != 2 or array.dtype.kind not in "fiub":
            raise DataError(
                f"features are {array.dtype} of shape {array.shape}, a number per "
                "vertex and feature is needed",
                path=origin,
            )
        return cls(
            array.shape[0],
            array.shape[1],
            lambda start, stop: np.asarray(array[start:stop], np.float32),
        )


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
    masks: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """``train``, ``valid``, ``test`` -> true or false per vertex."""
    owner: NDArray[np.int32] | None = None
    """Part of every vertex, where the graph comes partitioned."""
    ids: NDArray[Any] | None = None
    """Ids in the file by vertex, numbers or words; None where they are the vertices."""
    types: NDArray[np.int32] | None = None
    """Type of every vertex, below the number of ``type_names``."""
    type_names: tuple[str, ...] = ()
    split_origin: str = ""
    """Where the split is from, for people."""
    notes: tuple[str, ...] = ()
    """Sentences: what was taken for what, and what of the file was left out."""

    def checked(self) -> RawGraph:
        """Return the graph; without masks its split is empty, to be drawn.

        Raises
        ------
        DataError
            When something is missing, or does not fit the rest.
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
        vertices = self.features.vertices
        self._fits("vertices", self.vertices, vertices)
        self._fits("labels", len(self.labels), vertices)
        if not 0 < self.features.length <= WIDEST:
            raise self._wrong(f"has features of length {self.features.length}")
        labels, classes, names = self._classes(self.labels)
        return RawGraph(
            build_structure(
                self._ids(self.sources),
                self._ids(self.destinations),
                vertices=vertices,
                origin=self.origin,
            ),
            labels,
            **self._split(vertices),
            classes=classes,
            feature_length=self.features.length,
            rows=self.features.rows,
            origin=self.origin,
            owner=self.owner,
            edges_given=len(self.sources),
            self_loops=count_loops(self.sources, self.destinations),
            class_names=names,
        )

    def _wrong(self, problem: str) -> DataError:
        return DataError(problem, path=self.origin)

    def _fits(self, what: str, count: int | None, vertices: int) -> None:
        if count is not None and count != vertices:
            raise self._wrong(f"has {count} {what} and features of {vertices} vertices")

    def _ids(self, ids: NDArray[Any]) -> NDArray[Any]:
        if ids.dtype.kind not in "iu":
            raise self._wrong(f"edges are {ids.dtype}, whole numbers are needed")
        return ids

    def _classes(
        self, stated: NDArray[Any]
    ) -> tuple[NDArray[np.int32], int, tuple[str, ...]]:
        labels = stated.reshape(-1)
        if len(labels) != len(stated):
            raise self._wrong(
                f"labels have shape {stated.shape}, one class per vertex is needed"
            )
        if labels.dtype.kind in "US":
            names = np.unique(labels[labels != labels.dtype.type()])
            found = np.searchsorted(names, labels)
            known = labels != labels.dtype.type()
            numbers = np.where(known, found, -1).astype(np.int32)
            return numbers, len(names), (*names.tolist(),)
        if labels.dtype.kind not in "iufb":
            raise self._wrong(f"labels are {labels.dtype}, numbers or texts are needed")
        if labels.dtype.kind == "f":
            labels = np.where(np.isnan(labels), -1, labels)
        wrong = (
            (labels < -1)
            | (labels >= max(len(labels), 2))
            | (np.floor(labels) != labels)
        )
        if wrong.any():
            first = int(np.argmax(wrong))
            raise self._wrong(
                f"vertex {first} has label {labels[first]}, classes count from 0 "
                "and -1 stands for none"
            )
        classes = int(labels.max()) + 1 if len(labels) else 0
        if not classes:
            raise self._wrong("no vertex has a label")
        return labels.astype(np.int32), classes, ()

    def _split(self, vertices: int) -> dict[str, NDArray[np.int64]]:
        parts = {}
        for part in SPLIT:
            mask = self.masks.get(part, np.zeros(vertices, bool))
            if mask.ndim == 2:  # several splits in one file: the first
                mask = mask[0] if mask.shape[1] == vertices else mask[:, 0]
            if mask.shape != (vertices,) or mask.dtype.kind not in "biu":
                raise self._wrong(
                    f"the {part} mask is {mask.dtype} of shape {mask.shape}, true or "
                    f"false is needed for each of {vertices} vertices"
                )
            parts[part] = np.flatnonzero(mask).astype(np.int64)
        if self.masks and not len(parts["train"]):
            raise self._wrong("the train mask is empty or missing")
        return parts


_EDGES = ("edge_index", "edges")
_FEATURES = ("x", "features", "node_features", "feat")
_LABELS = ("y", "labels", "node_labels", "label")
_MASKS = {
    "train": ("train_mask", "train_masks"),
    "valid": ("val_mask", "val_masks", "valid_mask", "valid_masks"),
    "test": ("test_mask", "test_masks"),
}
_CSR = ("indptr", "indices", "shape")

#: Values on edges, which no model here uses.
_WEIGHTS = ("edge_weight", "edge_attr", "edge_weights", "edge_features")

#: Every name that is looked at.
NAMES = (
    *_EDGES, *_FEATURES, *_LABELS, *_MASKS["train"], *_MASKS["valid"], *_MASKS["test"],
    *_WEIGHTS, *(f"adj_{part}" for part in _CSR),
    *(f"attr_{part}" for part in (*_CSR, "data")),
)  # fmt: skip


def found_graph(arrays: Arrays, origin: str) -> FoundGraph:
    """Return the graph that named arrays state.

    Raises
    ------
    DataError
        When there are no edges, or parts of one matrix contradict each other.
    """
    sources, destinations, vertices = _edges(arrays, origin)
    features = first_of(arrays, _FEATURES)
    masks = {part: first_of(arrays, names) for part, names in _MASKS.items()}
    return FoundGraph(
        sources,
        destinations,
        origin,
        vertices=vertices,
        features=(
            _sparse_rows(arrays, origin)
            if features is None
            else FeatureRows.dense(features, origin)
        ),
        labels=first_of(arrays, _LABELS),
        masks={part: mask for part, mask in masks.items() if mask is not None},
        notes=left_out(name for name in _WEIGHTS if name in arrays),
    )


def left_out(names: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence per value of edges that is not read."""
    return tuple(f"{name} was left out: edges count alike" for name in names)


def first_of(arrays: Arrays, names: tuple[str, ...]) -> NDArray[Any] | None:
    """Return the array of the first name that is there."""
    return next((arrays[name] for name in names if name in arrays), None)


def _edges(
    arrays: Arrays, origin: str
) -> tuple[NDArray[Any], NDArray[Any], int | None]:
    for name, axis in zip(_EDGES, (0, 1), strict=True):
        if name in arrays:
            return *_ends(arrays[name], axis, name, origin), None
    missing = [f"adj_{part}" for part in _CSR if f"adj_{part}" not in arrays]
    if missing:
        what = ", ".join(missing) if len(missing) < len(_CSR) else "adj_indices"
        raise DataError(
            f"holds no {what}, and neither edge_index nor edges", path=origin
        )
    vertices = int(arrays["adj_shape"][0])
    indices = arrays["adj_indices"]
    indptr = checked_rows(arrays["adj_indptr"], indices, vertices, "adj", origin)
    return np.repeat(np.arange(vertices), np.diff(indptr)), indices, vertices


def _ends(
    edges: NDArray[Any], axis: int, name: str, origin: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    if edges.ndim != 2 or 2 not in edges.shape:
        raise DataError(
            f"{name} has shape {edges.shape}, it needs two ends per edge", path=origin
        )
    if edges.shape[axis] != 2:
        axis = 1 - axis
    return edges.take(0, axis), edges.take(1, axis)


def checked_rows(
    indptr: NDArray[Any], indices: NDArray[Any], rows: int, kind: str, origin: str
) -> NDArray[np.int64]:
    """Return the row pointers of a CSR matrix, int64, if they fit.

    Raises
    ------
    DataError
        When they do not fit.
    """
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
        raise DataError(f"{kind}_indptr does not fit {kind}_indices", path=origin)
    return indptr.astype(np.int64)


def _sparse_rows(arrays: Arrays, origin: str) -> FeatureRows | None:
    stated = [f"attr_{part}" for part in ("shape", "indptr", "indices", "data")]
    if not any(name in arrays for name in stated):
        return None
    missing = [name for name in stated if name not in arrays]
    if missing:
        raise DataError(f"holds no {', '.join(missing)}", path=origin)
    shape, indptr, indices, data = (arrays[name] for name in stated)
    rows, width = int(shape[0]), int(shape[1])
    if not 0 < width <= WIDEST:
        raise DataError(f"has features of length {width}", path=origin)
    indptr = checked_rows(indptr, indices, rows, "attr", origin)
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
        part[row, indices[slots]] = data[slots]
        return part

    return FeatureRows(rows, width, dense)
