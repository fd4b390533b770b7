"""Layers by vertex interval, forward and backward, without autograd.

Dorylus splits a layer into a gather, A H of an interval's rows, and an apply, act of
that times W (Thorpe et al., OSDI 2021, equations R1 and R2). Rows are those of an
interval; A takes the vectors of a part's local and remote vertices.

One head of a graph attention network (Velickovic et al., ICLR 2018, equations 1 to 4):
the attention of edge u -> v is the softmax, over the edges into v, of
LeakyReLU(a_s z_u + a_d z_v), z = h W. Dorylus computes it in lambdas, AE, that get the
rows of both ends of every edge, and sums by it on servers, GA (OSDI 2021, section 2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.graph_data import Adjacency, Dataset
from emu.graph_data.sampling import entries_of
from emu.problem.workloads import PARTS
from emu.training.graph_model import initial_parameters, parameter_shapes, split_parts
from emu.training.layers import NEGATIVE_SLOPE

Array = NDArray[np.floating[Any]]


class RowSums:
    """Some rows of an adjacency, each with an entry, as weighted sums of vectors."""

    def __init__(
        self, adjacency: Adjacency, rows: NDArray[np.int64], dtype: Any
    ) -> None:
        pointers, entries = entries_of(adjacency.indptr, rows)
        self._starts = pointers[:-1]
        self._columns = adjacency.columns[entries]
        self._weights = adjacency.weights[entries].astype(dtype)[:, None]

    def __call__(self, vectors: Array) -> Array:
        """Return the sums, shape (rows, columns of ``vectors``)."""
        if not len(self._starts):
            return np.zeros((0, vectors.shape[1]), vectors.dtype)
        rows = self._weights * vectors[self._columns]
        return np.asarray(np.add.reduceat(rows, self._starts, axis=0))


def activate(name: str, z: Array) -> Array:
    """Return the activation, ``tanh`` or ``relu``, of every element."""
    return np.tanh(z) if name == "tanh" else np.maximum(z, 0)


def activation_slope(name: str, z: Array) -> Array:
    """Return the derivative of the activation at every element."""
    return 1 - np.tanh(z) ** 2 if name == "tanh" else (z > 0).astype(z.dtype)


@dataclass(frozen=True, eq=False)
class Loss:
    """Cross-entropy of an interval's training vertices."""

    value: float
    """Sum over them, over the number of all training vertices."""
    gradient: Array
    """Gradient of the scores, shape (rows, classes)."""


def cross_entropy(scores: Array, targets: Array) -> Loss:
    """Return the loss of scores.

    ``targets``: one over the number of training vertices at the label of each of them,
    else 0; shape (rows, classes).
    """
    offsets = scores - scores.max(axis=1, keepdims=True)
    likely = np.exp(offsets)
    total = likely.sum(axis=1, keepdims=True)
    value = -float((targets * (offsets - np.log(total))).sum())
    return Loss(value, likely / total * targets.sum(axis=1, keepdims=True) - targets)


def training_targets(
    dataset: Dataset, vertices: NDArray[np.int64], dtype: Any
) -> Array:
    """Return the targets of some vertices, as `cross_entropy` takes them."""
    targets = np.zeros((len(vertices), dataset.classes), dtype)
    rows = np.flatnonzero(np.isin(vertices, dataset.train))
    labels = dataset.labels[vertices[rows]].astype(np.int64)
    targets[rows, labels] = 1 / dataset.train_count
    return targets


def initial_weights(settings: Mapping[str, Any], dataset: Dataset) -> list[Array]:
    """Return the first weights of every layer, shape (inputs, outputs).

    Those of a GAT have two rows more, the attention of sources and of destinations.
    """
    flat = initial_parameters(settings, dataset)
    parts = [*split_parts(flat, parameter_shapes(settings, dataset)).values()]
    each = len(PARTS[settings["model"]["kind"]])
    layers = [parts[first : first + each] for first in range(0, len(parts), each)]
    whole = [np.concatenate([weight.T, *rest]) for weight, *rest in layers]
    return [*map(np.ascontiguousarray, whole)]


