"""Operations of P3's tasks, which rates turn into times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from emu.array_types import Floats
from emu.graph_data import count_job, open_for
from emu.problem import Job, Task
from emu.problem.workloads import SampleCounts
from emu.problem.workloads.operations import (
    Amounts,
    LayerWork,
    Operations,
    count_layer,
    count_layers,
)
from emu.systems import JobSettings
from emu.systems.p3.builder import P3Builder
from emu.systems.training_section import number_bytes

FEATURE_BYTES = 4  # float32 in the prepared form, whatever the precision


def split_layer(
    kind: str,
    widths: tuple[int, int],
    counts: Sequence[SampleCounts],
) -> tuple[LayerWork, LayerWork]:
    """Return the operations of layer 1 on some columns, and of the rest of layer 1.

    Attention and the second matrix of ``gin`` are of the rest, which takes the sum over
    all columns. ``kind``: of the model; ``widths``: number of columns, and width of the
    layer; ``counts``: of each mini-batch of a sampler.
    """
    columns, width = widths
    edges = np.array([batch.first_edges for batch in counts], float)
    inputs = np.array([batch.inputs for batch in counts], float)
    outputs = np.array([batch.outputs for batch in counts], float)
    if kind == "gat":
        # Every source is weighed, and nothing is added up before attention.
        linear = LayerWork(
            aggregate=0.0,
            multiply=inputs * columns * width,
            narrows=True,
        )
        attention = LayerWork(
            aggregate=(edges + outputs) * width,
            multiply=0.0,
            narrows=True,
        )
        return linear, attention

    layer = count_layer(kind, widths, edges, inputs, outputs)
    rest = LayerWork(
        aggregate=0.0,
        multiply=0.0,
        narrows=False,
        outer=layer.outer,
    )
    linear = replace(layer, outer=0.0)
    return linear, rest


def count_phases(
    builder: P3Builder,
    job: Job,
    steps: tuple[int, int],
    volumes: Floats,
) -> Operations:
    """Return the operations of the job that ``builder`` builds.

    ``steps``: parameters of a column of layer 1, and the upper ones; ``volumes``: real
    bytes of (edge, cycle).
    """
    settings = job.settings
    dataset = open_for(settings)
    phases = _Phases(
        builder=builder,
        model=settings["model"],
        feature_length=dataset.feature_length,
        classes=dataset.classes,
        counts=count_job(settings, dataset, builder.batches),
        steps=steps,
    )

    operations = Operations(job)
    itemsize = number_bytes(settings)
    operations.add_gradients(job, volumes, itemsize)
    for number, task in enumerate(job.tasks):
        # A phase works on its batches from the cycle on that it is behind by.
        end = task.behind + builder.batches
        when = slice(task.behind, end)
        for amounts in phases.of_task(task):
            operations.add(number, amounts, when)
    return operations


@dataclass(frozen=True)
class _Phases:
    """Amounts of the tasks of all mini-batches, by operation."""

    builder: P3Builder
    model: JobSettings
    feature_length: int
    classes: int
    counts: Sequence[Sequence[SampleCounts]]
    steps: tuple[int, int]

    def of_task(self, task: Task) -> Iterator[Amounts]:
        place = task.settings
        match task.kind:
            case "graph_store_hop":
                yield self._count_answers(place["store"], place["hop"])
            # Asked hop by hop, the owners draw the edges.
            case "sampler" if not self.builder.hops:
                yield from self._drawn(task)
            case "graph_store":
                yield self._count_collected(place["rank"])
            case "model_forward":
                yield from self._of_columns(place["rank"], forward=True)
            case "data_forward":
                yield from self._of_data(place["rank"], forward=True)
            case "data_backward":
                yield from self._of_data(place["rank"], forward=False)
            case "model_backward":
                yield from self._of_columns(place["rank"], forward=False)
            case _:
                pass

    def _count_answers(self, store: int, hop: int) -> Amounts:
        """Return the edges that a store draws for one hop of every sampler."""
        edges = []
        for batches in self.counts:
            answers = [batch.answered[hop - 1] for batch in batches]
            edges.append([edges_of_store[store] for edges_of_store in answers])
        return {"sample": np.sum(edges, axis=0)}

    def _drawn(self, task: Task) -> Iterator[Amounts]:
        """Yield the edges of a sampler's batches, and of those that it derives."""
        sampler = task.settings["sampler"]
        samplers = [sampler]
        # Without columns a machine has no use for peers' batches.
        rank = task.settings["rank"]
        if self.builder.columns_of(rank, self.feature_length):
            samplers += self.builder.derived_by(sampler)
        for origin in samplers:
            batches = self.counts[origin]
            yield {"sample": [batch.edges for batch in batches]}

    def _count_collected(self, rank: int) -> Amounts:
        """Return the bytes of a machine's columns of all vertices of the group."""
        rows = []
        for sampler in self.builder.samplers_of_group(rank):
            batches = self.counts[sampler]
            rows.append([batch.inputs for batch in batches])
        columns = self.builder.columns_of(rank, self.feature_length)
        row_bytes = FEATURE_BYTES * columns
        return {"collect": row_bytes * np.sum(rows, axis=0)}

    def _split(
        self,
        columns: int,
        batches: Sequence[SampleCounts],
    ) -> tuple[LayerWork, LayerWork]:
        width = self.model["hidden"]
        if self.model["layers"] == 1:
            width = self.classes
        kind = self.model.get("kind", "sage")
        return split_layer(kind, (columns, width), batches)

    def _of_data(self, rank: int, *, forward: bool) -> Iterator[Amounts]:
        """Yield the work of a machine's own mini-batches behind layer 1's sum."""
        for sampler in self.builder.samplers_of(rank):
            batches = self.counts[sampler]
            layers = count_layers(
                self.model, self.feature_length, self.classes, batches
            )
            # Here layer 1 is only what is left of it behind the sum.
            _, layers[0] = self._split(self.feature_length, batches)
            for layer in layers:
                # Layer 1 goes back to the sum, whose gradient owners of columns need.
                if forward:
                    yield layer.forward
                else:
                    yield layer.backward(first=False)
        if not forward:
            _, upper = self.steps
            yield {"step": float(upper)}

    def _of_columns(self, rank: int, *, forward: bool) -> Iterator[Amounts]:
        """Yield the work of a machine on its columns, for all of its group."""
        columns = self.builder.columns_of(rank, self.feature_length)
        if not columns:
            return

        yield {"launch": 1.0}  # the group's batches are one pass
        for sampler in self.builder.samplers_of_group(rank):
            linear, _ = self._split(columns, self.counts[sampler])
            work = linear.forward
            if not forward:
                work = linear.backward(first=True)  # features need no gradient
            yield {**work, "launch": 0.0}
        if not forward:
            per_column, _ = self.steps
            yield {"step": float(per_column * columns)}
            return

        # Columns on the device: the same task collects them first. Those of the host
        # a store has collected, which come over PCIe.
        is_on_device = self.builder.entries[rank] == "Mf"
        if is_on_device or self.builder.brings_rows(rank):
            yield self._count_collected(rank)
