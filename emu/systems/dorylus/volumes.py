"""Bytes, times and operations of a Dorylus job, by its intervals (specs, 5a)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emu.problem import Job, Task
from emu.problem.workloads.operations import LayerWork, Operations
from emu.systems import Times
from emu.systems.dorylus.deaths import ANSWERS, DIES, LATE, timeouts
from emu.systems.dorylus.steps import CALLS, EDGE_TENSORS, PARAMETER_KINDS, TENSORS
from emu.systems.training_section import number_bytes

if TYPE_CHECKING:
    from emu.graph_data.intervals import IntervalCounts
    from emu.systems.dorylus.sections import DorylusKeys


#: Bytes of a vertex's number before each ghost row, and of a version of weights.
GHOST_ID = 4
VERSION = 8
#: Bytes of the number of an edge's destination within its interval.
EDGE_END = 4


def step_bytes(
    kind: str, layer: int, section: DorylusKeys, widths: Sequence[int], b: int
) -> tuple[int, int]:
    """Return the bytes per vertex that a lambda of a GCN pulls, and that it returns.

    ``kind``: ``apply`` or ``apply_back``; ``widths``: f_0 .. f_L, features, hidden
    layers, classes; ``b``: bytes of a number.
    """
    before = widths[layer]
    after = widths[layer + 1]
    last = layer == section.model.layers - 1
    if kind == "apply":
        if last and section.fuse:  # labels come with it; layer 0 returns no gradient
            return b * (before + after), b * before if layer else 0
        twice = 1 if section.rematerialize or last else 2
        return b * before, twice * b * after
    pull = before + (after if section.rematerialize else 2 * after)
    return b * pull, b * before if layer else 0


def attention_bytes(
    kind: str, layer: int, widths: Sequence[int], b: int, sizes: tuple[int, int]
) -> tuple[int, int]:
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
    if kind == "apply":
        return b * vertices * before, b * vertices * after
    if kind == "apply_back":
        answer = b * vertices * before if layer else 0
        return b * vertices * (before + after), answer
    pull = edges * (2 * b * after + EDGE_END)
    if kind == "edge_apply":
        return pull, b * edges
    last = layer == len(widths) - 2
    pull += b * vertices * after * (2 if last else 1)
    return pull, b * after * (edges + vertices)


def dorylus_volumes(
    section: DorylusKeys,
    job: Job,
    counts: IntervalCounts,
    widths: tuple[int, ...],
    itemsize: int,
) -> NDArray[np.float64]:
    """Return the bytes of every edge in one epoch, 0 of order and within a process."""
    volumes = np.zeros(len(job.edges))
    tasks = job.tasks

    def of_lambda(task: Task) -> tuple[int, int]:
        kind = task.settings.get("of", task.kind)
        i = task.settings["interval"]
        layer = task.settings["layer"]
        if section.attends:
            loops = int(counts.vertices[i])
            sizes = loops, int(counts.edges[i]) + loops
            return attention_bytes(kind, layer, widths, itemsize, sizes)
        pull, answer = step_bytes(kind, layer, section, widths, itemsize)
        rows = _rows(task.settings, section, counts)
        return pull * rows, answer * rows

    weights = weight_bytes(section, widths, itemsize)
    for e, edge in enumerate(job.edges):
        source = tasks[edge.source]
        to = tasks[edge.destination]
        if source.process_name == to.process_name or edge.credit:
            continue
        kinds = source.kind, to.kind
        if kinds[0] in CALLS and kinds[1] in TENSORS:
            volumes[e] = of_lambda(to)[0]
        elif kinds[1] in {"answer", "late"}:
            volumes[e] = of_lambda(source)[1]
        elif kinds[1] == "ghosts":
            i = source.settings["interval"]
            g = to.settings["server"]
            pushes = section.attends and kinds[0] == "scatter_back"
            rows = (counts.sources if pushes else counts.ghosts)[i, g]
            width = widths[to.settings["layer"] + section.attends]
            volumes[e] = rows * (GHOST_ID + itemsize * width)
        elif kinds[1] == "stash":  # whoever else comes to it, asks
            volumes[e] = VERSION if kinds[0] == "apply" else 0
        elif {*kinds} & {*PARAMETER_KINDS}:
            own = weights[to.settings["layer"]]
            part = own[bool({*kinds} & {*EDGE_TENSORS})]
            volumes[e] = sum(own) if kinds[0] == "gradient_sum" else part
    return volumes


def weight_bytes(
    section: DorylusKeys, widths: Sequence[int], itemsize: int
) -> list[tuple[int, int]]:
    """Return the bytes of every layer's weights, and of its attention's two vectors."""
    return [
        (itemsize * a * b, 2 * itemsize * b if section.attends else 0)
        for a, b in itertools.pairwise(widths)
    ]


def _rows(
    settings: Mapping[str, int], section: DorylusKeys, counts: IntervalCounts
) -> int:
    """Return the vertices that a lambda, or a part of one, works on."""
    rows = int(counts.vertices[settings["interval"]])
    if not section.uses_lambdas or section.stream == 1:
        return rows
    return (rows + 1) // 2 if settings["part"] == 0 else rows // 2


def dorylus_times(
    section: DorylusKeys,
    job: Job,
    counts: IntervalCounts,
    times: Times,
    seed: int,
    rated: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return seconds of every (task, epoch), shape (tasks, epochs).

    A gather takes a time in proportion to its edges, an apply of edges likewise with a
    loop per vertex, an apply to its vertices, a scatter to its ghosts: "scatter time
    grows with ghosts, not edges" (paper, 7.5).

    ``times``: kind of task -> seconds of one of mean size; ``seed``: of the lambdas
    that are slow; ``rated``: seconds of every (task, epoch) by rates, in place of
    ``times``. Raises ValueError when a kind of task has no time.
    """
    sizes = {
        "gather": _relative(counts.edges),
        "apply": _relative(counts.vertices),
        "edge_apply": _relative(counts.edges + counts.vertices),
        "scatter": _relative(counts.ghosts.sum(axis=1)),
    }
    seconds = np.zeros((len(job.tasks), job.iterations))
    tensors = first_attempts(job)
    launch = section.launch
    for j, task in enumerate(job.tasks):
        if task.gate or task.kind in {"begin", "held", "late"}:
            continue
        if task.kind == "recall":  # after the timeout
            seconds[j] = launch.cold + (times["call"] if rated is None else 0.0)
            continue
        if task.kind == "launch":
            seconds[j] = launch.warm
            seconds[j, 0] = launch.warm if task.settings["tensor"] else launch.cold
            continue
        size = sizes.get(task.kind.removesuffix("_back"))
        work = 1.0 if size is None else size[task.settings["interval"]]
        if rated is not None:
            times, work = {**times, task.kind: rated[j]}, 1.0
        if task.kind not in times:
            raise ValueError(f"no time for {task.kind}")
        if (
            task.kind.startswith("apply")
            and section.uses_lambdas
            and section.stream > 1
        ):
            rows = counts.vertices[task.settings["interval"]]
            work *= _rows(task.settings, section, counts) / rows
        seconds[j] = times[task.kind] * work
    usual = seconds[tensors]
    if section.slow_lambdas.share and section.uses_lambdas:
        seconds[tensors] *= section.slow_lambdas.factors(seed, usual.shape)
    if section.dying_lambdas.share and section.uses_lambdas:
        _end_early(section, job, len(counts.vertices), seconds, usual)
    return seconds


