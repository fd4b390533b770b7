"""State of one machine of P3: columns, weights, and the mini-batches under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.graph_data import SampledBatch, open_columns
from emu.problem.workloads import SPLIT_WEIGHTS, layer_shapes
from emu.systems.p3.column_split import ColumnSplit, ForwardPass
from emu.systems.p3.job import PIPELINES, column_blocks
from emu.training import initial_parameters, make_optimizer
from emu.training.layers import Block
from emu_nodes.dgtp.programs import JobData
from emu_nodes.program import Payload, Shared, TaskSpec, pick

_Gradients = tuple[NDArray[Any], NDArray[Any]]


#: Own rows of layer 1, and all other parameters.
_PARTS = "own", "upper"


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """Structure of the first layer of one mini-batch: S_0 and the edges E_1."""

    vertices: NDArray[np.int64]
    block: Block

    def tensors(self) -> Payload:
        """Return tensors to push: 8 #S_0 + 8 #E_1 bytes, which give #S_1 as well."""
        outputs = self.block.inner
        return {
            "outputs": self.vertices[:outputs],
            "inputs": self.vertices[outputs:],
            "source": self.block.source,
            "destination": self.block.destination,
        }


class P3Machine:
    """The state that the tasks of a machine share.

    With ``compute: timed`` nothing is learnt and torch is not loaded: what is sent are
    zeros of the right size.

    Raises DataError when the data set or the columns cannot be used.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        settings = brief.job_settings
        self._data = JobData(brief, process)
        self.rank: int = brief.settings["rank"]
        self.pipeline = PIPELINES[settings["pipeline"]]
        self.batches: int = settings["batches"]
        self.derived = settings["push"] == "derived"
        self.asks = settings["structure"] == "hashed"
        self.ranks: int = settings["workers"]
        self.groups: int = settings["groups"]
        self._members = self.ranks // self.groups
        first = self.rank - self.rank % self._members
        self.group = range(first, first + self._members)
        self.peers = [rank for rank in self.group if rank != self.rank]
        self.blocks = column_blocks(
            settings["columns"], self._data.dataset.feature_length, self._members
        )
        self._learns = settings["compute"] != "timed"
        self._precision = np.dtype(settings["precision"])
        self._load(settings)
        self.structures: dict[tuple[int, int], FirstLayer] = {}
        self.parts: dict[int, NDArray[Any]] = {}
        self.of_sums: dict[int, NDArray[Any]] = {}
        self.upper_gradients: dict[int, NDArray[Any]] = {}
        self.own_gradients: dict[int, NDArray[Any]] = {}
        self._sampled: dict[int, SampledBatch] = {}
        self._begun_with: dict[int, NDArray[Any]] = {}
        self._forward: dict[int, ForwardPass] = {}
        self._first = brief.first
        self._updates = max(brief.first - self.pipeline.missed, 0)
        self._taken: deque[_Gradients] = deque(maxlen=self.pipeline.missed)
        self._rehearse()

    def _load(self, settings: Mapping[str, Any]) -> None:
        dataset, block = self._data.dataset, self.rank % self._members
        self._columns = open_columns(dataset, self.blocks).array(f"columns_{block}")
        self._split = ColumnSplit(settings, dataset, self.blocks, block)
        flat = initial_parameters(settings, dataset)
        self.own, self.upper = self._split.own(flat), self._split.upper(flat)
        self._optimizers = [
            make_optimizer(settings, part) for part in (self.own, self.upper)
        ]
        model = settings["model"]
        weights, *_ = layer_shapes(model, dataset.feature_length, dataset.classes)
        kind = model.get("kind", "sage")
        self._width = weights[: SPLIT_WEIGHTS[kind]][0][0]
        self._pulls_inputs = kind == "gat"

    def _rehearse(self) -> None:
        """Open every array and load every library before the start barrier."""
        self.sample(self.rank, 0)
        _ = self._data.dataset.labels
        if self._learns:
            import torch

            torch.set_num_threads(1)
            if self.holds(self.rank):
                part = self.partial(self.rank, 0)
                self._begun_with[0] = self.upper.copy()
                self.forward(0, [part])
                _, of_sum = self.backward(0)
                self.own_gradient(0, {self.rank: of_sum})
        self.structures.clear()
        self._sampled.clear()

    def holds(self, rank: int) -> bool:
        """Return True where a machine holds any columns."""
        return bool(self.blocks[rank % self._members])

    def has(self, batch: int) -> bool:
        """Return True for mini-batches of the job that were not done before a cut."""
        return self._first <= batch < self.batches

    def sample(self, rank: int, batch: int) -> FirstLayer:
        """Sample a machine's mini-batch; keep what will be needed of it."""
        return self.keep(rank, batch, self._data.batch(rank, batch))

    def keep(self, rank: int, batch: int, sampled: SampledBatch) -> FirstLayer:
        """Keep what will be needed of a machine's mini-batch."""
        if rank == self.rank:
            self._sampled[batch] = sampled
        source, destination = sampled.edges[0]
        block = Block(source, destination, sampled.sizes[0], sampled.sizes[1])
        layer = FirstLayer(sampled.vertices, block)
        self.structures[rank, batch] = layer
        return layer

    def begin(self, batch: int) -> None:
        """Keep the upper parameters that this mini-batch is to be learnt with."""
        # Updates that come before its forward pass must not change what it learns from.
        self._begun_with[batch] = self.upper.copy()

    @property
    def versions(self) -> int:
        """Versions of the upper parameters that are kept, the newest among them."""
        return len(self._begun_with) + 1

    def partial(self, rank: int, batch: int) -> NDArray[Any]:
        """Return the part of layer 1 of a mini-batch from this machine's columns."""
        layer = self.structures[rank, batch]
        if not self._learns:
            return self._zeros(layer)
        columns = self._columns[layer.vertices]
        return self._split.partial(self.own, layer.block, columns)

    def _zeros(self, layer: FirstLayer) -> NDArray[Any]:
        """Return zeros in place of a part of layer 1, or of its gradient."""
        rows = layer.block.outer if self._pulls_inputs else layer.block.inner
        return np.zeros((rows, self._width), self._precision)

    def forward(self, batch: int, parts: Sequence[NDArray[Any]]) -> dict[str, float]:
        """Sum the parts of layer 1 and finish the forward pass; return its figures."""
        if not self._learns:
            return {}
        total = parts[0].copy()
        for part in parts[1:]:
            total += part
        batch_sample = self._sampled[batch]
        output = self._split.forward(
            self._begun_with.pop(batch),
            batch_sample.sizes,
            batch_sample.edges,
            total,
            self._data.dataset.labels[batch_sample.seeds],
        )
        self._forward[batch] = output
        return {"loss": output.loss, "accuracy": output.accuracy}

    def backward(self, batch: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the gradients of the upper parameters and of layer 1's sum."""
        if not self._learns:
            of_sum = self._zeros(self.structures[self.rank, batch])
            return np.zeros_like(self.upper), of_sum
        return self._forward.pop(batch).backward()

    def own_gradient(
        self, batch: int, of_sums: Mapping[int, NDArray[Any]]
    ) -> NDArray[Any]:
        """Return the sum over the group of the gradients of this machine's weights."""
        self._sampled.pop(batch, None)
        total = np.zeros_like(self.own)
        for rank in self.group:
            # To a machine without columns no structure was sent.
            layer = self.structures.pop((rank, batch), None)
            if self._learns and layer is not None and self.holds(self.rank):
                columns = self._columns[layer.vertices]
                total += self._split.own_gradient(layer.block, columns, of_sums[rank])
        return total

    def take_updates(self, cycle: int | None) -> None:
        """Step with the mean gradients that are due before this cycle's ``Mf``.

        Those of mini-batch k are due for that of mini-batch k + 1 + tau, which both
        parts of the parameters keep to: they form one version.

        After the last one, None, with all that is left.
        """
        due = self.batches
        if cycle is not None:
            due = min(max(cycle - self.pipeline.missed, 0), self.batches)
        for batch in range(self._updates, due):
            gradients = self.own_gradients.pop(batch), self.upper_gradients.pop(batch)
            self._taken.append(gradients)
            if self._learns:
                for optimizer, total in zip(self._optimizers, gradients, strict=True):
                    optimizer.step(total / self.ranks)
        self._updates = due

    # A cut before ``Mf`` of mini-batch k lies between mini-batches, not between cycles:
    # all before k are done, and none from k on has begun. What the former leave is the
    # version of the weights that k is begun with, and the summed gradients of the tau
    # mini-batches that this version lacks. These come in the tau cycles that follow,
    # with the updates that are due there anyway, so nothing waits for a cut. No partial
    # activation, structure or half summed vector belongs to it: each is of a mini-batch
    # before k, whose gradient is there, or of one from k on, which begins anew. After
    # it the pipeline fills as at the start: cycle k of a phase that is behind has no
    # mini-batch.

    def state(self, cycle: int) -> Payload:
        """Return both parts of the parameters before a mini-batch, and moments."""
        self.take_updates(cycle)
        return {
            f"{part}.{name}": array
            for part, optimizer in zip(_PARTS, self._optimizers, strict=True)
            for name, array in optimizer.state().items()
        }

    def late_gradients(self, cycle: int) -> Payload:
        """Return the gradients that the version of tau cycles before has lacked."""
        self.take_updates(cycle)
        last = range(self._updates - len(self._taken), self._updates)
        return {
            f"{part}.gradient{batch}": total
            for batch, gradients in zip(last, self._taken, strict=True)
            for part, total in zip(_PARTS, gradients, strict=True)
        }

    def restore(self, state: Payload) -> None:
        """Go on from what `state` and `arrived` returned.

        Raises ValueError when it is of another optimiser or cut, or of other
        parameters.
        """
        held = self.own_gradients, self.upper_gradients
        for part, optimizer, gradients in zip(
            _PARTS, self._optimizers, held, strict=True
        ):
            own = pick(state, f"{part}.")
            for batch in range(self._updates, self._first):
                if (gradient := own.pop(f"gradient{batch}", None)) is None:
                    raise ValueError(f"state without gradient {batch} of {part}")
                gradients[batch] = gradient.copy()
            optimizer.restore(own)
