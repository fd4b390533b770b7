"""Costs of tasks and flows: one concrete run, or the distributions to draw it from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem.job import Job


def _checked(values: NDArray[np.float64], what: str) -> NDArray[np.float64]:
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    if array.ndim != 2:
        raise ValueError(f"{what} must have two axes, not {array.ndim}")
    if array.size and not (np.isfinite(array).all() and (array >= 0).all()):
        row, column = np.argwhere(~(np.isfinite(array) & (array >= 0)))[0]
        raise ValueError(
            f"{what} [{row}, {column}] is {array[row, column]}; "
            "it must be finite and not negative"
        )
    return array


@dataclass(frozen=True, eq=False)
class Realization:
    """Times and volumes of one run.

    Raises
    ------
    ValueError
        When an entry is negative, NaN or infinite, or a shape is wrong.
    """

    times: NDArray[np.float64]
    """Execution time of (task, iteration), seconds, shape (tasks, iterations): at the
    full speed of its machine, which may have less for a time."""
    volumes: NDArray[np.float64]
    """Bytes of (edge, iteration of its source), shape (edges, iterations). Present also
    where the edge stays on one machine or no task receives it; unused there."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "times", _checked(self.times, "times"))
        object.__setattr__(self, "volumes", _checked(self.volumes, "volumes"))

    def beginning_at(self, first: int, job: Job) -> Realization:
        """Return the times and volumes of the iterations of a job from one on.

        Its mini-batches before that are done: tasks that are behind have none at first.
        """
        if not first:
            return self
        times, volumes = self.times[:, first:].copy(), self.volumes[:, first:].copy()
        behind = [task.behind for task in job.tasks]
        for row, cycles in zip(times, behind, strict=True):
            row[:cycles] = 0.0
        for row, edge in zip(volumes, job.edges, strict=True):
            row[: behind[edge.source]] = 0.0
        return Realization(times, volumes)

    def check_shapes(self, job: Job) -> None:
        """Raise ValueError unless the shapes are those of ``job``."""
        expected = (len(job.tasks), job.iterations), (len(job.edges), job.iterations)
        if (self.times.shape, self.volumes.shape) != expected:
            raise ValueError(
                f"times {self.times.shape} and volumes {self.volumes.shape} "
                f"do not fit a job of {expected[0]} and {expected[1]}"
            )


@dataclass(frozen=True, eq=False)
class Profile:
    """Measured times and volumes of some iterations, to draw runs from.

    Raises
    ------
    ValueError
        As `Realization`, or when nothing was profiled.
    """

    times: NDArray[np.float64]
    volumes: NDArray[np.float64]
    """As in `Realization`, over the profiled iterations."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "times", _checked(self.times, "times"))
        object.__setattr__(self, "volumes", _checked(self.volumes, "volumes"))
        if self.times.shape[1] < 1 or self.volumes.shape[1] != self.times.shape[1]:
            raise ValueError("a profile needs the same iterations of times and volumes")

    def draw(self, rng: np.random.Generator, iterations: int) -> Realization:
        """Return a run of ``iterations``, each drawn whole from the profiled ones.

        An iteration keeps its times and volumes together, so that volumes which rise
        and fall together (one batch, many stores) stay correlated.
        """
        chosen = rng.integers(self.times.shape[1], size=iterations)
        return Realization(self.times[:, chosen], self.volumes[:, chosen])
