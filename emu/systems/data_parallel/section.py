"""Section ``job`` of ``system: data_parallel``, the baseline of P3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from emu.graph_data import BatchPlan, sampled_counts
from emu.systems.data_parallel.job import (
    DataParallelConfig,
    data_parallel_job,
    data_parallel_realization,
)
from emu.systems.training_section import ReplicaSection, number_bytes
from emu.workloads import parameter_count
from emu.workloads.all_reduce import all_reduce_edge_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emu.graph_data import Dataset
    from emu.problem import Cluster, Job, Realization
    from emu.systems.job_section import BuildContext, Times


class DataParallelJobSection(ReplicaSection):
    """Data parallel training: features are pulled from their owners (DGL)."""

    system: Literal["data_parallel"]
    """Kind of job."""
    partitioner: Literal["metis", "metis-dgl", "hash"] = "hash"
    """Which machine owns which vertex."""

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        """Return those between stores and samplers, and those of the ring."""
        ranks = len(self.ranks(machines))
        return ranks * (ranks + 1) + all_reduce_edge_count(ranks)

    @override
    def build(self, context: BuildContext) -> Job:
        """Return the job; see `data_parallel_job`."""
        return data_parallel_job(self.config(context))

    def config(self, context: BuildContext) -> DataParallelConfig:
        """Return the shape of the job, with the settings of its node programs."""
        demands = {kind: amounts.amounts() for kind, amounts in self.demands}
        settings = {
            **self.replica_settings(context),
            "partitioner": self.partitioner,
        }
        return DataParallelConfig(
            self.ranks(context.machines),
            self.count_batches(context),
            context.window,
            demands,
            settings,
        )

    @override
    def realize_sampled(
        self,
        job: Job,
        times: Times,
        dataset: Dataset,
        context: BuildContext,
        cluster: Cluster,
    ) -> Realization:
        """Return seconds and real bytes of ``job`` on its data set."""
        config, length = self.config(context), dataset.feature_length
        plan = BatchPlan.from_settings(job.settings)
        return data_parallel_realization(
            config,
            job,
            times,
            sampled_counts(dataset, plan, config.batches),
            feature_length=length,
            parameters=parameter_count(job.settings["model"], length, dataset.classes),
            itemsize=number_bytes(job.settings),
        )
