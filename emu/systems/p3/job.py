"""The P3 job (Gandhi, Iyer, OSDI 2021): push the structure, pull partial activations.

Machines form groups that hold every column of the features once between them; member p
of a group holds block p, and the rows of the first layer's weights that belong to it.
Per machine m: a sampler ``s0`` and four phases: ``Mf0``, the linear part of layer 1 on
its columns for every batch of its group; ``Df0``, the rest of the forward pass on its
own batch; ``Db0``, its backward pass; ``Mb0``, the gradient of its rows for the group's
batches. The upper parameters are summed round the ring ``w0.ring0``, ...; with several
groups the rows of layer 1 are, too (``v0.ring0``, ...), over those who hold them.

Where the structure is spread over the machines, the sampler asks the owners of vertices
hop by hop (DistDGL): ``s0.hop1``, ``g0.hop1``, ... run once per mini-batch.

Iterations are cycles of the pipeline: in one cycle the phases are at different
mini-batches, and phases of batches that do not exist take no time and send nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from emu.problem import Job, Task
from emu.problem.workloads.all_reduce import (
    ALL_REDUCE,
    NamedEdge,
    all_reduce_edges,
    all_reduce_tasks,
    build_named_job,
)
from emu.problem.workloads.model_shapes import shard_sizes
from emu.systems.dgtp import job as dgtp

#: Task name without its rank -> kind, in the order of one mini-batch.
PHASES = {
    "Mf": "model_forward",
    "Df": "data_forward",
    "Db": "data_backward",
    "Mb": "model_backward",
}

#: What ``nodes`` runs for each kind; ``emu`` never imports it.
PROGRAMS = {
    "graph_store_hop": dgtp.PROGRAMS["graph_store_hop"],
    "sampler_hop": dgtp.PROGRAMS["sampler_hop"],
    "sampler": "emu_nodes.p3.programs:P3Sampler",
    "model_forward": "emu_nodes.p3.programs:ModelForward",
    "data_forward": "emu_nodes.p3.programs:DataForward",
    "data_backward": "emu_nodes.p3.programs:DataBackward",
    "model_backward": "emu_nodes.p3.programs:ModelBackward",
}


@dataclass(frozen=True)
class Pipeline:
    """A static order of the phases that repeats in every cycle.

    Raises
    ------
    ValueError
        When a phase would run before the one that it needs.
    """

    order: tuple[str, ...]
    """Names of `PHASES` as the GPU runs them in one cycle."""
    behind: tuple[int, ...]
    """Cycles by which each phase of a mini-batch is behind its ``Mf``, in the order of
    `PHASES`: it never falls. Cycle c runs a phase of mini-batch c - behind."""

    def __post_init__(self) -> None:
        names = [*PHASES]
        if sorted(self.order) != sorted(names) or self.behind[0] != 0:
            raise ValueError(f"{self.order} is no order of {', '.join(names)}")
        for first, then in itertools.pairwise(names):
            ahead = self.distance(first, then)
            if ahead < 0 or (
                ahead == 0 and self.order.index(first) > self.order.index(then)
            ):
                raise ValueError(f"{then} of a mini-batch would run before {first}")

    def distance(self, first: str, then: str) -> int:
        """Return the cycles from one phase of a mini-batch to another."""
        names = [*PHASES]
        return self.behind[names.index(then)] - self.behind[names.index(first)]

    def behind_of(self, kind: str) -> int:
        """Return the cycles that a kind of task is behind ``Mf``; others are not."""
        return dict(zip(PHASES.values(), self.behind, strict=True)).get(kind, 0)

    @property
    def depth(self) -> int:
        """Cycles from the first phase of a mini-batch to its last."""
        return self.behind[-1]

    @property
    def missed(self) -> int:
        """Updates that the weights of a forward pass lack, tau.

        Those of mini-batch k are there for ``Mf`` of mini-batch k + 1 + tau.
        """
        before = self.order.index("Mb") < self.order.index("Mf")
        return self.depth - before


#: The paper's words leave open which of the two its pipeline is (docs/which_system.md).
PIPELINES = {
    "none": Pipeline(tuple(PHASES), (0, 0, 0, 0)),
    "A": Pipeline(tuple(PHASES), (0, 1, 1, 2)),
    "B": Pipeline(tuple(PHASES), (0, 1, 2, 3)),
}


def column_blocks(
    shares: Sequence[float], feature_length: int, members: int
) -> tuple[int, ...]:
    """Return the columns of each member: array_split, or as the shares say."""
    if not shares:
        return shard_sizes(feature_length, members)
    bounds = np.rint(np.cumsum(shares) / sum(shares) * feature_length)
    return tuple(np.diff(bounds, prepend=0).astype(int).tolist())


@dataclass(frozen=True)
class P3Config:
    """Shape of a P3 job.

    Raises
    ------
    ValueError
        When machines cannot form so many groups, the window is less than 1, or a
        structure is to be derived that is not there.
    """

    machines: tuple[str, ...]
    """Names of the machines, rank by rank."""
    batches: int
    """Mini-batches of each machine."""
    pipeline: Pipeline = PIPELINES["A"]
    push: Literal["shipped", "derived"] = "shipped"
    """``shipped``: a sampler sends ids and edges of layer 1 to its group; ``derived``:
    every machine samples the batches of its group itself."""
    groups: int = 1
    """Groups of machines that hold all columns between them."""
    columns: tuple[float, ...] = ()
    """Share of the columns of each member of a group; empty: even. A member with none
    computes no part of layer 1, nothing is pushed to it or pulled from it."""
    hops: int = 0
    """Hops that a sampler asks the owners of the vertices for; 0: the whole structure
    is on every machine."""
    window: int | None = None
    """Batches that a sampler may be ahead of their ``Mf``, None for unlimited."""
    demands: Mapping[str, float] = field(default_factory=dict)
    """Resources that each machine's one process needs."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Handed to every node program as it is."""

    def __post_init__(self) -> None:
        if self.groups < 1 or len(self.machines) % self.groups:
            raise ValueError(
                f"{len(self.machines)} machines cannot form {self.groups} equal groups"
            )
        if self.columns and len(self.columns) != self.members:
            raise ValueError(
                f"{len(self.columns)} shares of the columns for {self.members} machines"
            )
        if self.hops and self.push == "derived":
            raise ValueError("a structure that is asked for hop by hop is not derived")
        if self.window is not None and self.window < 1:
            raise ValueError(f"a window of {self.window} would let nothing start")

    @property
    def members(self) -> int:
        """Machines of a group, and blocks of columns."""
        return len(self.machines) // self.groups

    @property
    def cycles(self) -> int:
        """Iterations of the job."""
        return self.batches + self.pipeline.depth

    def share(self, rank: int) -> float:
        """Return a machine's share of the columns over an even share."""
        if not self.columns:
            return 1.0
        mine = self.columns[rank % self.members]
        return mine * self.members / sum(self.columns)

    def blocks(self, feature_length: int) -> tuple[int, ...]:
        """Return the columns of each member of a group."""
        return column_blocks(self.columns, feature_length, self.members)

    def group_of(self, rank: int) -> range:
        """Return the ranks of a machine's group."""
        first = rank - rank % self.members
        return range(first, first + self.members)


