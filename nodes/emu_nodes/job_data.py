"""Data set and batches of a training job, known to every program of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.graph_data import BatchPlan, Dataset, SampledBatch, open_for

if TYPE_CHECKING:
    from emu_nodes.program import TaskSpec


class JobData:
    """Data set and batch plan, opened once per process.

    Parameters
    ----------
    brief
        Of any task of the process.
    process
        Shared by the tasks of one process.
    """

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        if "dataset" not in process:
            process["dataset"] = open_for(brief.job_settings)
        self.dataset: Dataset = process["dataset"]
        self.plan = BatchPlan.from_settings(brief.job_settings)
        self.precision: str = brief.job_settings["precision"]

    def batch(self, sampler: int, iteration: int) -> SampledBatch:
        """Sample the mini-batch of one (sampler, iteration).

        The first call checks and maps the structure and loads compiled code, up to
        0.5 s: programs make it before the start barrier.
        """
        dataset = self.dataset
        return self.plan.batch(dataset.structure, dataset.train, sampler, iteration)
