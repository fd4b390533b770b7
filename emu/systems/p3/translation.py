"""Translation of p3 jobs into the words of all systems, and out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.systems.translation import (
    HOPS,
    CommonJob,
    Translation,
    placed,
    read_replicas,
    written,
)

if TYPE_CHECKING:
    from emu.fields.cluster_section import ClusterSection
    from emu.systems.p3.section import P3JobSection


def _read(job: P3JobSection, cluster: ClusterSection) -> dict[str, Any]:
    return read_replicas(job, cluster, by_hops=job.structure == "hashed")


def _write(common: CommonJob) -> dict[str, Any]:
    common = common.spread(len(common.machines), len(common.machines))
    times = common.taken("sampler", "all_reduce", *(HOPS if common.by_hops else ()))
    return {
        **placed(common),
        "structure": "hashed" if common.by_hops else "replicated",
        **written(common, times | common.phases(), "replica"),
    }


TRANSLATION = Translation(_read, _write, splits_first_layer=True)
