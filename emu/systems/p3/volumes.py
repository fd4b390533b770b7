"""Times of P3's tasks by their kind, and the bytes of its flows (specs, 4a)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emu.array_types import Array
from emu.problem import Realization
from emu.problem.workloads import SampleCounts, model_shapes
from emu.problem.workloads.all_reduce import NamedEdge, part_elements
from emu.systems import JobSettings, Times
from emu.systems.p3.builder import P3Builder

#: Kinds of task whose stated time is that of an even share of the columns.
_BY_COLUMNS = ("graph_store", "model_forward", "model_backward")


@dataclass(frozen=True)
class SplitModel:
    """Sizes of a model whose first layer is split by columns of the features."""

    feature_length: int
    """F, rows of the first layer's weights."""
    first_width: int
    """First-layer weights per feature: 2 h for GraphSAGE."""
    upper: int
    """Parameters beside them: b_1 and all other layers."""
    pulled_width: int
    """Length of a row that is pulled."""
    pulls: Literal["outputs", "inputs"] = "outputs"
    """Whose rows are pulled: of the ``outputs`` of layer 1 (#S_1), or of its ``inputs``
    (#S_0) where they have to be summed before attention."""
    itemsize: int = 4
    """Bytes of a number: 4 in float32, 8 in float64."""

    @property
    def first(self) -> int:
        """Parameters of the first layer that are split by columns."""
        return self.first_width * self.feature_length

    def pull_bytes(self, counts: SampleCounts) -> int:
        """Return the bytes of a partial activation, and of its gradient."""
        rows = counts.outputs
        if self.pulls == "inputs":
            rows = counts.inputs
        return self.itemsize * rows * self.pulled_width


def split_model(
    model: JobSettings,
    feature_length: int,
    classes: int,
    itemsize: int,
) -> SplitModel:
    """Return the sizes of a model of ``Job.settings``."""
    kind = model.get("kind", "sage")
    first, *_ = model_shapes.layer_shapes(model, feature_length, classes)
    # Matrices of the linear part have a row per unit and a column per feature.
    split_matrices = model_shapes.SPLIT_WEIGHTS[kind]
    matrices = first[:split_matrices]
    widths = [units for units, _ in matrices]
    first_width = sum(widths)
    first_parameters = first_width * feature_length
    parameters = model_shapes.parameter_count(model, feature_length, classes)

    return SplitModel(
        feature_length=feature_length,
        first_width=first_width,
        upper=parameters - first_parameters,
        # Both matrices of GraphSAGE add to one row, as long as one is high.
        pulled_width=widths[0],
        # GAT needs z of each neighbour to attend, others the sum of all alone.
        pulls="inputs" if kind == "gat" else "outputs",
        itemsize=itemsize,
    )


def p3_realization(
    builder: P3Builder,
    times: Times,
    counts: Sequence[Sequence[SampleCounts]],
    model: SplitModel,
) -> Realization:
    """Return seconds and real bytes of the job that ``builder`` builds.

    ``times``: kind of task -> seconds; those of layer 1 are for an even share of the
    columns; ``counts``: of each machine, of each of its mini-batches.
    """
    tasks = list(builder.tasks())
    shape = (len(tasks), builder.cycles)
    seconds = np.zeros(shape)
    for row, task in zip(seconds, tasks, strict=True):
        time = times.get(task.kind, 0.0)
        if task.kind in _BY_COLUMNS:
            # Work on layer 1 goes by columns: twice as many take twice the time.
            rank = task.settings["rank"]
            time *= builder.share(rank)
        # Cycles before and after have no batch of this phase: no time, no bytes.
        end = task.behind + builder.batches
        row[task.behind : end] = time

    edges = list(builder.edges())
    shape = (len(edges), builder.cycles)
    volumes = np.zeros(shape)
    # A flow belongs to the cycle of its source: later phases send in later cycles.
    behind = {task.name: task.behind for task in tasks}
    sizes = _EdgeSizes(builder, counts, model)
    for row, edge in zip(volumes, edges, strict=True):
        first = behind[edge.source]
        end = first + builder.batches
        row[first:end] = sizes.of_edge(edge)
    return Realization(times=seconds, volumes=volumes)


