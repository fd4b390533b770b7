"""P3's samplers, and the tasks of one machine's worker, which share its process.

Every task runs once per cycle of the pipeline and finds its mini-batch by how far its
phase is behind. In a cycle without one it sends nothing. A machine's mini-batch is
that of its samplers: each draws a share of the seeds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
from typing_extensions import override

from emu.graph_data import GrowingBatch, SampledBatch
from emu.training import make_optimizer
from emu_nodes.all_reduce import share_vector
from emu_nodes.dgtp.job_data import JobData, add_replies
from emu_nodes.p3.batches import FirstLayer, Group, batch_tensors, read_batch
from emu_nodes.p3.machine import P3Machine
from emu_nodes.program import (
    Array,
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskByPeer,
    TaskSpec,
    pick,
    tensor,
)

#: Own rows of layer 1, and all other parameters.
_PARTS = "own", "upper"


class P3Sampler(TaskByPeer):
    """Draws a share of its machine's mini-batches, and hands their structure out."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        settings = brief.job_settings
        self._data = JobData(brief, process)
        self._group = Group(
            settings=settings,
            feature_length=self._data.dataset.feature_length,
            rank=brief.settings["rank"],
        )
        self._sampler: int = brief.settings["sampler"]
        self._asks = settings["structure"] == "hashed"
        self._batches = range(brief.first, settings["batches"])
        self._entries: list[str] = settings["entries"]
        self._data.batch(self._sampler, 0)  # a rehearsal

    @override
    def work(self, iteration: int, inputs: Inputs) -> dict[str, Payload]:
        """Return by task: the whole batch, or its first layer to peers."""
        self._figures = {}
        if iteration not in self._batches:
            return {}

        group = self._group
        batch = self._draw(iteration, inputs)
        tensors = batch_tensors(batch)
        # Drawing the batches of peers anew costs CPU time and saves their pushes.
        for sampler in group.derived_by(self._sampler):
            peer_batch = self._data.batch(sampler, iteration)
            layer_of_peer = FirstLayer.of_batch(peer_batch)
            tensors |= layer_of_peer.tensors(f"_{sampler}")
        own_entry = f"{self._entries[group.rank]}{group.rank}"
        payloads = {own_entry: tensors}

        first_layer = FirstLayer.of_batch(batch)
        for peer in group.peers:
            if group.holds(peer):
                entry = f"{self._entries[peer]}{peer}"
                payloads[entry] = first_layer.tensors()

        vertices = len(batch.vertices)
        edges = len(first_layer.block.source)
        self._figures = {
            "input_vertices": float(vertices),
            "edges": float(edges),
        }
        return payloads

    def _draw(self, iteration: int, inputs: Inputs) -> SampledBatch:
        if not self._asks:
            return self._data.batch(self._sampler, iteration)

        growing_batches = self._process["growing"]
        growing: GrowingBatch = growing_batches.pop(iteration)
        add_replies(growing, self._brief, inputs)
        return growing.finish()


class _P3Task(TaskByPeer):
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
        self._arrived = inputs
        self._figures = {}
        machine = self._machine

        # Negative until the pipeline has filled.
        delay = machine.pipeline.behind[self.phase]
        batch = iteration - delay
        payloads = self.learn(batch) if machine.has(batch) else {}
        if self.shares is not None:
            self._share(iteration, self.shares, batch)
        self._arrived = {}
        return payloads

    def learn(self, batch: int) -> dict[str, Payload]:
        """Do the phase's part of a mini-batch."""
        raise NotImplementedError

    def _share(self, iteration: int, part: int, batch: int) -> None:
        """Share a part's gradient with other groups, or all machines, if any."""
        machine = self._machine
        group = machine.group
        # A group holds all columns once; every machine holds the upper parameters.
        sharers = group.ranks if part else group.groups
        if sharers == 1:
            return

        # Its all-reduce runs in every cycle, and waits for all ranks.
        gradient = np.zeros(0, machine.upper.dtype)
        if machine.has(batch):
            gradient = machine.gradients[part].get(batch, gradient)
        prefix = "w" if part else "v"
        share_vector(
            process=self._process,
            task=f"{prefix}{machine.rank}",
            vector=gradient,
            iteration=iteration,
        )

    def _from(self, task: str) -> tuple[Payload, EdgeSpec]:
        """Return the payload from a task of another machine, and its edge."""
        edge = next(edge for edge in self._brief.inputs if edge.peer == task)
        return self._arrived[edge.edge], edge


