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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from emu.systems.job_section import BuildContext
    from emu.systems.p3.section import P3JobSection

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
    """A static order of phases, each behind the one that it needs, in every cycle."""

    order: tuple[str, ...]
    """Names of `PHASES` as the GPU runs them in one cycle."""
    behind: tuple[int, ...]
    """Cycles by which each phase of a mini-batch is behind its ``Mf``, in the order of
    `PHASES`: it never falls. Cycle c runs a phase of mini-batch c - behind."""

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

        Edges rank by rank: questions and answers of its sampler, if it asks, what
        travels for its batches, the order of its phases, the credits of its sampler;
        then the rings. An edge of a process's own tasks carries nothing: they share its
        memory.

        Raises ValueError as `Job`.
        """
        return build_named_job(self.tasks(), self.edges(), self.cycles, settings)

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks, machine by machine, then those of the rings."""
        for rank, machine in enumerate(self.machines):
            here = Task("", "", pinned=machine, process=f"w{rank}")
            for name, kind in {"s": "sampler", **PHASES}.items():
                sampler = kind == "sampler"
                yield replace(
                    here,
                    name=f"{name}{rank}",
                    kind=kind,
                    phase="sampling" if sampler else "training",
                    behind=self.pipeline.behind_of(kind),
                    demands=self.section.demands.worker.amounts() if sampler else {},
                    program=PROGRAMS[kind],
                    settings={"rank": rank},
                    takes="" if sampler else "gpu",
                )
            for hop, (name, role) in itertools.product(
                range(1, self.hops + 1), (("s", "sampler"), ("g", "store"))
            ):
                kind = "sampler_hop" if role == "sampler" else "graph_store_hop"
                yield replace(
                    here,
                    name=f"{name}{rank}.hop{hop}",
                    kind=kind,
                    program=PROGRAMS[kind],
                    settings={role: rank, "hop": hop},
                    iterations=self.batches,
                )
        yield from all_reduce_tasks(self._ranks("w", "data_backward"))
        of_rows = self._ranks("v", "model_backward")
        for member in range(self.members if self.groups > 1 else 0):
            yield from all_reduce_tasks(of_rows[member :: self.members])

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
            hops = (f"s{rank}.hop{hop}" for hop in range(1, self.hops + 1))
            asks = [*hops, f"s{rank}"]
            for (hop, asker), store in itertools.product(
                enumerate(asks[:-1], 1), ranks
            ):
                owner, place = f"g{store}.hop{hop}", (rank, store, hop)
                yield NamedEdge(asker, owner, carries="frontier", place=place)
                yield NamedEdge(owner, asks[hop], carries="answer", place=place)
            yield from self._batch_edges(rank)
            for phase, then in itertools.pairwise(order):
                yield NamedEdge(f"{phase}{rank}", f"{then}{rank}")
            yield NamedEdge(f"{order[-1]}{rank}", f"{order[0]}{rank}", 1)
            if self._window is not None:
                for peer in self.group_of(rank):
                    yield NamedEdge(f"Mf{peer}", asks[0], self._window, credit=True)
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

    def group_of(self, rank: int) -> range:
        """Return the machines of a machine's group."""
        first = rank - rank % self.members
        return range(first, first + self.members)

    def _batch_edges(self, rank: int) -> Iterator[NamedEdge]:
        """Yield the edges of the data for the batches of one machine."""
        _, forward, loss, end = self.pipeline.behind
        yield NamedEdge(f"s{rank}", f"Mf{rank}")
        for peer in self.group_of(rank):
            if peer == rank:
                continue
            place = (rank, peer % self.members)
            if self.section.push == "shipped":
                yield NamedEdge(f"s{rank}", f"Mf{peer}", carries="push", place=place)
            for source, to, lag in (
                (f"Mf{peer}", f"Df{rank}", forward),
                (f"Db{rank}", f"Mb{peer}", end - loss),
            ):
                yield NamedEdge(source, to, lag, carries="pull", place=place)
