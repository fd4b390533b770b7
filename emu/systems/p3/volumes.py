"""Times and bytes of a P3 job, as functions of what was sampled (specs, 4a)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from emu.problem import Realization
from emu.systems.p3.job import p3_edges, p3_tasks
from emu.workloads.all_reduce import ALL_REDUCE, part_elements
from emu.workloads.model_shapes import (
    ANSWERED_EDGE_BYTES,
    BLOCK_EDGE_BYTES,
    SPLIT_WEIGHTS,
    VERTEX_ID_BYTES,
    layer_shapes,
    parameter_count,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emu.systems.p3.job import P3Config
    from emu.workloads.all_reduce import NamedEdge
    from emu.workloads.model_shapes import SampleCounts


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

    def pulled_bytes(self, counts: SampleCounts) -> int:
        """Return the bytes of a partial activation, and of its gradient."""
        rows = counts.inputs if self.pulls == "inputs" else counts.outputs
        return self.itemsize * rows * self.pulled_width


def split_model(
    model: Mapping[str, Any], feature_length: int, classes: int, itemsize: int
) -> SplitModel:
    """Return the sizes of a model of ``Job.settings``."""
    kind = model.get("kind", "sage")
    first, *_ = layer_shapes(model, feature_length, classes)
    widths = [shape[0] for shape in first[: SPLIT_WEIGHTS[kind]]]
    return SplitModel(
        feature_length=feature_length,
        first_width=sum(widths),
        upper=parameter_count(model, feature_length, classes)
        - sum(widths) * feature_length,
        pulled_width=widths[0],
        pulls="inputs" if kind == "gat" else "outputs",
        itemsize=itemsize,
    )


def pushed_bytes(counts: SampleCounts) -> int:
    """Return the bytes of layer 1's structure: ids and edges of one mini-batch."""
    return VERTEX_ID_BYTES * counts.inputs + BLOCK_EDGE_BYTES * counts.first_edges


def p3_realization(
    config: P3Config,
    times: Mapping[str, float],
    counts: Sequence[Sequence[SampleCounts]],
    model: SplitModel,
) -> Realization:
    """Return seconds and real bytes of a job of `p3_job`.

    Parameters
    ----------
    times
        Kind of task -> seconds; those of layer 1 are for an even share of the columns.
    counts
        Of each machine, of each of its mini-batches.

    Raises
    ------
    ValueError
        When a kind of task has no time.
    """
    tasks, edges = [*p3_tasks(config)], [*p3_edges(config)]
    seconds = np.zeros((len(tasks), config.cycles))
    for row, task in zip(seconds, tasks, strict=True):
        if task.kind not in times and task.kind != ALL_REDUCE:
            raise ValueError(f"no time for {task.kind}")
        work = (
            config.share(task.settings["rank"])
            if task.kind.startswith("model")
            else 1.0
        )
        first = task.behind
        row[first : first + config.batches] = times.get(task.kind, 0.0) * work
    volumes = np.zeros((len(edges), config.cycles))
    blocks = config.blocks(model.feature_length)
    behind = {task.name: task.behind for task in tasks}
    for row, edge in zip(volumes, edges, strict=True):
        if edge.carries:
            first = behind[edge.source]
            values = _bytes_of(edge, config, blocks, counts, model)
            row[first : first + config.batches] = values
    return Realization(seconds, volumes)


def _bytes_of(
    edge: NamedEdge,
    config: P3Config,
    blocks: Sequence[int],
    counts: Sequence[Sequence[SampleCounts]],
    model: SplitModel,
) -> int | list[int]:
    """Return the bytes of each mini-batch on an edge."""
    if edge.carries == "upper":
        return model.itemsize * part_elements(model.upper, edge.place)
    if edge.carries == "first_layer":
        *_, member = edge.place
        rows = model.first_width * blocks[member]
        return model.itemsize * part_elements(rows, edge.place)
    if edge.carries in {"frontier", "answer"}:
        return _asked(edge, config, counts)
    rank, block = edge.place
    if not blocks[block]:
        return 0
    formula = pushed_bytes if edge.carries == "push" else model.pulled_bytes
    return [formula(one) for one in counts[rank][: config.batches]]


def _asked(
    edge: NamedEdge, config: P3Config, counts: Sequence[Sequence[SampleCounts]]
) -> list[int]:
    """Return the bytes of a sampler's question to a store, or of the answer."""
    rank, store, hop = edge.place
    mine = counts[rank][: config.batches]
    if edge.carries == "frontier":
        return [VERTEX_ID_BYTES * one.frontier_owned[hop - 1][store] for one in mine]
    return [ANSWERED_EDGE_BYTES * one.answered[hop - 1][store] for one in mine]
