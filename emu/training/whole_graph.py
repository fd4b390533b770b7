"""A part's share of whole-graph training: layer by layer, forward and backward.

A device computes the vectors of its local vertices from those of its local and remote
ones, and from their gradient its share of the gradients of both: rows of remote
vertices go back to their owners, who add them to their own. Autograd stays within one
layer of one device; `emu.training.reference` trains the same in one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.graph_data import Adjacency, Dataset, Part
from emu.training.layers import LayerTensors, Tensor, as_tensor, linear, sum_weighted

Aggregate = Callable[[Tensor], Tensor]


def _bag(adjacency: Adjacency, dtype: Any) -> Aggregate:
    from torch.nn.functional import embedding_bag

    columns = as_tensor(adjacency.columns).long()
    offsets = as_tensor(adjacency.indptr)
    weights = as_tensor(adjacency.weights).to(dtype)
    how = {"per_sample_weights": weights, "include_last_offset": True}
    return lambda rows: embedding_bag(columns, rows, offsets, mode="sum", **how)


def _product(adjacency: Adjacency, columns: int, dtype: Any) -> Aggregate:
    """Return the product of an adjacency with rows, one per column.

    Its gradient is the product with the transpose: torch's own for a weighted bag takes
    12 to 37 times as long (amazon_computers, 32 columns: 61.7 against 1.7 ms).
    """
    import torch

    forward_bag = _bag(adjacency, dtype)
    backward_bag = _bag(adjacency.transpose(columns), dtype)

    class Product(torch.autograd.Function):
        @staticmethod
        @override
        def forward(_: Any, rows: Tensor) -> Tensor:
            return forward_bag(rows)

        @staticmethod
        @override
        def backward(_: Any, gradient: Tensor) -> Tensor:
            return backward_bag(gradient.contiguous())

    product: Aggregate = Product.apply
    return product


def _sage(
    aggregate: Aggregate, local: int, hidden: Tensor, neighbours: Tensor, *own: Tensor
) -> Tensor:
    sums = sum_weighted(aggregate, hidden, neighbours)
    return sums + linear(hidden[:local], *own)


def _gin(aggregate: Aggregate, _local: int, hidden: Tensor, *tensors: Tensor) -> Tensor:
    inner, inner_bias, *outer = tensors
    sums = sum_weighted(aggregate, hidden, inner) + inner_bias
    return linear(sums.relu(), *outer)


#: Layers by kind, from rows of local then remote vertices; ``commnet`` has no bias.
_LAYERS: dict[str, Callable[..., Tensor]] = {
    "gcn": lambda sums, _, hidden, weight, bias: (
        sum_weighted(sums, hidden, weight) + bias
    ),
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
    gradient: NDArray[Any]
    """Gradient of the scores, shape (local, classes)."""


class PartModel(LayerTensors):
    """Layers of a model of ``Job.settings`` on the rows of one part.

    Parts are made with the aggregation of the same model: one, or with replicas one per
    layer.
    """

    def __init__(
        self, settings: Mapping[str, Any], dataset: Dataset, *parts: Part
    ) -> None:
        import torch

        super().__init__(settings, dataset)
        self._layer = _LAYERS[settings["model"]["kind"]]
        self._activation = getattr(torch, settings["model"]["activation"])
        dtype = self._dtype
        sums = [_product(p.forward, len(p.vertices), dtype) for p in parts]
        self._sums = sums if len(sums) > 1 else sums * self.layers
        self._parts = parts if len(parts) > 1 else parts * self.layers
        self._rows = [len(part.vertices) for part in self._parts]
        own = self._parts[-1].local
        self._train = np.flatnonzero(np.isin(own, dataset.train))
        self._labels = dataset.labels[own[self._train]].astype(np.int64)
        self._train_count = dataset.train_count
        self._steps: dict[int, tuple[Tensor, Tensor]] = {}

    @override
    def load(self, flat: NDArray[Any]) -> None:
        """Copy a flat parameter vector into the model, and forget its gradient."""
        import torch

        super().load(flat)
        self._flat.grad = torch.zeros_like(self._flat)
        self._steps.clear()

    @property
    def gradient(self) -> NDArray[Any]:
        """Gradient of the parameters from all layers whose backward pass is done."""
        return np.asarray(self._flat.grad.numpy())

    def forward(self, number: int, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the vectors of the local vertices after a layer, numbered from 0.

        ``rows`` are those before it, of the vertices of its part, in the job's
        precision. Raises ValueError when there is not a row per vertex.
        """
        if len(rows) != self._rows[number]:
            raise ValueError(f"{len(rows)} rows for {self._rows[number]} vertices")
        hidden = as_tensor(rows).to(self._dtype)
        hidden.requires_grad_(number > 0)  # features need no gradient
        local = len(self._parts[number].local)
        tensors = self._tensors_of(number)
        out = self._layer(self._sums[number], local, hidden, *tensors)
        if number < self.layers - 1:
            out = self._activation(out)
        self._steps[number] = hidden, out
        return np.asarray(out.detach().numpy())

    def score(self, scores: NDArray[Any]) -> Scored:
        """Return the loss of the last layer's output at the training vertices."""
        import torch
        from torch.nn.functional import cross_entropy

        mine = as_tensor(scores[self._train]).requires_grad_()
        labels = as_tensor(self._labels)
        loss = cross_entropy(mine, labels, reduction="sum") / self._train_count
        (grad,) = torch.autograd.grad(loss, mine)
        gradient = np.zeros_like(scores)
        gradient[self._train] = grad.numpy()
        correct = int((mine.argmax(1) == labels).sum())
        return Scored(float(loss.detach()), correct / self._train_count, gradient)

    def backward(self, number: int, gradient: NDArray[Any]) -> NDArray[Any] | None:
        """Return the gradient of a layer's rows, and add to that of the parameters.

        This part's share, of the vertices of its part; None for layer 0. ``gradient``
        is that of what `forward` returned, complete: all parts' shares of it added up.
        """
        hidden, out = self._steps.pop(number)
        out.backward(as_tensor(gradient))
        if number == 0:
            return None
        return np.asarray(hidden.grad.numpy())
