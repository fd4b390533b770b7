"""A graph neural network, and the flat parameter vector of any model.

Parameters stand layer by layer from the input, tensors as in
`emu.problem.workloads.model_shapes`, or those of a program. Workers and parameter
servers derive the same first values from the seed, so iteration 0 needs no message. No
torch here for a model of emu's: its parameter server runs on numpy alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.graph_data import Dataset
from emu.problem.workloads import PARTS, layer_shapes
from emu.training.layers import (
    LAYERS,
    Block,
    LayerTensors,
    MiniBatch,
    Tensor,
    add_gradients,
    as_tensor,
    make_blocks,
)
from emu.training.own_model import OwnModel


class GraphModel(LayerTensors):
    """Layers of one kind with ReLU between them; see `model_shapes`."""

    def __init__(self, settings: Mapping[str, Any], dataset: Dataset) -> None:
        super().__init__(settings, dataset)
        self._layer = LAYERS[settings["model"].get("kind", "sage")]
        self._width = dataset.feature_length

    def layer(self, number: int, block: Block, hidden: Tensor) -> Tensor:
        """Return the vectors of a block's destinations after one layer."""
        out = self._layer(block, hidden, *self._tensors_of(number))
        return out if number == self.layers - 1 else out.relu()

    def scores(self, blocks: Sequence[Block], features: Tensor) -> Tensor:
        """Return one score per class for the last block's destinations.

        Raises ValueError when there is not a block per layer.
        """
        if len(blocks) != self.layers:
            raise ValueError(f"{len(blocks)} blocks for {self.layers} layers")
        hidden = features
        for number, block in enumerate(blocks):
            hidden = self.layer(number, block, hidden)
        return hidden

    def gradient(
        self, batches: Sequence[MiniBatch], _worker: int = 0, _iteration: int = 0
    ) -> tuple[NDArray[Any], float, float]:
        """Return the gradient of the mean loss over the seeds of all ``batches``.

        Flat, in the model's precision; with it the mean cross-entropy, and the share of
        the seeds whose label scores highest. Nothing is drawn, so nothing follows from
        worker and iteration, see `OwnModel.gradient`. Raises ValueError as `Block`.
        """

        def scores_of(batch: MiniBatch) -> Tensor:
            features = as_tensor(batch.features).to(self._dtype)
            return self.scores(make_blocks(batch.sizes, batch.edges), features)

        self._flat.grad = None
        loss, accuracy = add_gradients(scores_of, batches)
        return self._flat.grad.numpy(), loss, accuracy

    def warm_up_scheduler(self) -> None:
        """Learn from one vertex and forget it: the first step loads libraries."""
        loop = np.zeros(1, np.int32), np.zeros(1, np.int32)
        features = np.zeros((1, self._width), np.float32)
        sizes = (1,) * (self.layers + 1)
        edges = (loop,) * self.layers
        self.gradient([MiniBatch(features, np.zeros(1, np.int32), sizes, edges)])


def parameter_shapes(
    settings: Mapping[str, Any], dataset: Dataset
) -> dict[str, tuple[int, ...]]:
    """Return name -> shape of the tensors of a job's model, in their flat order."""
    model = settings["model"]
    if "program" in model:
        return OwnModel(settings, dataset).shapes
    layers = layer_shapes(model, dataset.feature_length, dataset.classes)
    return {
        f"layers.{number}.{part}": shape
        for number, shapes in enumerate(layers)
        for part, shape in zip(PARTS[model.get("kind", "sage")], shapes, strict=True)
    }


def split_parts(
    flat: NDArray[Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[Any]]:
    """Return the named parts of a flat vector, as views.

    Raises ValueError when the shapes hold more elements, or less.
    """
    ends = np.cumsum([prod(shape) for shape in shapes.values()])
    if ends[-1] != len(flat):
        raise ValueError(f"{len(flat)} parameters for a model of {ends[-1]}")
    pieces = zip(shapes.items(), np.split(flat, ends[:-1]), strict=True)
    return {name: piece.reshape(shape) for (name, shape), piece in pieces}


def initial_parameters(
    settings: Mapping[str, Any], dataset: Dataset
) -> NDArray[np.floating[Any]]:
    """Return the first parameters of a job, flat, in the job's precision.

    Weights and attention are Xavier uniform with the gain of ReLU (dgl's choice for
    GraphSAGE), biases 0. A program's are as it builds them, and raise DataError as
    `OwnModel`.
    """
    if "program" in settings["model"]:
        return OwnModel(settings, dataset).parameters
    shapes = [*parameter_shapes(settings, dataset).values()]
    flat = np.zeros(sum(map(prod, shapes)), np.dtype(settings["precision"]))
    rng = np.random.default_rng([settings["seed"], 5])
    end = 0
    for shape in shapes:
        size = prod(shape)
        if len(shape) == 2:
            bound = np.sqrt(2.0) * np.sqrt(6.0 / sum(shape))
            flat[end : end + size] = rng.uniform(-bound, bound, size)
        end += size
    return flat


def build_model(settings: Mapping[str, Any], dataset: Dataset) -> GraphModel | OwnModel:
    """Return the model of a job, a program's or one of emu's.

    Raises DataError as `OwnModel`.
    """
    kind = OwnModel if "program" in settings["model"] else GraphModel
    return kind(settings, dataset)
