"""Section ``job`` of ``system: p3``, its times, bytes (specs, 4a), and translation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from emu.errors import ScenarioError
from emu.graph_data import count_job, open_for
from emu.problem import Cluster, Job, Realization, Task
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import Few, word_or_list
from emu.problem.workloads import SampleCounts, model_shapes
from emu.problem.workloads.all_reduce import (
    ALL_REDUCE,
    NamedEdge,
    all_reduce_edge_count,
    all_reduce_edges,
    all_reduce_tasks,
    build_named_job,
    part_elements,
)
from emu.problem.workloads.operations import Operations
from emu.systems import Keys, Problems, Times, translation
from emu.systems.job_section import BuildContext
from emu.systems.p3.job import (
    ENTRIES,
    PHASES,
    PIPELINES,
    PROGRAMS,
    column_blocks,
)
from emu.systems.p3.operations import FEATURE_BYTES, count_phases
from emu.systems.training_section import (
    ModelProgramSection,
    ReplicaSection,
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
_NO_PROGRAM = "p3 cannot split the first layer of a program: write a kind, not this"

_Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Shares: TypeAlias = Annotated[
    tuple[_Share, ...], *word_or_list("even", {"type": "number", "minimum": 0})
]


class P3Builder:
    """Builds the job that a section states, whose iterations are cycles.

    Attributes
    ----------
    batches, cycles
        Mini-batches of each machine, and iterations of the job.
    members, groups
        Machines of a group, which hold all columns between them, and number of groups.
    hops
        Hops that a sampler asks the owners of the vertices for; 0: the whole structure
        is on every machine.
    entry
        Name, without its rank, of the task that collects the columns of a mini-batch.
    """

    def __init__(self, section: P3JobSection, context: BuildContext) -> None:
        self.section, self._window = section, context.window
        self.machines = section.ranks(context.machines)
        self.batches = section.count_batches(context)
        self.pipeline = PIPELINES[section.pipeline]
        self.cycles = self.batches + self.pipeline.depth
        self.members = section.cache or len(self.machines)
        self.groups = len(self.machines) // self.members
        self.hops = section.hops if section.structure == "hashed" else 0
        self.entry = ENTRIES[section.place_of_features]

    def share(self, rank: int) -> float:
        """Return a machine's share of the columns over an even share."""
        shares: tuple[float, ...] = self.section.columns
        if not shares:
            return 1.0
        return shares[rank % self.members] * self.members / sum(shares)

    def blocks(self, feature_length: int) -> tuple[int, ...]:
        """Return the columns of each member of a group, 0 of one without a part."""
        return column_blocks(self.section.columns, feature_length, self.members)

    def job(self, settings: Mapping[str, Any]) -> Job:
        """Return the job.

        Edges rank by rank: questions and answers of its samplers, if they ask, what
        travels for its batches, the order of its phases, the credits of its samplers;
        then the rings. An edge of a process's own tasks carries nothing: they share its
        memory.

        Raises ValueError as `Job`.
        """
        return build_named_job(self.tasks(), self.edges(), self.cycles, settings)

    def samplers_of(self, rank: int) -> range:
        """Return the numbers of a machine's samplers."""
        each = self.section.samplers_per_worker
        return range(rank * each, (rank + 1) * each)

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks, machine by machine, then those of the rings."""
        for rank, machine in enumerate(self.machines):
            yield from self._sampling_tasks(rank, machine)
            yield from self._phases(rank, machine)
        yield from all_reduce_tasks(self._ranks("w", "data_backward"))
        of_rows = self._ranks("v", "model_backward")
        for member in range(self.members if self.groups > 1 else 0):
            yield from all_reduce_tasks(of_rows[member :: self.members])

    def _sampling_tasks(self, rank: int, machine: str) -> Iterator[Task]:
        """Yield the samplers of a machine, each a process, with their hops."""
        for number in self.samplers_of(rank):
            sampler = Task(
                f"s{number}",
                "sampler",
                pinned=machine,
                phase="sampling",
                program=PROGRAMS["sampler"],
                settings={"sampler": number, "rank": rank},
            )
            yield sampler
            for hop in range(1, self.hops + 1):
                yield replace(
                    sampler,
                    name=f"s{number}.hop{hop}",
                    kind="sampler_hop",
                    phase="",
                    process=sampler.name,
                    program=PROGRAMS["sampler_hop"],
                    settings={"sampler": number, "hop": hop},
                    iterations=self.batches,
                )

    def _phases(self, rank: int, machine: str) -> Iterator[Task]:
        """Yield the tasks of a machine's worker, which share its process."""
        demands = self.section.demands
        worker = Task("", "", pinned=machine, process=f"w{rank}")
        if self.entry == "g":
            yield replace(
                worker,
                name=f"g{rank}",
                kind="graph_store",
                phase="sampling",
                demands=demands.graph_store.amounts(),
                program=PROGRAMS["graph_store"],
                settings={"rank": rank},
            )
        for name, kind in PHASES.items():
            yield replace(
                worker,
                name=f"{name}{rank}",
                kind=kind,
                phase="training",
                behind=self.pipeline.behind_of(kind),
                demands=demands.worker.amounts() if name == "Mf" else {},
                program=PROGRAMS[kind],
                settings={"rank": rank},
                takes="gpu",
            )
        for hop in range(1, self.hops + 1):
            yield replace(
                worker,
                name=f"g{rank}.hop{hop}",
                kind="graph_store_hop",
                program=PROGRAMS["graph_store_hop"],
                settings={"store": rank, "hop": hop},
                iterations=self.batches,
            )

    def _ranks(self, letter: str, after: str) -> list[Task]:
        """Return the ranks of a ring that sums what a phase leaves."""
        return [
            Task(
                f"{letter}{rank}",
                ALL_REDUCE,
                pinned=machine,
                process=f"w{rank}",
                behind=self.pipeline.behind_of(after),
            )
            for rank, machine in enumerate(self.machines)
        ]

    def edges(self) -> Iterator[NamedEdge]:
        """Yield the edges in the order of `job`."""
        order, pipeline = self.pipeline.order, self.pipeline
        ranks = range(len(self.machines))
        for rank in ranks:
            for sampler in self.samplers_of(rank):
                yield from self._hop_edges(sampler)
            yield from self._batch_edges(rank)
            for phase, then in itertools.pairwise(order):
                yield NamedEdge(f"{phase}{rank}", f"{then}{rank}")
            yield NamedEdge(f"{order[-1]}{rank}", f"{order[0]}{rank}", 1)
            yield from self._credits(rank)
        forward = [f"Mf{rank}" for rank in ranks]
        yield from all_reduce_edges(
            [f"w{rank}" for rank in ranks],
            [f"Db{rank}" for rank in ranks],
            forward,
            lag=1 + pipeline.missed - pipeline.behind[2],
            carries="upper",
        )
        for member in range(self.members if self.groups > 1 else 0):
            own = ranks[member :: self.members]
            yield from all_reduce_edges(
                [f"v{rank}" for rank in own],
                [f"Mb{rank}" for rank in own],
                [forward[rank] for rank in own],
                lag=1 + pipeline.missed - pipeline.depth,
                carries="first_layer",
                about=(member,),
            )

    def derived_by(self, sampler: int) -> list[int]:
        """Return the samplers of peers whose batches a sampler draws as well."""
        each = self.section.samplers_per_worker
        rank, number = divmod(sampler, each)
        peers = self.group_of(rank) if self.section.push == "derived" else ()
        return [peer * each + number for peer in peers if peer != rank]

    def group_of(self, rank: int) -> range:
        """Return the machines of a machine's group."""
        first = rank - rank % self.members
        return range(first, first + self.members)

    def _hop_edges(self, sampler: int) -> Iterator[NamedEdge]:
        """Yield the questions of a sampler to all owners, and their answers."""
        hops = [f"s{sampler}.hop{hop}" for hop in range(1, self.hops + 1)]
        for hop, (asker, then) in enumerate(
            itertools.pairwise([*hops, f"s{sampler}"]), 1
        ):
            for store in range(len(self.machines)):
                owner = f"g{store}.hop{hop}"
                place = (sampler, store, hop)
                yield NamedEdge(asker, owner, carries="frontier", place=place)
                yield NamedEdge(owner, then, carries="answer", place=place)

    def _credits(self, rank: int) -> Iterator[NamedEdge]:
        """Yield what holds the samplers of a machine back, of its whole group.

        The first task of batch n waits for the end of cycle n - window.
        """
        if self._window is None:
            return
        first = ".hop1" if self.hops else ""
        for sampler, peer in itertools.product(
            self.samplers_of(rank), self.group_of(rank)
        ):
            end = f"{self.pipeline.order[-1]}{peer}"
            yield NamedEdge(end, f"s{sampler}{first}", self._window, credit=True)

    def _batch_edges(self, rank: int) -> Iterator[NamedEdge]:
        """Yield the edges of the data for the batches of one machine."""
        _, forward, loss, end = self.pipeline.behind
        peers = [peer for peer in self.group_of(rank) if peer != rank]
        for sampler in self.samplers_of(rank):
            name, place = f"s{sampler}", (sampler, rank)
            yield NamedEdge(name, f"{self.entry}{rank}", carries="batch", place=place)
            for peer in peers if self.section.push == "shipped" else ():
                place = (sampler, peer)
                to = f"{self.entry}{peer}"
                yield NamedEdge(name, to, carries="push", place=place)
        if self.entry == "g":
            yield NamedEdge(f"g{rank}", f"Mf{rank}")
        for peer in peers:
            place = (rank, peer)
            yield NamedEdge(
                f"Mf{peer}", f"Df{rank}", forward, carries="pull", place=place
            )
            yield NamedEdge(
                f"Db{rank}", f"Mb{peer}", end - loss, carries="pull", place=place
            )


