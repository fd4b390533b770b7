"""Section ``job`` of ``system: data_parallel``, which P3 is measured against (DGL).

Features are pulled from their owners, gradients summed; the bytes are those of DGTP's
jobs (`dgtp_volumes`). Per machine m a store ``g0``, a
sampler ``s0`` and a worker ``w0``, which share the worker's process, and the steps of
its ring all-reduce, ``w0.ring0``, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from typing_extensions import override

from emu.problem import Job, Task
from emu.problem.workloads.all_reduce import (
    NamedEdge,
    all_reduce_edge_count,
    all_reduce_edges,
    all_reduce_tasks,
    build_named_job,
)
from emu.systems import Keys, translation
from emu.systems.dgtp.job import PROGRAMS
from emu.systems.dgtp.section import PullingSection
from emu.systems.job_section import BuildContext
from emu.systems.training_section import ReplicaSection
from emu.systems.translation import CommonJob, Translation


def _tasks(section: DataParallelJobSection, machines: Sequence[str]) -> Iterator[Task]:
    demands = section.demands
    for rank, machine in enumerate(machines):
        store = Task(
            f"g{rank}",
            "graph_store",
            demands=demands.graph_store.amounts(),
            pinned=machine,
            program=PROGRAMS["graph_store"],
            settings={"store": rank},
        )
        worker = replace(
            store,
            name=f"w{rank}",
            kind="worker",
            demands=demands.worker.amounts(),
            process=f"w{rank}",
            program=PROGRAMS["replica"],
            settings={"worker": rank},
            takes="gpu",
        )
        sampler = replace(
            worker,
            name=f"s{rank}",
            kind="sampler",
            demands={},
            program=PROGRAMS["sampler"],
            settings={"sampler": rank, "worker": rank},
            takes="",
        )
        yield from (store, sampler, worker)


class DataParallelJobSection(ReplicaSection, PullingSection):
    """Data parallel training: features are pulled from their owners (DGL)."""

    system: Literal["data_parallel"]
    """Kind of job."""
    partitioner: Literal["metis", "metis-dgl", "hash"] = "hash"
    """Which machine owns which vertex."""

    @property
    @override
    def default_epoch(self) -> str:
        return "replicate" if self.partitioner == "hash" else "local"

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        ranks = len(self.ranks(machines))
        return ranks * (ranks + 1) + all_reduce_edge_count(ranks)

    @override
    def build(self, context: BuildContext) -> Job:
        """Edges: store -> sampler (store-major), sampler -> worker, ring, credits."""
        tasks = [*_tasks(self, self.ranks(context.machines))]
        workers = [task for task in tasks if task.kind == "worker"]
        names = [worker.name for worker in workers]
        ranks = range(len(names))
        edges = [
            *(NamedEdge(f"g{store}", f"s{rank}") for store in ranks for rank in ranks),
            *(NamedEdge(f"s{rank}", f"w{rank}") for rank in ranks),
            *all_reduce_edges(names, names, names, lag=1, carries="gradient"),
        ]
        return build_named_job(
            [*tasks, *all_reduce_tasks(workers)],
            edges,
            self.count_batches(context),
            self.replica_settings(context)
            | self.cache_settings(len(ranks), len(ranks))
            | {"partitioner": self.partitioner},
            window=context.window,
        )


def _write(common: CommonJob) -> Keys:
    common = common.spread(len(common.machines), len(common.machines))
    times = common.times_of("sampler", "worker", "graph_store", "all_reduce")
    times |= {
        k: translation.add_times(times[k], common.step)
        for k in times.keys() & {"worker"}
    }
    by_import = common.partitioner == "imported"  # which only dgtp takes
    return {
        "partitioner": "hash" if by_import else common.partitioner,
        **translation.machines_key(common),
        **common.cache,
        **translation.write_common(common, times, "replica", "graph_store"),
    }


TRANSLATION = Translation(partial(translation.read_replicas, by_hops=False), _write)
