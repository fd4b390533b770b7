"""A part's share of whole-graph training: layer by layer, forward and backward.

A device computes the vectors of its local vertices from those of its local and remote
ones, and from their gradient its share of the gradients of both: rows of remote
vertices go back to their owners, who add them to their own. Autograd stays within one
layer of one device; `emu.training.reference` trains the same in one piece.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from emu.array_types import Array
from emu.graph_data import Adjacency, Dataset, Part
from emu.graph_data.sampling import Ids
from emu.training.layers import (
    JobSettings,
    LayerTensors,
    Tensor,
    as_tensor,
    linear,
    sum_weighted,
)

Aggregate = Callable[[Tensor], Tensor]


def _bag(adjacency: Adjacency, dtype: Any) -> Aggregate:
    from torch.nn.functional import embedding_bag

    columns = as_tensor(adjacency.columns).long()
    offsets = as_tensor(adjacency.indptr)
    # embedding_bag takes weights of the rows' own type alone.
    weights = as_tensor(adjacency.weights).to(dtype)

    def weighted_sums(rows: Tensor) -> Tensor:
        return embedding_bag(
            columns,
            rows,
            offsets,
            mode="sum",
            per_sample_weights=weights,
            include_last_offset=True,
        )

    return weighted_sums


def _product(adjacency: Adjacency, columns: int, dtype: Any) -> Aggregate:
    """Return the product of an adjacency with rows, one per column.

    Its gradient is the product with the transpose: torch's own for a weighted bag takes
    12 to 37 times as long (amazon_computers, 32 columns: 61.7 against 1.7 ms).
    """
    import torch

    forward_bag = _bag(adjacency, dtype)
    transpose = adjacency.transpose(columns)
    backward_bag = _bag(transpose, dtype)

    class Product(torch.autograd.Function):
        @staticmethod
        @override
        def forward(_: Any, rows: Tensor) -> Tensor:
            return forward_bag(rows)

        @staticmethod
        @override
        def backward(_: Any, gradient: Tensor) -> Tensor:
            rows = gradient.contiguous()
            return backward_bag(rows)

    product: Aggregate = Product.apply
    return product


def _sage(
    aggregate: Aggregate,
    local: int,
    hidden: Tensor,
    neighbours: Tensor,
    *root: Tensor,
) -> Tensor:
    sums = sum_weighted(aggregate, hidden, neighbours)
    # Local vertices stand first among a part's rows.
    local_rows = hidden[:local]
    return sums + linear(local_rows, *root)


def _gcn(
    aggregate: Aggregate,
    _local: int,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
) -> Tensor:
    sums = sum_weighted(aggregate, hidden, weight)
    return sums + bias


def _gin(
    aggregate: Aggregate,
    _local: int,
    hidden: Tensor,
    *tensors: Tensor,
) -> Tensor:
    inner, inner_bias, *outer = tensors
    sums = sum_weighted(aggregate, hidden, inner)
    activation = (sums + inner_bias).relu()
    return linear(activation, *outer)


#: Layers by kind, from rows of local then remote vertices; ``commnet`` has no bias.
_LAYERS: dict[str, Callable[..., Tensor]] = {
    "gcn": _gcn,
    "sage": _sage,
    "commnet": _sage,
    "gin": _gin,
}


@dataclass(frozen=True, eq=False)
class Scored:
    """Loss of a part's training vertices, and its gradient."""

    loss: float
    """Sum of their cross-entropies over the number of the whole graph's: the parts'
    losses sum up to the mean of all."""
    accuracy: float
    """Those of them whose label scores highest, over the same number."""
    gradient: Array
    """Gradient of the scores, shape (local, classes)."""