@dataclass(frozen=True)
class SplitModel:
    """Sizes of a model whose first layer is split by columns of the features."""

    feature_length: int
    """F, rows of the first layer's weights."""
    first_width: int
    """First-layer weights per feature: 2 h for GraphSAGE."""
    upper: int
    """Parameters beside them: b_1 and all other layers."""
    pulled_width: int
    """Length of a row that is pulled."""
    pulls: Literal["outputs", "inputs"] = "outputs"
    """Whose rows are pulled: of the ``outputs`` of layer 1 (#S_1), or of its ``inputs``
    (#S_0) where they have to be summed before attention."""
    itemsize: int = 4
    """Bytes of a number: 4 in float32, 8 in float64."""

    def pull_bytes(self, counts: SampleCounts) -> int:
        """Return the bytes of a partial activation, and of its gradient."""
        rows = counts.inputs if self.pulls == "inputs" else counts.outputs
        return self.itemsize * rows * self.pulled_width


def split_model(
    model: Mapping[str, Any], feature_length: int, classes: int, itemsize: int
) -> SplitModel:
    """Return the sizes of a model of ``Job.settings``."""
    kind = model.get("kind", "sage")
    first, *_ = model_shapes.layer_shapes(model, feature_length, classes)
    widths = [shape[0] for shape in first[: model_shapes.SPLIT_WEIGHTS[kind]]]
    return SplitModel(
        feature_length=feature_length,
        first_width=sum(widths),
        upper=model_shapes.parameter_count(model, feature_length, classes)
        - sum(widths) * feature_length,
        pulled_width=widths[0],
        pulls="inputs" if kind == "gat" else "outputs",
        itemsize=itemsize,
    )