def first_attempts(job: Job) -> list[int]:
    """Return the tensor tasks that no lambda has been launched for before."""
    return [
        j
        for j, task in enumerate(job.tasks)
        if task.kind in TENSORS and task.settings.get("attempt", 1) == 1
    ]


def _end_early(
    section: DorylusKeys,
    job: Job,
    count: int,
    found: NDArray[np.float64],
    usual: NDArray[np.float64],
) -> None:
    """Let lambdas do the part of their work that they do, and servers wait for it.

    ``found`` has the seconds of every (task, epoch) if all did all of it, changed in
    place; ``usual`` those of the first lambdas where none is slow, as of those launched
    later; ``count`` intervals of all servers.
    """
    tensors = first_attempts(job)
    work = found[tensors]
    for row, j in enumerate(tensors):
        for n, end in enumerate(job.tasks[j].settings.get("ends", ())):
            if end != ANSWERS:
                work[row, n] = usual[row, n]
    each = len(tensors) // count
    shape = count // section.intervals, section.intervals, each, job.iterations
    waits = timeouts(section.dying_lambdas, np.moveaxis(work.reshape(shape), -1, 0))
    for j, task in enumerate(job.tasks):
        if task.kind == "recall":
            found[j] += waits[:, task.settings["server"], task.settings["tensor"]]
        if "done" in task.settings:
            found[j] *= task.settings["done"][: job.iterations]


