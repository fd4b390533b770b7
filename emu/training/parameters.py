"""The flat parameter vector of GraphSAGE-mean: layout and first values.

Layer by layer from the input: neighbour weights (out, in), self weights (out, in),
bias (out). Workers and parameter servers derive the same first values from the seed,
so iteration 0 needs no message. No torch here: a parameter server runs on numpy alone.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.workloads import shard_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from emu.graph_data import Dataset


def layer_widths(settings: Mapping[str, Any], dataset: Dataset) -> tuple[int, ...]:
    """Return f_0, ..., f_L of a job's model: features, hidden widths, classes."""
    model = settings["model"]
    hidden = [model["hidden"]] * (model["layers"] - 1)
    return (dataset.feature_length, *hidden, dataset.classes)


def shard_bounds(count: int, servers: int) -> list[tuple[int, int]]:
    """Return (first, last) of each server's share of the flat parameters (A14)."""
    bounds = [0, *accumulate(shard_sizes(count, servers))]
    return list(pairwise(bounds))


def layer_shapes(widths: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the shape of every tensor in the order of the flat vector."""
    for fan_in, fan_out in pairwise(widths):
        yield (fan_out, fan_in)
        yield (fan_out, fan_in)
        yield (fan_out,)


def initial_parameters(
    settings: Mapping[str, Any], dataset: Dataset
) -> NDArray[np.floating[Any]]:
    """Return the first parameters of a job, flat, in the job's precision.

    Weights are Xavier uniform with the gain of ReLU (dgl's choice), biases 0.

    Parameters
    ----------
    settings
        ``Job.settings``: model, seed, precision.
    """
    shapes = list(layer_shapes(layer_widths(settings, dataset)))
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
