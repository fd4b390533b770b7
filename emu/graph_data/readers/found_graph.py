"""A graph as its file states it: checked here, in one place for every format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError
from emu.graph_data.raw_graph import RawGraph, build_structure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

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
    notes: tuple[str, ...] = ()
    """Sentences on what of the file was left out."""

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
        labels, classes = self._classes(self.labels)
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

    def _classes(self, stated: NDArray[Any]) -> tuple[NDArray[np.int32], int]:
        labels = stated.reshape(-1)
        if len(labels) != len(stated):
            raise self._wrong(
                f"labels have shape {stated.shape}, one class per vertex is needed"
            )
        if labels.dtype.kind in "US":
            names = np.unique(labels[labels != labels.dtype.type()])
            found = np.searchsorted(names, labels)
            known = labels != labels.dtype.type()
            return np.where(known, found, -1).astype(np.int32), len(names)
        if labels.dtype.kind not in "iufb":
            raise self._wrong(f"labels are {labels.dtype}, numbers or texts are needed")
        if labels.dtype.kind == "f":
            labels = np.where(np.isnan(labels), -1, labels)
        wrong = (labels < -1) | (labels >= max(len(labels), 2)) | (labels % 1 != 0)
        if wrong.any():
            first = int(np.argmax(wrong))
            raise self._wrong(
                f"vertex {first} has label {labels[first]}, classes count from 0 "
                "and -1 stands for none"
            )
        classes = int(labels.max()) + 1 if len(labels) else 0
        if not classes:
            raise self._wrong("no vertex has a label")
        return labels.astype(np.int32), classes

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
