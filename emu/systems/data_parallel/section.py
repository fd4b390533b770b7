"""Section ``job`` of ``system: data_parallel``, which P3 is measured against (DGL).

Features are pulled from their owners, gradients summed; the bytes are those of DGTP's
jobs (`dgtp_volumes`). Per machine m a store ``g0``, a
sampler ``s0`` and a worker ``w0``, which share the worker's process, and the steps of
its ring all-reduce, ``w0.ring0``, ...
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

from emu.graph_data import Dataset
from emu.problem import Cluster, Job, Realization, Task
from emu.problem.workloads.all_reduce import (
    ALL_REDUCE,
    NamedEdge,
    all_reduce_edge_count,
    all_reduce_edges,
    all_reduce_tasks,
    build_named_job,
    credit_edges,
)
from emu.systems.dgtp import job as dgtp
from emu.systems.dgtp.section import realize_volumes
from emu.systems.training_section import ReplicaSection
from emu.systems.translation import (
    CommonJob,
    Translation,
    add_times,
    machines_key,
    read_replicas,
    write_common,
)

if TYPE_CHECKING:
    from emu.problem.fields.cluster_section import ClusterSection
    from emu.systems.job_section import BuildContext, Times


@dataclass(frozen=True)
class DataParallelConfig:
    """Shape of a data parallel job."""

    machines: tuple[str, ...]
    """Names of the machines, rank by rank."""
    batches: int
    """Mini-batches of each machine, iterations of the job."""
    window: int | None = None
    """Credit window K: how many batches a store may be ahead; None for unlimited."""
    demands: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Kind of process, ``graph_store`` or ``worker`` -> amount per resource."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Handed to every node program as it is."""


def _tasks(config: DataParallelConfig) -> Iterator[Task]:
    workers = []
    for rank, machine in enumerate(config.machines):
        store = Task(
            f"g{rank}",
            "graph_store",
            demands=config.demands.get("graph_store", {}),
            pinned=machine,
            program=dgtp.PROGRAMS["graph_store"],
            settings={"store": rank},
        )
        worker = replace(
            store,
            name=f"w{rank}",
            kind="worker",
            demands=config.demands.get("worker", {}),
            process=f"w{rank}",
            program=dgtp.PROGRAMS["replica"],
            settings={"worker": rank},
            takes="gpu",
        )
        sampler = replace(
            worker,
            name=f"s{rank}",
            kind="sampler",
            demands={},
            program=dgtp.PROGRAMS["sampler"],
            settings={"sampler": rank, "worker": rank},
            takes="",
        )
        yield from (store, sampler, worker)
        workers.append(worker)
    yield from all_reduce_tasks(workers)


def _list_edges(config: DataParallelConfig) -> Iterator[NamedEdge]:
    ranks = range(len(config.machines))
    for store, rank in itertools.product(ranks, ranks):
        yield NamedEdge(f"g{store}", f"s{rank}", carries="features")
    for rank in ranks:
        yield NamedEdge(f"s{rank}", f"w{rank}", carries="batch")
    names = [f"w{rank}" for rank in ranks]
    yield from all_reduce_edges(names, names, names, lag=1, carries="gradient")


def data_parallel_job(config: DataParallelConfig) -> Job:
    """Return the job of ``config``.

    Edges: every store -> sampler (store-major), sampler -> its worker, the ring, the
    credit edges.

    Raises
    ------
    ValueError
        As `Job` and `credit_edges`.
    """
    edges = _list_edges(config)
    job = build_named_job(_tasks(config), edges, config.batches, config.settings)
    credits_ = credit_edges(job.tasks, job.edges, config.window)
    return replace(job, edges=job.edges + credits_)


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
        return data_parallel_job(self.config(context))

    def config(self, context: BuildContext) -> DataParallelConfig:
        """Return the shape of the job, with the settings of its node programs."""
        demands = {kind: amounts.amounts() for kind, amounts in self.demands}
        settings = self.replica_settings(context) | {"partitioner": self.partitioner}
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
        seconds = dgtp.dgtp_times(job, {ALL_REDUCE: 0.0, **times})
        return Realization(seconds, realize_volumes(job, dataset))


def _read(job: ReplicaSection, cluster: ClusterSection) -> dict[str, Any]:
    return read_replicas(job, cluster, by_hops=False)


def _write(common: CommonJob) -> dict[str, Any]:
    common = common.spread(len(common.machines), len(common.machines))
    times = common.times_of("sampler", "worker", "graph_store", "all_reduce")
    times |= {k: add_times(times[k], common.step) for k in times.keys() & {"worker"}}
    by_import = common.partitioner == "imported"  # which only dgtp takes
    return {
        "partitioner": "hash" if by_import else common.partitioner,
        **machines_key(common),
        **write_common(common, times, "replica", "graph_store"),
    }


TRANSLATION = Translation(_read, _write)
