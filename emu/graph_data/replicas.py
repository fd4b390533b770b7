"""Parts with replicas: what a box computes itself rather than wait for another.

A box, one device or several, needs for layer l of L the vectors of all vertices that
are L - l edges or less from its own, and computes them: nothing crosses between boxes
(Medusa's replication in Cai et al., DGCL, EuroSys 2021, section 3; DGCL-R within boxes
of several devices, section 7.1). Within a box a replica is computed by the device that
has most of its neighbours, and the others get it as they get any remote vertex.

Vertices of a part stand in an order that all layers share: its own, then replicas by
their distance, so that what a layer computes is the beginning of what the next reads.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.graph_data.whole_graph import (
    Aggregation,
    WholeGraph,
    neighbours_of,
    open_parts,
    open_prepared,
    part_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from emu.graph_data.dataset import Dataset
    from emu.graph_data.sampling import Structure
    from emu.graph_data.whole_graph import Part


def replicated_parts(
    structure: Structure,
    owner: NDArray[np.int32],
    boxes: Sequence[int],
    layers: int,
    aggregation: Aggregation,
) -> Iterator[Part]:
    """Yield the parts of layer 1, ..., ``layers`` of each device in turn.

    Parameters
    ----------
    owner
        Part of every vertex, shape (vertices,).
    boxes
        Devices of each box, those of a box consecutive.
    """
    first = 0
    for size in boxes:
        holder, distance = _box(structure, owner, range(first, first + size), layers)
        for device in range(first, first + size):
            mine = holder == device
            shells = [
                np.flatnonzero(mine & (distance == far)) for far in range(layers + 1)
            ]
            for layer in range(1, layers + 1):
                local = np.concatenate(shells[: layers - layer + 1])
                held = shells[layers - layer + 1]
                yield part_of(structure, holder, local, held, aggregation)
        first += size


def _box(
    structure: Structure, owner: NDArray[np.int32], devices: range, hops: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the device of a box that has each vertex, and its distance; -1 beyond."""
    inside = (owner >= devices.start) & (owner < devices.stop)
    holder = np.where(inside, owner, np.int32(-1))
    distance = np.where(inside, np.int32(0), np.int32(-1))
    edge = np.flatnonzero(inside)
    for far in range(1, hops + 1):
        indptr, neighbours = neighbours_of(structure, edge)
        by = np.repeat(holder[edge], np.diff(indptr)) - devices.start
        new = holder[neighbours] < 0
        edge, which = np.unique(neighbours[new], return_inverse=True)
        links = np.bincount(
            which * len(devices) + by[new], minlength=len(edge) * len(devices)
        ).reshape(len(edge), len(devices))
        holder[edge] = devices.start + links.argmax(axis=1)
        distance[edge] = far
    return holder, distance


def open_layers(settings: Mapping[str, Any]) -> tuple[Dataset, tuple[WholeGraph, ...]]:
    """Open the data set and the parts of each layer of a job, from ``Job.settings``.

    ``replicas`` there are devices per box; where it is empty, or absent, nothing is
    replicated and all layers have the same parts.

    Raises
    ------
    DataError, ValueError
        As `open_parts`.
    """
    dataset, graph = open_parts(settings)
    layers, boxes = settings["model"]["layers"], settings.get("replicas", [])
    if not boxes:
        return dataset, (graph,) * layers
    form = Aggregation.of_model(settings["model"])
    read = open_prepared(
        dataset,
        f"whole-{form.form}-{layers}-{'-'.join(map(str, boxes))}",
        lambda: replicated_parts(dataset.structure, dataset.owner, boxes, layers, form),
    )

    def of_layer(layer: int, number: int) -> Part:
        return read(number * layers + layer)

    return dataset, tuple(
        WholeGraph(dataset.vertices, dataset.parts, partial(of_layer, layer))
        for layer in range(layers)
    )
