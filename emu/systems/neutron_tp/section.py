"""Section ``job`` of ``system: neutron_tp``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, permutations
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from emu.graph_data import Dataset, open_for
from emu.problem import Cluster, Job, Realization, Task
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.workloads.all_reduce import (
    NamedEdge,
    all_reduce_edge_count,
    build_named_job,
    part_elements,
)
from emu.problem.workloads.column_slices import STAGES, Slices
from emu.problem.workloads.operations import Operations
from emu.systems import Floats, Problems, Settings, Times
from emu.systems.device_memory import Parts, weight_bytes
from emu.systems.exchange_section import NoTimesSection
from emu.systems.job_section import BuildContext
from emu.systems.neutron_tp import PROGRAMS
from emu.systems.parts import part_tasks, ring_edges
from emu.systems.rates_section import RatesSection
from emu.systems.training_section import count_parameters, number_bytes
from emu.systems.translation import Translation, write_whole_graph
from emu.systems.whole_graph_section import WholeGraphSection

_FIRST, *_, _LAST = STAGES


def _row_counts(dataset: Dataset) -> list[int]:
    """Return the vertices that every part owns."""
    counts = np.bincount(dataset.owner, minlength=dataset.parts)
    rows: list[int] = counts.tolist()
    return rows


class NeutronTpSection(WholeGraphSection):
    """NeutronTP: products on rows, then sums on columns; all-to-all between them.

    It trains another model than `gcn`: all dense layers first, then a sum per layer.
    Every machine has the whole structure. Its chunks, which let messages overlap with
    sums, are not modelled, nor its GAT.
    """

    system: Literal["neutron_tp"]
    """Kind of job."""
    partitioner: Literal["metis", "hash", "hierarchical", "imported"] = "hash"
    """Which machine has which rows; ``hash``: as many each."""
    rates: RatesSection
    """Rates of operations, from which all times follow."""
    times: NoTimesSection = NoTimesSection()
    """None: write ``job.rates``."""

    unprofiled: ClassVar[str] = "times follow from job.rates, write these instead"

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from super().problems(cluster)
        if self.model.kind != "gcn":
            problem = f"found {self.model.kind}, all products come before sums: gcn"
            yield ("job", "model", "kind"), problem

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        ranks = len(self.ranks(machines))
        exchanges = len(STAGES) - 1
        pairs = ranks * (ranks - 1)
        pieces = exchanges * pairs
        return max(1, pieces + all_reduce_edge_count(ranks))

    @override
    def build(self, context: BuildContext) -> Job:
        settings = self.whole_graph_settings(context)
        settings["model"] = {**settings["model"], "decoupled": True}
        machines = self.ranks(context.machines)
        passes: dict[str, Settings] = {stage: {} for stage in STAGES}
        tasks = part_tasks(machines, passes, PROGRAMS)
        edges = self._edges(len(machines))
        return build_named_job(tasks, edges, self.epochs, settings)

    def _edges(self, ranks: int) -> Iterator[NamedEdge]:
        all_ranks = range(ranks)
        for stage, following in pairwise(STAGES):
            for rank in all_ranks:
                yield NamedEdge(f"d{rank}.{stage}", f"d{rank}.{following}")
            for sender, receiver in permutations(all_ranks, 2):
                yield NamedEdge(
                    f"d{sender}.{stage}",
                    f"d{receiver}.{following}",
                    carries=stage,
                    place=(sender, receiver),
                )

        yield from ring_edges(ranks, giver=_LAST, taker=_FIRST)

    @override
    def realize(
        self,
        job: Job,
        context: BuildContext,
        cluster: Cluster,
        measured: Times,
    ) -> Realization:
        dataset = open_for(job.settings)
        parameters = count_parameters(job.settings, dataset)
        itemsize = number_bytes(job.settings)
        rows = _row_counts(dataset)
        parts = len(rows)
        slices = Slices(dataset.classes, parts)

        volumes = np.zeros((len(job.edges), job.iterations))
        edges = self._edges(parts)
        for volume, edge in zip(volumes, edges, strict=True):
            numbers = 0
            if edge.carries == "parameters":
                numbers = part_elements(parameters, edge.place)
            elif edge.carries:
                sender, receiver = edge.place
                numbers = slices.piece(edge.carries, rows[sender], rows[receiver])
            volume[:] = numbers * itemsize

        times = self.rate_tasks(job, context, volumes)
        emulated_bytes = volumes / context.byte_scale
        return Realization(times, volumes=emulated_bytes)

    @override
    def count_operations(
        self,
        job: Job,
        context: BuildContext,
        volumes: Floats,
    ) -> Operations:
        """Return products of a part's rows, sums of its columns, bytes of pieces."""
        dataset = open_for(job.settings)
        rows = _row_counts(dataset)
        parameters = count_parameters(job.settings, dataset)
        operations = Operations(job)
        operations.add_bytes(job, volumes, *STAGES)
        itemsize = number_bytes(job.settings)
        operations.add_gradients(job, volumes, itemsize)

        for position, task in enumerate(job.tasks):
            if task.kind == _FIRST:
                operations.add(position, {"step": parameters})
            if task.kind in STAGES and task.kind != "score":
                rank = task.settings["rank"]
                work = self._count_stage(task.kind, dataset, rows[rank])
                operations.add(position, work)
        return operations

    def _count_stage(
        self,
        stage: str,
        dataset: Dataset,
        rows: int,
    ) -> dict[str, int]:
        """Return the operations of a stage of a part with so many rows."""
        layers = self.model.layers
        widths = self.widths(dataset)
        products = [inputs * outputs for inputs, outputs in pairwise(widths)]
        passed = sum(products)
        if stage == "dense":
            return {"multiply": rows * passed, "launch": layers}
        if stage == "dense_gradient":
            # The gradient of weights takes as much as a pass, that of features none.
            backward = 2 * passed - products[0]
            return {"multiply": rows * backward, "launch": layers}

        # A vertex is a neighbour of its own.
        edges = dataset.edges + dataset.vertices
        width = Slices(dataset.classes, dataset.parts).width
        return {"aggregate": layers * edges * width, "launch": layers}

    @override
    def collects_on_device(self, task: Task) -> bool:
        return True  # every task is one of a GPU

    @override
    def device_memory(
        self,
        job: Job,
        context: BuildContext,
    ) -> Mapping[str, Parts]:
        """Return that of every part, under the task that steps its weights."""
        settings = job.settings
        dataset = open_for(settings)
        itemsize = number_bytes(settings)
        rows = _row_counts(dataset)
        length, *widths = self.widths(dataset)
        parameters = count_parameters(settings, dataset)
        weights = weight_bytes(settings, parameters, steps=True)
        slices = Slices(dataset.classes, len(rows))
        columns = dataset.vertices * slices.width

        memory: dict[str, Parts] = {}
        for rank, count in enumerate(rows):
            # Twice: what a layer computes, and the gradient of it.
            numbers = 2 * count * sum(widths)
            memory[f"d{rank}.{_FIRST}"] = {
                "features": float(itemsize * count * length),
                "rows of layers": float(itemsize * numbers),
                "columns of all rows": float(2 * itemsize * columns),
                "weights": weights,
            }
        return memory


TRANSLATION = Translation(
    None,
    lambda common: write_whole_graph(common, "neutron_tp", "gcn"),
    counts_epochs=True,
)