class TrainingVertices:
    """Training vertices among the ``local`` ones of a part, ids in their order."""

    def __init__(self, dataset: Dataset, local: Ids) -> None:
        trains = np.isin(local, dataset.train)
        self._rows = np.flatnonzero(trains)
        vertices = local[self._rows]
        self._labels = dataset.labels[vertices].astype(np.int64)
        self._count = dataset.train_count

    def score(self, scores: Array) -> Scored:
        """Return the loss of scores, shape (local, classes), at these vertices."""
        import torch
        from torch.nn.functional import cross_entropy

        rows = as_tensor(scores[self._rows])
        rows.requires_grad_()
        labels = as_tensor(self._labels)
        total = cross_entropy(rows, labels, reduction="sum")
        # Over the whole graph's number: losses of parts, and their gradients, add up.
        loss = total / self._count
        (row_gradient,) = torch.autograd.grad(loss, rows)

        # Rows that do not train have a gradient of 0.
        gradient = np.zeros_like(scores)
        gradient[self._rows] = row_gradient.numpy()
        is_right = rows.argmax(1) == labels
        correct = int(is_right.sum())
        return Scored(
            loss=float(loss.detach()),
            accuracy=correct / self._count,
            gradient=gradient,
        )


class PartModel(LayerTensors):
    """Layers of a model of ``Job.settings`` on the rows of one part.

    Parts are made with the aggregation of the same model: one, or with replicas one per
    layer.
    """

    def __init__(self, settings: JobSettings, dataset: Dataset, *parts: Part) -> None:
        import torch

        super().__init__(settings, dataset)
        model = settings["model"]
        self._layer = _LAYERS[model["kind"]]
        self._activation = getattr(torch, model["activation"])
        sums = []
        for part in parts:
            vertices = len(part.vertices)
            sums.append(_product(part.forward, vertices, self._dtype))

        # One part serves all layers: its products are built once.
        repeats = 1 if len(parts) > 1 else self.layers
        self._sums = sums * repeats
        self._parts = parts * repeats
        self._rows = [len(part.vertices) for part in self._parts]

        # With replicas the last layer's part has the device's own vertices alone.
        local = self._parts[-1].local
        self._trained = TrainingVertices(dataset, local)
        self._steps: dict[int, tuple[Tensor, Tensor]] = {}

    @override
    def load(self, flat: Array) -> None:
        """Copy a flat parameter vector into the model, and forget its gradient."""
        super().load(flat)
        self._steps.clear()

    @property
    def gradient(self) -> Array:
        """Gradient of the parameters from all layers whose backward pass is done."""
        return self._copy_gradient()

    def forward(self, number: int, rows: Array) -> Array:
        """Return the vectors of the local vertices after a layer, numbered from 0.

        ``rows`` are those before it, of the vertices of its part, in the job's
        precision. Raises ValueError when there is not a row per vertex.
        """
        vertices = self._rows[number]
        if len(rows) != vertices:
            raise ValueError(f"{len(rows)} rows for {vertices} vertices")

        hidden = as_tensor(rows).to(self._dtype)
        hidden.requires_grad_(number > 0)  # features need no gradient
        local = len(self._parts[number].local)
        tensors = self._tensors[number]
        sums = self._sums[number]
        vectors = self._layer(sums, local, hidden, *tensors)
        if number < self.layers - 1:
            vectors = self._activation(vectors)

        # Kept until the gradient of these vectors has come back from all parts.
        self._steps[number] = hidden, vectors
        fixed_vectors = vectors.detach()
        return np.asarray(fixed_vectors.numpy())

    def score(self, scores: Array) -> Scored:
        """Return the loss of the last layer's output at the training vertices."""
        return self._trained.score(scores)

    def backward(self, number: int, gradient: Array) -> Array | None:
        """Return the gradient of a layer's rows, and add to that of the parameters.

        This part's share, of the vertices of its part; None for layer 0. ``gradient``
        is that of what `forward` returned, complete: all parts' shares of it added up.
        """
        hidden, vectors = self._steps.pop(number)
        vectors.backward(as_tensor(gradient))
        if number == 0:
            return None
        row_gradient = hidden.grad
        return np.asarray(row_gradient.numpy())
