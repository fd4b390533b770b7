"""Mini-batches as they are counted, kept for who counts them again.

What a batch holds follows from graph and plan, and from no partition: each number of
stores that is tried, and each system of a table, counts the same batches.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from emu.graph_data.array_types import Ints, SmallInts
from emu.graph_data.batches import BatchPlan
from emu.graph_data.dataset import Dataset
from emu.graph_data.sampling import SampledBatch

#: Bytes of the batches that a process keeps at most: those of 16 workers of 150 seeds,
#: for 20 iterations on 122,000 vertices, take 100 MB.
MOST_KEPT = 256_000_000


@dataclass(frozen=True, eq=False)
class DrawnBatch:
    """The vertices of a mini-batch, and how many neighbours each has drawn."""

    vertices: Ints | SmallInts
    """As of `SampledBatch`."""
    sizes: tuple[int, ...]
    drawn: tuple[SmallInts, ...]
    """Per hop, from the seeds: edges of every vertex of its frontier."""
    sources: SmallInts | None = None
    """Places among ``vertices`` of the sources of the last hop's edges, which come in
    the order of their destinations; None where they were not asked for."""

    @classmethod
    def of(cls, batch: SampledBatch, *, edges: bool = False) -> DrawnBatch:
        """Return what is counted of a sampled batch, ``edges``: with its sources."""
        frontiers = reversed(batch.sizes[1:])
        positions = [destinations for _, destinations in reversed(batch.edges)]
        drawn = []
        for destinations, size in zip(positions, frontiers, strict=True):
            counts = np.bincount(destinations, minlength=size)
            drawn.append(counts.astype(np.int32))
        vertices: Ints | SmallInts = batch.vertices
        # Half the bytes, for every graph of fewer than 2 billion vertices.
        if vertices.max(initial=0) <= np.iinfo(np.int32).max:
            vertices = vertices.astype(np.int32)
        sources = batch.edges[0][0] if edges else None
        return cls(vertices, batch.sizes, tuple(drawn), sources)

    @property
    def size(self) -> int:
        """Bytes of its arrays."""
        counts = sum(counts.nbytes for counts in self.drawn)
        sources = 0 if self.sources is None else self.sources.nbytes
        return self.vertices.nbytes + counts + sources


class KeptBatches:
    """Batches that were asked for last, of ``most`` bytes in all; for any threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._batches = OrderedDict[Hashable, DrawnBatch]()
        self._lock = threading.Lock()

    def find(
        self,
        key: Hashable,
        draw: Callable[[], SampledBatch],
        *,
        edges: bool = False,
    ) -> DrawnBatch:
        """Return the batch of a key, which ``draw`` samples where it is not kept.

        ``edges``: with the sources of its last hop.
        """
        with self._lock:
            kept = self._batches.get(key)
            if kept is not None and (kept.sources is not None or not edges):
                self._batches.move_to_end(key)
                return kept
        # Without the lock: samplers draw side by side.
        batch = DrawnBatch.of(draw(), edges=edges)
        with self._lock:
            # Another thread may have drawn it meanwhile.
            replaced = self._batches.pop(key, None)
            self._size += batch.size - (replaced.size if replaced else 0)
            self._batches[key] = batch
            while self._size > self._most:
                _, oldest = self._batches.popitem(last=False)
                self._size -= oldest.size
        return batch


_KEPT = KeptBatches(MOST_KEPT)


def draw_batch(
    dataset: Dataset,
    plan: BatchPlan,
    train: Ints,
    sampler: int,
    iteration: int,
    *,
    edges: bool = False,
) -> DrawnBatch:
    """Return the batch of one (sampler, iteration); raises as `BatchPlan.batch`.

    ``train``: the plan's `walk` of the data set; ``edges``: with its last hop's.
    """
    # A walk near the owners depends on the parts of the graph.
    graph = dataset.folder if plan.epoch == "local" else dataset.graph
    key = graph, plan, sampler, iteration
    return _KEPT.find(
        key,
        lambda: plan.batch(dataset.structure, train, sampler, iteration),
        edges=edges,
    )
