"""Dependencies of parts of a whole graph: which rows a part fetches, which it computes.

A row of another part that a layer reads is communicated in every epoch, or cached: the
part holds a replica of the vertex, and computes for it what every layer below needs, of
its neighbours as well (Wang et al., NeutronStar, SIGMOD 2022). Features are fetched
once. Replicas of a layer begin those of the layer below, so that what a layer computes
begins what the next reads, as in `emu.graph_data.whole_graph`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from emu.array_types import Floats, Ints, Mask
from emu.errors import DataError
from emu.graph_data.dataset import Dataset
from emu.graph_data.drawn_graph import DrawnGraph
from emu.graph_data.sampling import Structure, rows_of
from emu.graph_data.whole_graph import (
    Aggregation,
    Part,
    WholeGraph,
    graphs_by_layer,
    open_parts,
    open_prepared,
    part_of,
)

#: Key of ``Job.settings``, by part: seconds in every layer of a vertex, of an edge and
#: of a row that is read, and of a row that is communicated before it, there and back.
#: Absent: all rows of others are communicated.
COSTS = "dependencies"


def _spread(structure: Structure, amounts: Floats) -> Floats:
    """Return the sum over every vertex and its neighbours."""
    rows = rows_of(structure.indptr)
    amounts_of_neighbours = amounts[structure.indices]
    sums = np.bincount(rows, amounts_of_neighbours, structure.vertices)
    return amounts + sums


def _reads(structure: Structure, is_there: Mask) -> Mask:
    """Return which vertices, or their neighbours, are some that are marked."""
    return _spread(structure, is_there.astype(float)) > 0


def choose_replicas(
    structure: Structure,
    is_own: Mask,
    costs: Mapping[str, Sequence[float]],
) -> Ints:
    """Return the last layer that a part computes of each vertex as a replica, or 0.

    ``costs``: ``vertex``, ``edge``, ``input``, ``row``: by layer, from 1, its seconds
    for a vertex, an edge, a row that it reads, and one that is communicated before it,
    see `COSTS`. Layer by layer, a vertex is cached where that is cheaper. What is there
    for others costs nothing; of what several vertices of one layer share each pays all.
    """
    layers = len(costs["row"])
    last_layer = np.zeros(structure.vertices, np.int64)
    is_read = _reads(structure, is_own) & ~is_own
    for layer in range(2, layers + 1):
        # Seconds until the row of a vertex is there after each layer below.
        need = np.zeros(structure.vertices)
        for below in range(1, layer):
            vertex = costs["vertex"][below - 1]
            edge = costs["edge"][below - 1]
            reading = costs["input"][below - 1]
            is_there = is_own | (last_layer >= below)
            is_input = _reads(structure, is_there)
            inputs = need + np.where(is_input, 0.0, reading)
            compute = vertex + edge * structure.degrees + _spread(structure, inputs)
            need = np.where(is_there, 0.0, compute)

        communicating = costs["row"][layer - 1]
        is_cached = is_read & (need < communicating)
        for below in reversed(range(1, layer)):
            is_new = is_cached & (last_layer < below)
            last_layer[is_new] = below
            # A layer reads the rows of neighbours after the layer below it.
            is_cached = _reads(structure, is_cached) & ~is_own
    return last_layer


def split_by_costs(
    dataset: Dataset,
    aggregation: Aggregation,
    costs: Sequence[Mapping[str, Sequence[float]]],
) -> Iterator[Part]:
    """Yield each part's parts of layer 1, 2, ..., by its ``costs``, see `COSTS`."""
    owner = np.asarray(dataset.owner)
    for number, part_costs in enumerate(costs):
        is_own = owner == number
        last_layer = choose_replicas(dataset.structure, is_own, part_costs)
        layers = len(part_costs["row"])
        shells = [np.flatnonzero(last_layer == layer) for layer in range(layers + 1)]
        # Replicas that more layers compute stand first.
        shells[0] = shells[0][:0]
        own = np.flatnonzero(is_own)
        for layer in range(1, layers + 1):
            computed = shells[: layer - 1 : -1]
            local = np.concatenate([own, *computed])
            held = shells[layer - 1]
            yield part_of(
                dataset.structure,
                owner=owner,
                local=local,
                held=held,
                aggregation=aggregation,
            )


def open_dependencies(
    settings: Mapping[str, Any],
) -> tuple[Dataset, tuple[WholeGraph, ...]]:
    """Open the data set and the parts of each layer of a job, from ``Job.settings``.

    Where nothing is cached all layers have the same parts. Raises as `open_parts`.
    """
    dataset, graph = open_parts(settings)
    layers: int = settings["model"]["layers"]
    costs = settings.get(COSTS)
    if not costs:
        return dataset, (graph,) * layers
    if isinstance(dataset, DrawnGraph):
        raise DataError(
            "a drawn graph has no edges to follow: dependencies: communicated"
        )

    aggregation = Aggregation.of_model(settings["model"])
    content = json.dumps(costs)
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    read = open_prepared(
        dataset,
        f"whole-{aggregation.form}-{key}",
        lambda: split_by_costs(dataset, aggregation, costs),
    )
    return dataset, graphs_by_layer(dataset, layers, read)
