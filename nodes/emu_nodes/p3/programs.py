"""P3's sampler and phases: the tasks of one machine, which share its process.

Every task runs once per cycle of the pipeline and finds its mini-batch by how far its
phase is behind. In a cycle without one it sends nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.graph_data import GrowingBatch, SampledBatch, open_columns
from emu.problem.workloads import SPLIT_WEIGHTS, layer_shapes
from emu.systems.p3.column_split import ColumnSplit, ForwardPass
from emu.systems.p3.job import PIPELINES, column_blocks
from emu.training import initial_parameters, make_optimizer
from emu.training.layers import Block
from emu_nodes.all_reduce import share_vector
from emu_nodes.dgtp.programs import JobData, add_replies
from emu_nodes.program import (
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskProgram,
    TaskSpec,
    pick,
    tensor,
)

#: Own rows of layer 1, and all other parameters.
_PARTS = "own", "upper"
_STRUCTURE = "outputs", "inputs", "source", "destination"


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """Structure of the first layer of one mini-batch: S_0 and the edges E_1."""

    vertices: NDArray[np.int64]
    block: Block

    def tensors(self) -> Payload:
        """Return tensors to push: 8 #S_0 + 8 #E_1 bytes, which give #S_1 as well."""
        block, vertices = self.block, self.vertices
        ends = vertices[: block.inner], vertices[block.inner :]
        arrays = *ends, block.source, block.destination
        return dict(zip(_STRUCTURE, arrays, strict=True))

    @classmethod
    def of(cls, payload: Payload, sender: EdgeSpec) -> FirstLayer:
        """Return what `tensors` states, copied out of pooled memory."""
        outputs, others, source, destination = (
            tensor(payload, name, sender).copy() for name in _STRUCTURE
        )
        vertices: NDArray[np.int64] = np.concatenate([outputs, others])
        try:
            block = Block(source, destination, len(vertices), len(outputs))
        except ValueError as error:
            raise NodeMisbehaved(f"{sender.peer}: {error}") from error
        return cls(vertices, block)