def p3_tasks(config: P3Config) -> Iterator[Task]:
    """Yield the tasks, machine by machine, then those of the rings."""
    for rank in range(len(config.machines)):
        for name, kind in {"s": "sampler", **PHASES}.items():
            sampler = kind == "sampler"
            yield Task(
                name=f"{name}{rank}",
                kind=kind,
                phase="sampling" if sampler else "training",
                behind=config.pipeline.behind_of(kind),
                demands=config.demands if sampler else {},
                pinned=config.machines[rank],
                process=f"w{rank}",
                program=PROGRAMS[kind],
                settings={"rank": rank},
                takes="" if sampler else "gpu",
            )
        yield from _hop_tasks(config, rank)
    yield from all_reduce_tasks(_ranks(config, "w", "data_backward"))
    of_rows = _ranks(config, "v", "model_backward")
    for member in range(config.members if config.groups > 1 else 0):
        yield from all_reduce_tasks(of_rows[member :: config.members])


def _hop_tasks(config: P3Config, rank: int) -> Iterator[Task]:
    for hop in range(1, config.hops + 1):
        for name, kind, role in (
            ("s", "sampler_hop", "sampler"),
            ("g", "graph_store_hop", "store"),
        ):
            yield Task(
                f"{name}{rank}.hop{hop}",
                kind,
                pinned=config.machines[rank],
                process=f"w{rank}",
                program=PROGRAMS[kind],
                settings={role: rank, "hop": hop},
                iterations=config.batches,
            )


