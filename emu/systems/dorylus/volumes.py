"""Bytes and times of a Dorylus job, as functions of its intervals (specs, 5a)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emu.problem import Job, Realization, Task
from emu.systems.dorylus.deaths import ANSWERS, DIES, LATE, timeouts
from emu.systems.dorylus.steps import CALLS, EDGE_TENSORS, PARAMETER_KINDS, TENSORS

if TYPE_CHECKING:
    from emu.graph_data.intervals import IntervalCounts
    from emu.systems.dorylus.graph import DorylusConfig

#: Bytes of a vertex's number before each ghost row, and of a version of weights.
GHOST_ID, VERSION = 4, 8
#: Bytes of the number of an edge's destination within its interval.
EDGE_END = 4


@dataclass(frozen=True)
class SlowLambdas:
    """Lambdas that take longer: a seeded choice, decided before the run."""

    share: float = 0.0
    """Probability of each lambda and epoch to be slow."""
    factor: float = 1.0
    """Mean factor of the time of a slow one, 1 or more."""
    spread: str = "constant"
    """``constant``: the factor itself; ``exponential``: 1 plus an exponential variable
    of mean ``factor - 1``."""

    def factors(self, seed: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Return what the time of every (lambda, epoch) is multiplied with.

        Epochs that follow change none before: ``until`` decides how many there are.
        """
        draws = np.random.default_rng([seed, 7]).random((*shape[::-1], 2)).T
        extra = np.full(shape, self.factor - 1.0)
        if self.spread == "exponential":
            extra *= -np.log1p(-draws[1])
        return 1.0 + np.where(draws[0] < self.share, extra, 0.0)


@dataclass(frozen=True)
class DorylusTimes:
    """Seconds of one task of mean size of each kind, and what differs from it."""

    kinds: Mapping[str, float]
    """Kind of task -> seconds."""
    cold: float = 0.0
    warm: float = 0.0
    """Seconds of the first launch of an interval's lambda, and of every later one."""
    slow: SlowLambdas = SlowLambdas()
    seed: int = 0


def step_bytes(
    name: str, config: DorylusConfig, widths: tuple[int, ...], itemsize: int
) -> tuple[int, int]:
    """Return the bytes per vertex that a lambda pulls, and those that it returns.

    Parameters
    ----------
    name
        Kind and layer of the tensor task, ``apply 0`` or ``apply_back 0``, of a GCN.
    widths
        f_0 .. f_L: features, hidden layers, classes.
    """
    kind, number = name.split()
    layer, b = int(number), itemsize
    before, after = widths[layer], widths[layer + 1]
    last = layer == config.layers - 1
    if kind == "apply":
        if last and config.fuse:  # labels come with it; layer 0 returns no gradient
            return b * (before + after), b * before if layer else 0
        twice = 1 if config.rematerialize or last else 2
        return b * before, twice * b * after
    pull = before + (after if config.rematerialize else 2 * after)
    return b * pull, b * before if layer else 0


def attention_bytes(
    name: str,
    config: DorylusConfig,
    widths: tuple[int, ...],
    itemsize: int,
    sizes: tuple[int, int],
) -> tuple[int, int]:
    """Return the bytes that a lambda of a GAT pulls, and those that it returns.

    For each edge u -> v, loops among them, AE pulls the rows of u and v and the number
    of v (4 bytes), and returns the attention of the edge. Backwards it pulls the
    gradients of its vertices as well (of the last layer their scores and targets), and
    returns a gradient per edge, of u, and one per vertex.

    Parameters
    ----------
    name, widths
        As in `step_bytes`.
    sizes
        Vertices and edges of the interval, loops among these.
    """
    kind, number = name.split()
    layer, b = int(number), itemsize
    before, after = widths[layer], widths[layer + 1]
    vertices, edges = sizes
    if kind == "apply":
        return b * vertices * before, b * vertices * after
    if kind == "apply_back":
        answer = b * vertices * before if layer else 0
        return b * vertices * (before + after), answer
    pull = edges * (2 * b * after + EDGE_END)
    if kind == "edge_apply":
        return pull, b * edges
    last = layer == config.layers - 1
    pull += b * vertices * after * (2 if last else 1)
    return pull, b * after * (edges + vertices)


