"""Section ``job`` of ``system: apt``, its times and bytes, and its translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from emu.errors import ScenarioError
from emu.graph_data import BatchPlan, Dataset, open_for
from emu.problem import Cluster, Job, Realization, Task
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.workloads.all_reduce import (
    all_reduce_edge_count,
    build_named_job,
    elements_of_rank,
)
from emu.problem.workloads.fetches import ASKED
from emu.problem.workloads.operations import Operations
from emu.systems import Floats, Keys, Names, Problems, Settings, Times, translation
from emu.systems.apt.choice import choose
from emu.systems.apt.job import AptBuilder
from emu.systems.apt.shares import count_rows_of
from emu.systems.apt.volumes import CountedJob
from emu.systems.asking_section import AskingTimesSection
from emu.systems.device_memory import Parts
from emu.systems.gpu_turns import GpuTurnsSection
from emu.systems.intake import Intake
from emu.systems.job_section import BuildContext
from emu.systems.model_section import ModelProgramSection
from emu.systems.p3.job import PHASES
from emu.systems.p3.volumes import SplitModel, split_model
from emu.systems.replica_section import ReplicaSection
from emu.systems.training_section import feature_bytes, number_bytes, repeat_times
from emu.systems.translation import CommonJob, Translation

_NO_PROGRAM = "apt cannot split the first layer of a program: write a kind, not this"
_NO_ATTENTION = (
    "found gat, which attends over all inputs of a vertex at once, where apt adds up "
    "parts: write sage, gcn or gin"
)

#: A row is asked for its strategy before its job is built, and when it is.
_choose_once = lru_cache(maxsize=8)(choose)


class AptSection(GpuTurnsSection, ReplicaSection):
    """APT: layer 1 where rows are, where vertices are, by columns, or in one place.

    Weights are those of data parallel training, whatever the strategy. Machines keep
    no rows but their own.
    """

    shaped_by_data: ClassVar[bool] = True
    foreign: ClassVar[dict[str, str]] = {
        **ReplicaSection.foreign,
        "stores": "each machine that takes part owns vertices: write machines",
        "cache": "machines keep no rows of others: salient_plus_plus does",
    }

    system: Literal["apt"]
    """Kind of job."""
    strategy: Literal["auto", "gdp", "nfp", "snp", "dnp"] = "auto"
    """Where layer 1 is computed: on the machine of the mini-batch (``gdp``), on each by
    columns (``nfp``), where the source of an edge lives (``snp``), or its destination
    (``dnp``). ``auto``: that of the smallest estimated transfers in a dry run."""
    partitioner: Literal["metis", "metis-dgl", "hash"] = "metis"
    """Which machine owns which vertex."""
    times: AskingTimesSection = AskingTimesSection()
    """Profiled times."""

    @property
    @override
    def default_epoch(self) -> str:
        if self.partitioner == "hash":
            return "replicate"
        return "local"

    @override
    def share(self, kind: str) -> float:
        # One task of a machine asks for the rows of all its samplers.
        if kind == "sampler_fetch":
            return 1.0
        return super().share(kind)

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        ranks = len(self.ranks(machines))
        rings = all_reduce_edge_count(ranks)
        # A share of every sampler, a question and rows, and four edges in order.
        edges = self.samplers_per_worker + 2 + 4
        return rings + ranks * edges

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from super().problems(cluster)
        if isinstance(self.model, ModelProgramSection):
            yield ("job", "model", "program"), _NO_PROGRAM
        elif self.model.kind == "gat":
            yield ("job", "model", "kind"), _NO_ATTENTION

    @override
    def replica_settings(self, context: BuildContext) -> Settings:
        settings = super().replica_settings(context)
        return {
            **settings,
            "partitioner": self.partitioner,
            "sampling": ASKED,
        }

    def _chosen(
        self,
        settings: Settings,
        context: BuildContext,
        batches: int,
    ) -> str:
        """Return the strategy, by a dry run where it is to be chosen."""
        if self.strategy != "auto":
            return self.strategy
        if context.cluster is None:  # data are not open yet
            return "gdp"

        dataset = open_for(settings)
        split = _split_of(settings, dataset)
        cluster = context.cluster
        byte_seconds = []
        for name in self._names(context):
            machine = cluster.machines[cluster.index(name)]
            slower_way = min(machine.bandwidth_in, machine.bandwidth_out)
            byte_seconds.append(1 / slower_way)

        return _choose_once(
            dataset,
            BatchPlan.from_settings(settings),
            batches,
            row=feature_bytes(settings) * dataset.feature_length,
            width=split.itemsize * split.pulled_width,
            byte_seconds=tuple(byte_seconds),
        )

    def _names(self, context: BuildContext) -> Names:
        return tuple(self.ranks(context.machines))

    def _builder(self, strategy: str, context: BuildContext) -> AptBuilder:
        return AptBuilder(
            strategy,
            self._names(context),
            self.samplers_per_worker,
            context.window,
        )

    @override
    def build(self, context: BuildContext) -> Job:
        batches = self.count_batches(context)
        settings = self.replica_settings(context)
        strategy = self._chosen(settings, context, batches)
        builder = self._builder(strategy, context)

        pools = [self.pool_of("graph_store", name) for name in builder.machines]
        worker = Task("", "", demands=self.demands.worker.amounts())
        store = Task("", "", demands=self.demands.graph_store.amounts())
        return build_named_job(
            tasks=builder.tasks(pools, worker, store),
            edges=builder.edges(),
            iterations=batches,
            settings={**settings, "strategy": strategy},
        )

    @override
    def count_operations(
        self,
        job: Job,
        context: BuildContext,
        volumes: Floats,
    ) -> Operations:
        counted = CountedJob.of(job)
        operations = counted.operations(volumes)
        for number, task in enumerate(job.tasks):
            if self.brings_rows(task):
                rows = counted.row_bytes(task.settings["rank"])
                operations.add(number, {"collect": rows})
        return operations

    @override
    def device_memory(
        self,
        job: Job,
        context: BuildContext,
    ) -> Mapping[str, Parts]:
        counted = CountedJob.of(job)
        return counted.device_memory()

    @override
    def realize_sampled(
        self,
        job: Job,
        times: Times,
        context: BuildContext,
        cluster: Cluster,
    ) -> Realization:
        dataset = open_for(job.settings)
        strategy = job.settings["strategy"]
        if strategy == "nfp" and dataset.feature_length < dataset.parts:
            problem = (
                f"{dataset.parts} machines cannot share {dataset.feature_length} "
                "features, write another strategy"
            )
            raise ScenarioError(problem, key="job.strategy")

        builder = self._builder(strategy, context)
        edges = list(builder.edges())
        counted = CountedJob.of(job)
        return Realization(
            times=repeat_times(job, times),
            volumes=counted.volumes(edges),
        )

    @override
    def stated_seconds(self, job: Job) -> Floats | None:
        return self.seconds_by_kind(job)

    @override
    def intake(
        self, context: BuildContext, dataset: Dataset, rank: int
    ) -> Intake | None:
        settings = self.data_settings(context)
        batches = self.count_batches(context)
        if self._chosen(settings, context, batches) != "gdp":
            return None
        row = feature_bytes(settings) * dataset.feature_length
        plan = BatchPlan.from_settings(settings)
        split = _split_of(settings, dataset)
        sent = elements_of_rank(split.first, ranks=settings["workers"], rank=rank)

        def count() -> Floats:
            rows = count_rows_of(dataset, plan, batches, self.samplers_of(rank))
            rows[rank] = 0.0  # its own are at hand
            return np.asarray(row * rows.sum(axis=0))

        return Intake(
            batches,
            count,
            before=self.sure_seconds("sampler"),
            sending=self.sure_seconds("graph_store"),
            # One mini-batch after the other goes through all of them.
            behind=(self.sure_seconds(*PHASES.values()),),
            # The gradient of layer 1 comes last; the others' are sent beside it.
            sum_bytes=split.itemsize * sent,
        )


def _split_of(settings: Settings, dataset: Dataset) -> SplitModel:
    """Return the sizes of the model of a job's settings."""
    return split_model(
        settings["model"],
        dataset.feature_length,
        dataset.classes,
        number_bytes(settings),
    )


def _write(common: CommonJob) -> Keys:
    model = common.same["model"]
    if "program" in model:
        raise ScenarioError(_NO_PROGRAM, key="job.model.program")
    if model.get("kind") == "gat":
        raise ScenarioError(_NO_ATTENTION, key="job.model.kind")
    translation.refuse_stores(common, "apt")

    count = len(common.machines)
    common = common.spread(count, count)
    times = common.times_of("sampler", "all_reduce", "graph_store")
    # Its stores collect, not its first phase.
    others = {kind: time for kind, time in common.times.items() if kind not in times}
    without_known = replace(common, times=others)
    times |= without_known.phases()

    return {
        **translation.machines_key(common),
        **translation.write_common(common, times, "replica", "graph_store"),
    }


TRANSLATION = Translation(translation.read_replicas, _write, splits_first_layer=True)