def _hop_edges(config: P3Config, rank: int) -> Iterator[NamedEdge]:
    """Yield questions and answers for the batches of one machine, store by store."""
    for hop in range(1, config.hops + 1):
        asker = f"s{rank}.hop{hop}"
        then = f"s{rank}.hop{hop + 1}" if hop < config.hops else f"s{rank}"
        for store in range(len(config.machines)):
            owner, place = f"g{store}.hop{hop}", (rank, store, hop)
            yield NamedEdge(asker, owner, carries="frontier", place=place)
            yield NamedEdge(owner, then, carries="answer", place=place)


def _ranks(config: P3Config, letter: str, after: str) -> list[Task]:
    """Return the ranks of a ring that sums what a phase leaves."""
    behind = config.pipeline.behind_of(after)
    return [
        Task(
            f"{letter}{rank}",
            ALL_REDUCE,
            pinned=machine,
            process=f"w{rank}",
            behind=behind,
        )
        for rank, machine in enumerate(config.machines)
    ]


def _batch_edges(config: P3Config, rank: int) -> Iterator[NamedEdge]:
    """Yield the edges of the data for the batches of one machine."""
    forward = config.pipeline.distance("Mf", "Df")
    backward = config.pipeline.distance("Db", "Mb")
    yield NamedEdge(f"s{rank}", f"Mf{rank}")
    for peer in config.group_of(rank):
        if peer == rank:
            continue
        block = peer % config.members
        if config.push == "shipped":
            place = (rank, block)
            yield NamedEdge(f"s{rank}", f"Mf{peer}", carries="push", place=place)
        for source, to, lag in (
            (f"Mf{peer}", f"Df{rank}", forward),
            (f"Db{rank}", f"Mb{peer}", backward),
        ):
            yield NamedEdge(source, to, lag, carries="pull", place=(rank, block))


def p3_edges(config: P3Config) -> Iterator[NamedEdge]:
    """Yield the edges in the order of `p3_job`."""
    order, pipeline = config.pipeline.order, config.pipeline
    ranks = range(len(config.machines))
    for rank in ranks:
        yield from _hop_edges(config, rank)
        yield from _batch_edges(config, rank)
        for phase, then in itertools.pairwise(order):
            yield NamedEdge(f"{phase}{rank}", f"{then}{rank}")
        yield NamedEdge(f"{order[-1]}{rank}", f"{order[0]}{rank}", 1)
        if config.window is not None:
            first = f"s{rank}.hop1" if config.hops else f"s{rank}"
            for peer in config.group_of(rank):
                yield NamedEdge(f"Mf{peer}", first, config.window, credit=True)
    names = [f"w{rank}" for rank in ranks]
    forward = [f"Mf{rank}" for rank in ranks]
    before = [f"Db{rank}" for rank in ranks]
    lag = 1 + pipeline.missed - pipeline.behind[2]
    yield from all_reduce_edges(names, before, forward, lag=lag, carries="upper")
    for member in range(config.members if config.groups > 1 else 0):
        own = ranks[member :: config.members]
        yield from all_reduce_edges(
            [f"v{rank}" for rank in own],
            [f"Mb{rank}" for rank in own],
            [forward[rank] for rank in own],
            lag=1 + pipeline.missed - pipeline.depth,
            carries="first_layer",
            about=(member,),
        )


def p3_job(config: P3Config) -> Job:
    """Return the job of ``config``, whose iterations are cycles.

    Edges rank by rank: questions and answers of its sampler, if it asks, what travels
    for its batches, the order of its phases, the
    credits of its sampler; then the rings. An edge of a process's own tasks carries
    nothing: they share its memory.

    Raises
    ------
    ValueError
        As `Job`.
    """
    return build_named_job(
        p3_tasks(config), p3_edges(config), config.cycles, config.settings
    )
