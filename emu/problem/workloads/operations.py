"""Operations of tasks, which rates of a device turn into times.

A rate is the seconds of one operation. Every system counts the operations of its own
tasks, so that one set of rates gives times to all of them.

Must not know: which device runs what, data sets, systems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from emu.array_types import Floats
from emu.problem import Job, Task
from emu.problem.workloads.all_reduce import RECEIVE, steps_of
from emu.problem.workloads.model_shapes import SampleCounts

#: Operation -> its amount: a number, or one per iteration or mini-batch.
Amounts: TypeAlias = Mapping[str, Any]

#: Operations that have a rate: an edge's number that is added up, a multiplication with
#: its addition, an edge that is drawn, a byte that is collected from scattered rows, a
#: parameter's step or gradient that is added, and a layer's pass that is begun.
OPERATIONS = ("aggregate", "multiply", "sample", "collect", "step", "launch")


class Operations:
    """Operations of every (task, iteration) of a job.

    ``counts``: of each of `OPERATIONS`, shape (operations, tasks, iterations).
    """

    def __init__(self, job: Job) -> None:
        shape = (len(OPERATIONS), len(job.tasks), job.iterations)
        self.counts = np.zeros(shape)

    def _of(self, name: str) -> Floats:
        """Return the counts of one operation, a view."""
        counts: Floats = self.counts[OPERATIONS.index(name)]
        return counts

    def add(
        self,
        task: int,
        amounts: Amounts,
        when: slice = slice(None),
    ) -> None:
        """Add amounts by operation, one for all iterations of ``when`` or for each."""
        for name, amount in amounts.items():
            row = self._of(name)[task, when]
            # In place: the row is a view of the counts.
            row += np.asarray(amount, float)

    def add_bytes(self, job: Job, volumes: Floats, *kinds: str) -> None:
        """Count the real bytes of (edge, iteration) that kinds send as collected."""
        counts = self._of("collect")
        for edge, row in zip(job.edges, volumes, strict=True):
            if job.tasks[edge.source].kind in kinds:
                counts[edge.source] += row

    def add_gradients(
        self,
        job: Job,
        volumes: Floats,
        itemsize: float,
        *kinds: str,
    ) -> None:
        """Count the gradients that tasks of these kinds and all-reduces add.

        ``itemsize`` are the real bytes of a number, ``volumes`` as in `add_bytes`.
        """
        counts = self._of("step")
        for edge, row in zip(job.edges, volumes, strict=True):
            receiver = job.tasks[edge.destination]
            if receiver.kind in kinds or _adds_chunk(receiver):
                # A gradient arrives as bytes: each of its numbers is added once.
                counts[edge.destination] += row / itemsize

    def seconds(self, rates: Sequence[Mapping[str, float]]) -> Floats:
        """Return seconds of every (task, iteration), from the rates of each task."""
        seconds = np.zeros(self.counts.shape[1:])
        for name, counts in zip(OPERATIONS, self.counts, strict=True):
            rate = np.array([rates_of_task[name] for rates_of_task in rates])
            seconds += rate[:, None] * counts
        return seconds


def _adds_chunk(task: Task) -> bool:
    """Return True for a task of an all-reduce that adds up what it receives."""
    if task.program != RECEIVE:
        return False
    settings = task.settings
    steps = steps_of(settings["algorithm"], settings["ranks"])
    # In the second half of the steps sums replace what is there.
    adds: bool = settings["step"] < len(steps) // 2
    return adds


@dataclass(frozen=True)
class LayerWork:
    """Operations of one layer's forward pass, each a number or one per mini-batch."""

    aggregate: Any
    multiply: Any
    """Products of what the layer gets; not those of its ``outer`` matrix."""
    narrows: bool
    """True where rows are made shorter before they are added up."""
    outer: Any = 0.0
    """Products of a second matrix, whose inputs need a gradient in any layer."""

    @property
    def forward(self) -> Amounts:
        """Operations of the forward pass."""
        return {
            "aggregate": self.aggregate,
            "multiply": self.multiply + self.outer,
            "launch": 1.0,
        }

    def backward(self, *, first: bool) -> Amounts:
        """Return the operations of the backward pass.

        The gradients of weights and of inputs take a product as large as the forward
        pass each. ``first``: those of features are not needed, and sums of features are
        there from the forward pass.
        """
        return {
            "aggregate": self.aggregate * float(not first or self.narrows),
            "multiply": self.multiply * (1.0 if first else 2.0) + 2.0 * self.outer,
            "launch": 1.0,
        }


def count_layer(
    kind: str,
    widths: tuple[int, int],
    edges: Any,
    inputs: Any,
    outputs: Any,
    *,
    shortens: bool | None = None,
) -> LayerWork:
    """Return the operations of a layer of `emu.training.layers`, or of whole graphs.

    ``widths``: numbers of a row before and after the layer; ``edges``, ``inputs``,
    ``outputs``: edges of the block and vertices on both sides, numbers or one per
    mini-batch; ``shortens``: whether rows are multiplied before they are added up, by
    default as in `emu.training.layers`: the shorter rows are added, those of ``gin`` as
    they come.
    """
    width, next_width = widths
    if shortens is None:
        shortens = width > next_width and kind != "gin"
    if kind == "gat":
        return LayerWork(
            # A vertex attends to itself as well.
            aggregate=(edges + outputs) * next_width,
            multiply=inputs * width * next_width,
            narrows=True,
        )

    # Rows are multiplied before they are sent along edges, or after they were added.
    rows = inputs if shortens else outputs
    multiply = rows * width * next_width
    if kind in {"sage", "commnet"}:  # weights of the vertex itself
        multiply = multiply + outputs * width * next_width
    return LayerWork(
        aggregate=edges * (next_width if shortens else width),
        multiply=multiply,
        narrows=shortens,
        outer=outputs * next_width * next_width if kind == "gin" else 0.0,
    )


def count_layers(
    model: Mapping[str, Any],
    feature_length: int,
    classes: int,
    counts: Sequence[SampleCounts],
) -> list[LayerWork]:
    """Return the operations of every layer, from the input, one per mini-batch."""
    hidden = [model["hidden"]] * (model["layers"] - 1)
    widths = pairwise([feature_length, *hidden, classes])
    # Shapes (layers, mini-batches) and (layers + 1, mini-batches).
    edges = np.array([sample.block_edges for sample in counts], float).T
    vertices = np.array([sample.block_vertices for sample in counts], float).T

    layers = []
    for layer, layer_widths in enumerate(widths):
        work = count_layer(
            model.get("kind", "sage"),
            layer_widths,
            edges=edges[layer],
            inputs=vertices[layer],
            outputs=vertices[layer + 1],
        )
        layers.append(work)
    return layers
