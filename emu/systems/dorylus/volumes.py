"""Bytes, times and operations of a Dorylus job, by its intervals (specs, 5a)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.array_types import Ints
from emu.problem import Job, Task
from emu.problem.workloads.operations import Amounts, LayerWork, Operations
from emu.systems import Floats, JobSettings, Times
from emu.systems.dorylus.deaths import end_early, first_attempts
from emu.systems.dorylus.steps import (
    CALLS,
    EDGE_TENSORS,
    PARAMETER_KINDS,
    TENSORS,
)
from emu.systems.training_section import number_bytes

if TYPE_CHECKING:
    from emu.graph_data.intervals import IntervalCounts
    from emu.systems.dorylus.sections import DorylusKeys

#: Bytes of a vertex's number before each ghost row, and of a version of weights.
GHOST_ID = 4
VERSION = 8
#: Bytes of the number of an edge's destination within its interval.
EDGE_END = 4


class LambdaBytes(NamedTuple):
    """Bytes that a lambda pulls, and those that it returns."""

    pulled: int
    returned: int


def step_bytes(
    kind: str,
    layer: int,
    section: DorylusKeys,
    widths: Sequence[int],
    b: int,
) -> LambdaBytes:
    """Return the bytes per vertex that a lambda of a GCN pulls, and that it returns.

    ``kind``: ``apply`` or ``apply_back``; ``widths``: f_0 .. f_L, features, hidden
    layers, classes; ``b``: bytes of a number.
    """
    before = widths[layer]
    after = widths[layer + 1]
    inputs = b * before
    is_last = layer == section.model.layers - 1
    row_gradient = inputs if layer else 0  # features have none
    if kind == "apply_back":
        # The gradient of act(Z), and Z unless it is computed again.
        # A H comes once more, `before` numbers: dW is its product with dZ.
        numbers = after if section.rematerialize else 2 * after
        return LambdaBytes(pulled=inputs + b * numbers, returned=row_gradient)
    if is_last and section.fuse:  # labels come with it
        # Fused with its backward pass: A H and a row of targets, one number per class.
        return LambdaBytes(pulled=inputs + b * after, returned=row_gradient)

    # AV returns act(Z) to be scattered, and Z for its backward pass.
    numbers = after
    if not section.rematerialize and not is_last:
        numbers = 2 * after
    return LambdaBytes(pulled=inputs, returned=b * numbers)


def attention_bytes(
    kind: str,
    layer: int,
    widths: Sequence[int],
    b: int,
    sizes: tuple[int, int],
) -> LambdaBytes:
    """Return the bytes that a lambda of a GAT pulls, and those that it returns.

    For each edge u -> v, loops among them, AE pulls the rows of u and v and the number
    of v (4 bytes), and returns the attention of the edge. Backwards it pulls the
    gradients of its vertices as well (of the last layer their scores and targets), and
    returns a gradient per edge, of u, and one per vertex. ``kind``, ``layer``,
    ``widths``, ``b``: as in `step_bytes`; ``sizes``: vertices and edges of the
    interval, loops among these.
    """
    before = widths[layer]
    after = widths[layer + 1]
    vertices, edges = sizes
    # AV of a GAT multiplies what an interval has, and returns z, which is scattered.
    inputs = b * vertices * before
    outputs = b * vertices * after
    if kind == "apply":
        return LambdaBytes(pulled=inputs, returned=outputs)
    if kind == "apply_back":
        row_gradients = inputs if layer else 0  # features have none
        return LambdaBytes(pulled=inputs + outputs, returned=row_gradients)

    # Rows of both ends of every edge travel, also where a row is there already.
    edge_bytes = 2 * b * after + EDGE_END
    pull = edges * edge_bytes
    if kind == "edge_apply":
        return LambdaBytes(pulled=pull, returned=b * edges)
    pull += outputs
    last_layer = len(widths) - 2
    # The last layer has no gradient yet: scores and targets make it.
    if layer == last_layer:
        pull += outputs
    row_gradients = b * after * (edges + vertices)
    return LambdaBytes(pulled=pull, returned=row_gradients)


def dorylus_volumes(
    section: DorylusKeys,
    job: Job,
    counts: IntervalCounts,
    widths: tuple[int, ...],
    itemsize: int,
) -> Floats:
    """Return the bytes of every edge in one epoch, 0 of order and within a process."""
    sizes = _FlowSizes(
        section=section,
        counts=counts,
        widths=widths,
        itemsize=itemsize,
        weights=weight_bytes(section, widths, itemsize),
    )

    volumes = np.zeros(len(job.edges))
    for position, edge in enumerate(job.edges):
        source, destination = job.ends(edge)
        stays = source.process_name == destination.process_name
        if not stays and not edge.credit:
            volumes[position] = sizes.between(source, destination)
    return volumes


@dataclass(frozen=True)
class _FlowSizes:
    """Bytes of flows between processes."""

    section: DorylusKeys
    counts: IntervalCounts
    widths: tuple[int, ...]
    itemsize: int
    weights: Sequence[tuple[int, int]]

    def between(self, source: Task, destination: Task) -> float:
        if source.kind in CALLS and destination.kind in TENSORS:
            return self._of_lambda(destination).pulled
        if destination.kind in {"answer", "late"}:
            return self._of_lambda(source).returned
        if destination.kind == "ghosts":
            return self._of_ghosts(source, destination)
        if destination.kind == "stash":  # whoever else comes to it, asks
            return VERSION if source.kind == "apply" else 0
        return self._of_weights(source, destination)

    def _of_lambda(self, task: Task) -> LambdaBytes:
        settings = task.settings
        kind = settings.get("of", task.kind)
        layer = settings["layer"]
        if self.section.attends:
            interval = settings["interval"]
            loops = int(self.counts.vertices[interval])
            edges = int(self.counts.edges[interval])
            sizes = (loops, edges + loops)
            return attention_bytes(
                kind,
                layer,
                self.widths,
                b=self.itemsize,
                sizes=sizes,
            )

        per_row = step_bytes(
            kind,
            layer,
            self.section,
            self.widths,
            b=self.itemsize,
        )
        rows = _rows(settings, self.section, self.counts)
        return LambdaBytes(
            pulled=per_row.pulled * rows,
            returned=per_row.returned * rows,
        )

    def _of_ghosts(self, source: Task, destination: Task) -> float:
        # A GAT sends gradients back along edges, to the owners of their sources.
        ghosts = self.counts.ghosts
        if self.section.attends and source.kind == "scatter_back":
            ghosts = self.counts.sources
        interval = source.settings["interval"]
        server = destination.settings["server"]
        rows = ghosts[interval, server]
        # A GAT scatters the rows that its layer makes, a GCN those that it gets.
        layer = destination.settings["layer"]
        width = self.widths[layer + self.section.attends]
        row_bytes = GHOST_ID + self.itemsize * width
        return float(rows * row_bytes)

    def _of_weights(self, source: Task, destination: Task) -> float:
        kinds = {source.kind, destination.kind}
        if kinds.isdisjoint(PARAMETER_KINDS):
            return 0
        layer: int = destination.settings["layer"]
        matrix, attention = self.weights[layer]
        # Parameter servers exchange both in one message, lambdas send each for itself.
        if source.kind == "gradient_sum":
            return matrix + attention
        if kinds.isdisjoint(EDGE_TENSORS):
            return matrix
        return attention


def weight_bytes(
    section: DorylusKeys,
    widths: Sequence[int],
    itemsize: int,
) -> list[tuple[int, int]]:
    """Return the bytes of every layer's weights, and of its attention's two vectors."""
    weights = []
    for inputs, outputs in itertools.pairwise(widths):
        matrix = itemsize * inputs * outputs
        attention = 0
        if section.attends:
            attention = 2 * itemsize * outputs
        weights.append((matrix, attention))
    return weights


def _rows(
    settings: JobSettings,
    section: DorylusKeys,
    counts: IntervalCounts,
) -> int:
    """Return the vertices that a lambda, or a part of one, works on."""
    interval = settings["interval"]
    rows = int(counts.vertices[interval])
    if section.stream == 1:  # as on servers, whose tasks have no parts
        return rows

    half = rows // 2
    if settings["part"] == 0:
        # Of an odd number the first part has one more, so that the parts add up.
        return rows - half
    return half


def dorylus_times(
    section: DorylusKeys,
    job: Job,
    counts: IntervalCounts,
    times: Times,
    seed: int,
    rated: Floats | None = None,
) -> Floats:
    """Return seconds of every (task, epoch), shape (tasks, epochs).

    A gather takes a time in proportion to its edges, an apply of edges likewise with a
    loop per vertex, an apply to its vertices, a scatter to its ghosts: "scatter time
    grows with ghosts, not edges" (paper, 7.5).

    ``times``: kind of task -> seconds of one of mean size; ``seed``: of the lambdas
    that are slow; ``rated``: seconds of every (task, epoch) by rates, in place of
    ``times``. Raises ValueError when a kind of task has no time.
    """
    launch = section.launch
    # Rates count operations of each interval: its size is in them already.
    works = _works(section, job, counts, by_size=rated is None)
    shape = (len(job.tasks), job.iterations)
    seconds = np.zeros(shape)
    for position, task in enumerate(job.tasks):
        if task.gate or task.kind in {"begin", "held", "late"}:
            continue
        # The wait itself is added by `end_early`, which knows how long others took.
        if task.kind == "recall":  # after the timeout
            calling = times["call"] if rated is None else 0.0
            seconds[position] = launch.cold + calling
        elif task.kind == "launch":
            seconds[position] = launch.warm
            # The interval's one lambda stays up: only its first launch of all is cold.
            if task.settings["tensor"] == 0:
                seconds[position, 0] = launch.cold
        elif rated is not None:
            seconds[position] = rated[position] * works[position]
        elif task.kind in times:
            time = times[task.kind]
            seconds[position] = time * works[position]
        else:
            raise ValueError(f"no time for {task.kind}")

    if section.uses_lambdas:
        servers = len(counts.vertices) // section.intervals
        _delay_lambdas(section, job, seconds, servers, seed)
    return seconds


def _delay_lambdas(
    section: DorylusKeys,
    job: Job,
    seconds: Floats,
    servers: int,
    seed: int,
) -> None:
    """Let some lambdas take longer, and some die, as the section states it."""
    # Relaunched lambdas are not slow: the draws are of the first ones alone.
    first = first_attempts(job)
    usual = seconds[first]
    # Slowness comes first: how long a server waits for an answer follows from it.
    if section.slow_lambdas.share:
        seconds[first] *= section.slow_lambdas.factors(seed, usual.shape)
    if section.dying_lambdas.share:
        shape = (servers, section.intervals)
        end_early(section.dying_lambdas, job, seconds, usual, shape)


def _works(
    section: DorylusKeys,
    job: Job,
    counts: IntervalCounts,
    *,
    by_size: bool,
) -> list[float]:
    """Return the work of every task over that of one of mean size, or all the same."""
    ghosts = counts.ghosts.sum(axis=1)
    sizes = {
        "gather": _relative(counts.edges),
        "apply": _relative(counts.vertices),
        "edge_apply": _relative(counts.edges + counts.vertices),
        "scatter": _relative(ghosts),
    }

    works = []
    for task in job.tasks:
        work = 1.0
        kind = task.kind.removesuffix("_back")
        if by_size and kind in sizes:
            interval = task.settings["interval"]
            work = sizes[kind][interval]
        # Operations, too, are counted of the whole interval: a part takes its share.
        if kind == "apply":
            interval = task.settings["interval"]
            rows = counts.vertices[interval]
            part = _rows(task.settings, section, counts)
            work *= part / rows
        works.append(work)
    return works


def _relative(sizes: Ints) -> Floats:
    """Return sizes over their mean, 1 where all are 0."""
    mean = float(sizes.mean())
    if not mean:
        return np.ones(len(sizes))
    return sizes / mean


def count_step(
    section: DorylusKeys,
    kind: str,
    layer: int,
    widths: Sequence[int],
    sizes: tuple[float, float],
) -> Amounts:
    """Return the operations of a task of an interval; none of one that only sends.

    A gather adds rows as they are: before they are multiplied in a GCN, after that in a
    GAT. Backwards it adds gradients of these. ``widths``: f_0 .. f_L; ``sizes``:
    vertices of the interval, and edges into it with a loop for each vertex.
    """
    vertices, edges = sizes
    before = widths[layer]
    after = widths[layer + 1]
    if kind in {"gather", "gather_back"}:
        width = after if section.attends else before
        sums = LayerWork(aggregate=edges * width, multiply=0.0, narrows=True)
        return sums.forward
    if kind in EDGE_TENSORS:
        # Two products of a row with a vector.
        multiply = edges * 2 * after
        on_edges = LayerWork(aggregate=0.0, multiply=multiply, narrows=True)
        if kind == "edge_apply":
            return on_edges.forward
        # Attention is of z = h W: in layer 0, too, its rows need a gradient.
        return on_edges.backward(first=False)

    products = LayerWork(
        aggregate=0.0,
        multiply=vertices * before * after,
        narrows=True,
    )
    is_last = layer == len(widths) - 2
    is_fused = section.fuse and not section.attends and is_last
    amounts = dict.fromkeys(products.forward, 0.0)
    # Rematerialized, a backward pass begins with the forward one: Z is not stored.
    if kind == "apply" or section.rematerialize:
        amounts = dict(products.forward)
    if kind == "apply_back" or is_fused:
        backward = products.backward(first=layer == 0)
        for name, more in backward.items():
            amounts[name] += more
    return amounts


def count_steps(
    section: DorylusKeys,
    job: Job,
    counts: IntervalCounts,
    widths: Sequence[int],
    volumes: Floats,
) -> Operations:
    """Return the operations of a Dorylus job in every epoch.

    ``counts``: sizes of the intervals; ``widths``: f_0 .. f_L; ``volumes``: real bytes
    of (edge, 1), the same in every epoch.
    """
    itemsize = number_bytes(job.settings)
    weights = weight_bytes(section, widths, itemsize)
    operations = Operations(job)
    operations.add_bytes(job, volumes, "scatter", "scatter_back")
    operations.add_gradients(job, volumes, itemsize, "gradient_sum", "weight_update")

    for position, task in enumerate(job.tasks):
        step = task.kind.removesuffix("_back")
        if step in {"gather", "apply", "edge_apply"}:
            interval = task.settings["interval"]
            # Every vertex has a loop, to itself, that is no edge of the graph.
            vertices = float(counts.vertices[interval])
            edges = vertices + float(counts.edges[interval])
            amounts = count_step(
                section,
                task.kind,
                task.settings["layer"],
                widths,
                sizes=(vertices, edges),
            )
            operations.add(position, amounts)
        elif task.kind == "weight_update":
            layer = task.settings["layer"]
            parameters = sum(weights[layer]) / itemsize
            operations.add(position, {"step": parameters})
    return operations
