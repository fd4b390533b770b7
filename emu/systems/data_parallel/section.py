"""Section ``job`` of ``system: data_parallel``, which P3 is measured against (DGL).

Features are pulled from their owners, gradients summed; the bytes are those of DGTP's
jobs (`dgtp_volumes`). Per machine that owns a part a store ``g0``; per machine that
computes samplers ``s0``, ... and a worker ``w0``, each a process, and the steps of its
ring all-reduce in the worker's process, ``w0.ring0``, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from pydantic import PrivateAttr
from typing_extensions import override

from emu.problem import Job, Task
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.workloads.all_reduce import (
    NamedEdge,
    all_reduce_edge_count,
    all_reduce_edges,
    all_reduce_tasks,
    build_named_job,
    elements_of_rank,
)
from emu.problem.workloads.fetches import ASKED
from emu.systems import Floats, Keys, Names, Problems, Settings, translation
from emu.systems.cache_section import HOT
from emu.systems.dgtp.job import PROGRAMS
from emu.systems.dgtp.section import PullingSection
from emu.systems.intake import Intake
from emu.systems.job_section import BuildContext
from emu.systems.replica_section import ReplicaSection
from emu.systems.training_section import (
    count_parameters,
    feature_bytes,
    number_bytes,
)
from emu.systems.translation import CommonJob, Translation

if TYPE_CHECKING:
    from emu.graph_data import Dataset


def _tasks(
    section: PullingReplicas,
    owners: Sequence[str],
    machines: Sequence[str],
) -> Iterator[Task]:
    """Yield the store, samplers and worker of every rank, and the stores beyond."""
    ranks = max(len(owners), len(machines))
    for rank in range(ranks):
        # A rank's tasks stand side by side, so that listings read machine by machine.
        if rank < len(owners):
            yield _store(section, rank, owners[rank])
        if rank < len(machines):
            yield from _replica(section, rank, machines[rank])


def _store(section: PullingReplicas, number: int, machine: str) -> Task:
    program = "graph_store_asked" if section.asks else "graph_store"
    return Task(
        f"g{number}",
        "graph_store",
        demands=section.demands.graph_store.amounts(),
        pinned=machine,
        program=PROGRAMS[program],
        settings={"store": number},
        takes=section.pool_of("graph_store", machine),
    )


def _replica(
    section: PullingReplicas,
    rank: int,
    machine: str,
) -> Iterator[Task]:
    """Yield the samplers and the worker of a rank, each a process of its own."""
    program = "sampler_asking" if section.asks else "sampler"
    first = rank * section.samplers_per_worker
    end = first + section.samplers_per_worker
    for number in range(first, end):
        sampler = Task(
            f"s{number}",
            "sampler",
            pinned=machine,
            program=PROGRAMS[program],
            settings={"sampler": number, "worker": rank},
            takes=section.pool_of("sampler"),
        )
        yield sampler
        if section.asks:
            counts = int(section.sends_counts)
            yield replace(
                sampler,
                name=f"s{number}.fetch",
                kind="sampler_fetch",
                process=sampler.name,
                program=PROGRAMS["sampler_ask"],
                settings={**sampler.settings, "counts": counts},
            )

    yield Task(
        f"w{rank}",
        "worker",
        demands=section.demands.worker.amounts(),
        pinned=machine,
        program=PROGRAMS["replica"],
        settings={"worker": rank},
        takes="gpu",
    )


class PullingReplicas(ReplicaSection, PullingSection):
    """Replicas on all machines, which pull features from their owners."""

    partitioner: Literal["metis", "metis-dgl", "hash"] = "hash"
    """Which machine owns which vertex."""

    sends_counts: ClassVar[bool] = False
    """True where the number of ids travels ahead of them."""

    _roomy: Names | None = PrivateAttr(default=None)
    """Machines with room for a worker, where a cluster is known."""

    @property
    @override
    def default_epoch(self) -> str:
        if self.partitioner == "hash":
            return "replicate"
        return "local"

    @override
    def ranks(self, machines: Sequence[str]) -> Names:
        """Return the machines with a worker.

        Where stores stand apart, by default the others with room for one.
        """
        if self.machines is not None or not self.has_stores_apart:
            return super().ranks(machines)
        # Before a cluster is known, every machine may have room.
        roomy = self._roomy
        if roomy is None:
            roomy = tuple(machines)
        owners = self.owners(machines)
        return tuple(name for name in roomy if name not in owners)

    @override
    def on_cluster(self, cluster: ClusterSection) -> Self:
        job = super().on_cluster(cluster)
        # The base returned a copy, which is ours to change.
        if job is not self:
            needs = self.demands.worker.amounts()
            if cluster.has_gpus:
                # Where machines have gpus a worker needs one, unless it states its own.
                needs = {"gpu": 1.0, **needs}
            job._roomy = cluster.roomy(needs)  # noqa: SLF001 - its own class
        return job

    @override
    def candidates(self, machines: Sequence[str]) -> Names:
        return tuple(machines)  # also beside those of the workers

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        ranks = len(self.ranks(machines))
        stores = len(self.owners(machines))
        # From a store rows, before them a question where one is asked, to a worker.
        flows_per_store = 1 + self.asks
        cache = self.cache_of(stores)
        if cache is not None and cache.policy == HOT:
            flows_per_store += 1
        fetches = self.samplers(machines) * (stores * flows_per_store + 1)
        return fetches + all_reduce_edge_count(ranks)

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from super().problems(cluster)
        if not self.ranks(cluster.names):
            problem = (
                "no machine without a store has room for a worker: write fewer, or "
                "smaller demands, or job.machines"
            )
            yield ("job", "stores"), problem

    @override
    def build(self, context: BuildContext) -> Job:
        """Edges: store -> sampler (store-major), sampler -> worker, ring, credits."""
        owners = self.owners(context.machines)
        ranks = self.ranks(context.machines)
        tasks = list(_tasks(self, owners, ranks))
        stores = [task.name for task in tasks if task.kind == "graph_store"]
        fetches = [task.name for task in tasks if task.kind == "sampler_fetch"]
        samplers = [task for task in tasks if task.kind == "sampler"]
        workers = [task for task in tasks if task.kind == "worker"]
        names = [worker.name for worker in workers]

        edges = []
        for store in stores:
            edges += [NamedEdge(store, sampler.name) for sampler in samplers]
        for fetch in fetches:
            edges += [NamedEdge(fetch, store) for store in stores]
        for sampler in samplers:
            worker = names[sampler.settings["worker"]]
            edge = NamedEdge(sampler.name, worker)
            edges.append(edge)
        cache = self.cache_of(len(stores))
        if cache is not None and cache.policy == HOT:
            lag = cache.window or 1
            # What a window's first batch asks for is read at the next one's first.
            for store in stores:
                edges += [NamedEdge(store, sampler.name, lag) for sampler in samplers]
        edges += all_reduce_edges(names, names, names, lag=1, carries="gradient")

        return build_named_job(
            tasks=[*tasks, *all_reduce_tasks(workers)],
            edges=edges,
            iterations=self.count_batches(context),
            settings=self.data_settings(context),
            window=context.window,
        )

    @override
    def data_settings(self, context: BuildContext) -> Settings:
        stores = len(self.owners(context.machines))
        samplers = self.samplers(context.machines)
        settings = {
            **self.replica_settings(context),
            **self.cache_settings(stores, samplers),
            "partitioner": self.partitioner,
        }
        if self.asks:
            settings["sampling"] = ASKED
        # Stores own the parts, and there may be fewer or more of them than workers.
        settings["parts"] = stores
        return settings

    @override
    def intake(
        self, context: BuildContext, dataset: Dataset, rank: int
    ) -> Intake | None:
        if self.stores is not None:
            return None
        settings = self.data_settings(context)
        batches = self.count_batches(context)
        row = feature_bytes(settings) * dataset.feature_length
        gradients = count_parameters(settings, dataset)
        sent = elements_of_rank(gradients, ranks=settings["workers"], rank=rank)

        def count() -> Floats:
            from emu.graph_data import count_remote_rows  # noqa: PLC0415 - 60 ms

            rows = np.zeros(batches)
            for sampler in self.samplers_of(rank):
                rows += count_remote_rows(settings, dataset, batches, sampler, rank)
            return row * rows

        return Intake(
            batches,
            count,
            before=self.sure_seconds("sampler_fetch") if self.asks else 0.0,
            sending=self.sure_seconds("graph_store"),
            behind=(self.sure_seconds("sampler"), self.sure_seconds("worker")),
            sum_bytes=number_bytes(settings) * sent,
        )


class DataParallelJobSection(PullingReplicas):
    """Data parallel training: features are pulled from their owners (DGL)."""

    system: Literal["data_parallel"]
    """Kind of job."""


def write_pulling(common: CommonJob) -> Keys:
    """Return the keys of a job of replicas that pull the features of their batches."""
    count = len(common.machines)
    stores = common.stores_on(common.machines)
    common = common.spread(count, stores)
    times = common.times_of("sampler", "worker", "graph_store", "all_reduce")
    if "worker" in times:
        # Without servers a worker takes the step itself.
        times["worker"] = translation.add_times(times["worker"], common.step)

    by_import = common.partitioner == "imported"  # which only dgtp takes
    return {
        "partitioner": "hash" if by_import else common.partitioner,
        **translation.machines_key(common),
        **common.owners,
        **common.cache,
        **translation.write_common(common, times, "replica", "graph_store"),
    }


TRANSLATION = Translation(translation.read_replicas, write_pulling)