def epochs_of_edge(job: Job, edge: int) -> NDArray[np.bool_]:
    """Return in which epochs an edge carries what it does, of lambdas that may die.

    A lambda that dies sends nothing, one that is too late its gradient alone.
    """
    source, to = (
        job.tasks[end] for end in (job.edges[edge].source, job.edges[edge].destination)
    )
    task = to
    fates = {ANSWERS, DIES, LATE}
    if source.kind == "held":
        task = source
        fates = {LATE}
    elif source.kind in TENSORS:
        task = source
        fates = {ANSWERS} if to.kind == "answer" else {ANSWERS, LATE}
    if to.kind == "stash" or "ends" not in task.settings:
        return np.ones(job.iterations, np.bool_)  # the first states its version anyway
    ends = task.settings["ends"][: job.iterations]
    return np.array([end in fates for end in ends])


def _relative(sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return sizes over their mean, 1 where all are 0."""
    mean = float(sizes.mean())
    return sizes / mean if mean else np.ones(len(sizes))


def count_step(
    section: DorylusKeys,
    kind: str,
    layer: int,
    widths: Sequence[int],
    sizes: tuple[float, float],
) -> dict[str, float]:
    """Return the operations of a task of an interval; none of one that only sends.

    A gather adds rows as they are: before they are multiplied in a GCN, after that in a
    GAT. Backwards it adds gradients of these. ``widths``: f_0 .. f_L; ``sizes``:
    vertices of the interval, and edges into it with a loop for each vertex.
    """
    vertices, edges = sizes
    before = widths[layer]
    after = widths[layer + 1]
    first = layer == 0
    forward = LayerWork(0.0, vertices * before * after, True)
    if kind in {"gather", "gather_back"}:
        width = after if section.attends else before
        return LayerWork(edges * width, 0.0, narrows=True).forward
    if kind in {"edge_apply", "edge_apply_back"}:  # two products of a row with a vector
        of_edges = LayerWork(0.0, edges * 2 * after, narrows=True)
        back = of_edges.backward(first=False)
        return of_edges.forward if kind == "edge_apply" else back
    amounts = dict.fromkeys(forward.forward, 0.0)
    is_fused = section.fuse and not section.attends and layer == len(widths) - 2
    passes = [forward.forward] if kind == "apply" or section.rematerialize else []
    if kind == "apply_back" or (kind == "apply" and is_fused):
        passes.append(forward.backward(first=first))
    for one in passes:
        amounts = {name: amounts[name] + amount for name, amount in one.items()}
    return amounts


def count_steps(
    section: DorylusKeys,
    job: Job,
    counts: IntervalCounts,
    widths: Sequence[int],
    volumes: NDArray[np.float64],
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
    work = ("gather", "apply", "edge_apply")
    for t, task in enumerate(job.tasks):
        if task.kind.removesuffix("_back") in work:
            interval = task.settings["interval"]
            vertices = float(counts.vertices[interval])
            sizes = vertices, vertices + float(counts.edges[interval])
            layer = task.settings["layer"]
            operations.add(t, count_step(section, task.kind, layer, widths, sizes))
        elif task.kind == "weight_update":
            size = sum(weights[task.settings["layer"]])
            operations.add(t, {"step": size / itemsize})
    return operations
