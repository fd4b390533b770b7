"""The base of Dorylus' tasks, what tensor tasks compute, and sums of gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.graph_data import open_for
from emu.problem.workloads import PARTS
from emu.systems.dorylus.deaths import ANSWERS
from emu.systems.dorylus.steps import EDGE_TENSORS
from emu.training.interval_layers import initial_weights
from emu_nodes.program import (
    Array,
    EdgeSpec,
    Inputs,
    Payload,
    Payloads,
    Shared,
    TaskProgram,
    TaskSpec,
    sends,
)


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of a layer that a tensor task works with."""

    array: Array
    version: int
    """Iteration of the update that they come from, -1 for the first ones."""


@dataclass(frozen=True, eq=False)
class Computed:
    """Outcome of a tensor task for a chunk, or for a part of it."""

    answer: Payload
    gradient: Array | None = None
    """Gradient of the weights, where the task computes one."""
    loss: float = 0.0


class Nothing(TaskProgram):
    """A task that takes its time and hands nothing on."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        settings = brief.settings
        self.interval: int = settings.get("interval", -1)
        self.layer: int = settings.get("layer", -1)
        self._ends: Sequence[str] | None = settings.get("ends")

    @override
    def run(self, iteration: int, inputs: Inputs) -> Payloads:
        content = self.work(iteration, inputs)
        is_apply = self._brief.kind == "apply"

        payloads: Payloads = {}
        for output in self._brief.outputs:
            if not sends(output, iteration):
                continue
            if output.peer_kind == "stash" and not is_apply:
                # A stash is asked, by nothing; its version comes from who used the
                # weights.
                payloads[output.edge] = {}
            else:
                payloads[output.edge] = self.payload(output, iteration, content)
        return payloads

    def end_of(self, epoch: int) -> str:
        """Return what becomes of this task's lambda in an epoch."""
        if self._ends is None:
            return ANSWERS
        return self._ends[epoch]

    def input_of(
        self,
        kinds: tuple[str, ...],
        inputs: Inputs,
    ) -> Iterator[tuple[EdgeSpec, Payload]]:
        """Yield the inputs that came from some kinds of task, in their order."""
        for edge in self._brief.inputs:
            if edge.peer_kind in kinds and edge.edge in inputs:
                yield edge, inputs[edge.edge]

    def rows(self, inputs: Inputs) -> list[Payload]:
        """Return what came for a gather, its own interval's rows of this epoch last.

        A server's one receiver shows older ones of all intervals.
        """
        ghosts = self.input_of(("ghosts",), inputs)
        local = self.input_of(("scatter", "scatter_back", "begin"), inputs)
        return [payload for _, payload in chain(ghosts, local)]


def copy_all(inputs: Inputs) -> Payload:
    """Return copies of the arrays that came: their memory is overwritten."""
    copies: Payload = {}
    for payload in inputs.values():
        for name, array in payload.items():
            copies[name] = array.copy()
    return copies


def attention_rows(brief: TaskSpec) -> int:
    """Return how many rows of attention stand below the weights of a layer."""
    kind: str = brief.job_settings["model"]["kind"]
    return len(PARTS[kind]) - 1


def versions(process: Shared, brief: TaskSpec) -> list[dict[int, Array]]:
    """Return the versions of every layer's weights that a parameter server holds."""
    if "versions" not in process:
        settings = brief.job_settings
        dataset = open_for(settings)
        weights = initial_weights(settings, dataset)
        process["versions"] = [{-1: of_layer} for of_layer in weights]
    by_layer: list[dict[int, Array]] = process["versions"]
    return by_layer


def sum_gradients(brief: TaskSpec, inputs: Inputs) -> Array:
    """Return the sum of the gradients that came, in the order of the in-edges.

    Those of attention stand below those of the weights. Of several lambdas of one task
    the first that came counts, the others are dropped.

    Raises NodeMisbehaved when none came.
    """
    totals: dict[bool, Array] = {}
    chunks = set()
    for sender in brief.inputs:
        chunk, _, _ = sender.peer.partition(".")
        payload = inputs.get(sender.edge, {})
        if chunk in chunks or "gradient" not in payload:
            continue
        chunks.add(chunk)

        gradient = payload["gradient"]
        is_of_edges = sender.peer_kind in EDGE_TENSORS  # of attention
        total = totals.get(is_of_edges)
        total = gradient.copy() if total is None else total + gradient
        totals[is_of_edges] = total

    if not totals:
        raise NodeMisbehaved(f"{brief.name} has no gradient to sum")
    # False before True: the weights, then attention.
    in_order = [totals[is_of_edges] for is_of_edges in sorted(totals)]
    return np.concatenate(in_order)
