"""Layers of a graph convolutional network by vertex interval, without autograd.

Dorylus splits a layer into a gather, A H of an interval's rows, and an apply, act of
that times W (Thorpe et al., OSDI 2021, equations R1 and R2). Rows are those of an
interval; A takes the vectors of a part's local and remote vertices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.training.parameters import initial_parameters, parameter_shapes, split_parts
from emu.workloads import PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from emu.graph_data import Adjacency, Dataset

    Array = NDArray[np.floating[Any]]


class RowSums:
    """Some rows of an adjacency, as weighted sums of vectors.

    Parameters
    ----------
    rows
        Positions of the rows, each of which has an entry.
    """

    def __init__(
        self, adjacency: Adjacency, rows: NDArray[np.int64], dtype: Any
    ) -> None:
        first = adjacency.indptr[rows]
        counts = adjacency.indptr[rows + 1] - first
        self._starts = np.cumsum(counts) - counts
        entries = np.arange(int(counts.sum())) + np.repeat(first - self._starts, counts)
        self._columns = adjacency.columns[entries]
        self._weights = adjacency.weights[entries].astype(dtype)[:, None]

    def __call__(self, vectors: Array) -> Array:
        """Return the sums, shape (rows, columns of ``vectors``)."""
        if not len(self._starts):
            return np.zeros((0, vectors.shape[1]), vectors.dtype)
        found: Array = np.add.reduceat(
            self._weights * vectors[self._columns], self._starts, axis=0
        )
        return found


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

    Parameters
    ----------
    targets
        One over the number of training vertices at the label of each of them, else 0;
        shape (rows, classes).
    """
    shifted = scores - scores.max(axis=1, keepdims=True)
    likely = np.exp(shifted)
    total = likely.sum(axis=1, keepdims=True)
    value = -float((targets * (shifted - np.log(total))).sum())
    return Loss(value, likely / total * targets.sum(axis=1, keepdims=True) - targets)


def training_targets(
    dataset: Dataset, vertices: NDArray[np.int64], dtype: Any
) -> Array:
    """Return the targets of some vertices, as `cross_entropy` takes them."""
    found = np.zeros((len(vertices), dataset.classes), dtype)
    trained = np.flatnonzero(np.isin(vertices, dataset.train))
    labels = dataset.labels[vertices[trained]].astype(np.int64)
    found[trained, labels] = 1 / dataset.train_count
    return found


def initial_weights(settings: Mapping[str, Any], dataset: Dataset) -> list[Array]:
    """Return the first weights of every layer, shape (inputs, outputs).

    Those of a GAT have two rows more, the attention of sources and of destinations.
    """
    flat = initial_parameters(settings, dataset)
    parts = [*split_parts(flat, parameter_shapes(settings, dataset)).values()]
    each = len(PARTS[settings["model"]["kind"]])
    return [
        np.ascontiguousarray(
            np.concatenate([parts[first].T, *parts[first + 1 : first + each]])
        )
        for first in range(0, len(parts), each)
    ]


def flat_weights(weights: Sequence[Array], kind: str = "plain_gcn") -> Array:
    """Return the weights of all layers as one vector, as `parameter_shapes` has it.

    Parameters
    ----------
    kind
        Of the model in ``Job.settings``.
    """
    below = len(PARTS[kind]) - 1  # rows of attention
    pieces = []
    for one in weights:
        rows = len(one) - below
        pieces += [one[:rows].T.ravel(), one[rows:].ravel()]
    return np.concatenate(pieces)
