"""The steps of an all-reduce: what they send and take in is their process's vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.errors import NodeMisbehaved
from emu.workloads import part_bounds, steps_of
from emu_nodes.job_data import sends, tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu_nodes.program import Payload, TaskSpec


def share_vector(process: dict[str, Any], task: str, vector: NDArray[Any]) -> None:
    """Let the steps of ``task`` sum ``vector`` up in place, rank by rank."""
    process[_key(task)] = vector


def _key(task: str) -> str:
    return f"all-reduce of {task}"


class _Part:
    """What `Step` and `Receive` know of their place."""

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        self._brief, self._process = brief, process
        place = brief.settings
        self._rank: int = place["rank"]
        self._ranks: int = place["ranks"]
        self._step: int = place["step"]
        self._steps = steps_of(place["algorithm"], self._ranks)

    def _part_of(self, sender: int) -> NDArray[Any]:
        """Return the part of the vector that a rank sends in this step, as a view."""
        vector = self._process[_key(self._brief.settings["of"])]
        _, first, last = self._steps[self._step][sender]
        begin, end = part_bounds(len(vector), self._ranks, first, last)
        part: NDArray[Any] = vector[begin:end]
        return part

    def report(self) -> dict[str, float]:
        """Return nothing."""
        return {}

    def result(self) -> Payload:
        """Return nothing: the sum is the worker's."""
        return {}


class Step(_Part):
    """Sends one rank's part of one step; after the last one, the sum is there."""

    def run(self, iteration: int, _inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return the part for its receiver, and nothing for the tasks of this rank."""
        part: Payload = {}
        if self._step < len(self._steps):
            # A copy: what is on its way must not change when the vector does.
            part = {"part": self._part_of(self._rank).copy()}
        return {
            out.edge: part if out.peer.endswith(f".got{self._step}") else {}
            for out in self._brief.outputs
            if sends(out, iteration)
        }


class Receive(_Part):
    """Takes in what another rank sent: adds it, in the second half puts it there."""

    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return nothing for the step that follows.

        Raises
        ------
        NodeMisbehaved
            When the part is of another length.
        """
        (source,) = self._brief.inputs
        found = tensor(inputs[source.edge], "part", source)
        transfers = self._steps[self._step]
        (sender,) = (r for r, to in enumerate(transfers) if to.receiver == self._rank)
        part = self._part_of(sender)
        if found.shape != part.shape:
            raise NodeMisbehaved(
                f"{source.peer} sent {self._brief.name} {found.shape} elements, "
                f"not {part.shape}"
            )
        if 2 * self._step < len(self._steps):
            part += found
        else:
            part[:] = found
        return {out.edge: {} for out in self._brief.outputs if sends(out, iteration)}