def dorylus_volumes(
    config: DorylusConfig,
    job: Job,
    counts: IntervalCounts,
    widths: tuple[int, ...],
    itemsize: int,
) -> NDArray[np.float64]:
    """Return the bytes of every edge of a `dorylus_job` in one epoch.

    Returns
    -------
    volumes
        float64, shape (edges,); 0 where an edge is order or stays in a process.
    """
    volumes = np.zeros(len(job.edges))
    tasks = job.tasks

    def of_lambda(task: Task) -> tuple[int, int]:
        kind, i = task.settings.get("of", task.kind), task.settings["interval"]
        step = f"{kind} {task.settings['layer']}"
        if config.attention:
            loops = int(counts.vertices[i])
            sizes = loops, int(counts.edges[i]) + loops
            return attention_bytes(step, config, widths, itemsize, sizes)
        pull, answer = step_bytes(step, config, widths, itemsize)
        rows = _rows(task.settings, config, counts)
        return pull * rows, answer * rows

    weights = weight_bytes(config, widths, itemsize)
    for e, edge in enumerate(job.edges):
        source, to = tasks[edge.source], tasks[edge.destination]
        if source.process_name == to.process_name or edge.credit:
            continue
        kinds = source.kind, to.kind
        if kinds[0] in CALLS and kinds[1] in TENSORS:
            volumes[e] = of_lambda(to)[0]
        elif kinds[1] in {"answer", "late"}:
            volumes[e] = of_lambda(source)[1]
        elif kinds[1] == "ghosts":
            i, g = source.settings["interval"], to.settings["server"]
            pushes = config.attention and kinds[0] == "scatter_back"
            rows = (counts.sources if pushes else counts.ghosts)[i, g]
            width = widths[to.settings["layer"] + config.attention]
            volumes[e] = rows * (GHOST_ID + itemsize * width)
        elif {*kinds} & {*PARAMETER_KINDS}:
            volumes[e] = _parameter_bytes(kinds, weights[to.settings["layer"]])
    return volumes


def _parameter_bytes(kinds: tuple[str, str], weights: tuple[int, int]) -> int:
    """Return what goes to or from a parameter server, of a layer's `weight_bytes`."""
    if kinds[1] == "stash":  # whoever else comes to it, asks
        return VERSION if kinds[0] == "apply" else 0
    if kinds[0] == "gradient_sum":
        return sum(weights)
    return weights[bool({*kinds} & {*EDGE_TENSORS})]


def weight_bytes(
    config: DorylusConfig, widths: Sequence[int], itemsize: int
) -> list[tuple[int, int]]:
    """Return the bytes of every layer's weights, and of its attention's two vectors."""
    return [
        (itemsize * a * b, 2 * itemsize * b if config.attention else 0)
        for a, b in itertools.pairwise(widths)
    ]


def _rows(
    settings: Mapping[str, int], config: DorylusConfig, counts: IntervalCounts
) -> int:
    """Return the vertices that a lambda, or a part of one, works on."""
    rows = int(counts.vertices[settings["interval"]])
    if not config.lambdas or config.stream == 1:
        return rows
    return (rows + 1) // 2 if settings["part"] == 0 else rows // 2


