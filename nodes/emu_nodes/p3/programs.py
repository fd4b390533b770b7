"""P3's sampler and phases: the tasks of one machine, which share its process.

Every task runs once per cycle of the pipeline and finds its mini-batch by how far its
phase is behind. In a cycle without one it sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.graph_data import GrowingBatch
from emu.training.layers import Block
from emu_nodes.all_reduce import share_vector
from emu_nodes.dgtp.programs import add_replies
from emu_nodes.p3.machine import FirstLayer, P3Machine
from emu_nodes.program import (
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskProgram,
    TaskSpec,
    tensor,
)


class _P3Task(TaskProgram):
    """State and methods that the tasks of a machine share."""

    #: Position of its phase in `emu.systems.p3.job.Pipeline.behind`.
    phase = 0

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
        self._arrived = {}
        return payloads

    @override
    def payload(
        self, output: EdgeSpec, iteration: int, made: dict[str, Payload]
    ) -> Payload:
        """Return that of the task at the other end, empty within the process."""
        return made.get(output.peer, {})

    def learn(self, batch: int) -> dict[str, Payload]:
        """Do the phase's part of a mini-batch."""
        raise NotImplementedError

    def _share(
        self, iteration: int, gradients: dict[int, NDArray[Any]], name: str
    ) -> None:
        """Share a gradient; where there is no mini-batch, one of no elements."""
        machine = self._machine
        # Its all-reduce runs in every cycle, and waits for all ranks.
        batch = iteration - machine.pipeline.behind[self.phase]
        mine = gradients.get(batch) if machine.has(batch) else None
        gradient = np.zeros(0, machine.upper.dtype) if mine is None else mine
        share_vector(self._process, f"{name}{machine.rank}", gradient, iteration)

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
    """The linear part of layer 1 on this machine's columns, for all of its group."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> dict[str, Payload]:
        """Bring the weights up to date before a mini-batch is begun with them."""
        self._machine.take_updates(iteration)
        return super().work(iteration, inputs)

    @override
    def learn(self, batch: int) -> dict[str, Payload]:
        machine = self._machine
        machine.begin(batch)
        payloads: dict[str, Payload] = {}
        for rank in machine.group if machine.holds(machine.rank) else ():
            if rank != machine.rank and not machine.derived:
                layer = self._structure_of(rank)
                machine.structures[rank, batch] = layer
            part = machine.partial(rank, batch)
            payloads[f"Df{rank}"] = {"partial": part}
        if own := payloads.pop(f"Df{machine.rank}", None):
            machine.parts[batch] = own["partial"]
        self._figures = {"versions": float(machine.versions)}
        return payloads

    def _structure_of(self, rank: int) -> FirstLayer:
        """Return the structure of a peer's mini-batch, copied out of pooled memory."""
        payload, sender = self._from(f"s{rank}")
        names = ("outputs", "inputs", "source", "destination")
        outputs, others, source, destination = (
            tensor(payload, name, sender).copy() for name in names
        )
        vertices: NDArray[np.int64] = np.concatenate([outputs, others])
        try:
            block = Block(source, destination, len(vertices), len(outputs))
        except ValueError as error:
            raise NodeMisbehaved(f"{sender.peer}: {error}") from error
        return FirstLayer(vertices, block)

    @property
    def missed(self) -> int:
        """Cycles until the updates have come that are under way at a cut."""
        return self._machine.pipeline.missed

    def state(self, iteration: int) -> Payload:
        """Return the weights that a mini-batch is begun with, see `P3Machine`."""
        return self._machine.state(iteration)

    def late_updates(self, iteration: int) -> Payload:
        """Return the gradients that had not come by then."""
        return self._machine.late_gradients(iteration)

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Go on from its own state."""
        self._machine.restore(state[self._brief.name])

    @override
    def result(self) -> Payload:
        """Return the weights of this machine's columns, and the upper parameters."""
        machine = self._machine
        machine.take_updates(None)
        return {"own": machine.own, "upper": machine.upper}


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

    phase = 2

    @override
    def work(self, iteration: int, inputs: Inputs) -> dict[str, Payload]:
        """Share the gradient with all machines."""
        payloads = super().work(iteration, inputs)
        if self._machine.ranks > 1:
            self._share(iteration, self._machine.upper_gradients, "w")
        return payloads

    @override
    def learn(self, batch: int) -> dict[str, Payload]:
        machine = self._machine
        machine.upper_gradients[batch], of_sum = machine.backward(batch)
        machine.of_sums[batch] = of_sum
        return {
            f"Mb{peer}": {"of_sum": of_sum}
            for peer in machine.peers
            if machine.holds(peer)
        }


class ModelBackward(_P3Task):
    """The gradient of this machine's weights, summed in the order of the ranks."""

    phase = 3

    @override
    def work(self, iteration: int, inputs: Inputs) -> dict[str, Payload]:
        """Share the gradient with other groups."""
        payloads = super().work(iteration, inputs)
        if self._machine.groups > 1:
            self._share(iteration, self._machine.own_gradients, "v")
        return payloads

    @override
    def learn(self, batch: int) -> dict[str, Payload]:
        machine = self._machine
        of_sums = {machine.rank: machine.of_sums.pop(batch)}
        for peer in machine.peers if machine.holds(machine.rank) else ():
            payload, sender = self._from(f"Db{peer}")
            of_sums[peer] = tensor(payload, "of_sum", sender)
        machine.own_gradients[batch] = machine.own_gradient(batch, of_sums)
        return {}
