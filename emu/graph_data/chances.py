"""Chances that mini-batches meet vertices, from degrees and fan-outs alone."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from emu.array_types import Floats
from emu.graph_data.batches import BatchPlan
from emu.graph_data.dataset import Dataset
from emu.graph_data.drawn_graph import DrawnStructure
from emu.graph_data.sampling import Structure
from emu.prediction.core import lib, pointer

#: Vertices up to which chances of several samplers are counted at once: 130 MB.
_COUNTED_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class _Walkers:
    """Samplers of a graph; those that are equal meet vertices with equal chances."""

    dataset: Dataset = field(compare=False)
    basis: Hashable
    """Graph that their walks follow from, or the data set with its parts."""
    plan: BatchPlan
    samplers: tuple[int | None, ...]
    """None stands for one that walks over all training vertices."""

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        plan: BatchPlan,
        *samplers: int | None,
    ) -> _Walkers:
        """Return samplers of a plan."""
        basis = dataset if plan.epoch == "local" else dataset.graph
        return cls(dataset, basis, plan, samplers)


# Samplers that walk over all training vertices ask for the same, one after the other;
# so does every number of stores that is tried.
@lru_cache(maxsize=2)
def _chances_to_meet(walkers: _Walkers) -> Floats:
    """Return the probability that a batch of each sampler has each vertex, about.

    Shape (vertices, samplers).

    Per hop a vertex joins unless no vertex before it draws it: 1 - prod (1 - p(v)
    min(1, fanout / degree(v))), as if draws were independent, so that it counts 11 to
    20 % more vertices than batches have. Multiplied edge by edge: logarithms may differ
    in the last bit between computers, and with them who is kept.
    """
    plan = walkers.plan
    samplers = walkers.samplers
    structure = walkers.dataset.structure
    walk = plan.walk(walkers.dataset)
    bounds = plan.share_bounds(len(walk))
    chances = np.zeros((structure.vertices, len(samplers)))
    for column, sampler in enumerate(samplers):
        train = walk
        if sampler is not None:
            # A sampler meets only what is reached from its own share.
            train = walk[bounds[sampler] : bounds[sampler + 1]]
        # A batch that is larger than the share has all of it; the share of another
        # sampler may be empty.
        share = max(len(train), 1)
        chances[train, column] = min(1.0, plan.batch_size / share)

    # Vertices without neighbours draw none: the 1 only spares a division by 0.
    degrees = np.maximum(structure.degrees, 1)[:, np.newaxis]
    # In place: new memory for every step took as long as the steps.
    draws = np.empty_like(chances)
    hops = len(plan.fanouts)
    for hop in range(1, hops + 1):
        fanout = plan.hop_fanout(hop)
        drawn_share = np.minimum(1.0, fanout / degrees)
        np.multiply(chances, drawn_share, out=draws)
        misses = np.subtract(1.0, chances, out=chances)
        _draw_neighbours(structure, draws, misses)
        np.subtract(1.0, misses, out=chances)
    return chances


def _draw_neighbours(structure: Structure, draws: Floats, misses: Floats) -> None:
    """Turn the chances that batches miss each vertex into those behind a hop.

    ``draws``: that a vertex draws any one of its neighbours, overwritten as ``misses``
    are. Both of shape (vertices, samplers).
    """
    if isinstance(structure, DrawnStructure):
        # Its edges are drawn themselves: a mean over them stands for their product.
        for column, drawing in enumerate(draws.T):
            hits = structure.expect_hits(drawing * structure.degrees)
            misses[:, column] *= np.exp(-hits)
        return

    factors = np.subtract(1.0, draws, out=draws)
    vertices, samplers = draws.shape
    lib.missed(
        pointer(structure.indptr),
        vertices,
        pointer(structure.indices),
        structure.indices.itemsize == 8,
        samplers,
        pointer(factors),
        pointer(misses),
    )


def chance_to_meet(
    dataset: Dataset,
    plan: BatchPlan,
    homes: Sequence[int],
    sampler: int,
) -> Floats:
    """Return the probability that a batch of a sampler has each vertex, about.

    ``homes``: of all samplers; those of homes that follow are counted with it, since a
    plan of all homes asks for them next.
    """
    if plan.epoch == "replicate":
        everywhere = _Walkers.of(dataset, plan, None)
        chances = _chances_to_meet(everywhere)
        return chances[:, 0]

    most: int = lib.MISSED_AT_ONCE
    if dataset.structure.vertices > _COUNTED_AT_ONCE:
        most = 1
    order = sorted(range(len(homes)), key=homes.__getitem__)
    place = order.index(sampler)
    column = place % most
    first = place - column
    samplers = order[first : first + most]
    walkers = _Walkers.of(dataset, plan, *samplers)
    chances = _chances_to_meet(walkers)
    return chances[:, column]
