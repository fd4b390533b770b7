"""Operations of P3's tasks, which rates turn into times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.graph_data import count_job, open_for
from emu.problem import Job, Task
from emu.problem.workloads import SampleCounts
from emu.problem.workloads.operations import (
    LayerWork,
    Operations,
    count_layer,
    count_layers,
)
from emu.systems.p3.builder import P3Builder
from emu.systems.training_section import number_bytes

FEATURE_BYTES = 4  # float32 in the prepared form, whatever the precision


def split_layer(
    kind: str, widths: tuple[int, int], counts: Sequence[SampleCounts]
) -> tuple[LayerWork, LayerWork]:
    """Return the operations of layer 1 on some columns, and of the rest of layer 1.

    Attention and the second matrix of ``gin`` are of the rest, which takes the sum over
    all columns. ``kind``: of the model; ``widths``: number of columns, and width of the
    layer; ``counts``: of each mini-batch of a sampler.
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
    operations.add_gradients(job, volumes, number_bytes(settings))
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
                sampler = task.settings["sampler"]
                for drawn in (sampler, *self.builder.derived_by(sampler)):
                    yield {"sample": [one.edges for one in self.counts[drawn]]}
            case "graph_store":
                yield self._collected(task.settings["rank"])
            case "data_forward" | "data_backward":
                yield from self._of_data(task.settings["rank"], task.kind)
            case "model_forward" | "model_backward":
                yield from self._of_columns(task.settings["rank"], task.kind)
            case _:
                pass

    def _columns_of(self, rank: int) -> int:
        blocks = self.builder.blocks(self.sizes[0])
        return blocks[rank % self.builder.members]

    def _of_group(self, rank: int) -> list[Sequence[SampleCounts]]:
        """Return the counts of every sampler of a machine's group."""
        return [self.counts[one] for one in self.builder.samplers_of_group(rank)]

    def _collected(self, rank: int) -> dict[str, Any]:
        """Return the bytes of a machine's columns of all vertices of the group."""
        rows = sum(
            np.array([one.inputs for one in batches], float)
            for batches in self._of_group(rank)
        )
        return {"collect": rows * self._columns_of(rank) * FEATURE_BYTES}

    def _of_data(self, rank: int, kind: str) -> Iterator[dict[str, Any]]:
        for sampler in self.builder.samplers_of(rank):
            own = self.counts[sampler]
            _, rest = self._split(self.sizes[0], own)
            for layer in (rest, *count_layers(self.model, *self.sizes, own)[1:]):
                forward = kind == "data_forward"
                yield layer.forward if forward else layer.backward(first=False)
        if kind == "data_backward":
            yield {"step": float(self.steps[1])}

    def _of_columns(self, rank: int, kind: str) -> Iterator[dict[str, Any]]:
        columns = self._columns_of(rank)
        if not columns:
            return
        for batches in self._of_group(rank):
            linear, _ = self._split(columns, batches)
            forward = kind == "model_forward"
            work = linear.forward if forward else linear.backward(first=True)
            yield work | {"launch": 0.0}  # the group's batches are one pass
        yield {"launch": 1.0}
        if kind == "model_backward":
            yield {"step": float(self.steps[0] * columns)}
        elif self.builder.entry == "Mf":
            yield self._collected(rank)
