"""Columns, weights and mini-batches under way of one machine of P3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.graph_data import SampledBatch, open_columns
from emu.problem.workloads import SPLIT_WEIGHTS, layer_shapes
from emu.systems.p3.column_split import ColumnSplit, ForwardPass
from emu.systems.p3.job import PIPELINES
from emu.training import initial_parameters
from emu_nodes.dgtp.programs import JobData
from emu_nodes.p3.batches import FirstLayer, Group
from emu_nodes.program import Shared, TaskSpec

Array: TypeAlias = NDArray[Any]
#: Sampler and mini-batch.
Key: TypeAlias = tuple[int, int]


class P3Machine:
    """State that the tasks of a machine's worker share.

    With ``compute: timed`` nothing is learnt and torch is not loaded: what is sent are
    zeros of the right size. Raises DataError when the data set or the columns cannot be
    used.

    Attributes
    ----------
    structures
        First layers of the group's batches, by (sampler, mini-batch).
    parts, of_sums
        This machine's part of layer 1 of its own mini-batches, and the gradients of
        their sums.
    gradients
        Of its own columns and of the upper parameters, summed over all machines, by
        mini-batch.
    begun_with
        Upper parameters that a mini-batch is learnt with: updates that come before its
        forward pass must not change what it learns from.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        settings = brief.job_settings
        self._data = JobData(brief, process)
        self._dataset = self._data.dataset
        self._first = brief.first
        self.rank: int = brief.settings["rank"]
        self.group = Group(settings, self._dataset.feature_length, self.rank)
        self.samplers = self.group.samplers_of(self.rank)
        self.pipeline = PIPELINES[settings["pipeline"]]
        self.batches: int = settings["batches"]
        self.layers: int = settings["model"]["layers"]
        self.learns: bool = settings["compute"] != "timed"
        self._computes = self.learns and self.group.holds(self.rank)
        """True where it computes a part of layer 1, which takes columns."""

        self.structures: dict[Key, FirstLayer] = {}
        self._sampled: dict[Key, SampledBatch] = {}
        self._columns: dict[Key, Array] = {}
        self.parts: dict[int, Array] = {}
        self.of_sums: dict[int, Array] = {}
        self.gradients: tuple[dict[int, Array], ...] = ({}, {})
        self.begun_with: dict[int, Array] = {}
        self._passes: dict[int, list[ForwardPass]] = {}

        self._load(settings)
        self._rehearse()

    def _load(self, settings: Mapping[str, Any]) -> None:
        blocks = self.group.blocks
        block = self.group.block
        columns = open_columns(self._dataset, blocks)
        self._all_columns = columns.array(f"columns_{block}")

        self._split = ColumnSplit(settings, self._dataset, blocks, block)
        flat = initial_parameters(settings, self._dataset)
        self.own = self._split.own(flat)
        self.upper = self._split.upper(flat)

        model = settings["model"]
        kind = model.get("kind", "sage")
        length = self._dataset.feature_length
        shapes, *_ = layer_shapes(model, length, self._dataset.classes)
        matrices = shapes[: SPLIT_WEIGHTS[kind]]
        self._width: int = matrices[0][0]
        self._pulls_inputs = kind == "gat"
        self._precision = np.dtype(settings["precision"])

    def _rehearse(self) -> None:
        """Open every array and load every library before the start barrier."""
        for sampler in self.samplers:
            self.keep(sampler, 0, self._data.batch(sampler, 0))
        self.collect(0)
        _ = self._dataset.labels
        if self.learns:
            import torch

            torch.set_num_threads(1)
        if self._computes:
            part = self.partial(self.rank, 0)
            self.begun_with[0] = self.upper.copy()
            self.forward(0, [part])
            _, of_sum = self.backward(0)
            self.own_gradient(0, {self.rank: of_sum})
        self._forget(0)

    def has(self, batch: int) -> bool:
        """Return True for mini-batches of the job that were not done before a cut."""
        return self._first <= batch < self.batches

    def keep(self, sampler: int, batch: int, sampled: SampledBatch) -> None:
        """Keep what one of this machine's samplers has drawn."""
        self._sampled[sampler, batch] = sampled
        self.structures[sampler, batch] = FirstLayer.of_batch(sampled)

    def collect(self, batch: int) -> None:
        """Collect this machine's columns of a mini-batch of the whole group."""
        if not self._computes:
            return
        for (sampler, number), layer in self.structures.items():
            if number == batch:
                rows = self._all_columns[layer.vertices]
                self._columns[sampler, batch] = rows

    def partial(self, rank: int, batch: int) -> Array:
        """Return the part of layer 1 of a mini-batch from this machine's columns."""
        samplers = self.group.samplers_of(rank)
        parts = [self._partial(sampler, batch) for sampler in samplers]
        return np.concatenate(parts)

    def _partial(self, sampler: int, batch: int) -> Array:
        layer = self.structures[sampler, batch]
        if not self.learns:
            return self._zeros(self._rows_of(layer))
        columns = self._columns[sampler, batch]
        return self._split.partial(self.own, layer.block, columns)

    def _zeros(self, rows: int) -> Array:
        """Return what stands for so many rows of a part of layer 1."""
        return np.zeros((rows, self._width), self._precision)

    def _rows_of(self, layer: FirstLayer) -> int:
        """Return the rows of a part of layer 1, or of its gradient."""
        return layer.block.outer if self._pulls_inputs else layer.block.inner

    def _shares(self, rank: int, batch: int, rows: Array) -> list[Array]:
        """Return the rows of each of a machine's samplers, of those of all."""
        samplers = self.group.samplers_of(rank)
        layers = [self.structures[sampler, batch] for sampler in samplers]
        ends = np.cumsum([self._rows_of(layer) for layer in layers])
        return np.split(rows, ends[:-1])

    def forward(self, batch: int, parts: Sequence[Array]) -> dict[str, float]:
        """Sum the parts of layer 1 and finish the forward pass; return its figures."""
        begun_with = self.begun_with.pop(batch)
        if not self.learns:
            return {}
        total = parts[0].copy()
        for part in parts[1:]:
            total += part

        passes = []
        own = [self._sampled[sampler, batch] for sampler in self.samplers]
        seeds = sum(len(sampled.seeds) for sampled in own)
        shares = self._shares(self.rank, batch, total)
        for sampled, rows in zip(own, shares, strict=True):
            forward_pass = self._split.forward(
                begun_with,
                sampled.sizes,
                sampled.edges,
                rows,
                self._dataset.labels[sampled.seeds],
                share=len(sampled.seeds) / seeds,
            )
            passes.append(forward_pass)
        self._passes[batch] = passes
        loss = sum(forward_pass.loss for forward_pass in passes)
        accuracy = sum(forward_pass.accuracy for forward_pass in passes)
        return {"loss": loss, "accuracy": accuracy}

    def backward(self, batch: int) -> tuple[Array, Array]:
        """Return the gradients of the upper parameters and of layer 1's sum."""
        if not self.learns:
            layers = [self.structures[sampler, batch] for sampler in self.samplers]
            rows = sum(self._rows_of(layer) for layer in layers)
            return np.zeros_like(self.upper), self._zeros(rows)

        of_upper = np.zeros_like(self.upper)
        of_sums = []
        for forward_pass in self._passes.pop(batch):
            upper, of_rows = forward_pass.backward()
            of_upper += upper
            of_sums.append(of_rows)
        return of_upper, np.concatenate(of_sums)

    def own_gradient(self, batch: int, of_sums: Mapping[int, Array]) -> Array:
        """Return the sum over the group of the gradients of this machine's weights."""
        total = np.zeros_like(self.own)
        for rank in self.group.machines:
            if rank in of_sums and self._computes:
                total += self._gradient_of(rank, batch, of_sums[rank])
        self._forget(batch)
        return total

    def _gradient_of(self, rank: int, batch: int, of_sum: Array) -> Array:
        """Return what the mini-batch of a machine of the group adds."""
        total = np.zeros_like(self.own)
        samplers = self.group.samplers_of(rank)
        shares = self._shares(rank, batch, of_sum)
        for sampler, of_rows in zip(samplers, shares, strict=True):
            layer = self.structures[sampler, batch]
            columns = self._columns[sampler, batch]
            total += self._split.own_gradient(layer.block, columns, of_rows)
        return total

    def _forget(self, batch: int) -> None:
        """Let go of what was kept of a mini-batch."""
        for kept in (self._sampled, self.structures, self._columns):
            keys = [(sampler, number) for sampler, number in kept if number == batch]
            for key in keys:
                del kept[key]
