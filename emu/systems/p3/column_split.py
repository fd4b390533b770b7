"""A model whose first layer is computed column by column, the rest in one place (P3).

The weights of the first layer's linear part are cut like the columns of the features.
What each block of columns gives is summed before anything else is done, so that only
activations travel. Everything else of the parameters is called *upper*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emu.graph_data import Dataset
from emu.problem.workloads import layer_shapes
from emu.training.layers import LAYERS, as_tensor, make_blocks

if TYPE_CHECKING:
    from emu.training.layers import Block, Tensor


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """Results of one sampler's forward pass, kept for its backward pass."""

    loss: float
    accuracy: float
    """Mean cross-entropy; share of the seeds whose label scores highest."""
    _loss: Tensor
    _upper: Tensor
    _summed: Tensor

    def backward(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the gradients of the upper parameters, and of the summed part."""
        self._loss.backward()
        return self._upper.grad.numpy(), self._summed.grad.numpy()


class ColumnSplit:
    """One process's view of a split model: all upper parameters, some columns.

    ``settings``: ``Job.settings``: model, precision; ``blocks``: number of columns of
    every block; ``block``: the one that this process holds.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        dataset: Dataset,
        blocks: Sequence[int],
        block: int,
    ) -> None:
        model = settings["model"]
        shapes = [*layer_shapes(model, dataset.feature_length, dataset.classes)]
        self._layer = LAYERS[model.get("kind", "sage")]
        self._split = shapes[0][: self._layer.weights]
        self._rest = [shapes[0][self._layer.weights :], *shapes[1:]]
        self._precision = np.dtype(settings["precision"])
        self._ends = np.cumsum(blocks)
        first = int(self._ends[block]) - blocks[block]
        self.columns = slice(first, int(self._ends[block]))

    def own(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Return the weights of this process's columns, flat, out of all parameters."""
        weights = _views(flat, self._split)
        return np.concatenate([one[:, self.columns].ravel() for one in weights])

    def upper(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Return the upper parameters out of all, flat."""
        return flat[sum(map(prod, self._split)) :].copy()

    def join(self, owned: Sequence[NDArray[Any]], upper: NDArray[Any]) -> NDArray[Any]:
        """Return all parameters, flat, from the weights of every block."""
        parts = []
        for number, (out, _) in enumerate(self._split):
            cut = [flat.reshape(len(self._split), out, -1)[number] for flat in owned]
            parts.append(np.concatenate(cut, axis=1).ravel())
        return np.concatenate([*parts, upper])

    def partial(
        self, own: NDArray[Any], block: Block, rows: NDArray[Any]
    ) -> NDArray[Any]:
        """Return the share of this process's columns in the first layer's linear part.

        ``own``: weights of the columns, as `own` returns them; ``rows``: the columns of
        S_0, shape (#S_0, columns).
        """
        import torch

        with torch.no_grad():
            product = self._linear(as_tensor(own), block, rows).numpy()
        return np.ascontiguousarray(product)

    def own_gradient(
        self, block: Block, rows: NDArray[Any], of_sum: NDArray[Any]
    ) -> NDArray[Any]:
        """Return the gradient of the weights from that of the sum, which is linear."""
        import torch

        size = sum(out for out, _ in self._split) * rows.shape[1]
        weights = torch.zeros(size, dtype=as_tensor(of_sum).dtype, requires_grad=True)
        part = self._linear(weights, block, rows)
        (gradient,) = torch.autograd.grad(part, weights, as_tensor(of_sum))
        array: NDArray[Any] = gradient.numpy()
        return array

    def _linear(self, weights: Tensor, block: Block, rows: NDArray[Any]) -> Tensor:
        shapes = [(out, rows.shape[1]) for out, _ in self._split]
        features = as_tensor(rows.astype(self._precision, copy=False))
        return self._layer.linear(block, features, *_views(weights, shapes))

    def forward(
        self,
        upper: NDArray[Any],
        sizes: Sequence[int],
        edges: Sequence[tuple[NDArray[np.int32], NDArray[np.int32]]],
        summed: NDArray[Any],
        labels: NDArray[np.int32],
        share: float = 1.0,
    ) -> ForwardPass:
        """Return the rest of the forward pass of one mini-batch.

        ``sizes``, ``edges``: as in `SampledBatch`; ``summed``: the first layer's linear
        part, summed over all columns; ``share``: part of the mini-batch that these
        seeds are, by which loss and accuracy are weighed. Raises ValueError as `Block`.
        """
        import torch
        from torch.nn import functional

        flat = torch.tensor(upper, requires_grad=True)
        part = torch.tensor(summed, requires_grad=True)
        tensors = iter(_views(flat, [shape for layer in self._rest for shape in layer]))
        hidden = part
        for number, block in enumerate(make_blocks(sizes, edges)):
            own = [next(tensors) for _ in self._rest[number]]
            layer = self._layer if number else self._layer.rest
            hidden = layer(block, hidden, *own)
            if number < len(self._rest) - 1:
                hidden = hidden.relu()
        truth = as_tensor(labels).long()
        loss = functional.cross_entropy(hidden, truth) * share
        accuracy = float((hidden.argmax(1) == truth).double().mean())
        return ForwardPass(loss.item(), accuracy * share, loss, flat, part)


def _views(flat: Any, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """Return the tensors of a flat array or tensor, as views."""
    views = []
    end = 0
    for shape in shapes:
        size = prod(shape)
        views.append(flat[end : end + size].reshape(shape))
        end += size
    return views
