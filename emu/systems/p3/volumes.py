"""Times of P3's tasks by their kind, and the bytes of its flows (specs, 4a)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from emu.problem import Realization
from emu.problem.workloads import SampleCounts, model_shapes
from emu.problem.workloads.all_reduce import NamedEdge, part_elements
from emu.systems.p3.builder import P3Builder


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

    def pull_bytes(self, counts: SampleCounts) -> int:
        """Return the bytes of a partial activation, and of its gradient."""
        rows = counts.inputs if self.pulls == "inputs" else counts.outputs
        return self.itemsize * rows * self.pulled_width


def split_model(
    model: Mapping[str, Any], feature_length: int, classes: int, itemsize: int
) -> SplitModel:
    """Return the sizes of a model of ``Job.settings``."""
    kind = model.get("kind", "sage")
    first, *_ = model_shapes.layer_shapes(model, feature_length, classes)
    widths = [shape[0] for shape in first[: model_shapes.SPLIT_WEIGHTS[kind]]]
    return SplitModel(
        feature_length=feature_length,
        first_width=sum(widths),
        upper=model_shapes.parameter_count(model, feature_length, classes)
        - sum(widths) * feature_length,
        pulled_width=widths[0],
        pulls="inputs" if kind == "gat" else "outputs",
        itemsize=itemsize,
    )


def p3_realization(
    builder: P3Builder,
    times: Mapping[str, float],
    counts: Sequence[Sequence[SampleCounts]],
    model: SplitModel,
) -> Realization:
    """Return seconds and real bytes of the job that ``builder`` builds.

    ``times``: kind of task -> seconds; those of layer 1 are for an even share of the
    columns; ``counts``: of each machine, of each of its mini-batches.
    """
    tasks, edges = [*builder.tasks()], [*builder.edges()]
    seconds = np.zeros((len(tasks), builder.cycles))
    for row, task in zip(seconds, tasks, strict=True):
        by_columns = task.kind.startswith("model") or task.kind == "graph_store"
        work = builder.share(task.settings["rank"]) if by_columns else 1.0
        first = task.behind
        row[first : first + builder.batches] = times.get(task.kind, 0.0) * work
    volumes = np.zeros((len(edges), builder.cycles))
    behind = {task.name: task.behind for task in tasks}
    for row, edge in zip(volumes, edges, strict=True):
        first = behind[edge.source]
        batches = slice(first, first + builder.batches)
        row[batches] = _bytes_of(builder, edge, counts, model)
    return Realization(seconds, volumes)


def _bytes_of(
    builder: P3Builder,
    edge: NamedEdge,
    counts: Sequence[Sequence[SampleCounts]],
    model: SplitModel,
) -> float | list[int]:
    """Return the bytes on an edge, of all mini-batches or of each."""
    if not edge.carries:
        return 0.0
    if edge.carries in {"upper", "first_layer"}:
        summed = model.upper
        if edge.carries == "first_layer":
            block = builder.blocks(model.feature_length)[edge.place[-1]]
            summed = model.first_width * block
        return model.itemsize * part_elements(summed, edge.place)
    sizes = [*_sampled_bytes(builder, edge, counts, model)]
    totals = [sum(of_batch) for of_batch in zip(*sizes, strict=True)]
    return totals[: builder.batches] or 0.0


def _sampled_bytes(
    builder: P3Builder,
    edge: NamedEdge,
    counts: Sequence[Sequence[SampleCounts]],
    model: SplitModel,
) -> Iterator[list[int]]:
    """Yield the bytes of all mini-batches, by sampler whose batch is on the edge."""
    blocks = builder.blocks(model.feature_length)
    match edge.carries, edge.place:
        case "frontier", (sampler, store, hop):
            owned = [one.frontier_owned[hop - 1][store] for one in counts[sampler]]
            yield [model_shapes.VERTEX_ID_BYTES * number for number in owned]
        case "answer", (sampler, store, hop):
            answered = [one.answered[hop - 1][store] for one in counts[sampler]]
            yield [model_shapes.ANSWERED_EDGE_BYTES * number for number in answered]
        case "batch", (sampler, rank):
            yield [_structure_bytes(one, one.edges) for one in counts[sampler]]
            holds = blocks[rank % builder.members]
            for drawn in builder.derived_by(sampler) if holds else ():
                yield [_first_bytes(one) for one in counts[drawn]]
        case _, (_, peer) if not blocks[peer % builder.members]:
            return
        case "push", (sampler, _):
            yield [_first_bytes(one) for one in counts[sampler]]
        case _, (rank, _):
            for sampler in builder.samplers_of(rank):
                yield [model.pull_bytes(one) for one in counts[sampler]]
        case _:
            raise ValueError(f"an edge that carries {edge.carries!r} is none of P3")


def _structure_bytes(counts: SampleCounts, edges: int) -> int:
    """Return the bytes of the ids of S_0, and of so many edges of blocks."""
    ids = model_shapes.VERTEX_ID_BYTES * counts.inputs
    return ids + model_shapes.BLOCK_EDGE_BYTES * edges


def _first_bytes(counts: SampleCounts) -> int:
    """Return the bytes of the structure of layer 1."""
    return _structure_bytes(counts, counts.first_edges)
