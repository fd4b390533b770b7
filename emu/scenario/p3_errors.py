"""What must hold between the keys of a job of one replica per machine, and P3's."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from emu.scenario.p3_section import P3JobSection
from emu.scenario.suggestion import nearest
from emu.workloads import PIPELINES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.scenario.cluster_section import ClusterSection
    from emu.scenario.document import Trail
    from emu.scenario.p3_section import ReplicaSection


def replica_errors(
    job: ReplicaSection, cluster: ClusterSection
) -> Iterator[tuple[Trail, str]]:
    """Yield (where, what is wrong and what would be right)."""
    known = [name for name, _ in cluster.named()]
    counts = Counter(job.machines or ())
    for position, name in enumerate(job.machines or ()):
        trail: Trail = ("job", "machines", position)
        if name not in known:
            yield trail, f"no machine {name!r}, {nearest(name, known)}"
        elif counts[name] > 1:
            yield trail, f"{name!r} occurs {counts[name]} times"
    if isinstance(job, P3JobSection):
        yield from _p3(job, len(job.ranks(known)))


def _p3(job: P3JobSection, machines: int) -> Iterator[tuple[Trail, str]]:
    members = job.cache or machines
    if machines % members:
        fitting = [c for c in range(1, machines + 1) if machines % c == 0]
        problem = (
            f"found {members}, which does not divide {machines} machines, "
            f"write one of {', '.join(map(str, fitting))}"
        )
        yield ("job", "cache"), problem
    elif job.columns and len(job.columns) != members:
        problem = (
            f"found {len(job.columns)} shares for {members} machines of a group, "
            "write one each"
        )
        yield ("job", "columns"), problem
    elif job.columns and not sum(job.columns):
        yield ("job", "columns"), "found only zeros, somebody must hold the columns"
    if job.push == "derived" and job.structure == "hashed":
        problem = "found derived, which needs the whole structure: write shipped"
        yield ("job", "push"), problem
    phases = PIPELINES[job.pipeline].depth + 1
    if job.iterations is not None and job.iterations < phases:
        problem = (
            f"found {job.iterations} mini-batches, pipeline {job.pipeline} has "
            f"{phases} under way: write {phases} or more, or pipeline: none"
        )
        yield ("job", "iterations"), problem
