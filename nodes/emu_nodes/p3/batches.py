"""Batches of P3's samplers as they travel, and the machines that need them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from emu.errors import NodeMisbehaved
from emu.graph_data import SampledBatch
from emu.graph_data.sampling import Ids
from emu.systems.p3.job import column_blocks
from emu.training.layers import Block
from emu_nodes.program import (
    Array,
    EdgeSpec,
    Payload,
    Settings,
    tensor,
)


class Group:
    """Machines that hold all columns between them, as one of them sees it.

    ``settings``: ``Job.settings``; ``rank``: of this machine.
    """

    def __init__(self, settings: Settings, feature_length: int, rank: int) -> None:
        self.rank = rank
        self.ranks: int = settings["workers"]
        self.groups: int = settings["groups"]
        self._samplers: int = settings["samplers_per_worker"]
        self._members: int = self.ranks // self.groups

        first = rank - rank % self._members  # groups are of ranks in a row
        self.machines = range(first, first + self._members)
        self.peers = [*self.machines]
        self.peers.remove(rank)

        shares = settings["columns"]
        self.blocks = column_blocks(shares, feature_length, self._members)
        self.derives: bool = settings["push"] == "derived"

    @property
    def block(self) -> int:
        """Number of this machine's block of columns."""
        return self.rank % self._members

    def holds(self, rank: int) -> bool:
        """Return True where a machine holds any columns."""
        return self.blocks[rank % self._members] > 0

    def samplers_of(self, rank: int) -> range:
        """Return the numbers of a machine's samplers."""
        first = rank * self._samplers
        return range(first, first + self._samplers)

    @property
    def pushing(self) -> list[int]:
        """Samplers of peers that push what they draw to this machine."""
        if self.derives or not self.holds(self.rank):
            return []
        samplers: list[int] = []
        for peer in self.peers:
            samplers += self.samplers_of(peer)
        return samplers

    def derived_by(self, sampler: int) -> list[int]:
        """Return the samplers of peers whose batches a sampler draws as well."""
        if not self.derives or not self.holds(self.rank):
            return []
        # Each sampler derives the batches of those with its number on other machines.
        number = sampler % self._samplers
        return [self.samplers_of(peer)[number] for peer in self.peers]


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """Structure of the first layer of one sampler's batch: S_0 and the edges E_1."""

    vertices: Ids
    block: Block

    @classmethod
    def of_batch(cls, batch: SampledBatch) -> FirstLayer:
        """Return the first layer of a sampled batch."""
        outer, inner, *_ = batch.sizes
        source, destination = batch.edges[0]
        block = Block(
            source=source,
            destination=destination,
            outer=outer,
            inner=inner,
        )
        return cls(batch.vertices, block)

    def tensors(self, suffix: str = "") -> Payload:
        """Return tensors to push: 8 #S_0 + 8 #E_1 bytes, which give #S_1 as well."""
        inner = self.block.inner
        return {
            f"outputs{suffix}": self.vertices[:inner],
            f"inputs{suffix}": self.vertices[inner:],
            f"source{suffix}": self.block.source,
            f"destination{suffix}": self.block.destination,
        }

    @classmethod
    def of(cls, payload: Payload, sender: EdgeSpec, suffix: str = "") -> FirstLayer:
        """Return what `tensors` states, copied out of pooled memory.

        Raises NodeMisbehaved when tensors are missing or contradict each other.
        """

        def read(name: str) -> Array:
            return tensor(payload, f"{name}{suffix}", sender)

        outputs = read("outputs")
        further_inputs = read("inputs")  # the outputs are inputs, too
        source = read("source").copy()
        destination = read("destination").copy()
        vertices: Ids = np.concatenate([outputs, further_inputs])
        try:
            block = Block(
                source=source,
                destination=destination,
                outer=len(vertices),
                inner=len(outputs),
            )
        except ValueError as error:
            raise NodeMisbehaved(f"{sender.peer}: {error}") from error
        return cls(vertices, block)


def batch_tensors(batch: SampledBatch) -> Payload:
    """Return the tensors of a sampled batch: 8 #S_0 bytes and 8 for every edge.

    ``vertices.0`` are the seeds, ``vertices.1`` what their block adds, and so on:
    their lengths give all sizes.
    """
    payload: Payload = {}
    bounds = pairwise([0, *reversed(batch.sizes)])
    for hop, (first, last) in enumerate(bounds):
        payload[f"vertices.{hop}"] = batch.vertices[first:last]

    for number, (source, destination) in enumerate(batch.edges):
        payload[f"source.{number}"] = source
        payload[f"destination.{number}"] = destination
    return payload


def read_batch(payload: Payload, sender: EdgeSpec, layers: int) -> SampledBatch:
    """Return what `batch_tensors` states, copied out of pooled memory.

    Raises NodeMisbehaved when tensors are missing.
    """

    def read(name: str, number: int) -> Array:
        return tensor(payload, f"{name}.{number}", sender)

    parts = [read("vertices", hop) for hop in range(layers + 1)]  # seeds first
    lengths = map(len, parts)
    sizes = tuple(accumulate(lengths))
    vertices: Ids = np.concatenate(parts)

    edges = []
    for number in range(layers):
        source = read("source", number).copy()
        destination = read("destination", number).copy()
        edges.append((source, destination))

    return SampledBatch(
        vertices=vertices,
        sizes=sizes[::-1],
        edges=tuple(edges),
    )
