"""Accuracy with every neighbour, layer by layer over the whole graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.graph_data import open_for, relabel
from emu.training.blocks import Block
from emu.training.layers import as_tensor
from emu.training.own_model import OwnModel
from emu.training.parameters import build_model
from emu.training.whole_graph_reference import predict_whole_graph, trains_whole_graph

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from emu.graph_data import Dataset, Structure

_SLICE = 16_384  # destinations at a time: bounds memory beside the layer's own output


def evaluate(settings: Mapping[str, Any], parameters: NDArray[Any]) -> dict[str, float]:
    """Return the accuracy on the train, valid and test vertices.

    Full neighbourhoods, so the figure does not depend on any sample. Holds one value
    per (vertex, hidden unit) in memory; of a program, what it keeps of one call with
    the whole graph.

    Parameters
    ----------
    parameters
        Flat, all shards joined.

    Raises
    ------
    DataError
        As `open_for`.
    ValueError
        When the parameters do not fit the model.
    """
    dataset = open_for(settings)
    predicted = predict(settings, dataset, parameters)
    return {
        name: float(np.mean(predicted[vertices] == dataset.labels[vertices]))
        for name, vertices in (
            ("train", dataset.train),
            ("valid", dataset.valid),
            ("test", dataset.test),
        )
        if len(vertices)
    }


def predict(
    settings: Mapping[str, Any], dataset: Dataset, parameters: NDArray[Any]
) -> NDArray[np.int64]:
    """Return the predicted class of every vertex.

    Raises
    ------
    ValueError
        When the parameters do not fit the model.
    """
    import torch

    if trains_whole_graph(settings):
        return predict_whole_graph(settings, dataset, parameters)
    model = build_model(settings, dataset)
    model.load(parameters)
    hidden = dataset.gather(np.arange(dataset.vertices))
    hidden = hidden.astype(settings["precision"])
    if isinstance(model, OwnModel):  # it has no layers to call one by one
        layers = settings["model"]["layers"]
        whole = [_whole(dataset.structure)] * layers
        sizes = [dataset.vertices] * (layers + 1)
        classes: NDArray[np.int64] = model.predict(
            sizes, whole, as_tensor(hidden)
        ).numpy()
        return classes
    with torch.no_grad():
        for number in range(model.layers):
            outputs = [
                model.layer(number, block, as_tensor(hidden[vertices]))
                for vertices, block in _full_blocks(dataset.structure)
            ]
            hidden = torch.cat(outputs).numpy()
    predicted: NDArray[np.int64] = hidden.argmax(1)
    return predicted


def _whole(structure: Structure) -> tuple[NDArray[Any], NDArray[np.int32]]:
    to = np.arange(structure.vertices, dtype=np.int32)
    return structure.indices, np.repeat(to, np.diff(structure.indptr))


def _full_blocks(structure: Structure) -> Iterator[tuple[NDArray[np.int64], Block]]:
    for first in range(0, structure.vertices, _SLICE):
        last = min(first + _SLICE, structure.vertices)
        bounds = structure.indptr[first : last + 1]
        neighbours = structure.indices[bounds[0] : bounds[-1]].astype(np.int64)
        vertices, source = relabel(np.arange(first, last), neighbours)
        destination = np.repeat(
            np.arange(last - first, dtype=np.int32), np.diff(bounds)
        )
        yield vertices, Block(source, destination, len(vertices), last - first)