def dorylus_times(
    config: DorylusConfig, job: Job, counts: IntervalCounts, times: DorylusTimes
) -> NDArray[np.float64]:
    """Return seconds of every (task, epoch), shape (tasks, epochs).

    A gather takes a time in proportion to its edges, an apply of edges likewise with a
    loop per vertex, an apply to its vertices, a scatter to its ghosts: "scatter time
    grows with ghosts, not edges" (paper, 7.5).

    Raises
    ------
    ValueError
        When a kind of task has no time.
    """
    sizes = {
        "gather": _relative(counts.edges),
        "apply": _relative(counts.vertices),
        "edge_apply": _relative(counts.edges + counts.vertices),
        "scatter": _relative(counts.ghosts.sum(axis=1)),
    }
    found = np.zeros((len(job.tasks), job.iterations))
    tensors = first_attempts(job)
    for j, task in enumerate(job.tasks):
        if task.gate or task.kind in {"begin", "held", "late"}:
            continue
        if task.kind == "recall":  # after the timeout
            found[j] = times.cold + times.kinds["call"]
            continue
        if task.kind == "launch":
            found[j] = times.warm
            found[j, 0] = times.warm if task.settings["tensor"] else times.cold
            continue
        if task.kind not in times.kinds:
            raise ValueError(f"no time for {task.kind}")
        size = sizes.get(task.kind.removesuffix("_back"))
        work = 1.0 if size is None else size[task.settings["interval"]]
        if task.kind.startswith("apply") and config.lambdas and config.stream > 1:
            rows = counts.vertices[task.settings["interval"]]
            work *= _rows(task.settings, config, counts) / rows
        found[j] = times.kinds[task.kind] * work
    usual = found[tensors]
    if times.slow.share and config.lambdas:
        found[tensors] *= times.slow.factors(times.seed, usual.shape)
    if config.dying.share and config.lambdas:
        _end_early(config, job, found, usual)
    return found


def first_attempts(job: Job) -> list[int]:
    """Return the tensor tasks that no lambda has been launched for before."""
    return [
        j
        for j, task in enumerate(job.tasks)
        if task.kind in TENSORS and task.settings.get("attempt", 1) == 1
    ]


def _end_early(
    config: DorylusConfig,
    job: Job,
    found: NDArray[np.float64],
    usual: NDArray[np.float64],
) -> None:
    """Let lambdas do the part of their work that they do, and servers wait for it.

    ``found``: seconds of every (task, epoch) if all did all of it; changed in place.

    ``usual``: those of the first lambdas where none is slow, as those launched later.
    """
    tensors = first_attempts(job)
    work = found[tensors]
    for row, j in enumerate(tensors):
        for n, end in enumerate(job.tasks[j].settings.get("ends", ())):
            if end != ANSWERS:
                work[row, n] = usual[row, n]
    each = len(tensors) // config.count
    shape = len(config.servers), config.intervals, each, job.iterations
    waits = timeouts(config.dying, np.moveaxis(work.reshape(shape), -1, 0))
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
    task, kept = to, {ANSWERS, DIES, LATE}
    if source.kind == "held":
        task, kept = source, {LATE}
    elif source.kind in TENSORS:
        task, kept = source, {ANSWERS} if to.kind == "answer" else {ANSWERS, LATE}
    if to.kind == "stash" or "ends" not in task.settings:
        return np.ones(job.iterations, np.bool_)  # the first states its version anyway
    ends = task.settings["ends"][: job.iterations]
    return np.array([end in kept for end in ends])


def _relative(sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return sizes over their mean, 1 where all are 0."""
    mean = float(sizes.mean())
    return sizes / mean if mean else np.ones(len(sizes))


def dorylus_realization(
    config: DorylusConfig,
    job: Job,
    counts: IntervalCounts,
    times: DorylusTimes,
    widths: tuple[int, ...],
    itemsize: int,
) -> Realization:
    """Return seconds and real bytes of ``job``, a `dorylus_job`.

    Raises
    ------
    ValueError
        As `dorylus_times`.
    """
    volumes = dorylus_volumes(config, job, counts, widths, itemsize)
    seconds = dorylus_times(config, job, counts, times)
    by_epoch = np.repeat(volumes[:, None], job.iterations, axis=1)
    if config.dying.share:
        for e in np.flatnonzero(volumes).tolist():
            by_epoch[e] *= epochs_of_edge(job, e)
    return Realization(seconds, by_epoch)
