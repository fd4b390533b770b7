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

from emu.array_types import Array
from emu.graph_data import Dataset
from emu.problem.workloads import PARTS, layer_shapes
from emu.training.layers import (
    LAYERS,
    Block,
    JobSettings,
    LayerTensors,
    MiniBatch,
    Tensor,
    add_gradients,
    as_tensor,
    make_blocks,
)
from emu.training.own_model import OwnModel

#: Stream of the job's seed.
_FIRST_WEIGHTS = 5
#: Shapes of tensors by their names, in their flat order.
Shapes = Mapping[str, tuple[int, ...]]


class GraphModel(LayerTensors):
    """Layers of one kind with ReLU between them; see `model_shapes`."""

    def __init__(self, settings: JobSettings, dataset: Dataset) -> None:
        super().__init__(settings, dataset)
        kind = settings["model"].get("kind", "sage")
        self._layer = LAYERS[kind]
        self._width = dataset.feature_length

    def layer(self, number: int, block: Block, hidden: Tensor) -> Tensor:
        """Return the vectors of a block's destinations after one layer."""
        tensors = self._tensors[number]
        vectors = self._layer(block, hidden, *tensors)
        if number == self.layers - 1:
            return vectors
        return vectors.relu()

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
        self,
        batches: Sequence[MiniBatch],
        _worker: int = 0,
        _iteration: int = 0,
    ) -> tuple[Array, float, float]:
        """Return the gradient of the mean loss over the seeds of all ``batches``.

        Flat, in the model's precision; with it the mean cross-entropy, and the share of
        the seeds whose label scores highest. Nothing is drawn, so nothing follows from
        worker and iteration, see `OwnModel.gradient`. Raises ValueError as `Block`.
        """

        def scores_of(batch: MiniBatch) -> Tensor:
            blocks = make_blocks(batch.sizes, batch.edges)
            # Features are float32 on disk, whatever the job's precision.
            features = as_tensor(batch.features)
            features = features.to(self._dtype)
            return self.scores(blocks, features)

        # Gradients would be added to those of the step before.
        self._forget_gradient()
        loss, accuracy = add_gradients(scores_of, batches)
        gradient = self._copy_gradient()
        return gradient, loss, accuracy

    def warm_up_scheduler(self) -> None:
        """Learn from one vertex and forget it: the first step loads libraries."""
        zero = np.zeros(1, np.int32)
        loop = (zero, zero)
        sets = self.layers + 1
        features = np.zeros((1, self._width), np.float32)
        batch = MiniBatch(
            features=features,
            labels=zero,
            sizes=(1,) * sets,
            edges=(loop,) * self.layers,
        )
        # The gradient is not used, and weights are not stepped: nothing stays of it.
        self.gradient([batch])


def parameter_shapes(settings: JobSettings, dataset: Dataset) -> Shapes:
    """Return name -> shape of the tensors of a job's model, in their flat order."""
    model = settings["model"]
    if "program" in model:
        # A program's shapes are known when it is built, and not before.
        return OwnModel(settings, dataset).shapes

    shapes = {}
    kind = model.get("kind", "sage")
    parts = PARTS[kind]
    layers = layer_shapes(model, dataset.feature_length, dataset.classes)
    for number, layer in enumerate(layers):
        for part, shape in zip(parts, layer, strict=True):
            shapes[f"layers.{number}.{part}"] = shape
    return shapes


def split_parts(flat: Array, shapes: Shapes) -> dict[str, Array]:
    """Return the named parts of a flat vector, as views.

    Raises ValueError when the shapes hold more elements, or less.
    """
    sizes = [prod(shape) for shape in shapes.values()]
    *inner_ends, end = np.cumsum(sizes)
    if end != len(flat):
        raise ValueError(f"{len(flat)} parameters for a model of {end}")

    parts = {}
    pieces = np.split(flat, inner_ends)
    for name, piece in zip(shapes, pieces, strict=True):
        parts[name] = piece.reshape(shapes[name])
    return parts


def initial_parameters(
    settings: JobSettings, dataset: Dataset
) -> NDArray[np.floating[Any]]:
    """Return the first parameters of a job, flat, in the job's precision.

    Weights and attention are Xavier uniform with the gain of ReLU (dgl's choice for
    GraphSAGE), biases 0. A program's are as it builds them, and raise DataError as
    `OwnModel`.
    """
    if "program" in settings["model"]:
        return OwnModel(settings, dataset).parameters

    shapes = parameter_shapes(settings, dataset).values()
    count = sum(map(prod, shapes))
    # Drawn in float64 either way: float32 begins with the same numbers, rounded.
    precision = np.dtype(settings["precision"])
    flat = np.zeros(count, precision)
    stream = [settings["seed"], _FIRST_WEIGHTS]
    rng = np.random.default_rng(stream)

    start = 0
    for shape in shapes:
        size = prod(shape)
        end = start + size
        # A vector is a bias, which begins at 0; attention has a row per head.
        if len(shape) == 2:
            bound = np.sqrt(2.0) * np.sqrt(6.0 / sum(shape))
            flat[start:end] = rng.uniform(-bound, bound, size)
        start = end
    return flat


def build_model(settings: JobSettings, dataset: Dataset) -> GraphModel | OwnModel:
    """Return the model of a job, a program's or one of emu's.

    Raises DataError as `OwnModel`.
    """
    if "program" in settings["model"]:
        return OwnModel(settings, dataset)
    return GraphModel(settings, dataset)
