"""Operations of the tasks of a P3 job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.graph_data import count_job, open_for
from emu.problem import Job, Task
from emu.problem.workloads.model_shapes import SampleCounts
from emu.problem.workloads.operations import (
    LayerWork,
    Operations,
    count_layer,
    count_layers,
)
from emu.systems.p3.job import P3Builder
from emu.systems.training_section import number_bytes

#: Columns are kept in float32, whatever the precision.
_FEATURE_BYTES = 4


def split_layer(
    kind: str, widths: tuple[int, int], counts: Sequence[SampleCounts]
) -> tuple[LayerWork, LayerWork]:
    """Return the operations of layer 1 on some columns, and of the rest of layer 1.

    Attention and the second matrix of ``gin`` are of the rest, which takes the sum over
    all columns. ``kind``: of the model; ``widths``: number of columns, and width of the
    layer; ``counts``: of each mini-batch of a machine.
    """
    columns, width = widths
    edges, inputs, outputs = np.array(
        [(one.first_edges, one.inputs, one.outputs) for one in counts], float
    ).T
    if kind == "gat":
        linear = LayerWork(0.0, inputs * columns * width, narrows=True)
        return linear, LayerWork((edges + outputs) * width, 0.0, narrows=True)
    layer = count_layer(kind, widths, edges, inputs, outputs)
    rest = LayerWork(0.0, 0.0, narrows=False, outer=layer.outer)
    return replace(layer, outer=0.0), rest


def count_phases(
    builder: P3Builder, job: Job, steps: tuple[int, int], volumes: NDArray[np.float64]
) -> Operations:
    """Return the operations of the job that ``builder`` builds.

    ``steps``: parameters of a column of layer 1, and the upper ones; ``volumes``: real
    bytes of (edge, cycle).
    """
    settings, dataset = job.settings, open_for(job.settings)
    phases = _Phases(
        builder=builder,
        model=settings["model"],
        sizes=(dataset.feature_length, dataset.classes),
        counts=count_job(settings, dataset, builder.batches),
        steps=steps,
    )
    operations = Operations(job)
    operations.add_sums(job, volumes, number_bytes(settings))
    for t, task in enumerate(job.tasks):
        when = slice(task.behind, task.behind + builder.batches)
        for amounts in phases.of_task(task):
            operations.add(t, amounts, when)
    return operations


@dataclass(frozen=True)
class _Phases:
    """Amounts of the tasks of all mini-batches, by operation."""

    builder: P3Builder
    model: Mapping[str, Any]
    sizes: tuple[int, int]
    counts: Sequence[Sequence[SampleCounts]]
    steps: tuple[int, int]

    def _split(
        self, columns: int, counts: Sequence[SampleCounts]
    ) -> tuple[LayerWork, LayerWork]:
        width = self.model["hidden"] if self.model["layers"] > 1 else self.sizes[1]
        return split_layer(self.model.get("kind", "sage"), (columns, width), counts)

    def of_task(self, task: Task) -> Iterator[dict[str, Any]]:
        match task.kind:
            case "graph_store_hop":
                store, hop = task.settings["store"], task.settings["hop"] - 1
                each = [[one.answered[hop][store] for one in of] for of in self.counts]
                yield {"sample": np.sum(each, axis=0)}
            case "sampler" if not self.builder.hops:
                rank = task.settings["rank"]
                derives = self.builder.derives
                for peer in self.builder.group_of(rank) if derives else (rank,):
                    yield {"sample": [one.edges for one in self.counts[peer]]}
            case "data_forward" | "data_backward":
                yield from self._of_data(task.settings["rank"], task.kind)
            case "model_forward" | "model_backward":
                yield from self._of_columns(task.settings["rank"], task.kind)
            case _:
                pass

    def _of_data(self, rank: int, kind: str) -> Iterator[dict[str, Any]]:
        own = self.counts[rank]
        _, rest = self._split(self.sizes[0], own)
        for layer in (rest, *count_layers(self.model, *self.sizes, own)[1:]):
            forward = kind == "data_forward"
            yield layer.forward if forward else layer.backward(first=False)
        if kind == "data_backward":
            yield {"step": float(self.steps[1])}

    def _of_columns(self, rank: int, kind: str) -> Iterator[dict[str, Any]]:
        columns = self.builder.blocks(self.sizes[0])[rank % self.builder.members]
        if not columns:
            return
        for of in (self.counts[peer] for peer in self.builder.group_of(rank)):
            linear, _ = self._split(columns, of)
            # The group's batches are one pass.
            if kind == "model_forward":
                rows = np.array([one.inputs for one in of], float)
                yield linear.forward | {"launch": 0.0}
                yield {"collect": rows * columns * _FEATURE_BYTES}
            else:
                yield linear.backward(first=True) | {"launch": 0.0}
        yield {"launch": 1.0}
        if kind == "model_backward":
            yield {"step": float(self.steps[0] * columns)}
