"""Section ``job`` of ``system: p3``, its times, bytes (specs, 4a), and translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np
from typing_extensions import override

from emu.array_types import Floats
from emu.errors import ScenarioError
from emu.graph_data import BatchPlan, Dataset, count_job, open_for
from emu.graph_data.drawn_batches import draw_batch
from emu.problem import Cluster, Job, Realization
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.workloads.all_reduce import all_reduce_edge_count
from emu.problem.workloads.operations import Operations
from emu.systems import JobSettings, Keys, Problems, Times, translation
from emu.systems.device_memory import Parts
from emu.systems.intake import Intake
from emu.systems.job_section import BuildContext
from emu.systems.model_section import ModelProgramSection
from emu.systems.p3.builder import P3Builder
from emu.systems.p3.job import PIPELINES
from emu.systems.p3.keys import P3Keys
from emu.systems.p3.memory import count_memory
from emu.systems.p3.operations import FEATURE_BYTES, count_phases
from emu.systems.p3.volumes import SplitModel, p3_realization, split_model
from emu.systems.training_section import (
    lacking_memory,
    number_bytes,
)
from emu.systems.translation import CommonJob, Translation
from emu.units import SIZE

#: Of machines and features.
_TOO_FEW = (
    "{0} machines cannot share {1} features, write {1} or fewer of them, or shares of "
    "which some are 0"
)
#: Nobody knows which part of a program's layer is linear in its features.
_NO_PROGRAM = "p3 cannot split the first layer of a program: write a kind, not this"


class P3JobSection(P3Keys):
    """P3: push the structure, pull partial activations, never a feature."""

    unprofiled: ClassVar[str] = (
        "a profile knows no cycles of a pipeline, write job.times instead"
    )

    @override
    def of_steps(self, steps: int) -> Self:
        """Return the job with so many mini-batches, or as many as fill its pipeline."""
        # With fewer some phase would never be at work beside the others.
        return super().of_steps(max(steps, PIPELINES[self.pipeline].depth + 1))

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        ranks = len(self.ranks(machines))
        members = min(self.cache or ranks, ranks)
        # A question and an answer per hop and machine.
        asks = 2 * self.hops * ranks if self.structure == "hashed" else 0
        rings = all_reduce_edge_count(ranks)
        of_samplers = self.samplers_per_worker * (asks + 1)
        # Activations and gradients with each peer; three edges order four phases.
        return ranks * (2 * (members - 1) + of_samplers + 3) + rings

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from super().problems(cluster)
        if isinstance(self.model, ModelProgramSection):
            yield ("job", "model", "program"), _NO_PROGRAM
        yield from self._column_problems(cluster)
        # Who derives draws the same samples from the seed, and must see all edges.
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

    def _column_problems(self, cluster: ClusterSection) -> Problems:
        machines = len(self.ranks(cluster.names))
        members = self.cache or machines
        # Groups are of equal size, each with every column once.
        if machines % members:
            fitting = [c for c in range(1, machines + 1) if machines % c == 0]
            problem = (
                f"found {members}, which does not divide {machines} machines, "
                f"write one of {', '.join(map(str, fitting))}"
            )
            yield ("job", "cache"), problem
        # Without a stated length the data set tells, in `realize_sampled`.
        elif not self.columns and members > (self.dataset.feature_length or members):
            problem = _TOO_FEW.format(members, self.dataset.feature_length)
            yield ("job", "columns"), problem
        elif self.columns and len(self.columns) != members:
            problem = (
                f"found {len(self.columns)} shares for {members} machines of a group, "
                "write one each"
            )
            yield ("job", "columns"), problem
        elif self.columns and not sum(self.columns):
            problem = "found only zeros: a machine must hold the columns"
            yield ("job", "columns"), problem

    @override
    def build(self, context: BuildContext) -> Job:
        builder = P3Builder(self, context)
        settings = {
            **self.replica_settings(context),
            "batches": builder.batches,
            "pipeline": self.pipeline,
            "push": self.push,
            "structure": self.structure,
            "groups": builder.groups,
            "columns": list(self.columns),
            "entries": builder.entries,
        }
        return builder.job(settings)

    @override
    def count_operations(
        self, job: Job, context: BuildContext, volumes: Floats
    ) -> Operations:
        split = _split_of(job.settings)
        steps = (split.first_width, split.upper)
        return count_phases(self._builder_of(job, context), job, steps, volumes)

    @override
    def device_memory(self, job: Job, context: BuildContext) -> Mapping[str, Parts]:
        """Return that of every machine, under its ``Mf``."""
        return count_memory(
            self._builder_of(job, context), job, _split_of(job.settings)
        )

    def _builder_of(self, job: Job, context: BuildContext) -> P3Builder:
        """Return the builder of a job that was built."""
        train_count = open_for(job.settings).train_count
        # Epochs are counted in training vertices, which only the data set knows.
        context = replace(context, train_vertices=train_count)
        return P3Builder(self, context)

    @override
    def realize_sampled(
        self, job: Job, times: Times, context: BuildContext, cluster: Cluster
    ) -> Realization:
        builder = P3Builder(self, context)
        dataset = open_for(job.settings)
        if not self.columns and builder.members > dataset.feature_length:
            problem = _TOO_FEW.format(builder.members, dataset.feature_length)
            raise ScenarioError(problem, key="job.columns")
        self._check_memory(builder, cluster, dataset)
        counts = count_job(job.settings, dataset, builder.batches)
        return p3_realization(builder, times, counts, _split_of(job.settings))

    @override
    def intake(
        self, context: BuildContext, dataset: Dataset, rank: int
    ) -> Intake | None:
        builder = P3Builder(self, context)
        settings = self.data_settings(context)
        split = _split_of(settings)
        peers = [
            peer
            for peer in builder.group_of(rank)
            if peer != rank and builder.columns_of(peer, dataset.feature_length)
        ]
        plan = BatchPlan.from_settings(settings)
        train = plan.walk(dataset)
        # Of each peer a part of layer 1 for every sampler, of equal size.
        layer = 0 if split.pulls == "inputs" else 1
        row = split.itemsize * split.pulled_width * len(peers)

        def count() -> Floats:
            sizes = np.zeros(builder.batches)
            for sampler in builder.samplers_of(rank):
                for number in range(builder.batches):
                    batch = draw_batch(dataset, plan, train, sampler, number)
                    sizes[number] += row * batch.sizes[layer]
            return sizes

        return Intake(builder.batches, count)

    def _check_memory(
        self, builder: P3Builder, cluster: Cluster, dataset: Dataset
    ) -> None:
        # Columns come on top of what the file demands for the worker itself.
        needs = self.demands.worker.amounts().get("memory", 0.0)
        length = dataset.feature_length
        for rank, name in enumerate(builder.machines):
            columns = builder.columns_of(rank, length)
            size = dataset.vertices * columns * FEATURE_BYTES
            lacking = lacking_memory(cluster, name, size + needs)
            if lacking > 0:
                problem = (
                    f"{columns} of {length} columns are {SIZE.format(size)}, "
                    f"{SIZE.format(lacking)} more than machine {name} has room for"
                )
                raise ScenarioError(problem, key="job.cache")

    @override
    def manifest(self) -> Keys:
        """Return the order of the phases, and how many updates weights lack."""
        pipeline = PIPELINES[self.pipeline]
        return {
            "pipeline": {
                "order": [*pipeline.order],
                "behind": [*pipeline.behind],
                "updates_missed": pipeline.missed,
            }
        }


def _split_of(settings: JobSettings) -> SplitModel:
    dataset = open_for(settings)
    return split_model(
        settings["model"],
        dataset.feature_length,
        dataset.classes,
        itemsize=number_bytes(settings),
    )


def _write(common: CommonJob) -> Keys:
    if "program" in common.same["model"]:
        raise ScenarioError(_NO_PROGRAM, key="job.model.program")
    translation.refuse_stores(common, "p3")
    count = len(common.machines)
    common = common.spread(count, count)
    # Machines collect columns at once, within a phase: `phases` adds what stores take.
    kinds = ["sampler", "all_reduce"]
    if common.by_hops:
        kinds += translation.HOPS
    times = common.times_of(*kinds) | common.phases()

    return {
        **translation.machines_key(common),
        "structure": "hashed" if common.by_hops else "replicated",
        **translation.write_common(common, times, "replica"),
    }


TRANSLATION = Translation(
    lambda job, cluster: translation.read_replicas(
        job, cluster, by_hops=job.structure == "hashed"
    ),
    _write,
    splits_first_layer=True,
)
