"""Data before a training run and weights after it, where each holder has its shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.workloads.all_reduce import ALL_REDUCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu.problem import Job
    from emu.systems.system import Results

#: Kinds of task of which the first that a job has ends every step.
STEP_KINDS = ("parameter_server", ALL_REDUCE, "worker")


def open_dataset(settings: Mapping[str, Any]) -> None:
    """Open the data set of a job.

    Raises
    ------
    ScenarioError
        When a mini-batch has more seeds than there are training vertices.
    DataError
        When the data set is missing or damaged.
    """
    from emu.systems.training_section import (  # noqa: PLC0415 - numpy
        open_fitting,
    )

    open_fitting(settings)


def held_parameters(job: Job, results: Results) -> NDArray[Any]:
    """Return all parameters, flat."""
    holders, _ = _holders(job)
    return np.concatenate([results[name]["parameters"] for name in holders])


def held_state(job: Job) -> dict[str, tuple[str, ...]]:
    """Return the tasks with whose state a task begins after a cut, by its name.

    A server begins with its own, a worker with that of all servers; where workers sum
    gradients, all begin with that of the first.
    """
    holders, workers = _holders(job)
    own = {} if holders[0] in workers else {name: (name,) for name in holders}
    return own | dict.fromkeys(workers, holders)


def _holders(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the tasks that hold all parameters together, and of workers.

    Servers hold shards of them; of workers that sum gradients each holds all.
    """
    servers, workers = (
        tuple(task.name for task in job.tasks if task.kind == kind)
        for kind in ("parameter_server", "worker")
    )
    return servers or workers[:1], workers
