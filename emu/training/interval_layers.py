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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.array_types import SmallInts
from emu.graph_data import Adjacency, Dataset
from emu.graph_data.sampling import Ids, entries_of
from emu.problem.workloads import PARTS
from emu.training.graph_model import (
    initial_parameters,
    parameter_shapes,
    split_parts,
)
from emu.training.layers import NEGATIVE_SLOPE, JobSettings

Array = NDArray[np.floating[Any]]
#: Arrays by what they are called in a message.
Arrays = dict[str, Array]


class RowSums:
    """Weighted sums of vectors for some rows of an adjacency, each with an entry."""

    def __init__(self, adjacency: Adjacency, rows: Ids, dtype: Any) -> None:
        # Every row has an entry, or sums between two starts would go wrong.
        pointers, entries = entries_of(adjacency.indptr, rows)
        weights = adjacency.weights[entries]
        weights = weights.astype(dtype)

        self._starts = pointers[:-1]
        self._columns = adjacency.columns[entries]
        self._weights = weights[:, None]  # a column

    def __call__(self, vectors: Array) -> Array:
        """Return the sums, shape (rows, columns of ``vectors``)."""
        # An interval without rows: reduceat takes no empty array.
        if not len(self._starts):
            _, width = vectors.shape
            shape = (0, width)
            return np.zeros(shape, vectors.dtype)

        source_rows = vectors[self._columns]
        terms = self._weights * source_rows
        sums = np.add.reduceat(terms, self._starts, axis=0)
        return np.asarray(sums)


def activate(name: str, z: Array) -> Array:
    """Return the activation, ``tanh`` or ``relu``, of every element."""
    if name == "tanh":
        return np.tanh(z)
    return np.maximum(z, 0)


def activation_slope(name: str, z: Array) -> Array:
    """Return the derivative of the activation at every element."""
    if name == "tanh":
        activation = np.tanh(z)
        return 1 - activation**2
    # 0 at 0, as torch has it: the reference must take the same side.
    is_positive = z > 0
    return is_positive.astype(z.dtype)


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
    # From the highest score on, no exponential overflows.
    highest = scores.max(axis=1, keepdims=True)
    offsets = scores - highest
    exponentials = np.exp(offsets)
    totals = exponentials.sum(axis=1, keepdims=True)

    log_totals = np.log(totals)
    log_shares = offsets - log_totals
    losses = targets * log_shares
    total_loss = float(losses.sum())

    shares = exponentials / totals
    weights = targets.sum(axis=1, keepdims=True)  # 0 where a vertex does not train
    gradient = shares * weights - targets
    return Loss(value=-total_loss, gradient=gradient)


def training_targets(dataset: Dataset, vertices: Ids, dtype: Any) -> Array:
    """Return the targets of some vertices, as `cross_entropy` takes them."""
    trains = np.isin(vertices, dataset.train)
    rows = np.flatnonzero(trains)
    training_vertices = vertices[rows]
    labels = dataset.labels[training_vertices]
    columns = labels.astype(np.int64)

    shape = (len(vertices), dataset.classes)
    targets = np.zeros(shape, dtype)
    weight = 1 / dataset.train_count
    targets[rows, columns] = weight
    return targets


def initial_weights(settings: JobSettings, dataset: Dataset) -> list[Array]:
    """Return the first weights of every layer, shape (inputs, outputs).

    Those of a GAT have two rows more, the attention of sources and of destinations.
    """
    flat = initial_parameters(settings, dataset)
    shapes = parameter_shapes(settings, dataset)
    by_name = split_parts(flat, shapes)
    parts = list(by_name.values())
    # A GAT has its attention beside the weights of each layer.
    kind = settings["model"]["kind"]
    parts_per_layer = len(PARTS[kind])

    layers = []
    for first in range(0, len(parts), parts_per_layer):
        end = first + parts_per_layer
        weight, *attention = parts[first:end]
        # The flat vector has (outputs, inputs); here it is rows times W.
        rows = np.concatenate([weight.T, *attention])
        rows = np.ascontiguousarray(rows)
        layers.append(rows)
    return layers


def flat_weights(weights: Sequence[Array], kind: str = "plain_gcn") -> Array:
    """Return the weights of all layers as one vector, as `parameter_shapes` has it.

    ``kind``: of the model in ``Job.settings``.
    """
    names = PARTS[kind]
    attention_rows = len(names) - 1

    pieces = []
    for layer in weights:
        inputs = len(layer) - attention_rows
        weight = layer[:inputs]
        attention = layer[inputs:]
        transposed = weight.T
        pieces.append(transposed.ravel())
        pieces.append(attention.ravel())
    return np.concatenate(pieces)