def p3_realization(
    builder: P3Builder,
    times: Mapping[str, float],
    counts: Sequence[Sequence[SampleCounts]],
    model: SplitModel,
) -> Realization:
    """Return seconds and real bytes of the job that ``builder`` builds.

    ``times``: kind of task -> seconds; those of layer 1 are for an even share of the
    columns; ``counts``: of each machine, of each of its mini-batches.
    """
    tasks, edges = [*builder.tasks()], [*builder.edges()]
    seconds = np.zeros((len(tasks), builder.cycles))
    for row, task in zip(seconds, tasks, strict=True):
        by_columns = task.kind.startswith("model") or task.kind == "graph_store"
        work = builder.share(task.settings["rank"]) if by_columns else 1.0
        first = task.behind
        row[first : first + builder.batches] = times.get(task.kind, 0.0) * work
    volumes = np.zeros((len(edges), builder.cycles))
    behind = {task.name: task.behind for task in tasks}
    for row, edge in zip(volumes, edges, strict=True):
        first = behind[edge.source]
        batches = slice(first, first + builder.batches)
        row[batches] = _bytes_of(builder, edge, counts, model)
    return Realization(seconds, volumes)


def _bytes_of(
    builder: P3Builder,
    edge: NamedEdge,
    counts: Sequence[Sequence[SampleCounts]],
    model: SplitModel,
) -> float | list[int]:
    """Return the bytes on an edge, of all mini-batches or of each."""
    if not edge.carries:
        return 0.0
    if edge.carries in {"upper", "first_layer"}:
        summed = model.upper
        if edge.carries == "first_layer":
            block = builder.blocks(model.feature_length)[edge.place[-1]]
            summed = model.first_width * block
        return model.itemsize * part_elements(summed, edge.place)
    sizes = [*_sampled_bytes(builder, edge, counts, model)]
    totals = [sum(of_batch) for of_batch in zip(*sizes, strict=True)]
    return totals[: builder.batches] or 0.0


