"""The steps of an all-reduce: what they send and take in is their process's vector."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from emu.errors import NodeMisbehaved
from emu.workloads import part_bounds, steps_of
from emu_nodes.job_data import sends, tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu_nodes.program import Payload, TaskSpec


@dataclass(eq=False)
class _Shared:
    """A vector that is summed up in place, and what was received for it.

    A rank that is ahead sends its part of the next iteration before this rank has a
    vector of it: parts wait, by iteration and step, for the step that takes them in.
    """

    vector: NDArray[Any]
    parts: dict[tuple[int, int], NDArray[Any]] = field(default_factory=dict)


def share_vector(process: dict[str, Any], task: str, vector: NDArray[Any]) -> None:
    """Let the steps of ``task`` sum ``vector`` up in place, rank by rank."""
    process[_key(task)] = _Shared(vector)


def _key(task: str) -> str:
    return f"all-reduce of {task}"


class _Place:
    """What `Step` and `Receive` know of their place."""

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        self._brief, self._process = brief, process
        place = brief.settings
        self._rank: int = place["rank"]
        self._ranks: int = place["ranks"]
        self._step: int = place["step"]
        self._steps = steps_of(place["algorithm"], self._ranks)

    @property
    def _shared(self) -> _Shared:
        shared: _Shared = self._process[_key(self._brief.settings["of"])]
        return shared

    def _sent(self, step: int, rank: int) -> NDArray[Any]:
        """Return the part of the vector that a rank sends in a step, as a view."""
        vector = self._shared.vector
        _, first, last = self._steps[step][rank]
        begin, end = part_bounds(len(vector), self._ranks, first, last)
        part: NDArray[Any] = vector[begin:end]
        return part

    def _received(self, step: int) -> NDArray[Any]:
        """Return the part of the vector that comes to this rank, as a view."""
        transfers = enumerate(self._steps[step])
        (sender,) = (rank for rank, to in transfers if to.receiver == self._rank)
        return self._sent(step, sender)

    def report(self) -> dict[str, float]:
        """Return nothing."""
        return {}

    def result(self) -> Payload:
        """Return nothing: the sum is the worker's."""
        return {}


class Step(_Place):
    """Takes in what came in the step before, and sends this rank's part of its own."""

    def run(self, iteration: int, _inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return the part for its receiver, and nothing for the tasks of this rank."""
        if self._step > 0:
            self._take_in(self._step - 1, iteration)
        part: Payload = {}
        if self._step < len(self._steps):
            # A copy: what is on its way must not change when the vector does.
            part = {"part": self._sent(self._step, self._rank).copy()}
        return {
            out.edge: part if out.peer.endswith(f".got{self._step}") else {}
            for out in self._brief.outputs
            if sends(out, iteration)
        }

    def _take_in(self, step: int, iteration: int) -> None:
        """Add what was received; in the second half it is a sum, and replaces."""
        part, here = self._shared.parts.pop((iteration, step)), self._received(step)
        if 2 * step < len(self._steps):
            here += part
        else:
            here[:] = part


class Receive(_Place):
    """Keeps what another rank sent for the step that follows."""

    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return nothing for that step: it looks in the memory of the process.

        Raises
        ------
        NodeMisbehaved
            When the part is of another length.
        """
        (source,) = self._brief.inputs
        found, due = (
            tensor(inputs[source.edge], "part", source),
            self._received(self._step),
        )
        if found.shape != due.shape:
            raise NodeMisbehaved(
                f"{source.peer} sent {self._brief.name} {found.shape} elements, "
                f"not {due.shape}"
            )
        self._shared.parts[iteration, self._step] = found.copy()
        return {out.edge: {} for out in self._brief.outputs if sends(out, iteration)}