class InEdges:
    """Edges into the vertices of an interval, whose positions are ``rows``, by vertex.

    The adjacency has rows by destination, each with an entry: vertices attend to
    themselves too.
    """

    def __init__(self, adjacency: Adjacency, rows: Ids) -> None:
        pointers, entries = entries_of(adjacency.indptr, rows)
        count = len(rows)
        numbers = np.arange(count, dtype=np.int32)

        self._rows = rows
        self._starts = pointers[:-1]
        self.columns = adjacency.columns[entries]
        """Position of every edge's source."""
        degrees = np.diff(pointers)
        self.ends: NDArray[Any] = np.repeat(numbers, degrees)
        """Number of every edge's destination within the interval, int32."""

    def both(self, vectors: Array) -> Arrays:
        """Return what a lambda pulls of all rows: those of the ends of every edge."""
        interval_vectors = vectors[self._rows]
        return {
            "sources": vectors[self.columns],
            "destinations": interval_vectors[self.ends],
            "ends": self.ends,
        }

    def sum_weighted(self, attention: Array, vectors: Array) -> Array:
        """Return every destination's sum of the sources' rows times attention."""
        source_rows = vectors[self.columns]
        terms = attention[:, None] * source_rows
        sums = np.add.reduceat(terms, self._starts, axis=0)
        return np.asarray(sums)

    def push_back(self, of_sources: Array, of_destinations: Array, count: int) -> Array:
        """Return the gradients of all ``count`` rows from those of edges' ends."""
        _, width = of_sources.shape
        shape = (count, width)
        sums = np.zeros(shape, of_sources.dtype)
        np.add.at(sums, self.columns, of_sources)  # a source has many edges
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
    ends: SmallInts
    """Number of every edge's destination; each number up to the last occurs."""
    vectors: Array

    def _scores(self) -> Array:
        source_vector, destination_vector = self.vectors
        scores: Array = self.sources @ source_vector
        scores += self.destinations @ destination_vector
        return scores

    def _sums(self, values: Array) -> Array:
        """Return the sum of every destination's edges."""
        # Sums of float64, whatever the values are.
        sums = np.bincount(self.ends, values)
        return sums.astype(values.dtype, copy=False)

    def attention(self) -> Array:
        """Return the attention of every edge, shape (edges,)."""
        scores = self._scores()
        is_positive = scores > 0
        lowered = NEGATIVE_SLOPE * scores
        scores = np.where(is_positive, scores, lowered)

        # Each destination has a loop at the least: the last number is there.
        last_destination = int(self.ends.max())
        destinations = last_destination + 1
        highest = np.full(destinations, -np.inf, scores.dtype)
        np.maximum.at(highest, self.ends, scores)

        # From each destination's highest score on, so that none overflows.
        offsets = scores - highest[self.ends]
        exponentials = np.exp(offsets)
        totals = self._sums(exponentials)
        shares = exponentials / totals[self.ends]
        return np.asarray(shares)

    def backward(self, gradient: Array) -> tuple[Array, Array, Array]:
        """Return the gradients of sources, of destinations and of both vectors.

        Shapes (edges, width), (vertices, width) and (2, width); ``gradient`` is that of
        the sums of every destination, shape (vertices, width).
        """
        # Computed again from its inputs: a lambda keeps nothing from the forward pass.
        attention = self.attention()
        edge_gradient = gradient[self.ends]

        # Through the softmax: what raises the attention of all edges alike is lost.
        products = edge_gradient * self.sources
        of_attention = products.sum(axis=1)
        weighted = attention * of_attention
        means = self._sums(weighted)
        excess = of_attention - means[self.ends]
        # Then through the LeakyReLU, whose slope is that of the raw scores.
        is_positive = self._scores() > 0
        slope = np.where(is_positive, 1, NEGATIVE_SLOPE)
        of_scores = attention * excess * slope
        of_scores = of_scores.astype(edge_gradient.dtype)

        source_vector, destination_vector = self.vectors
        # A source's row is summed by attention, and it decides on the attention, too.
        by_sums = attention[:, None] * edge_gradient
        by_scores = of_scores[:, None] * source_vector
        of_sources = by_sums + by_scores
        sums_of_scores = self._sums(of_scores)
        of_destinations = sums_of_scores[:, None] * destination_vector

        of_source_vector = of_scores @ self.sources
        of_destination_vector = of_scores @ self.destinations
        of_vectors = np.stack([of_source_vector, of_destination_vector])
        return of_sources, of_destinations, of_vectors