def _sampled_bytes(
    builder: P3Builder,
    edge: NamedEdge,
    counts: Sequence[Sequence[SampleCounts]],
    model: SplitModel,
) -> Iterator[list[int]]:
    """Yield the bytes of all mini-batches, by sampler whose batch is on the edge."""
    blocks = builder.blocks(model.feature_length)
    match edge.carries, edge.place:
        case "frontier", (sampler, store, hop):
            owned = [one.frontier_owned[hop - 1][store] for one in counts[sampler]]
            yield [model_shapes.VERTEX_ID_BYTES * number for number in owned]
        case "answer", (sampler, store, hop):
            answered = [one.answered[hop - 1][store] for one in counts[sampler]]
            yield [model_shapes.ANSWERED_EDGE_BYTES * number for number in answered]
        case "batch", (sampler, rank):
            yield [_structure_bytes(one, one.edges) for one in counts[sampler]]
            holds = blocks[rank % builder.members]
            for drawn in builder.derived_by(sampler) if holds else ():
                yield [_first_bytes(one) for one in counts[drawn]]
        case _, (_, peer) if not blocks[peer % builder.members]:
            return
        case "push", (sampler, _):
            yield [_first_bytes(one) for one in counts[sampler]]
        case _, (rank, _):
            for sampler in builder.samplers_of(rank):
                yield [model.pull_bytes(one) for one in counts[sampler]]
        case _:
            raise ValueError(f"an edge that carries {edge.carries!r} is none of P3")


def _structure_bytes(counts: SampleCounts, edges: int) -> int:
    """Return the bytes of the ids of S_0, and of so many edges of blocks."""
    ids = model_shapes.VERTEX_ID_BYTES * counts.inputs
    return ids + model_shapes.BLOCK_EDGE_BYTES * edges


def _first_bytes(counts: SampleCounts) -> int:
    """Return the bytes of the structure of layer 1."""
    return _structure_bytes(counts, counts.first_edges)


