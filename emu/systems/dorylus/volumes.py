"""Bytes and times of a Dorylus job, as functions of its intervals (specs, 5a)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emu.problem import Realization

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu.graph_data.intervals import IntervalCounts
    from emu.problem import Job
    from emu.systems.dorylus.job import DorylusConfig

#: Bytes of a vertex's number before each ghost row, and of a version of weights.
GHOST_ID, VERSION = 4, 8


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
        """Return what the time of every (lambda, epoch) is multiplied with."""
        rng = np.random.default_rng([seed, 7])
        slow = rng.random(shape) < self.share
        extra = np.full(shape, self.factor - 1.0)
        if self.spread == "exponential":
            extra = rng.exponential(self.factor - 1.0, shape)
        return 1.0 + np.where(slow, extra, 0.0)


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
        Kind and layer of the tensor task, ``apply 0`` or ``apply_back 0``.
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
    pulled = before + (after if config.rematerialize else 2 * after)
    return b * pulled, b * before if layer else 0


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
    per_vertex = {
        step: step_bytes(step, config, widths, itemsize)
        for step in {
            f"{task.kind} {task.settings['layer']}"
            for task in tasks
            if task.kind in {"apply", "apply_back"}
        }
    }
    weights = [itemsize * a * b for a, b in itertools.pairwise(widths)]
    for e, edge in enumerate(job.edges):
        source, to = tasks[edge.source], tasks[edge.destination]
        if source.process_name == to.process_name or edge.credit:
            continue
        kinds = source.kind, to.kind
        if kinds[0] == "call" and kinds[1] != "stash":
            step = f"{kinds[1]} {to.settings['layer']}"
            volumes[e] = per_vertex[step][0] * _rows(to.settings, config, counts)
        elif kinds[1] == "answer":
            step = f"{kinds[0]} {source.settings['layer']}"
            volumes[e] = per_vertex[step][1] * _rows(source.settings, config, counts)
        elif kinds[1] == "ghosts":
            i, g = source.settings["interval"], to.settings["server"]
            layer = to.settings["layer"]
            volumes[e] = counts.ghosts[i, g] * (GHOST_ID + itemsize * widths[layer])
        elif kinds == ("apply", "stash"):
            volumes[e] = VERSION
        elif kinds[1] in {"gradient_sum", "weight_update"}:
            volumes[e] = weights[to.settings["layer"]]
        elif kinds[0] in {"weight_update", "stash"}:
            volumes[e] = weights[source.settings["layer"]]
    return volumes


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

    A gather takes a time in proportion to its edges, an apply to its vertices, a
    scatter to its ghosts: "scatter time grows with ghosts, not edges" (paper, 7.5).

    Raises
    ------
    ValueError
        When a kind of task has no time.
    """
    sizes = {
        "gather": _relative(counts.edges),
        "apply": _relative(counts.vertices),
        "scatter": _relative(counts.ghosts.sum(axis=1)),
    }
    found = np.zeros((len(job.tasks), job.iterations))
    tensors = [j for j, task in enumerate(job.tasks) if task.kind.startswith("apply")]
    for j, task in enumerate(job.tasks):
        if task.gate or task.kind == "begin":
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
    if times.slow.share and config.lambdas:
        shape = (len(tensors), job.iterations)
        found[tensors] *= times.slow.factors(times.seed, shape)
    return found


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
    return Realization(seconds, np.repeat(volumes[:, None], job.iterations, axis=1))
