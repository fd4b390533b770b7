"""Bytes and operations of APT's tasks, from the counts of their shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emu.graph_data import BatchPlan, Dataset, count_job, open_for
from emu.problem import Job, Task
from emu.problem.workloads import SampleCounts, model_shapes
from emu.problem.workloads.all_reduce import NamedEdge, part_elements
from emu.problem.workloads.operations import (
    Amounts,
    LayerWork,
    Operations,
    count_layer,
    count_layers,
)
from emu.systems import Floats
from emu.systems.apt.choice import share_bytes
from emu.systems.apt.job import columns_of
from emu.systems.apt.shares import ShareCounts, count_shares
from emu.systems.device_memory import (
    ROWS,
    Parts,
    batch_bytes,
    most_of_batches,
    weight_bytes,
)
from emu.systems.p3.operations import split_layer
from emu.systems.p3.volumes import SplitModel, split_model
from emu.systems.training_section import feature_bytes, number_bytes

PLACE_BYTES = 4


@dataclass(frozen=True, eq=False)
class CountedJob:
    """A job with the counts of its mini-batches and shares."""

    job: Job
    dataset: Dataset
    shares: ShareCounts
    samples: Sequence[Sequence[SampleCounts]]
    split: SplitModel
    columns: tuple[int, ...]
    """Number of columns of each block of layer 1."""

    @classmethod
    def of(cls, job: Job) -> CountedJob:
        """Count a job; raises DataError when its data set is missing or damaged."""
        settings = job.settings
        dataset = open_for(settings)
        plan = BatchPlan.from_settings(settings)
        length = dataset.feature_length
        split = split_model(
            settings["model"],
            length,
            dataset.classes,
            number_bytes(settings),
        )

        return cls(
            job=job,
            dataset=dataset,
            shares=count_shares(
                dataset,
                plan,
                settings["strategy"],
                job.iterations,
            ),
            samples=count_job(settings, dataset, job.iterations),
            split=split,
            columns=columns_of(settings, length),
        )

    @property
    def strategy(self) -> str:
        """Strategy of the job."""
        name: str = self.job.settings["strategy"]
        return name

    def columns_on(self, rank: int) -> int:
        """Return the columns of features that a machine has."""
        block = rank % len(self.columns)
        return self.columns[block]

    def row_bytes(self, rank: int) -> Floats:
        """Return the bytes of the rows that a machine needs in every iteration."""
        row = self._row_bytes(rank)
        rows = self.shares.rows[rank]
        sizes: Floats = row * rows.sum(axis=0)
        return sizes

    def _row_bytes(self, rank: int) -> int:
        """Return the bytes of a row of a machine's columns."""
        return feature_bytes(self.job.settings) * self.columns_on(rank)

    def samplers_of(self, rank: int) -> range:
        """Return the numbers of a machine's samplers."""
        each = self.job.settings["samplers_per_worker"]
        first = rank * each
        return range(first, first + each)

    def volumes(self, edges: Sequence[NamedEdge]) -> Floats:
        """Return the real bytes of (edge, iteration)."""
        shape = (len(edges), self.job.iterations)
        volumes = np.zeros(shape)
        for row, edge in zip(volumes, edges, strict=True):
            row[:] = self._bytes_of(edge)
        return volumes

    def _bytes_of(self, edge: NamedEdge) -> Any:
        shares = self.shares
        itemsize = self.split.itemsize

        match edge.carries, edge.place:
            case "share", (sampler, rank, home):
                sizes = share_bytes(self.strategy, shares)[sampler, rank]
                if rank == home:
                    sizes = sizes + self._upper_bytes(sampler)
                return sizes
            case "ids", (rank, owner):
                return model_shapes.VERTEX_ID_BYTES * shares.rows[rank, owner]
            case "rows", (rank, owner):
                row = self._row_bytes(rank)
                return row * shares.rows[rank, owner]
            case "sums", (home, rank):
                samplers = self.samplers_of(home)
                of_home = shares.destinations[samplers.start : samplers.stop]
                rows = of_home[:, rank].sum(axis=0)
                return itemsize * self.split.pulled_width * rows
            case ("upper" | "first") as part, place:
                summed = self.split.upper
                if part == "first":
                    summed = self.split.first
                return itemsize * part_elements(summed, place)
            case _:
                return 0.0

    def _upper_bytes(self, sampler: int) -> Floats:
        """Return the bytes of what a machine needs of its own batch behind layer 1."""
        samples = self.samples[sampler]
        vertices = np.array([batch.outputs for batch in samples], float)
        later_edges = [batch.edges - batch.first_edges for batch in samples]
        edges = np.array(later_edges, float)
        sizes = model_shapes.VERTEX_ID_BYTES * vertices
        sizes += model_shapes.BLOCK_EDGE_BYTES * edges
        if self.strategy in {"snp", "dnp"}:
            # Whose sums each machine has: places of them in S_1.
            places = self.shares.destinations[sampler].sum(axis=0)
            sizes += PLACE_BYTES * places
        return sizes

    def operations(self, volumes: Floats) -> Operations:
        """Return the operations of the job; volumes as of `volumes` and credits."""
        job = self.job
        operations = Operations(job)
        operations.add_bytes(job, volumes, "graph_store")
        operations.add_gradients(job, volumes, self.split.itemsize)

        for number, task in enumerate(job.tasks):
            for amounts in self._work_of(task):
                operations.add(number, amounts)
        return operations

    def _work_of(self, task: Task) -> Iterator[Amounts]:
        place = task.settings
        is_dnp = self.strategy == "dnp"

        match task.kind:
            case "sampler":
                samples = self.samples[place["sampler"]]
                # Owners of destinations draw the edges of layer 1.
                first = [batch.first_edges * is_dnp for batch in samples]
                edges = [batch.edges for batch in samples]
                yield {"sample": np.subtract(edges, first)}
            case "sampler_fetch" if is_dnp:
                edges_of_share = self.shares.edges[:, place["rank"]]
                yield {"sample": edges_of_share.sum(axis=0)}
            case "model_forward":
                yield {"launch": 1.0}
                for work in self._shares_work(place["rank"]):
                    yield {**work.forward, "launch": 0.0}
            case "model_backward":
                rank = place["rank"]
                yield {"launch": 1.0}
                for work in self._shares_work(rank):
                    yield {**work.backward(first=True), "launch": 0.0}
                parameters = self.split.first_width * self.columns_on(rank)
                yield {"step": float(parameters)}
            case "data_forward" | "data_backward":
                yield from self._rest_work(place["rank"], task.kind)
            case _:
                pass

    def _shares_work(self, rank: int) -> Iterator[LayerWork]:
        """Yield the work of layer 1 on each share of a machine."""
        shares = self.shares
        model = self.job.settings["model"]
        kind = model.get("kind", "sage")
        widths = (self.columns_on(rank), self.split.pulled_width)

        for sampler in range(len(shares.edges)):
            edges = shares.edges[sampler, rank]
            destinations = shares.destinations[sampler, rank]
            work = count_layer(
                kind,
                widths,
                edges,
                shares.inputs[sampler, rank],
                destinations,
            )
            multiply = work.multiply
            if kind == "sage":
                # A vertex's own weights multiply its own rows, which its owner has.
                columns, width = widths
                lacking = destinations - shares.own[sampler, rank]
                multiply = multiply - lacking * columns * width
            yield LayerWork(work.aggregate, multiply, work.narrows)

    def _rest_work(self, rank: int, kind: str) -> Iterator[Amounts]:
        """Yield the work of a machine on its own mini-batches behind layer 1's sum."""
        settings = self.job.settings
        model = settings["model"]
        length = self.dataset.feature_length
        widths = (length, self.split.pulled_width)

        for sampler in self.samplers_of(rank):
            samples = self.samples[sampler]
            layers = count_layers(
                model,
                length,
                self.dataset.classes,
                samples,
            )
            model_kind = model.get("kind", "sage")
            _, layers[0] = split_layer(model_kind, widths, samples)
            for layer in layers:
                if kind == "data_forward":
                    yield layer.forward
                else:
                    yield layer.backward(first=False)
        if kind == "data_backward":
            yield {"step": float(self.split.upper)}

    def device_memory(self) -> Mapping[str, Parts]:
        """Return what each task keeps in memory of a GPU, in real bytes."""
        settings = self.job.settings
        memory: dict[str, Parts] = {}
        counts = np.bincount(self.dataset.owner, minlength=self.dataset.parts)

        for task in self.job.tasks:
            if task.kind == "graph_store" and task.takes == "gpu":
                size = self._store_bytes(task, counts.tolist())
                memory[task.name] = {ROWS: size}
            elif task.kind == "model_forward":
                rank = task.settings["rank"]
                first = self.split.first_width * self.columns_on(rank)
                parameters = first + self.split.upper
                memory[task.name] = {
                    "weights": weight_bytes(settings, parameters, steps=True),
                    "a mini-batch": self._batch_bytes(rank),
                }
        return memory

    def _store_bytes(self, task: Task, counts: Sequence[int]) -> float:
        rank = task.settings["store"]
        rows = counts[rank]
        if self.strategy == "nfp":
            rows = self.dataset.vertices
        return float(rows * self._row_bytes(rank))

    def _batch_bytes(self, rank: int) -> float:
        """Return the most bytes of an iteration: rows, sums, and a machine's batch."""
        settings = self.job.settings
        shares = self.shares
        sums = self.split.itemsize * self.split.pulled_width
        sizes = [self.row_bytes(rank).tolist()]
        for sampler in range(len(shares.edges)):
            structure = model_shapes.BLOCK_EDGE_BYTES * shares.edges[sampler, rank]
            share = structure + sums * shares.destinations[sampler, rank]
            sizes.append(share.tolist())

        for sampler in self.samplers_of(rank):
            upper = [
                batch_bytes(
                    batch,
                    settings["model"],
                    self.dataset.classes,
                    row=0,
                    number=self.split.itemsize,
                )
                for batch in self.samples[sampler]
            ]
            sizes.append(upper)
        return most_of_batches(sizes)