@dataclass(frozen=True)
class _EdgeSizes:
    """Bytes on the edges of a job, of all mini-batches or of each."""

    builder: P3Builder
    counts: Sequence[Sequence[SampleCounts]]
    model: SplitModel

    def of_edge(self, edge: NamedEdge) -> float | Array:
        if not edge.carries:
            return 0.0
        if edge.carries == "upper":
            return self._part(self.model.upper, edge)
        if edge.carries == "first_layer":
            columns = self._columns_of(edge.place[-1])
            weights = self.model.first_width * columns
            return self._part(weights, edge)

        sizes = list(self._of_samplers(edge))
        if not sizes:
            return 0.0
        # One flow has the bytes of all samplers' batches of its machine.
        totals = np.sum(sizes, axis=0)
        batches = self.builder.batches
        return np.asarray(totals[:batches])

    def _columns_of(self, rank: int) -> int:
        length = self.model.feature_length
        return self.builder.columns_of(rank, length)

    def _part(self, summed: int, edge: NamedEdge) -> float:
        """Return the bytes of a rank's part of what a ring sums."""
        elements = part_elements(summed, edge.place)
        return float(self.model.itemsize * elements)

    def _of_samplers(self, edge: NamedEdge) -> Iterator[list[int]]:
        """Yield the bytes by mini-batch, of each sampler whose batch is on an edge."""
        if edge.carries == "pull":
            yield from self._of_pull(*edge.place)
            return

        sampler, *place = edge.place
        batches = self.counts[sampler]
        match edge.carries, place:
            case "frontier", (store, hop):
                frontiers = [batch.frontier_owned[hop - 1] for batch in batches]
                size = model_shapes.VERTEX_ID_BYTES
                yield [size * ids[store] for ids in frontiers]
            case "answer", (store, hop):
                answers = [batch.answered[hop - 1] for batch in batches]
                size = model_shapes.ANSWERED_EDGE_BYTES
                yield [size * edges[store] for edges in answers]
            case "batch", (rank,):
                yield [_structure_bytes(batch, batch.edges) for batch in batches]
                # `push: derived`: peers' batches are drawn here and not shipped.
                yield from self._of_derived(sampler, rank)
            # A peer without columns needs no structure of layer 1.
            case "push", (peer,):
                if self._columns_of(peer):
                    yield [_first_bytes(batch) for batch in batches]
            case _:
                raise ValueError(f"an edge that carries {edge.carries} is none of P3")

    def _of_pull(self, rank: int, peer: int) -> Iterator[list[int]]:
        """Yield the bytes of a peer's part of layer 1, or of its gradient."""
        if not self._columns_of(peer):
            return
        pull_bytes = self.model.pull_bytes
        for sampler in self.builder.samplers_of(rank):
            batches = self.counts[sampler]
            yield [pull_bytes(batch) for batch in batches]

    def _of_derived(self, sampler: int, rank: int) -> Iterator[list[int]]:
        """Yield the bytes of what a sampler draws of its machine's peers."""
        if not self._columns_of(rank):
            return
        for peer in self.builder.derived_by(sampler):
            batches = self.counts[peer]
            yield [_first_bytes(batch) for batch in batches]


def _structure_bytes(counts: SampleCounts, edges: int) -> int:
    """Return the bytes of the ids of S_0, and of so many edges of blocks."""
    ids = model_shapes.VERTEX_ID_BYTES * counts.inputs
    return ids + model_shapes.BLOCK_EDGE_BYTES * edges


def _first_bytes(counts: SampleCounts) -> int:
    """Return the bytes of the structure of layer 1."""
    return _structure_bytes(counts, counts.first_edges)
