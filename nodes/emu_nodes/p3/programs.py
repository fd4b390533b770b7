"""P3's samplers, and the tasks of one machine's worker, which share its process.

Every task runs once per cycle of the pipeline and finds its mini-batch by how far its
phase is behind. In a cycle without one it sends nothing. A machine's mini-batch is
that of its samplers: each draws a share of the seeds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.graph_data import GrowingBatch, SampledBatch, open_columns
from emu.problem.workloads import SPLIT_WEIGHTS, layer_shapes
from emu.systems.p3.column_split import ColumnSplit, ForwardPass
from emu.systems.p3.job import ENTRIES, PIPELINES
from emu.training import initial_parameters, make_optimizer
from emu_nodes.all_reduce import share_vector
from emu_nodes.dgtp.programs import JobData, add_replies
from emu_nodes.p3.batches import FirstLayer, Group, batch_tensors, read_batch
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


class P3Sampler(TaskProgram):
    """Draws a share of its machine's mini-batches, and hands their structure out."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        settings = brief.job_settings
        self._data = JobData(brief, process)
        rank, length = brief.settings["rank"], self._data.dataset.feature_length
        self._group = Group(settings, length, rank)
        self._sampler: int = brief.settings["sampler"]
        self._asks = settings["structure"] == "hashed"
        self._batches = range(brief.first, settings["batches"])
        self._entry = ENTRIES[settings["features"]]
        self._data.batch(self._sampler, 0)  # a rehearsal

    @override
    def work(self, iteration: int, inputs: Inputs) -> dict[str, Payload]:
        """Return by task: the whole batch, or its first layer to peers."""
        self._figures = {}
        if iteration not in self._batches:
            return {}
        batch = self._draw(iteration, inputs)
        self._figures = {
            "input_vertices": float(batch.sizes[0]),
            "edges": float(len(batch.edges[0][0])),
        }
        whole = batch_tensors(batch)
        for sampler in self._group.derived_by(self._sampler):
            of_peer = FirstLayer.of_batch(self._data.batch(sampler, iteration))
            whole |= of_peer.tensors(f"_{sampler}")
        pushed = FirstLayer.of_batch(batch).tensors()
        to_peers = {
            f"{self._entry}{peer}": pushed
            for peer in self._group.peers
            if self._group.holds(peer)
        }
        return {f"{self._entry}{self._group.rank}": whole, **to_peers}

    def _draw(self, iteration: int, inputs: Inputs) -> SampledBatch:
        if not self._asks:
            return self._data.batch(self._sampler, iteration)
        growing: GrowingBatch = self._process["growing"].pop(iteration)
        add_replies(growing, self._brief, inputs)
        return growing.finish()

    @override
    def payload(
        self, output: EdgeSpec, iteration: int, made: dict[str, Payload]
    ) -> Payload:
        return made.get(output.peer, {})


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
        length = self._data.dataset.feature_length
        self.group = Group(settings, length, self.rank)
        self.samplers = self.group.samplers_of(self.rank)
        self.pipeline = PIPELINES[settings["pipeline"]]
        self.batches: int = settings["batches"]
        self.layers: int = settings["model"]["layers"]
        self.learns: bool = settings["compute"] != "timed"
        self._computes = self.learns and self.group.holds(self.rank)
        """True where it computes a part of layer 1, which takes columns."""
        self._precision = np.dtype(settings["precision"])
        self._load(settings)
        self.structures: dict[tuple[int, int], FirstLayer] = {}
        """By sampler and mini-batch; what it collects of them likewise."""
        self._rows: dict[tuple[int, int], NDArray[Any]] = {}
        self.parts: dict[int, NDArray[Any]] = {}
        self.of_sums: dict[int, NDArray[Any]] = {}
        self.gradients: tuple[dict[int, NDArray[Any]], ...] = ({}, {})
        """Summed over all machines, of the `_PARTS` of the parameters by mini-batch."""
        self._sampled: dict[tuple[int, int], SampledBatch] = {}
        self.begun_with: dict[int, NDArray[Any]] = {}
        """Upper parameters that a mini-batch is learnt with: updates that come before
        its forward pass must not change what it learns from."""
        self._forward: dict[int, list[ForwardPass]] = {}
        self._first = brief.first
        self._rehearse()

    def _load(self, settings: Mapping[str, Any]) -> None:
        dataset, block = self._data.dataset, self.group.block
        blocks = self.group.blocks
        self._columns = open_columns(dataset, blocks).array(f"columns_{block}")
        self._split = ColumnSplit(settings, dataset, blocks, block)
        flat = initial_parameters(settings, dataset)
        self.own, self.upper = self._split.own(flat), self._split.upper(flat)
        model = settings["model"]
        weights, *_ = layer_shapes(model, dataset.feature_length, dataset.classes)
        kind = model.get("kind", "sage")
        self._width = weights[: SPLIT_WEIGHTS[kind]][0][0]
        self._pulls_inputs = kind == "gat"

    def _rehearse(self) -> None:
        """Open every array and load every library before the start barrier."""
        for sampler in self.samplers:
            self.keep(sampler, 0, self._data.batch(sampler, 0))
        self.collect(0)
        _ = self._data.dataset.labels
        if self.learns:
            import torch

            torch.set_num_threads(1)
            if self._computes:
                part = self.partial(self.rank, 0)
                self.begun_with[0] = self.upper.copy()
                self.forward(0, [part])
                _, of_sum = self.backward(0)
                self.own_gradient(0, {self.rank: of_sum})
        self.structures.clear()
        self._rows.clear()
        self._sampled.clear()

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
        for rank in self.group.machines:
            for sampler in self.group.samplers_of(rank):
                layer = self.structures.get((sampler, batch))
                if layer is not None:  # in a rehearsal there is none of peers
                    self._rows[sampler, batch] = self._columns[layer.vertices]

    def partial(self, rank: int, batch: int) -> NDArray[Any]:
        """Return the part of layer 1 of a mini-batch from this machine's columns."""
        parts = []
        for sampler in self.group.samplers_of(rank):
            layer = self.structures[sampler, batch]
            if self.learns:
                rows = self._rows[sampler, batch]
                part = self._split.partial(self.own, layer.block, rows)
            else:
                part = np.zeros((self._rows_of(layer), self._width), self._precision)
            parts.append(part)
        return np.concatenate(parts)

    def _rows_of(self, layer: FirstLayer) -> int:
        """Return the rows of a part of layer 1, or of its gradient."""
        return layer.block.outer if self._pulls_inputs else layer.block.inner

    def _shares(self, rank: int, batch: int, rows: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the rows of each of a machine's samplers, of those of all."""
        samplers = self.group.samplers_of(rank)
        counts = [self._rows_of(self.structures[s, batch]) for s in samplers]
        return np.split(rows, np.cumsum(counts)[:-1])

    def forward(self, batch: int, parts: Sequence[NDArray[Any]]) -> dict[str, float]:
        """Sum the parts of layer 1 and finish the forward pass; return its figures."""
        begun_with = self.begun_with.pop(batch)
        if not self.learns:
            return {}
        total = parts[0].copy()
        for part in parts[1:]:
            total += part
        own = [self._sampled[sampler, batch] for sampler in self.samplers]
        seeds = sum(len(one.seeds) for one in own)
        passes = []
        for one, rows in zip(own, self._shares(self.rank, batch, total), strict=True):
            labels = self._data.dataset.labels[one.seeds]
            share = len(one.seeds) / seeds
            passes.append(
                self._split.forward(
                    begun_with, one.sizes, one.edges, rows, labels, share
                )
            )
        self._forward[batch] = passes
        return {
            "loss": sum(one.loss for one in passes),
            "accuracy": sum(one.accuracy for one in passes),
        }

    def backward(self, batch: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the gradients of the upper parameters and of layer 1's sum."""
        if not self.learns:
            layers = [self.structures[sampler, batch] for sampler in self.samplers]
            rows = sum(map(self._rows_of, layers))
            of_sum = np.zeros((rows, self._width), self._precision)
            return np.zeros_like(self.upper), of_sum
        both = [one.backward() for one in self._forward.pop(batch)]
        of_upper = np.sum([upper for upper, _ in both], axis=0)
        return of_upper, np.concatenate([of_sum for _, of_sum in both])

    def own_gradient(
        self, batch: int, of_sums: Mapping[int, NDArray[Any]]
    ) -> NDArray[Any]:
        """Return the sum over the group of the gradients of this machine's weights."""
        total = np.zeros_like(self.own)
        ranks = [rank for rank in self.group.machines if rank in of_sums]
        for rank in ranks if self._computes else ():
            samplers = self.group.samplers_of(rank)
            shares = self._shares(rank, batch, of_sums[rank])
            for sampler, of_rows in zip(samplers, shares, strict=True):
                block = self.structures[sampler, batch].block
                rows = self._rows[sampler, batch]
                total += self._split.own_gradient(block, rows, of_rows)
        self._forget(batch)
        return total

    def _forget(self, batch: int) -> None:
        """Let go of what was kept of a mini-batch."""
        for kept in (self._sampled, self.structures, self._rows):
            for key in [key for key in kept if key[1] == batch]:
                del kept[key]


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
        if (machine.group.groups, machine.group.ranks)[part] > 1:
            # Its all-reduce runs in every cycle, and waits for all ranks.
            mine = machine.gradients[part].get(batch) if machine.has(batch) else None
            gradient = np.zeros(0, machine.upper.dtype) if mine is None else mine
            task = f"{'vw'[part]}{machine.rank}"
            share_vector(self._process, task, gradient, iteration)

    def _from(self, task: str) -> tuple[Payload, EdgeSpec]:
        """Return the payload from a task of another machine, and its edge."""
        edge = next(one for one in self._brief.inputs if one.peer == task)
        return self._arrived[edge.edge], edge


class _Entry(_P3Task):
    """The task that takes in what samplers of the group have drawn."""

    def _collect(self, batch: int) -> None:
        """Keep the structure of the group's mini-batch, and collect its columns."""
        machine, group = self._machine, self._machine.group
        for sampler in machine.samplers:
            payload, sender = self._from(f"s{sampler}")
            machine.keep(sampler, batch, read_batch(payload, sender, machine.layers))
            for other in group.derived_by(sampler):
                layer = FirstLayer.of(payload, sender, f"_{other}")
                machine.structures[other, batch] = layer
        pushes = group.holds(machine.rank) and not group.derives
        for rank in group.peers if pushes else ():
            for sampler in group.samplers_of(rank):
                payload, sender = self._from(f"s{sampler}")
                machine.structures[sampler, batch] = FirstLayer.of(payload, sender)
        machine.collect(batch)


class ColumnStore(_Entry):
    """Collects columns in memory of the host, ahead of the phases."""

    @override
    def learn(self, batch: int) -> dict[str, Payload]:
        self._collect(batch)
        return {}


class ModelForward(_Entry):
    """The linear part of layer 1 on this machine's columns, for all of its group.

    It brings the weights up to date before a mini-batch is begun with them.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        machine, settings = self._machine, brief.job_settings
        self._collects = ENTRIES[settings["features"]] == "Mf"
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
        machine, group = self._machine, self._machine.group
        if self._collects:
            self._collect(batch)
        machine.begun_with[batch] = machine.upper.copy()
        payloads: dict[str, Payload] = {}
        for rank in group.machines if group.holds(machine.rank) else ():
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
                    optimizer.step(total / machine.group.ranks)
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
        for rank in filter(machine.group.holds, machine.group.machines):
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
            for peer in machine.group.peers
            if machine.group.holds(peer)
        }


class ModelBackward(_P3Task):
    """The gradient of this machine's weights, summed in the order of the ranks."""

    phase, shares = 3, 0

    @override
    def learn(self, batch: int) -> dict[str, Payload]:
        machine, group = self._machine, self._machine.group
        of_sums = {machine.rank: machine.of_sums.pop(batch)}
        for peer in group.peers if group.holds(machine.rank) else ():
            payload, sender = self._from(f"Db{peer}")
            of_sums[peer] = tensor(payload, "of_sum", sender)
        machine.gradients[0][batch] = machine.own_gradient(batch, of_sums)
        return {}
