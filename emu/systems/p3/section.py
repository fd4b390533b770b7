"""Section ``job`` of ``system: p3``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field
from typing_extensions import override

from emu.errors import ScenarioError
from emu.fields.quantities import Few, word_or_list
from emu.graph_data import BatchPlan, sampled_counts
from emu.systems.p3.job import PIPELINES, P3Config, p3_job
from emu.systems.p3.volumes import p3_realization, split_model
from emu.systems.training_section import (
    ModelProgramSection,
    ReplicaSection,
    number_bytes,
)
from emu.units import SIZE
from emu.workloads.all_reduce import all_reduce_edge_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emu.fields.cluster_section import ClusterSection
    from emu.graph_data import Dataset
    from emu.problem import Cluster, Job, Realization
    from emu.systems.job_section import BuildContext, Problems, Times

    Shares = tuple[float, ...]
else:
    _Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
    Shares = word_or_list("even", _Share, {"type": "number", "minimum": 0})

_FEATURE_BYTES = 4  # float32 in the prepared form, whatever the precision


class P3JobSection(ReplicaSection):
    """P3: push the structure, pull partial activations, never a feature."""

    unmeasured: ClassVar[str] = (
        "cycles of a pipeline cannot be profiled, write job.times"
    )
    unprofiled: ClassVar[str] = (
        "a profile knows no cycles of a pipeline, write job.times instead"
    )

    system: Literal["p3"]
    """Kind of job."""
    pipeline: Literal["none", "A", "B"] = "A"
    """Phases of several mini-batches in turn: A lacks 2 updates, B 3; ``none`` trains
    as data parallel training does."""
    push: Literal["shipped", "derived"] = "shipped"
    """``shipped``: samplers send ids and edges of layer 1; ``derived``: every machine
    samples for its group, which needs the structure there."""
    structure: Literal["replicated", "hashed"] = "replicated"
    """``replicated``: every machine has the graph's structure; ``hashed``: its share,
    and samplers ask owners hop by hop."""
    cache: Few | None = None
    """Machines that hold a full copy of the features between them; default is all."""
    columns: Shares = ()
    """``even``, or shares of the columns of each machine of a group; one with 0
    computes no part of layer 1."""

    @override
    def of_steps(self, steps: int) -> Self:
        """Return the job with so many mini-batches, or as many as fill its pipeline."""
        return super().of_steps(max(steps, PIPELINES[self.pipeline].depth + 1))

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        """Return those of partial activations, of questions, and of the rings."""
        ranks = len(self.ranks(machines))
        members = min(self.cache or ranks, ranks)
        hashed = 2 * self.hops * ranks if self.structure == "hashed" else 0
        rings = all_reduce_edge_count(ranks)
        return ranks * (2 * (members - 1) + hashed + 4) + rings

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        """Yield (where, what is wrong and what would be right) between its keys."""
        yield from super().problems(cluster)
        if isinstance(self.model, ModelProgramSection):
            problem = "p3 splits a first layer that it knows: write a kind, not this"
            yield ("job", "model", "program"), problem
        machines = len(self.ranks([name for name, _ in cluster.named()]))
        yield from self._group_problems(machines)
        if self.push == "derived" and self.structure == "hashed":
            problem = "found derived, which needs the whole structure: write shipped"
            yield ("job", "push"), problem
        phases = PIPELINES[self.pipeline].depth + 1
        if self.iterations is not None and self.iterations < phases:
            problem = (
                f"found {self.iterations} mini-batches, pipeline {self.pipeline} has "
                f"{phases} under way: write {phases} or more, or pipeline: none"
            )
            yield ("job", "iterations"), problem

    def _group_problems(self, machines: int) -> Problems:
        members = self.cache or machines
        if machines % members:
            fitting = [c for c in range(1, machines + 1) if machines % c == 0]
            problem = (
                f"found {members}, which does not divide {machines} machines, "
                f"write one of {', '.join(map(str, fitting))}"
            )
            yield ("job", "cache"), problem
        elif self.columns and len(self.columns) != members:
            problem = (
                f"found {len(self.columns)} shares for {members} machines of a group, "
                "write one each"
            )
            yield ("job", "columns"), problem
        elif self.columns and not sum(self.columns):
            yield (
                ("job", "columns"),
                "found only zeros: a machine must hold the columns",
            )

    @override
    def build(self, context: BuildContext) -> Job:
        """Return the job; see `p3_job`."""
        return p3_job(self.config(context))

    def config(self, context: BuildContext) -> P3Config:
        """Return the shape of the job, with the settings of its node programs.

        Raises
        ------
        ValueError
            As `P3Config`.
        """
        ranks, batches = self.ranks(context.machines), self.count_batches(context)
        groups = len(ranks) // (self.cache or len(ranks))
        settings = {
            **self.replica_settings(context),
            "batches": batches,
            "pipeline": self.pipeline,
            "push": self.push,
            "structure": self.structure,
            "groups": groups,
            "columns": list(self.columns),
        }
        return P3Config(
            ranks,
            batches,
            PIPELINES[self.pipeline],
            self.push,
            groups,
            self.columns,
            self.hops if self.structure == "hashed" else 0,
            context.window,
            self.demands.worker.amounts(),
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
        config, settings = self.config(context), job.settings
        _check_columns(config, dataset, cluster)
        plan = BatchPlan.from_settings(settings)
        counts = sampled_counts(dataset, plan, config.batches)
        split = split_model(
            settings["model"],
            dataset.feature_length,
            dataset.classes,
            number_bytes(settings),
        )
        return p3_realization(config, times, counts, split)

    @override
    def manifest(self) -> dict[str, Any]:
        """Return the order of the phases, and how many updates weights lack."""
        pipeline = PIPELINES[self.pipeline]
        order = {"order": [*pipeline.order], "behind": [*pipeline.behind]}
        return {"pipeline": {**order, "updates_missed": pipeline.missed}}


def _check_columns(config: P3Config, dataset: Dataset, cluster: Cluster) -> None:
    """Compare the columns of every machine with its memory."""
    length = dataset.feature_length
    if not config.columns and config.members > length:
        problem = (
            f"{config.members} machines cannot share {length} features, "
            f"write {length} or fewer of them, or shares of which some are 0"
        )
        raise ScenarioError(problem, key="job.columns")
    blocks = config.blocks(length)
    for rank, name in enumerate(config.machines):
        room = cluster.machines[cluster.index(name)].resources.get("memory", math.inf)
        columns = blocks[rank % config.members]
        needed = dataset.vertices * columns * _FEATURE_BYTES
        lacking = needed + config.demands.get("memory", 0.0) - room
        if lacking > 0:
            problem = (
                f"{columns} of {length} columns are {SIZE.format(needed)}, "
                f"{SIZE.format(lacking)} more than machine {name} has room for"
            )
            raise ScenarioError(problem, key="job.cache")
