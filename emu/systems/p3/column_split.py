"""A model whose first layer is computed column by column, the rest in one place (P3).

The weights of the first layer's linear part are cut like the columns of the features.
What each block of columns gives is summed before anything else is done, so that only
activations travel. Everything else of the parameters is called *upper*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.array_types import SmallInts
from emu.graph_data import Dataset
from emu.problem.workloads import layer_shapes
from emu.systems import JobSettings
from emu.training.layers import LAYERS, as_tensor, make_blocks

if TYPE_CHECKING:
    from emu.array_types import Array
    from emu.training.layers import Block, EdgeEnds, Tensor


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """Results of one sampler's forward pass, kept for its backward pass."""

    loss: float
    accuracy: float
    """Mean cross-entropy; share of the seeds whose label scores highest."""
    _loss: Tensor
    _upper: Tensor
    _summed: Tensor

    def backward(self) -> tuple[Array, Array]:
        """Return the gradients of the upper parameters, and of the summed part."""
        self._loss.backward()
        of_upper = self._upper.grad
        of_sum = self._summed.grad
        return of_upper.numpy(), of_sum.numpy()


class ColumnSplit:
    """One process's view of a split model: all upper parameters, some columns.

    ``settings``: ``Job.settings``: model, precision; ``blocks``: number of columns of
    every block; ``block``: the one that this process holds.
    """

    def __init__(
        self,
        settings: JobSettings,
        dataset: Dataset,
        blocks: Sequence[int],
        block: int,
    ) -> None:
        model = settings["model"]
        layers = layer_shapes(model, dataset.feature_length, dataset.classes)
        first, *others = layers
        kind = model.get("kind", "sage")
        self._layer = LAYERS[kind]
        # Only what is linear in the features can be cut by their columns and summed.
        weights = self._layer.weights
        self._split = first[:weights]
        self._upper = [first[weights:], *others]
        self._precision = np.dtype(settings["precision"])

        start = sum(blocks[:block])
        end = start + blocks[block]
        self.columns = slice(start, end)

    def own(self, flat: Array) -> Array:
        """Return the weights of this process's columns, flat, out of all parameters."""
        pieces = []
        for matrix in _views(flat, self._split):
            local_columns = matrix[:, self.columns]
            pieces.append(local_columns.ravel())
        return np.concatenate(pieces)

    def upper(self, flat: Array) -> Array:
        """Return the upper parameters out of all, flat."""
        first = sum(map(prod, self._split))
        return flat[first:].copy()

    def join(self, owned: Sequence[Array], upper: Array) -> Array:
        """Return all parameters, flat, from the weights of every block."""
        parts = []
        shapes = self._split
        for number, (outputs, _) in enumerate(shapes):
            # `own` puts a block's matrices one after the other.
            shape = (len(shapes), outputs, -1)
            matrices = [flat.reshape(shape) for flat in owned]
            columns = [matrix[number] for matrix in matrices]
            matrix = np.concatenate(columns, axis=1)
            parts.append(matrix.ravel())
        return np.concatenate([*parts, upper])

    def partial(self, weights: Array, block: Block, rows: Array) -> Array:
        """Return the share of this process's columns in the first layer's linear part.

        ``weights``: those of the columns, as `own` returns them; ``rows``: the columns
        of S_0, shape (#S_0, columns).
        """
        import torch

        with torch.no_grad():
            flat = as_tensor(weights)
            product = self._linear(flat, block, rows)
        # It is sent as it lies in memory.
        return np.ascontiguousarray(product.numpy())

    def own_gradient(self, block: Block, rows: Array, of_sum: Array) -> Array:
        """Return the gradient of the weights from that of the sum, which is linear."""
        import torch

        gradient = as_tensor(of_sum)
        _, columns = rows.shape
        units = sum(outputs for outputs, _ in self._split)
        size = units * columns
        # It does not depend on the weights: any will do.
        weights = torch.zeros(size, dtype=gradient.dtype, requires_grad=True)
        part = self._linear(weights, block, rows)
        (of_weights,) = torch.autograd.grad(part, weights, gradient)
        array: Array = of_weights.numpy()
        return array

    def _linear(self, weights: Tensor, block: Block, rows: Array) -> Tensor:
        _, columns = rows.shape
        shapes = [(outputs, columns) for outputs, _ in self._split]
        matrices = _views(weights, shapes)
        numbers = rows.astype(self._precision, copy=False)
        features = as_tensor(numbers)
        return self._layer.linear(block, features, *matrices)

    def forward(
        self,
        upper: Array,
        sizes: Sequence[int],
        edges: Sequence[EdgeEnds],
        summed: Array,
        labels: SmallInts,
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
        # The backward pass ends here: owners of columns go on from its gradient.
        part = torch.tensor(summed, requires_grad=True)
        upper_layers = self._upper
        shapes = list(chain.from_iterable(upper_layers))
        tensors = iter(_views(flat, shapes))
        last = len(upper_layers) - 1
        hidden = part
        for number, block in enumerate(make_blocks(sizes, edges)):
            count = len(upper_layers[number])
            layer_tensors = islice(tensors, count)
            # The linear part of layer 1 is in the sum already.
            layer = self._layer if number else self._layer.rest
            hidden = layer(block, hidden, *layer_tensors)
            if number < last:
                hidden = hidden.relu()

        truth = as_tensor(labels).long()
        # Samplers of a machine share its mini-batch: weighed losses add up to its mean.
        loss = functional.cross_entropy(hidden, truth)
        loss = loss * share
        is_right = hidden.argmax(1) == truth
        accuracy = float(is_right.double().mean())
        return ForwardPass(
            loss=loss.item(),
            accuracy=accuracy * share,
            _loss=loss,
            _upper=flat,
            _summed=part,
        )


def _views(flat: Any, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """Return the tensors of a flat array or tensor, as views."""
    views = []
    start = 0
    for shape in shapes:
        end = start + prod(shape)
        part = flat[start:end]
        views.append(part.reshape(shape))
        start = end
    return views