def flat_weights(weights: Sequence[Array], kind: str = "plain_gcn") -> Array:
    """Return the weights of all layers as one vector, as `parameter_shapes` has it.

    ``kind``: of the model in ``Job.settings``.
    """
    below = len(PARTS[kind]) - 1  # rows of attention
    cuts = ((one, len(one) - below) for one in weights)
    pieces = [part.ravel() for one, at in cuts for part in (one[:at].T, one[at:])]
    return np.concatenate(pieces)


class InEdges:
    """Edges into the vertices of an interval, whose positions are ``rows``, by vertex.

    The adjacency has rows by destination, each with an entry: vertices attend to
    themselves too.
    """

    def __init__(self, adjacency: Adjacency, rows: NDArray[np.int64]) -> None:
        self._rows = rows
        pointers, entries = entries_of(adjacency.indptr, rows)
        self._starts = pointers[:-1]
        self.columns = adjacency.columns[entries]
        """Position of every edge's source."""
        ends = np.arange(len(rows), dtype=np.int32)
        self.ends: NDArray[Any] = np.repeat(ends, np.diff(pointers))
        """Number of every edge's destination within the interval, int32."""

    def both(self, vectors: Array) -> dict[str, Array]:
        """Return what a lambda pulls of all rows: those of the ends of every edge."""
        return {
            "sources": vectors[self.columns],
            "destinations": vectors[self._rows][self.ends],
            "ends": self.ends,
        }

    def sum_weighted(self, attention: Array, vectors: Array) -> Array:
        """Return every destination's sum of the sources' rows times attention."""
        rows = attention[:, None] * vectors[self.columns]
        return np.asarray(np.add.reduceat(rows, self._starts, axis=0))

    def push_back(self, of_sources: Array, of_destinations: Array, count: int) -> Array:
        """Return the gradients of all ``count`` rows from those of edges' ends."""
        sums = np.zeros((count, of_sources.shape[1]), of_sources.dtype)
        np.add.at(sums, self.columns, of_sources)
        sums[self._rows] += of_destinations
        return sums


@dataclass(frozen=True, eq=False)
class Ends:
    """Rows of the ends of an interval's edges, and the attention that follows.

    ``vectors``: attention of sources and of destinations, shape (2, width).
    """

    sources: Array
    """Shape (edges, width)."""
    destinations: Array
    """Likewise."""
    ends: NDArray[np.int32]
    """Number of every edge's destination; each number up to the last occurs."""
    vectors: Array

    def _scores(self) -> Array:
        scores: Array = self.sources @ self.vectors[0]
        scores += self.destinations @ self.vectors[1]
        return scores

    def _sums(self, values: Array) -> Array:
        """Return the sum of every destination's edges."""
        return np.bincount(self.ends, values).astype(values.dtype, copy=False)

    def attention(self) -> Array:
        """Return the attention of every edge, shape (edges,)."""
        scores = self._scores()
        scores = np.where(scores > 0, scores, NEGATIVE_SLOPE * scores)
        top = np.full(int(self.ends.max()) + 1, -np.inf, scores.dtype)
        np.maximum.at(top, self.ends, scores)
        likely = np.exp(scores - top[self.ends])
        return np.asarray(likely / self._sums(likely)[self.ends])

    def backward(self, gradient: Array) -> tuple[Array, Array, Array]:
        """Return the gradients of sources, of destinations and of both vectors.

        Shapes (edges, width), (vertices, width) and (2, width); ``gradient`` is that of
        the sums of every destination, shape (vertices, width).
        """
        attention = self.attention()
        mine = gradient[self.ends]
        of_attention = (mine * self.sources).sum(axis=1)
        mean = self._sums(attention * of_attention)[self.ends]
        slope = np.where(self._scores() > 0, 1, NEGATIVE_SLOPE)
        of_scores = (attention * (of_attention - mean) * slope).astype(mine.dtype)
        of_sources = attention[:, None] * mine + of_scores[:, None] * self.vectors[0]
        of_destinations = self._sums(of_scores)[:, None] * self.vectors[1]
        ends = self.sources, self.destinations
        of_vectors = np.stack([of_scores @ rows for rows in ends])
        return of_sources, of_destinations, of_vectors
