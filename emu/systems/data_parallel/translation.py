"""Translation of data_parallel jobs into the words of all systems, and out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.systems.translation import (
    CommonJob,
    Translation,
    placed,
    read_replicas,
    summed,
    written,
)

if TYPE_CHECKING:
    from emu.fields.cluster_section import ClusterSection
    from emu.systems.training_section import ReplicaSection


def _read(job: ReplicaSection, cluster: ClusterSection) -> dict[str, Any]:
    return read_replicas(job, cluster, by_hops=False)


def _write(common: CommonJob) -> dict[str, Any]:
    common = common.spread(len(common.machines), len(common.machines))
    times = common.taken("sampler", "worker", "graph_store", "all_reduce")
    times |= {k: summed(times[k], common.step) for k in times.keys() & {"worker"}}
    imported = common.partitioner == "imported"  # which only dgtp takes
    return {
        "partitioner": "hash" if imported else common.partitioner,
        **placed(common),
        **written(common, times, "replica", "graph_store"),
    }


TRANSLATION = Translation(_read, _write)
