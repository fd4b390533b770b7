"""How fast a job goes: what a user knows of a training, read off a schedule."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.analysis.critical_path import Cause, critical_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu.analysis.critical_path import Link
    from emu.problem import Schedule

#: Kinds of task that compute gradients: a worker, or the phases of P3.
_TRAINING = (
    "worker",
    "model_forward",
    "data_forward",
    "data_backward",
    "model_backward",
)
_SAMPLING = ("graph_store", "sampler")


@dataclass(frozen=True)
class Pace:
    """How fast a job goes.

    Parameters
    ----------
    iteration_seconds
        Mean time between the ends of iterations; of one alone the makespan.
    samples_per_second
        Seeds that are trained on, None where the job has no batches.
    busy
        Share of the makespan in which a training process computes, the mean over them;
        None where there are none.
    critical_path
        ``sampling``, ``transfer``, ``compute`` and ``waiting`` as shares of it, most
        first.
    """

    iteration_seconds: float
    samples_per_second: float | None
    busy: float | None
    critical_path: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return the form of result.json."""
        return asdict(self)


def pace(schedule: Schedule, batch_size: int | None) -> Pace:
    """Return how fast a job goes.

    Parameters
    ----------
    batch_size
        Seeds of one sampler in one iteration, None for a job without batches.
    """
    ends = np.nanmax(schedule.task_end, axis=0)
    rounds = len(ends)
    last, first = float(ends.max()), float(ends[0])
    iteration = (last - first) / (rounds - 1) if rounds > 1 else last
    samplers = sum(task.kind == "sampler" for task in schedule.problem.job.tasks)
    samples = None
    if batch_size and samplers and iteration > 0:
        samples = batch_size * samplers / iteration
    return Pace(iteration, samples, _busy(schedule), _split(schedule))


def stated_batch(scenario: Mapping[str, Any]) -> int | None:
    """Return the batch size of a scenario as a document, where it is of one job."""
    found = (scenario.get("job") or {}).get("batch_size")
    return None if found is None else int(found)


def _busy(schedule: Schedule) -> float | None:
    spent: defaultdict[str, float] = defaultdict(float)
    lengths = np.nansum(schedule.task_end - schedule.task_start, axis=1)
    for task, seconds in zip(schedule.problem.job.tasks, lengths, strict=True):
        if task.kind in _TRAINING:
            spent[task.process_name] += float(seconds)
    if not spent or not schedule.makespan:
        return None
    return sum(spent.values()) / len(spent) / schedule.makespan


def _split(schedule: Schedule) -> dict[str, float]:
    tasks = schedule.problem.job.tasks

    def part(link: Link) -> str:
        if link.cause in (Cause.TRANSFER, Cause.IN_ORDER):
            return "transfer"
        if link.cause is not Cause.COMPUTE:
            return "waiting"
        return "sampling" if tasks[link.task].kind.startswith(_SAMPLING) else "compute"

    sums = Counter(critical_path(schedule).sums(part))
    whole = schedule.makespan
    return {name: spent / whole for name, spent in sums.most_common() if spent > 0}
