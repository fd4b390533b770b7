"""The linear part of a first layer, of the edges and rows that one machine has.

Parts add up to the sums of all edges: means are of all neighbours that were drawn, here
or elsewhere. The released code of APT takes, for SNP and GraphSAGE, the plain mean of
the machines' means, which is another model; here every edge weighs as much as any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.systems.apt.shares import Share

Array = NDArray[Any]


def add_rows(kind: str, share: Share, rows: Array, degrees: Array) -> list[Array]:
    """Return what each of the layer's weights multiplies, rows by destination.

    ``kind``: of the model; ``rows``: those of ``share.inputs``; ``degrees``: edges that
    were drawn into every destination, on all machines.
    """
    shape = (len(share.destinations), rows.shape[1])
    sums = np.zeros(shape, rows.dtype)
    if len(share.ends):
        # Ends ascend: sums of runs of edges, one run for each destination that has any.
        is_first = np.diff(share.ends, prepend=-1) > 0
        starts = np.flatnonzero(is_first)
        _, places = share.inputs
        sums[share.ends[starts]] = np.add.reduceat(rows[places], starts)

    own = np.zeros(shape, rows.dtype)
    own[share.adds_own] = rows[: share.adds_own.sum()]
    if kind == "sage":
        counts = np.maximum(degrees, 1).astype(rows.dtype)
        return [sums / counts[:, None], own]
    if kind == "gcn":
        counts = (degrees + 1).astype(rows.dtype)
        return [(sums + own) / counts[:, None]]
    return [sums + own]  # gin


def multiply(added: Sequence[Array], weights: Array) -> Array:
    """Return the sums of a share times the weights of layer 1, flat."""
    matrices = _matrices(added, weights)
    parts = [rows @ matrix.T for rows, matrix in zip(added, matrices, strict=True)]
    total: Array = np.sum(parts, axis=0)
    return total


def weight_gradient(added: Sequence[Array], of_sums: Array) -> Array:
    """Return the gradient of the weights, flat, from that of the sums."""
    gradients = [(of_sums.T @ rows).ravel() for rows in added]
    return np.concatenate(gradients)


def _matrices(added: Sequence[Array], weights: Array) -> list[Array]:
    columns = added[0].shape[1]
    # All matrices of a layer are equally long, one behind the other.
    stacked = weights.reshape(len(added), -1, columns)
    return [*stacked]
