"""Weights, shares and mini-batches under way of one machine of APT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from emu.graph_data import SampledBatch
from emu.systems.apt.job import columns_of
from emu.systems.apt.shares import Share, computing, split
from emu.systems.apt.sums import add_rows, multiply, weight_gradient
from emu.systems.p3.column_split import ColumnSplit, ForwardPass
from emu.training import initial_parameters
from emu_nodes.apt.messages import upper_batch, with_empty_block
from emu_nodes.dgtp.job_data import JobData
from emu_nodes.program import Array, Shared, TaskSpec

#: Sampler and mini-batch.
Key: TypeAlias = tuple[int, int]
#: Shares, mini-batches and sums by sampler and mini-batch.
Shares: TypeAlias = dict[Key, Share]
Batches: TypeAlias = dict[Key, SampledBatch]
Sums: TypeAlias = dict[Key, list[Array]]
#: Places in S_1 of the sums that every machine has.
Places: TypeAlias = dict[Key, dict[int, Array]]
#: Arrays by mini-batch.
Arrays: TypeAlias = dict[int, Array]
#: Forward passes of a machine's samplers, by mini-batch.
Passes: TypeAlias = dict[int, list[ForwardPass]]


class AptMachine:
    """State that the tasks of a machine's worker share.

    With ``compute: timed`` nothing is learnt: what is sent are zeros of the right size.

    Attributes
    ----------
    shares, batches
        What the machine computes of layer 1, by (sampler, mini-batch); its own
        mini-batches, without that layer.
    places
        By (sampler, mini-batch) and machine, places in S_1 of the sums that it has.
    needed
        Vertices whose rows it asked for, ascending, by mini-batch.
    gradients
        Of layer 1's weights and of the other parameters, summed over all machines, by
        mini-batch.
    """

    def __init__(
        self,
        brief: TaskSpec,
        process: Shared,
    ) -> None:
        settings = brief.job_settings
        self.data = JobData(brief, process)
        self.dataset = self.data.dataset
        self.rank: int = brief.settings["rank"]
        self.ranks: int = settings["workers"]
        self.strategy: str = settings["strategy"]
        self.layers: int = settings["model"]["layers"]
        self.learns: bool = settings["compute"] != "timed"
        self._each: int = settings["samplers_per_worker"]
        self._kind: str = settings["model"].get("kind", "sage")
        self._fanout = self.data.plan.hop_fanout(self.layers)
        self._degrees = self.dataset.structure.degrees

        blocks = columns_of(settings, self.dataset.feature_length)
        block = self.rank % len(blocks)
        self._split = ColumnSplit(
            settings,
            self.dataset,
            blocks,
            block,
        )
        flat = initial_parameters(settings, self.dataset)
        self.own = self._split.own(flat)
        self.upper = self._split.upper(flat)
        self.columns = blocks[block]
        matrices = 2 if self._kind == "sage" else 1
        inputs = matrices * self.columns
        self._width = len(self.own) // inputs

        # What lies between two phases; `_forget` empties it.
        self.shares = Shares()
        self.batches = Batches()
        self.places = Places()
        self.needed = Arrays()
        self.parts = Arrays()
        self.of_sums = Arrays()
        self.gradients = (Arrays(), Arrays())
        self._added = Sums()
        self._passes = Passes()
        self._rehearse()

    def _rehearse(self) -> None:
        """Open every array and load every library before the start barrier."""
        sampler, *_ = self.samplers_of(self.rank)
        batch = self.data.batch(sampler, 0)
        owner = np.asarray(self.dataset.owner)
        split(
            batch,
            owner,
            self.strategy,
            self.rank,
        )
        _ = self.dataset.labels  # mapped on first use
        if self.learns:
            import torch

            torch.set_num_threads(1)
            upper = with_empty_block(upper_batch(batch))
            sums = self._zeros(upper.sizes[0])
            forward_pass = self._pass_of(upper, sums, 1.0)
            forward_pass.backward()

    @property
    def samplers(self) -> range:
        """Samplers of all machines."""
        return range(self.ranks * self._each)

    def samplers_of(self, rank: int) -> range:
        """Return the numbers of a machine's samplers."""
        first = rank * self._each
        return range(first, first + self._each)

    def computing(self, rank: int) -> range:
        """Return the machines with a share of the mini-batches of one."""
        return computing(self.strategy, rank, self.ranks)

    def keep_rows(
        self,
        batch: int,
        rows: Array,
    ) -> None:
        """Add up the rows that came, in the order of ``needed``, for every share."""
        vertices = self.needed.pop(batch)
        if not self.learns:
            return

        for key, share in self.shares.items():
            _, number = key
            if number != batch:  # others wait for their rows
                continue
            inputs, _ = share.inputs
            places = np.searchsorted(vertices, inputs)
            of_share = rows[places]
            drawn = self._degrees[share.destinations]
            degrees = np.minimum(drawn, self._fanout)
            added = add_rows(
                self._kind,
                share,
                of_share,
                degrees,
            )
            self._added[key] = added

    def part(
        self,
        rank: int,
        batch: int,
    ) -> Array:
        """Return this machine's part of layer 1 of a machine's mini-batch."""
        parts = []
        for sampler in self.samplers_of(rank):
            key = (sampler, batch)
            if self.learns:
                sums = self._added[key]
                part = multiply(sums, self.own)
            else:
                share = self.shares[key]
                rows = len(share.destinations)
                part = self._zeros(rows)
            parts.append(part)
        return np.concatenate(parts)

    def _places_of(
        self,
        rank: int,
        batch: int,
    ) -> list[Array]:
        """Return, by own sampler, the places in S_1 whose sums a machine has."""
        samplers = self.samplers_of(self.rank)
        return [self.places[sampler, batch][rank] for sampler in samplers]

    def forward(
        self,
        batch: int,
        parts: Mapping[int, Array],
    ) -> dict[str, float]:
        """Sum the parts of layer 1 and finish the forward pass; return its figures."""
        if not self.learns:
            return {}
        samplers = self.samplers_of(self.rank)
        batches = [self.batches[sampler, batch] for sampler in samplers]
        sums = []
        all_seeds = 0
        for mini_batch in batches:
            rows = mini_batch.sizes[0]
            sums.append(self._zeros(rows))
            all_seeds += len(mini_batch.seeds)
        # In the order of the machines: sums of floats depend on it.
        for rank, part in sorted(parts.items()):
            places = self._places_of(rank, batch)
            self._add_part(sums, places, part)

        passes = []
        for mini_batch, total in zip(batches, sums, strict=True):
            share = len(mini_batch.seeds) / all_seeds
            whole_batch = with_empty_block(mini_batch)
            forward_pass = self._pass_of(whole_batch, total, share)
            passes.append(forward_pass)

        self._passes[batch] = passes
        loss = sum(forward_pass.loss for forward_pass in passes)
        accuracy = sum(forward_pass.accuracy for forward_pass in passes)
        return {"loss": loss, "accuracy": accuracy}

    def _zeros(self, rows: int) -> Array:
        """Return sums of so many vertices to which nothing was added."""
        shape = (rows, self._width)
        return np.zeros(shape, self.own.dtype)

    @staticmethod
    def _add_part(
        sums: Sequence[Array],
        places: Sequence[Array],
        part: Array,
    ) -> None:
        """Add a machine's part to the sums of every own sampler."""
        counts = [*map(len, places)]
        ends = np.cumsum(counts)
        shares = np.split(part, ends[:-1])
        for total, rows, of_rows in zip(sums, places, shares, strict=True):
            total[rows] += of_rows

    def _pass_of(
        self,
        batch: SampledBatch,
        sums: Array,
        share: float,
    ) -> ForwardPass:
        return self._split.forward(
            upper=self.upper,
            sizes=batch.sizes,
            edges=batch.edges,
            summed=sums,
            labels=self.dataset.labels[batch.seeds],
            share=share,
        )

    def backward(self, batch: int) -> dict[int, Array]:
        """Return by machine the gradients of the sums that it has a part of.

        That of the parameters behind layer 1 is kept.
        """
        of_upper = np.zeros_like(self.upper)
        of_sums = []
        for number, sampler in enumerate(self.samplers_of(self.rank)):
            if self.learns:
                forward_pass = self._passes[batch][number]
                upper, of_sum = forward_pass.backward()
                of_upper += upper
            else:
                mini_batch = self.batches[sampler, batch]
                of_sum = self._zeros(mini_batch.sizes[0])
            of_sums.append(of_sum)

        self.gradients[1][batch] = of_upper
        self._passes.pop(batch, None)
        by_machine = {}
        for rank in self.computing(self.rank):
            places = self._places_of(rank, batch)
            by_machine[rank] = self._select(of_sums, places)
        return by_machine

    @staticmethod
    def _select(of_sums: Sequence[Array], places: Sequence[Array]) -> Array:
        pairs = zip(of_sums, places, strict=True)
        return np.concatenate([of_sum[rows] for of_sum, rows in pairs])

    def add_gradient(
        self,
        batch: int,
        of_parts: Mapping[int, Array],
    ) -> None:
        """Keep the gradient of layer 1's weights, from those of all its parts."""
        total = np.zeros_like(self.own)
        if self.learns:
            for rank, of_part in sorted(of_parts.items()):
                total += self._gradient_of(rank, batch, of_part)
        self.gradients[0][batch] = total
        self._forget(batch)

    def _gradient_of(
        self,
        rank: int,
        batch: int,
        of_part: Array,
    ) -> Array:
        total = np.zeros_like(self.own)
        first = 0
        for sampler in self.samplers_of(rank):
            added = self._added[sampler, batch]
            last = first + len(added[0])
            of_rows = of_part[first:last]
            total += weight_gradient(added, of_rows)
            first = last
        return total

    def _forget(self, batch: int) -> None:
        """Let go of what was kept of a mini-batch."""
        kept: list[dict[Key, Any]] = [
            self.shares,
            self.batches,
            self.places,
            self._added,
        ]
        for by_key in kept:
            for key in [*by_key]:
                _, number = key
                if number == batch:
                    del by_key[key]
