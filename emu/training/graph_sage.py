"""GraphSAGE with mean aggregation (Hamilton et al., 2017), dgl.nn on torch."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.training.mini_batch import MiniBatch
from emu.training.parameters import layer_widths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from emu.graph_data import Dataset


def as_tensor(array: NDArray[Any]) -> Any:
    """Return a torch tensor on ``array``'s memory, or on a copy if it is read-only."""
    import torch

    return torch.from_numpy(array if array.flags.writeable else array.copy())


def dgl_blocks(
    sizes: Sequence[int], edges: Sequence[tuple[NDArray[np.int32], NDArray[np.int32]]]
) -> list[Any]:
    """Assemble dgl blocks, input side first; dgl checks that the edges fit the sets.

    Raises
    ------
    dgl.DGLError
        When an edge leaves its sets.
    """
    import dgl

    return [
        dgl.create_block(
            (as_tensor(source), as_tensor(destination)),
            num_src_nodes=outer,
            num_dst_nodes=inner,
        )
        for (outer, inner), (source, destination) in zip(
            pairwise(sizes), edges, strict=True
        )
    ]


class GraphSage:
    """A model of any depth and width whose parameters are one flat vector.

    Building one gives this process a single torch thread: the machine's cores belong
    to dozens of processes, and one thread sums in one order.

    Parameters
    ----------
    settings
        ``Job.settings``: model, precision.
    """

    def __init__(self, settings: Mapping[str, Any], dataset: Dataset) -> None:
        import torch
        from dgl.nn import SAGEConv

        torch.set_num_threads(1)
        self._layers, self._width = settings["model"]["layers"], dataset.feature_length
        widths = layer_widths(settings, dataset)
        self._dtype = getattr(torch, settings["precision"])
        self.convolutions = [
            SAGEConv(fan_in, fan_out, "mean").to(self._dtype)
            for fan_in, fan_out in pairwise(widths)
        ]
        self._parameters = [
            parameter
            for convolution in self.convolutions
            for parameter in (
                convolution.fc_neigh.weight,
                convolution.fc_self.weight,
                convolution.fc_self.bias,
            )
        ]

    def load(self, flat: NDArray[Any]) -> None:
        """Copy a flat parameter vector into the model.

        Raises
        ------
        ValueError
            When its length is not the model's.
        """
        import torch

        expected = sum(parameter.numel() for parameter in self._parameters)
        if len(flat) != expected:
            raise ValueError(f"{len(flat)} parameters for a model of {expected}")
        end = 0
        with torch.no_grad():
            for parameter in self._parameters:
                size = parameter.numel()
                part = as_tensor(flat[end : end + size])
                parameter.copy_(part.view_as(parameter))
                end += size

    def scores(self, blocks: Sequence[Any], features: Any) -> Any:
        """Return one score per class for the last block's destinations."""
        hidden = features
        for number, (convolution, block) in enumerate(
            zip(self.convolutions, blocks, strict=True)
        ):
            hidden = convolution(block, hidden)
            if number < len(self.convolutions) - 1:
                hidden = hidden.relu()
        return hidden

    def gradient(
        self, batches: Sequence[MiniBatch]
    ) -> tuple[NDArray[Any], float, float]:
        """Return the gradient of the mean loss over the seeds of all ``batches``.

        Returns
        -------
        gradient, loss, accuracy
            Flat gradient in the model's precision; mean cross-entropy; share of the
            seeds whose label scores highest.
        """
        from torch.nn import functional

        seeds = sum(len(batch.labels) for batch in batches)
        loss, correct = 0.0, 0
        for parameter in self._parameters:
            parameter.grad = None
        for batch in batches:
            features = as_tensor(batch.features).to(self._dtype)
            scores = self.scores(dgl_blocks(batch.sizes, batch.edges), features)
            labels = as_tensor(batch.labels).long()
            share = functional.cross_entropy(scores, labels, reduction="sum") / seeds
            share.backward()  # type: ignore[no-untyped-call] # adds to the gradients of the batches before
            loss += share.item()
            correct += int((scores.argmax(1) == labels).sum())
        flat = np.concatenate(
            [parameter.grad.numpy().ravel() for parameter in self._parameters]
        )
        return flat, loss, correct / seeds

    def warm_up_scheduler(self) -> None:
        """Learn from one vertex and forget it: the first step loads libraries."""
        loop = np.zeros(1, np.int32), np.zeros(1, np.int32)
        features = np.zeros((1, self._width), np.float32)
        sizes, edges = (1,) * (self._layers + 1), (loop,) * self._layers
        self.gradient([MiniBatch(features, np.zeros(1, np.int32), sizes, edges)])
