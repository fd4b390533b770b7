"""The flat parameter vector of a model: shards and first values.

Layer by layer from the input, tensors as in `emu.workloads.model_shapes`, or those of a
program. Workers and parameter servers derive the same first values from the seed, so
iteration 0 needs no message. No torch here for a model of emu's: its parameter server
runs on numpy alone.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.training.graph_model import GraphModel
from emu.training.own_model import OwnModel
from emu.workloads import layer_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu.graph_data import Dataset


def initial_parameters(
    settings: Mapping[str, Any], dataset: Dataset
) -> NDArray[np.floating[Any]]:
    """Return the first parameters of a job, flat, in the job's precision.

    Weights and attention are Xavier uniform with the gain of ReLU (dgl's choice for
    GraphSAGE), biases 0. A program's are as it builds them.

    Parameters
    ----------
    settings
        ``Job.settings``: model, seed, precision.

    Raises
    ------
    DataError
        As `OwnModel`.
    """
    if "program" in settings["model"]:
        return OwnModel(settings, dataset).parameters
    layers = layer_shapes(settings["model"], dataset.feature_length, dataset.classes)
    shapes = [shape for tensors in layers for shape in tensors]
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

    Raises
    ------
    DataError
        As `OwnModel`.
    """
    own = "program" in settings["model"]
    return OwnModel(settings, dataset) if own else GraphModel(settings, dataset)