class _Entry(_P3Task):
    """The task that takes in what samplers of the group have drawn."""

    def _collect(self, batch: int) -> None:
        """Keep the structure of the group's mini-batch, and collect its columns."""
        machine = self._machine
        for sampler in machine.samplers:
            payload, sender = self._from(f"s{sampler}")
            mini_batch = read_batch(payload, sender, machine.layers)
            machine.keep(sampler, batch, mini_batch)
            # What it has drawn of peers came with its own.
            for peer_sampler in machine.group.derived_by(sampler):
                layer = FirstLayer.of(payload, sender, f"_{peer_sampler}")
                machine.structures[peer_sampler, batch] = layer

        for sampler in machine.group.pushing:
            payload, sender = self._from(f"s{sampler}")
            layer = FirstLayer.of(payload, sender)
            machine.structures[sampler, batch] = layer
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
        settings = brief.job_settings
        rank = brief.settings["rank"]
        self._collects = settings["entries"][rank] == "Mf"

        machine = self._machine
        self._optimizers = [
            make_optimizer(settings, machine.own),
            make_optimizer(settings, machine.upper),
        ]
        self.missed = machine.pipeline.missed
        """Cycles until the updates have come that are under way at a cut."""
        self._updates = max(brief.first - self.missed, 0)
        self._taken: deque[tuple[Array, ...]] = deque(maxlen=self.missed)

    @override
    def work(self, iteration: int, inputs: Inputs) -> dict[str, Payload]:
        self._take_updates(iteration)
        return super().work(iteration, inputs)

    @override
    def learn(self, batch: int) -> dict[str, Payload]:
        machine = self._machine
        group = machine.group
        if self._collects:
            self._collect(batch)
        machine.begun_with[batch] = machine.upper.copy()

        payloads: dict[str, Payload] = {}
        if group.holds(machine.rank):
            for rank in group.machines:
                partial = machine.partial(rank, batch)
                if rank == machine.rank:
                    machine.parts[batch] = partial
                else:
                    payloads[f"Df{rank}"] = {"partial": partial}

        # Versions of the upper parameters that are kept, the newest among them.
        versions = len(machine.begun_with) + 1
        self._figures = {"versions": float(versions)}
        return payloads

    def _take_updates(self, cycle: int | None) -> None:
        """Step with the mean gradients that are due before this cycle's ``Mf``.

        Those of mini-batch k are due for that of mini-batch k + 1 + tau, which both
        parts of the parameters keep to: they form one version. After the last one,
        None, with all that is left: a trial ends before the last mini-batch.
        """
        machine = self._machine
        if cycle is None:
            due = self._brief.iterations - machine.pipeline.depth
        else:
            due = cycle - self.missed
        due = max(due, self._updates)
        due = min(due, machine.batches)  # cycles go on until the pipeline is empty

        for batch in range(self._updates, due):
            own, upper = machine.gradients
            gradients = (own.pop(batch), upper.pop(batch))
            self._taken.append(gradients)
            if not machine.learns:
                continue
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
        state: Payload = {}
        for part, optimizer in zip(_PARTS, self._optimizers, strict=True):
            for name, array in optimizer.state().items():
                state[f"{part}.{name}"] = array
        return state

    def late_updates(self, iteration: int) -> Payload:
        """Return the gradients that the version of tau cycles before has lacked."""
        self._take_updates(iteration)
        first = self._updates - len(self._taken)
        late: Payload = {}
        for batch, gradients in enumerate(self._taken, first):
            for part, total in zip(_PARTS, gradients, strict=True):
                late[f"{part}.gradient{batch}"] = total
        return late

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Go on from its own state.

        Raises ValueError when it is of another optimiser or cut, or of other
        parameters.
        """
        own_state = state[self._brief.name]
        parts = zip(_PARTS, self._optimizers, self._machine.gradients, strict=True)
        for part, optimizer, gradients in parts:
            arrays = pick(own_state, f"{part}.")
            for batch in range(self._updates, self._brief.first):
                gradient = arrays.pop(f"gradient{batch}", None)
                if gradient is None:
                    raise ValueError(f"state without gradient {batch} of {part}")
                gradients[batch] = gradient.copy()
            optimizer.restore(arrays)

    @override
    def result(self) -> Payload:
        self._take_updates(None)
        machine = self._machine
        return {"own": machine.own, "upper": machine.upper}


class DataForward(_P3Task):
    """Sums the parts in the order of the ranks, and goes on with its own batch."""

    phase = 1

    @override
    def learn(self, batch: int) -> dict[str, Payload]:
        machine = self._machine
        group = machine.group
        parts = []
        for rank in group.machines:
            if not group.holds(rank):  # it has no columns, so no part
                continue
            if rank == machine.rank:
                part = machine.parts.pop(batch)
            else:
                payload, sender = self._from(f"Mf{rank}")
                part = tensor(payload, "partial", sender)
            parts.append(part)
        self._figures = machine.forward(batch, parts)
        return {}


class DataBackward(_P3Task):
    """The backward pass down to layer 1; leaves the gradient to the all-reduce."""

    phase = 2
    shares = 1

    @override
    def learn(self, batch: int) -> dict[str, Payload]:
        machine = self._machine
        group = machine.group
        of_upper, of_sum = machine.backward(batch)
        # Layer 1 is linear: the gradient of the sum is that of every part.
        machine.gradients[1][batch] = of_upper
        machine.of_sums[batch] = of_sum
        payloads: dict[str, Payload] = {}
        for peer in group.peers:
            if group.holds(peer):
                payloads[f"Mb{peer}"] = {"of_sum": of_sum}
        return payloads


class ModelBackward(_P3Task):
    """The gradient of this machine's weights, summed in the order of the ranks."""

    phase = 3
    shares = 0

    @override
    def learn(self, batch: int) -> dict[str, Payload]:
        machine = self._machine
        group = machine.group
        own_of_sum = machine.of_sums.pop(batch)
        of_sums = {machine.rank: own_of_sum}
        if group.holds(machine.rank):
            for peer in group.peers:
                payload, sender = self._from(f"Db{peer}")
                of_sums[peer] = tensor(payload, "of_sum", sender)

        gradient = machine.own_gradient(batch, of_sums)
        machine.gradients[0][batch] = gradient
        return {}
