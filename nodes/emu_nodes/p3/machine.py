"""Columns, weights and mini-batches under way of one machine of P3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from emu.graph_data import SampledBatch, open_columns
from emu.problem.workloads import layer_shapes
from emu.systems.p3.column_split import ColumnSplit, ForwardPass
from emu.systems.p3.job import PIPELINES
from emu.training import initial_parameters
from emu_nodes.dgtp.job_data import JobData
from emu_nodes.p3.batches import FirstLayer, Group
from emu_nodes.program import (
    Array,
    Settings,
    Shared,
    TaskSpec,
)

#: Arrays by mini-batch.
Arrays: TypeAlias = dict[int, Array]
#: Forward passes of a machine's samplers, in their order.
Passes: TypeAlias = list[ForwardPass]
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
        self.batches: int = settings["batches"]
        self.layers: int = settings["model"]["layers"]
        self.pipeline = PIPELINES[settings["pipeline"]]

        self.rank: int = brief.settings["rank"]
        length = self._dataset.feature_length
        group = Group(settings, length, self.rank)
        self.group = group
        self.samplers = group.samplers_of(self.rank)
        self.learns: bool = settings["compute"] != "timed"
        self._computes = self.learns and group.holds(self.rank)
        """True where it computes a part of layer 1, which takes columns."""

        # What lies between two phases; `_forget` empties it.
        self.structures: dict[Key, FirstLayer] = {}
        self._sampled: dict[Key, SampledBatch] = {}
        self._columns: dict[Key, Array] = {}
        self._passes: dict[int, Passes] = {}
        self.parts = Arrays()
        self.of_sums = Arrays()
        self.gradients = (Arrays(), Arrays())
        self.begun_with = Arrays()

        self._load(settings)
        self._rehearse()

    def _load(self, settings: Settings) -> None:
        dataset = self._dataset
        blocks = self.group.blocks
        block = self.group.block
        columns = open_columns(dataset, blocks)
        self._all_columns = columns.array(f"columns_{block}")

        # All machines begin with the parameters of one seed, and keep their part.
        split = ColumnSplit(
            settings=settings,
            dataset=dataset,
            blocks=blocks,
            block=block,
        )
        flat = initial_parameters(settings, dataset)
        self._split = split
        self.own = split.own(flat)
        self.upper = split.upper(flat)

        model = settings["model"]
        length = dataset.feature_length
        first_layer, *_ = layer_shapes(model, length, dataset.classes)
        matrix, *_ = first_layer
        self._width: int = matrix[0]
        kind = model.get("kind", "sage")
        self._pulls_inputs = kind == "gat"
        self._precision = np.dtype(settings["precision"])

    def _rehearse(self) -> None:
        """Open every array and load every library before the start barrier."""
        for sampler in self.samplers:
            batch = self._data.batch(sampler, 0)
            self.keep(sampler, 0, batch)
        self.collect(0)
        _ = self._dataset.labels  # mapped on first use

        if self.learns:
            import torch

            torch.set_num_threads(1)
        if self._computes:
            part = self.partial(self.rank, 0)
            upper = self.upper.copy()
            self.begun_with[0] = upper
            self.forward(0, [part])  # as if no other machine held columns
            _, of_sum = self.backward(0)
            of_sums = {self.rank: of_sum}
            self.own_gradient(0, of_sums)
        self._forget(0)

    def has(self, batch: int) -> bool:
        """Return True for mini-batches of the job that were not done before a cut."""
        return self._first <= batch < self.batches

    def keep(self, sampler: int, batch: int, sampled: SampledBatch) -> None:
        """Keep what one of this machine's samplers has drawn."""
        key = (sampler, batch)
        self._sampled[key] = sampled
        self.structures[key] = FirstLayer.of_batch(sampled)

    def collect(self, batch: int) -> None:
        """Collect this machine's columns of a mini-batch of the whole group."""
        if not self._computes:
            return
        for key, layer in self.structures.items():
            _, number = key
            if number == batch:  # earlier ones are still under way
                vertices = layer.vertices
                self._columns[key] = self._all_columns[vertices]

    def partial(self, rank: int, batch: int) -> Array:
        """Return the part of layer 1 of a mini-batch from this machine's columns."""
        parts = []
        for sampler in self.group.samplers_of(rank):
            key = (sampler, batch)
            layer = self.structures[key]
            if self.learns:
                part = self._split.partial(
                    weights=self.own,
                    block=layer.block,
                    rows=self._columns[key],
                )
            else:
                rows = self._rows_of(layer)
                part = self._zeros(rows)
            parts.append(part)
        return np.concatenate(parts)  # (rows of all its samplers, width)

    def _zeros(self, rows: int) -> Array:
        """Return what stands for so many rows of a part of layer 1."""
        shape = (rows, self._width)
        return np.zeros(shape, self._precision)

    def _rows_of(self, layer: FirstLayer) -> int:
        """Return the rows of a part of layer 1, or of its gradient."""
        # A GAT weighs its inputs before it sums them; others are summed here.
        block = layer.block
        if self._pulls_inputs:
            return block.outer
        return block.inner

    def _structures_of(self, rank: int, batch: int) -> list[FirstLayer]:
        samplers = self.group.samplers_of(rank)
        return [self.structures[sampler, batch] for sampler in samplers]

    def _shares(self, rank: int, batch: int, rows: Array) -> list[Array]:
        """Return the rows of each of a machine's samplers, of those of all."""
        # Rows of a machine's samplers stand one below the other, in their order.
        layers = self._structures_of(rank, batch)
        counts = [*map(self._rows_of, layers)]
        ends = np.cumsum(counts)
        return np.split(rows, ends[:-1])

    def forward(self, batch: int, parts: Sequence[Array]) -> dict[str, float]:
        """Sum the parts of layer 1 and finish the forward pass; return its figures."""
        parameters = self.begun_with.pop(batch)
        if not self.learns:
            return {}

        # In the order of the ranks: sums of floats depend on it.
        total = parts[0].copy()
        for part in parts[1:]:
            total += part

        passes = self._finish(batch, parameters, total)
        self._passes[batch] = passes
        loss = sum(forward_pass.loss for forward_pass in passes)
        accuracy = sum(forward_pass.accuracy for forward_pass in passes)
        return {"loss": loss, "accuracy": accuracy}

    def _finish(self, batch: int, parameters: Array, sums: Array) -> Passes:
        """Return the forward passes of this machine's samplers, from layer 1 on."""
        batches = []
        all_seeds = 0
        for sampler in self.samplers:
            mini_batch = self._sampled[sampler, batch]
            batches.append(mini_batch)
            all_seeds += len(mini_batch.seeds)
        shares = self._shares(self.rank, batch, sums)

        passes: Passes = []
        for mini_batch, rows in zip(batches, shares, strict=True):
            seeds = mini_batch.seeds
            forward_pass = self._split.forward(
                upper=parameters,
                sizes=mini_batch.sizes,
                edges=mini_batch.edges,
                summed=rows,
                labels=self._dataset.labels[seeds],
                share=len(seeds) / all_seeds,  # so that the loss is that of all seeds
            )
            passes.append(forward_pass)
        return passes

    def backward(self, batch: int) -> tuple[Array, Array]:
        """Return the gradients of the upper parameters and of layer 1's sum."""
        of_upper = np.zeros_like(self.upper)
        if not self.learns:
            layers = self._structures_of(self.rank, batch)
            rows = sum(map(self._rows_of, layers))
            of_sum = self._zeros(rows)
            return of_upper, of_sum

        of_sums = []
        passes = self._passes.pop(batch)
        for forward_pass in passes:
            upper, of_rows = forward_pass.backward()
            of_upper += upper
            of_sums.append(of_rows)
        return of_upper, np.concatenate(of_sums)

    def own_gradient(self, batch: int, of_sums: Mapping[int, Array]) -> Array:
        """Return the sum over the group of the gradients of this machine's weights."""
        total = np.zeros_like(self.own)
        if self._computes:
            for rank in self.group.machines:  # in one order, whoever came first
                if rank in of_sums:
                    of_sum = of_sums[rank]
                    total += self._gradient_of(rank, batch, of_sum)
        self._forget(batch)
        return total

    def _gradient_of(self, rank: int, batch: int, of_sum: Array) -> Array:
        """Return what the mini-batch of a machine of the group adds."""
        total = np.zeros_like(self.own)
        samplers = self.group.samplers_of(rank)
        shares = self._shares(rank, batch, of_sum)
        for sampler, of_rows in zip(samplers, shares, strict=True):
            key = (sampler, batch)
            layer = self.structures[key]
            block = layer.block
            columns = self._columns[key]
            total += self._split.own_gradient(block, columns, of_rows)
        return total

    def _forget(self, batch: int) -> None:
        """Let go of what was kept of a mini-batch."""
        stores: list[dict[Key, Any]] = [
            self._sampled,
            self.structures,
            self._columns,
        ]
        for by_key in stores:
            for key in [*by_key]:
                _, number = key
                if number == batch:
                    del by_key[key]
