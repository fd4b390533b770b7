"""Translation of dgtp jobs into the words of all systems, and out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.systems.translation import (
    HOPS,
    CommonJob,
    Translation,
    roomy_machines,
    scaled,
    stated_demands,
    written,
)

if TYPE_CHECKING:
    from emu.fields.cluster_section import ClusterSection
    from emu.systems.dgtp.section import DgtpJobSection


def _read(job: DgtpJobSection, cluster: ClusterSection) -> dict[str, Any]:
    """Return the values particular to dgtp: servers step, samplers are processes."""
    demands, times = stated_demands(job), job.times.by_kind()
    worker, sampler = demands["worker"], demands["sampler"]
    replica = {
        name: worker.get(name, 0.0) + job.samplers_per_worker * sampler.get(name, 0.0)
        for name in worker | sampler
    }
    served = job.sync == "parameter_server" and "parameter_server" in times
    return {
        "workers": job.workers,
        "machines": roomy_machines(job, cluster, replica, job.workers),
        "stores": len(cluster.named()),
        "by_hops": job.sampling == "multiround",
        "demands": {**demands, "replica": replica},
        # Each server steps its shard, a replica the whole model.
        "step": scaled(times["parameter_server"], job.parameter_servers)
        if served
        else 0.0,
    }


def _write(common: CommonJob) -> dict[str, Any]:
    common = common.spread(common.workers, len(common.everywhere))
    kinds = ("graph_store", "sampler", "worker", "parameter_server")
    times = {"graph_store": 0.0, "parameter_server": 0.0, **common.taken(*kinds)}
    if common.by_hops:
        times |= {"sampler_fetch": 0.0, **common.taken(*HOPS, "sampler_fetch")}
    return {
        "workers": common.workers,
        "partitioner": common.partitioner,
        "sampling": "multiround" if common.by_hops else "oneshot",
        **written(common, times, "worker", "graph_store"),
    }


TRANSLATION = Translation(_read, _write)
