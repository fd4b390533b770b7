"""P3's sampler and phases: the tasks of one machine, which share its process.

Every task runs once per cycle of the pipeline and finds its mini-batch by how far its
phase is behind. In a cycle without one it sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    Payload,
    Shared,
    TaskProgram,
    TaskSpec,
    sends,
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
        self._arrived: Mapping[int, Payload] = {}

    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return the phase's payloads for its mini-batch, empty within the process."""
        self._arrived, self._figures = inputs, {}
        machine = self._machine
        batch = iteration - machine.pipeline.behind[self.phase]
        payloads = self._work(batch) if machine.has(batch) else {}
        self._arrived = {}
        return {
            out.edge: payloads.get(out.peer, {})
            for out in self._brief.outputs
            if sends(out, iteration)
        }

    def _work(self, batch: int) -> dict[str, Payload]:
        """Return payloads by the name of the task at the other end."""
        raise NotImplementedError

    def _from(self, task: str) -> tuple[Payload, EdgeSpec]:
        """Return the payload from a task of another machine, and its edge."""
        edge = next(one for one in self._brief.inputs if one.peer == task)
        return self._arrived[edge.edge], edge


class P3Sampler(_P3Task):
    """Samples its machine's mini-batch, and sends the first layer's structure."""

    @override
    def _work(self, batch: int) -> dict[str, Payload]:
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
    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Bring the weights up to date before a mini-batch is begun with them."""
        self._machine.take_updates(iteration)
        return super().run(iteration, inputs)

    @override
    def _work(self, batch: int) -> dict[str, Payload]:
        machine = self._machine
        machine.begin(batch)
        payloads: dict[str, Payload] = {}
        for rank in machine.group if machine.holds(machine.rank) else ():
            if rank != machine.rank and not machine.derived:
                machine.structures[rank, batch] = _copy_structure(
                    *self._from(f"s{rank}")
                )
            part = machine.partial(rank, batch)
            payloads[f"Df{rank}"] = {"partial": part}
        if own := payloads.pop(f"Df{machine.rank}", None):
            machine.parts[batch] = own["partial"]
        self._figures = {"versions": float(machine.versions)}
        return payloads

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
    def _work(self, batch: int) -> dict[str, Payload]:
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
    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Share the gradient; where there is no mini-batch, one of no elements."""
        payloads = super().run(iteration, inputs)
        machine = self._machine
        if machine.ranks > 1:
            batch = iteration - machine.pipeline.behind[self.phase]
            mine = machine.upper_gradients if machine.has(batch) else {}
            gradient = mine.get(batch, machine.upper[:0])
            share_vector(self._process, f"w{machine.rank}", gradient, iteration)
        return payloads

    @override
    def _work(self, batch: int) -> dict[str, Payload]:
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
    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Share the gradient with other groups; without a mini-batch an empty one."""
        payloads = super().run(iteration, inputs)
        machine = self._machine
        if machine.groups > 1:
            batch = iteration - machine.pipeline.behind[self.phase]
            mine = machine.own_gradients if machine.has(batch) else {}
            gradient = mine.get(batch, machine.own[:0])
            share_vector(self._process, f"v{machine.rank}", gradient, iteration)
        return payloads

    @override
    def _work(self, batch: int) -> dict[str, Payload]:
        machine = self._machine
        of_sums = {machine.rank: machine.of_sums.pop(batch)}
        for peer in machine.peers if machine.holds(machine.rank) else ():
            payload, sender = self._from(f"Db{peer}")
            of_sums[peer] = tensor(payload, "of_sum", sender)
        machine.own_gradients[batch] = machine.own_gradient(batch, of_sums)
        return {}


def _copy_structure(payload: Payload, sender: EdgeSpec) -> FirstLayer:
    """Return the structure of a peer's mini-batch, copied out of pooled memory."""
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
