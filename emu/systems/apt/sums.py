"""The linear part of a first layer, of the edges and rows that one machine has.

Parts add up to the sums of all edges: means are of all neighbours that were drawn, here
or elsewhere. The released code of APT takes, for SNP and GraphSAGE, the plain mean of
the machines' means, which is another model; here every edge weighs as much as any.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emu.array_types import Array
from emu.systems.apt.shares import Share


def add_rows(
    kind: str,
    share: Share,
    rows: Array,
    degrees: Array,
) -> list[Array]:
    """Return what each of the layer's weights multiplies, rows by destination.

    ``kind``: of the model; ``rows``: those of ``share.inputs``; ``degrees``: edges that
    were drawn into every destination, on all machines.
    """
    _, width = rows.shape
    shape = (len(share.destinations), width)
    sums = np.zeros(shape, rows.dtype)
    ends = share.ends
    if len(ends):
        # Ends ascend: sums of runs of edges, one run for each destination that has any.
        steps = np.diff(ends, prepend=-1)
        starts = np.flatnonzero(steps)
        destinations = ends[starts]
        _, places = share.inputs
        source_rows = rows[places]
        sums[destinations] = np.add.reduceat(source_rows, starts)

    # Rows of the destinations themselves stand first among the inputs.
    is_added = share.adds_own
    count = is_added.sum()
    local_rows = np.zeros(shape, rows.dtype)
    local_rows[is_added] = rows[:count]

    if kind == "sage":
        counts = np.maximum(degrees, 1)
        divisors = counts.astype(rows.dtype)
        means = sums / divisors[:, None]
        return [means, local_rows]
    if kind == "gcn":
        counts = degrees + 1
        divisors = counts.astype(rows.dtype)
        total = sums + local_rows
        means = total / divisors[:, None]
        return [means]
    return [sums + local_rows]  # gin


def multiply(added: Sequence[Array], weights: Array) -> Array:
    """Return the sums of a share times the weights of layer 1, flat."""
    matrices = _matrices(added, weights)
    parts = []
    for rows, matrix in zip(added, matrices, strict=True):
        product = rows @ matrix.T
        parts.append(product)
    total: Array = np.sum(parts, axis=0)
    return total


def weight_gradient(added: Sequence[Array], of_sums: Array) -> Array:
    """Return the gradient of the weights, flat, from that of the sums."""
    gradients = []
    for rows in added:
        gradient = of_sums.T @ rows
        gradients.append(gradient.ravel())
    return np.concatenate(gradients)


def _matrices(added: Sequence[Array], weights: Array) -> list[Array]:
    _, columns = added[0].shape
    # All matrices of a layer are equally long, one behind the other.
    stacked = weights.reshape(len(added), -1, columns)
    return [*stacked]