class P3Machine:
    """Columns, weights and mini-batches under way, which a machine's tasks share.

    With ``compute: timed`` nothing is learnt and torch is not loaded: what is sent are
    zeros of the right size. Raises DataError when the data set or the columns cannot be
    used.
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
        self.learns: bool = settings["compute"] != "timed"
        self._precision = np.dtype(settings["precision"])
        self._load(settings)
        self.structures: dict[tuple[int, int], FirstLayer] = {}
        self.parts: dict[int, NDArray[Any]] = {}
        self.of_sums: dict[int, NDArray[Any]] = {}
        self.gradients: tuple[dict[int, NDArray[Any]], ...] = ({}, {})
        """Summed over all machines, of the `_PARTS` of the parameters by mini-batch."""
        self._sampled: dict[int, SampledBatch] = {}
        self.begun_with: dict[int, NDArray[Any]] = {}
        """Upper parameters that a mini-batch is learnt with: updates that come before
        its forward pass must not change what it learns from."""
        self._forward: dict[int, ForwardPass] = {}
        self._first = brief.first
        self._rehearse()

    def _load(self, settings: Mapping[str, Any]) -> None:
        dataset, block = self._data.dataset, self.rank % self._members
        self._columns = open_columns(dataset, self.blocks).array(f"columns_{block}")
        self._split = ColumnSplit(settings, dataset, self.blocks, block)
        flat = initial_parameters(settings, dataset)
        self.own, self.upper = self._split.own(flat), self._split.upper(flat)
        model = settings["model"]
        weights, *_ = layer_shapes(model, dataset.feature_length, dataset.classes)
        kind = model.get("kind", "sage")
        self._width = weights[: SPLIT_WEIGHTS[kind]][0][0]
        self._pulls_inputs = kind == "gat"

    def _rehearse(self) -> None:
        """Open every array and load every library before the start barrier."""
        self.sample(self.rank, 0)
        _ = self._data.dataset.labels
        if self.learns:
            import torch

            torch.set_num_threads(1)
            if self.holds(self.rank):
                part = self.partial(self.rank, 0)
                self.begun_with[0] = self.upper.copy()
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
        """Sample a machine's mini-batch, and `keep` it."""
        return self.keep(rank, batch, self._data.batch(rank, batch))

    def keep(self, rank: int, batch: int, sampled: SampledBatch) -> FirstLayer:
        """Keep what will be needed of a machine's mini-batch."""
        if rank == self.rank:
            self._sampled[batch] = sampled
        block = Block(*sampled.edges[0], *sampled.sizes[:2])
        layer = self.structures[rank, batch] = FirstLayer(sampled.vertices, block)
        return layer

    def partial(self, rank: int, batch: int) -> NDArray[Any]:
        """Return the part of layer 1 of a mini-batch from this machine's columns."""
        layer = self.structures[rank, batch]
        if not self.learns:
            return self._zeros(layer)
        columns = self._columns[layer.vertices]
        return self._split.partial(self.own, layer.block, columns)

    def _zeros(self, layer: FirstLayer) -> NDArray[Any]:
        """Return zeros in place of a part of layer 1, or of its gradient."""
        rows = layer.block.outer if self._pulls_inputs else layer.block.inner
        return np.zeros((rows, self._width), self._precision)

    def forward(self, batch: int, parts: Sequence[NDArray[Any]]) -> dict[str, float]:
        """Sum the parts of layer 1 and finish the forward pass; return its figures."""
        begun_with = self.begun_with.pop(batch)
        if not self.learns:
            return {}
        total = parts[0].copy()
        for part in parts[1:]:
            total += part
        own = self._sampled[batch]
        labels = self._data.dataset.labels[own.seeds]
        output = self._split.forward(begun_with, own.sizes, own.edges, total, labels)
        self._forward[batch] = output
        return {"loss": output.loss, "accuracy": output.accuracy}

    def backward(self, batch: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the gradients of the upper parameters and of layer 1's sum."""
        if not self.learns:
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
            if self.learns and layer is not None and self.holds(self.rank):
                columns = self._columns[layer.vertices]
                total += self._split.own_gradient(layer.block, columns, of_sums[rank])
        return total


class _P3Task(TaskProgram):
    """State and methods that the tasks of a machine share."""

    #: Position of its phase in `emu.systems.p3.job.Pipeline.behind`.
    phase = 0
    #: Which of the `_PARTS` has a gradient that it shares with other machines, if any.
    shares: int | None = None

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        if "p3" not in process:
            process["p3"] = P3Machine(brief, process)
        self._machine: P3Machine = process["p3"]
        super().__init__(brief, process)
        self._arrived: Inputs = {}

    @override
    def work(self, iteration: int, inputs: Inputs) -> dict[str, Payload]:
        """Return the phase's payloads for its mini-batch, by task at the other end."""
        self._arrived, self._figures = inputs, {}
        batch = iteration - self._machine.pipeline.behind[self.phase]
        payloads = self.learn(batch) if self._machine.has(batch) else {}
        if self.shares is not None:
            self._share(iteration, self.shares, batch)
        self._arrived = {}
        return payloads

    @override
    def payload(
        self, output: EdgeSpec, iteration: int, made: dict[str, Payload]
    ) -> Payload:
        return made.get(output.peer, {})

    def learn(self, batch: int) -> dict[str, Payload]:
        """Do the phase's part of a mini-batch."""
        raise NotImplementedError

    def _share(self, iteration: int, part: int, batch: int) -> None:
        """Share a part's gradient with other groups, or all machines, if any."""
        machine = self._machine
        if (machine.groups, machine.ranks)[part] > 1:
            # Its all-reduce runs in every cycle, and waits for all ranks.
            mine = machine.gradients[part].get(batch) if machine.has(batch) else None
            gradient = np.zeros(0, machine.upper.dtype) if mine is None else mine
            task = f"{'vw'[part]}{machine.rank}"
            share_vector(self._process, task, gradient, iteration)

    def _from(self, task: str) -> tuple[Payload, EdgeSpec]:
        """Return the payload from a task of another machine, and its edge."""
        edge = next(one for one in self._brief.inputs if one.peer == task)
        return self._arrived[edge.edge], edge


class P3Sampler(_P3Task):
    """Samples its machine's mini-batch, and sends the first layer's structure."""

    @override
    def learn(self, batch: int) -> dict[str, Payload]:
        machine = self._machine
        if machine.asks:
            growing: GrowingBatch = self._process["growing"].pop(batch)
            add_replies(growing, self._brief, self._arrived)
            own = machine.keep(machine.rank, batch, growing.finish())
        else:
            own = machine.sample(machine.rank, batch)
        self._figures = {
            "input_vertices": float(own.block.outer),
            "edges": float(len(own.block.source)),
        }
        for peer in machine.peers if machine.derived else ():
            machine.sample(peer, batch)
        structure = own.tensors()
        return {f"Mf{peer}": structure for peer in machine.peers if machine.holds(peer)}


class ModelForward(_P3Task):
    """The linear part of layer 1 on this machine's columns, for all of its group.

    It brings the weights up to date before a mini-batch is begun with them.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        machine, settings = self._machine, brief.job_settings
        self.missed = machine.pipeline.missed
        """Cycles until the updates have come that are under way at a cut."""
        weights = machine.own, machine.upper
        self._optimizers = [make_optimizer(settings, part) for part in weights]
        self._updates = max(brief.first - self.missed, 0)
        self._taken: deque[tuple[NDArray[Any], ...]] = deque(maxlen=self.missed)

    @override
    def work(self, iteration: int, inputs: Inputs) -> dict[str, Payload]:
        self._take_updates(iteration)
        return super().work(iteration, inputs)

    @override
    def learn(self, batch: int) -> dict[str, Payload]:
        machine = self._machine
        machine.begun_with[batch] = machine.upper.copy()
        payloads: dict[str, Payload] = {}
        for rank in machine.group if machine.holds(machine.rank) else ():
            if rank != machine.rank and not machine.derived:
                payload, sender = self._from(f"s{rank}")
                machine.structures[rank, batch] = FirstLayer.of(payload, sender)
            payloads[f"Df{rank}"] = {"partial": machine.partial(rank, batch)}
        if own := payloads.pop(f"Df{machine.rank}", None):
            machine.parts[batch] = own["partial"]
        # Versions of the upper parameters that are kept, the newest among them.
        self._figures = {"versions": float(len(machine.begun_with) + 1)}
        return payloads

    def _take_updates(self, cycle: int | None) -> None:
        """Step with the mean gradients that are due before this cycle's ``Mf``.

        Those of mini-batch k are due for that of mini-batch k + 1 + tau, which both
        parts of the parameters keep to: they form one version. After the last one,
        None, with all that is left: a trial ends before the last mini-batch.
        """
        machine = self._machine
        done = self._brief.iterations - machine.pipeline.depth
        due = max(done if cycle is None else cycle - self.missed, self._updates)
        due = min(due, machine.batches)
        for batch in range(self._updates, due):
            gradients = tuple(by_batch.pop(batch) for by_batch in machine.gradients)
            self._taken.append(gradients)
            if machine.learns:
                for optimizer, total in zip(self._optimizers, gradients, strict=True):
                    optimizer.step(total / machine.ranks)
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

    def state(self, iteration: int) -> Payload:
        """Return both parts of the parameters before a mini-batch, and moments."""
        self._take_updates(iteration)
        return {
            f"{part}.{name}": array
            for part, optimizer in zip(_PARTS, self._optimizers, strict=True)
            for name, array in optimizer.state().items()
        }

    def late_updates(self, iteration: int) -> Payload:
        """Return the gradients that the version of tau cycles before has lacked."""
        self._take_updates(iteration)
        last = range(self._updates - len(self._taken), self._updates)
        return {
            f"{part}.gradient{batch}": total
            for batch, gradients in zip(last, self._taken, strict=True)
            for part, total in zip(_PARTS, gradients, strict=True)
        }

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Go on from its own state.

        Raises ValueError when it is of another optimiser or cut, or of other
        parameters.
        """
        parts = zip(_PARTS, self._optimizers, self._machine.gradients, strict=True)
        for part, optimizer, gradients in parts:
            own = pick(state[self._brief.name], f"{part}.")
            for batch in range(self._updates, self._brief.first):
                if (gradient := own.pop(f"gradient{batch}", None)) is None:
                    raise ValueError(f"state without gradient {batch} of {part}")
                gradients[batch] = gradient.copy()
            optimizer.restore(own)

    @override
    def result(self) -> Payload:
        self._take_updates(None)
        return {"own": self._machine.own, "upper": self._machine.upper}


class DataForward(_P3Task):
    """Sums the parts in the order of the ranks, and goes on with its own batch."""

    phase = 1

    @override
    def learn(self, batch: int) -> dict[str, Payload]:
        machine = self._machine
        parts = []
        for rank in filter(machine.holds, machine.group):
            if rank == machine.rank:
                parts.append(machine.parts.pop(batch))
            else:
                payload, sender = self._from(f"Mf{rank}")
                parts.append(tensor(payload, "partial", sender))
        self._figures = machine.forward(batch, parts)
        return {}


class DataBackward(_P3Task):
    """The backward pass down to layer 1; leaves the gradient to the all-reduce."""

    phase, shares = 2, 1

    @override
    def learn(self, batch: int) -> dict[str, Payload]:
        machine = self._machine
        machine.gradients[1][batch], of_sum = machine.backward(batch)
        machine.of_sums[batch] = of_sum
        return {
            f"Mb{peer}": {"of_sum": of_sum}
            for peer in machine.peers
            if machine.holds(peer)
        }


class ModelBackward(_P3Task):
    """The gradient of this machine's weights, summed in the order of the ranks."""

    phase, shares = 3, 0

    @override
    def learn(self, batch: int) -> dict[str, Payload]:
        machine = self._machine
        of_sums = {machine.rank: machine.of_sums.pop(batch)}
        for peer in machine.peers if machine.holds(machine.rank) else ():
            payload, sender = self._from(f"Db{peer}")
            of_sums[peer] = tensor(payload, "of_sum", sender)
        machine.gradients[0][batch] = machine.own_gradient(batch, of_sums)
        return {}
