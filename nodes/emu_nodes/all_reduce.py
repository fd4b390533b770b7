"""The steps of an all-reduce: what they send and take in is their process's vector."""

from __future__ import annotations

from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.problem.workloads import part_bounds, steps_of
from emu_nodes.program import (
    Array,
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskProgram,
    TaskSpec,
    tensor,
)


def share_vector(
    process: Shared,
    task: str,
    vector: Array,
    iteration: int,
) -> None:
    """Let the steps of ``task`` sum ``vector`` up in place, rank by rank."""
    vectors = process.setdefault(f"vectors of {task}", {})
    vectors[iteration] = vector


class _Place(TaskProgram):
    """Place of a `Step` or `Receive` in its all-reduce."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        place = brief.settings
        # Both by iteration: a rank that is ahead sends its part before this rank has a
        # vector of it, and where the sum is wanted later a next one begins before this
        # one ends. Parts wait for the step that takes them in.
        task = place["of"]
        self._vectors: dict[int, Array]
        self._vectors = process.setdefault(f"vectors of {task}", {})
        self._parts: dict[tuple[int, int], Array]
        self._parts = process.setdefault(f"parts of {task}", {})
        self._rank: int = place["rank"]
        self._ranks: int = place["ranks"]
        self._step: int = place["step"]
        self._steps = steps_of(place["algorithm"], self._ranks)


class Step(_Place):
    """Takes in what came in the step before, and sends this rank's part of its own."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Return the part for its receiver.

        Raises NodeMisbehaved when what came in is of another length.
        """
        vector = self._vectors[iteration]
        if self._step > 0:
            self._take_in(vector, iteration)
        if self._step < len(self._steps):
            part = self._part_of_step(self._step, self._rank, vector)
            # A copy: what is on its way must not change when the vector does.
            return {"part": part.copy()}
        del self._vectors[iteration]
        return {}

    def _take_in(self, vector: Array, iteration: int) -> None:
        step = self._step - 1
        # Each rank receives from one other in a step.
        receivers = [transfer.receiver for transfer in self._steps[step]]
        sender = receivers.index(self._rank)
        came = self._parts.pop((iteration, step))
        place = self._part_of_step(step, sender, vector)
        if came.shape != place.shape:
            raise NodeMisbehaved(
                f"rank {sender} sent {self._brief.name} {came.shape} elements, "
                f"not {place.shape}"
            )
        # In the second half what comes is a sum, and replaces.
        if 2 * step < len(self._steps):
            place += came
        else:
            place[:] = came

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Payload) -> Payload:
        is_receiver = output.peer.endswith(f".got{self._step}")
        return made if is_receiver else {}  # nothing for the tasks of this rank

    def _part_of_step(self, step: int, rank: int, vector: Array) -> Array:
        """Return the part of the vector that a rank sends in a step, as a view."""
        _, first, last = self._steps[step][rank]
        count = len(vector)
        begin, end = part_bounds(count, self._ranks, first, last)
        return vector[begin:end]


class Receive(_Place):
    """Keeps what another rank sent for the step that follows, in the process."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        (source,) = self._brief.inputs
        part = tensor(inputs[source.edge], "part", source)
        self._parts[iteration, self._step] = part.copy()
        return {}