class P3JobSection(ReplicaSection):
    """P3: push the structure, pull partial activations, never a feature."""

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

    usual_features: ClassVar[str] = "device"
    unprofiled: ClassVar[str] = (
        "a profile knows no cycles of a pipeline, write job.times instead"
    )

    @override
    def of_steps(self, steps: int) -> Self:
        """Return the job with so many mini-batches, or as many as fill its pipeline."""
        return super().of_steps(max(steps, PIPELINES[self.pipeline].depth + 1))

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        ranks = len(self.ranks(machines))
        members = min(self.cache or ranks, ranks)
        asks = 2 * self.hops * ranks if self.structure == "hashed" else 0
        rings = all_reduce_edge_count(ranks)
        of_samplers = self.samplers_per_worker * (asks + 1)
        return ranks * (2 * (members - 1) + of_samplers + 3) + rings

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from super().problems(cluster)
        if isinstance(self.model, ModelProgramSection):
            yield ("job", "model", "program"), _NO_PROGRAM
        machines = len(self.ranks(cluster.names))
        members = self.cache or machines
        if machines % members:
            fitting = [c for c in range(1, machines + 1) if machines % c == 0]
            problem = (
                f"found {members}, which does not divide {machines} machines, "
                f"write one of {', '.join(map(str, fitting))}"
            )
            yield ("job", "cache"), problem
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
            yield (
                ("job", "columns"),
                "found only zeros: a machine must hold the columns",
            )
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
            "features": self.place_of_features,
        }
        return builder.job(settings)

    @override
    def count_operations(
        self, job: Job, context: BuildContext, volumes: NDArray[np.float64]
    ) -> Operations:
        dataset, itemsize = open_for(job.settings), number_bytes(job.settings)
        sizes = dataset.feature_length, dataset.classes
        split = split_model(job.settings["model"], *sizes, itemsize)
        steps = split.first_width, split.upper
        return count_phases(P3Builder(self, context), job, steps, volumes)

    @override
    def realize_sampled(
        self, job: Job, times: Times, context: BuildContext, cluster: Cluster
    ) -> Realization:
        builder, settings = P3Builder(self, context), job.settings
        dataset = open_for(settings)
        length, needs = dataset.feature_length, self.demands.worker.amounts()
        if not self.columns and builder.members > length:
            problem = _TOO_FEW.format(builder.members, length)
            raise ScenarioError(problem, key="job.columns")
        blocks = builder.blocks(length)
        for rank, name in enumerate(builder.machines):
            columns = blocks[rank % builder.members]
            size = dataset.vertices * columns * FEATURE_BYTES
            lacking = lacking_memory(cluster, name, size + needs.get("memory", 0.0))
            if lacking > 0:
                problem = (
                    f"{columns} of {length} columns are {SIZE.format(size)}, "
                    f"{SIZE.format(lacking)} more than machine {name} has room for"
                )
                raise ScenarioError(problem, key="job.cache")
        counts = count_job(settings, dataset, builder.batches)
        itemsize = number_bytes(settings)
        split = split_model(settings["model"], length, dataset.classes, itemsize)
        return p3_realization(builder, times, counts, split)

    @override
    def manifest(self) -> dict[str, Any]:
        """Return the order of the phases, and how many updates weights lack."""
        pipeline = PIPELINES[self.pipeline]
        order = {"order": [*pipeline.order], "behind": [*pipeline.behind]}
        return {"pipeline": {**order, "updates_missed": pipeline.missed}}


def _write(common: CommonJob) -> Keys:
    if "program" in common.same["model"]:
        raise ScenarioError(_NO_PROGRAM, key="job.model.program")
    common = common.spread(len(common.machines), len(common.machines))
    times = common.times_of(
        "sampler", "all_reduce", *(translation.HOPS if common.by_hops else ())
    )
    return {
        **translation.machines_key(common),
        "structure": "hashed" if common.by_hops else "replicated",
        **translation.write_common(common, times | common.phases(), "replica"),
    }


TRANSLATION = Translation(
    lambda job, cluster: translation.read_replicas(
        job, cluster, by_hops=job.structure == "hashed"
    ),
    _write,
    splits_first_layer=True,
)
