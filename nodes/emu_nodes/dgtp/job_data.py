"""Data set of a job of sampled training, and what its tasks read of messages alike."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from emu.errors import NodeMisbehaved
from emu.graph_data import (
    BatchPlan,
    CachePlan,
    Dataset,
    GrowingBatch,
    SampledBatch,
    SamplerCache,
    open_for,
)
from emu.graph_data.caches import open_cache
from emu.graph_data.sampling import Ids
from emu.problem.workloads.fetches import feature_type
from emu_nodes.program import EdgeSpec, Inputs, Shared, TaskSpec, tensor


class JobData:
    """Data set and batch plan, opened once per process."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        if "dataset" not in process:
            process["dataset"] = open_for(brief.job_settings)
        self.dataset: Dataset = process["dataset"]
        self.plan = BatchPlan.from_settings(brief.job_settings)
        self.feature_type = feature_type(brief.job_settings)
        self._cache = CachePlan.from_settings(brief.job_settings, self.dataset)

    @staticmethod
    def check_hits(name: str, hits: Ids, held: Ids) -> None:
        """Raise NodeMisbehaved where the cache of a task has no row of a hit."""
        is_held = np.isin(hits, held)
        if not is_held.all():
            vertex = hits[~is_held][0]
            raise NodeMisbehaved(
                f"the cache of {name} counts vertex {vertex} as a hit and does not "
                "hold its row: no store has sent it"
            )

    def batch(self, sampler: int, iteration: int) -> SampledBatch:
        """Sample the mini-batch of one (sampler, iteration).

        The first call checks and maps the structure and loads compiled code, up to
        0.5 s: programs make it before the start barrier.
        """
        return self.plan.batch(
            structure=self.dataset.structure,
            train=self.plan.walk(self.dataset),
            sampler=sampler,
            iteration=iteration,
        )

    def cache(self, sampler: int, brief: TaskSpec) -> SamplerCache | None:
        """Return what a sampler has of other stores before its first iteration."""
        if self._cache is None:
            return None
        return open_cache(
            self.dataset,
            self.plan,
            self._cache,
            sampler=sampler,
            first=brief.first,
            batches=brief.iterations,
        )

    def seeds(self, sampler: int, iteration: int) -> Ids:
        """Return the seeds of that mini-batch alone."""
        walk = self.plan.walk(self.dataset)
        return self.plan.seeds(walk, sampler, iteration)


def add_replies(batch: GrowingBatch, brief: TaskSpec, inputs: Inputs) -> None:
    """Add what the stores sent a task to a batch.

    Raises NodeMisbehaved when an edge leads to a vertex that was not asked for.
    """

    def merge(name: str) -> Ids:
        replies = []
        for store in brief.inputs:
            reply = tensor(inputs[store.edge], name, store)
            replies.append(reply)
        return np.concatenate(replies)

    try:
        source = merge("source")
        destination = merge("destination")
        batch.grow(source, destination)
    except ValueError as error:
        raise NodeMisbehaved(f"reply to {brief.name}: {error}") from error


def edges_to(kind: str, edges: Iterable[EdgeSpec]) -> list[EdgeSpec]:
    """Return the edges whose other end is a task of a kind."""
    return [edge for edge in edges if edge.peer_kind == kind]


def version_name(version: int) -> str:
    """Return the tensor name of parameters after a step: a flow has no other bytes."""
    return f"parameters.{version}"
