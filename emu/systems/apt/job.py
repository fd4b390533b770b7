"""The job of APT: four phases of a mini-batch, of which the first and last are shared.

Per machine samplers, each a process, a store ``g0``, and a process with five tasks:
``a0`` takes in the shares of layer 1 that the machine computes and asks stores for
their rows; ``Mf0`` adds them up for every mini-batch; ``Df0`` adds the parts of its own
mini-batch and does the rest of the forward pass; ``Db0`` is its backward pass; ``Mb0``
the gradient of layer 1's weights. Gradients are summed round a ring, those of layer 1
behind the others (``v0.ring0``, ...), unless every machine has columns of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from emu.problem import Task
from emu.problem.workloads.all_reduce import (
    ALL_REDUCE,
    NamedEdge,
    all_reduce_edges,
    all_reduce_tasks,
)
from emu.systems import JobSettings, Names
from emu.systems.apt.shares import computing
from emu.systems.p3.job import PHASES

#: What ``nodes`` runs for each kind; ``emu`` never imports it.
PROGRAMS = {
    "sampler": "emu_nodes.apt.programs:AptSampler",
    "sampler_fetch": "emu_nodes.apt.programs:Asking",
    "graph_store": "emu_nodes.apt.programs:AptStore",
    "model_forward": "emu_nodes.apt.programs:ModelForward",
    "data_forward": "emu_nodes.apt.programs:DataForward",
    "data_backward": "emu_nodes.apt.programs:DataBackward",
    "model_backward": "emu_nodes.apt.programs:ModelBackward",
}


@dataclass(frozen=True)
class AptBuilder:
    """Tasks and edges of a strategy on some machines."""

    strategy: str
    machines: Names
    samplers_per_worker: int
    window: int | None
    """Credit window, None for none."""

    @property
    def ranks(self) -> range:
        """Numbers of the machines."""
        return range(len(self.machines))

    def samplers_of(self, rank: int) -> range:
        """Return the numbers of a machine's samplers."""
        first = rank * self.samplers_per_worker
        return range(first, first + self.samplers_per_worker)

    def computing(self, home: int) -> range:
        """Return the machines with a share of the mini-batches of one."""
        return computing(self.strategy, home, len(self.machines))

    def asked_by(self, rank: int) -> Sequence[int]:
        """Return the machines whose rows one may need."""
        # Where a source lives is its row, and every machine has its columns.
        return [rank] if self.strategy in {"snp", "nfp"} else self.ranks

    def tasks(
        self,
        pools: Sequence[str],
        worker: Task,
        store: Task,
    ) -> Iterator[Task]:
        """Yield the tasks, machine by machine, then those of the rings.

        ``pools``: what the store of every machine takes a slot of; ``worker``,
        ``store``: tasks with the demands of these processes.
        """
        for rank, machine in enumerate(self.machines):
            yield from self._sampling_tasks(rank, machine)
            yield Task(
                f"g{rank}",
                "graph_store",
                demands=store.demands,
                pinned=machine,
                program=PROGRAMS["graph_store"],
                settings={"store": rank},
                takes=pools[rank],
            )
            yield from self._phases(rank, machine, worker)

        yield from all_reduce_tasks(self._sums("w"))
        if self.strategy != "nfp":
            yield from all_reduce_tasks(self._sums("v"))

    def _sampling_tasks(self, rank: int, machine: str) -> Iterator[Task]:
        """Yield the samplers of a machine, each a process, and who takes shares in."""
        for sampler in self.samplers_of(rank):
            yield Task(
                f"s{sampler}",
                "sampler",
                pinned=machine,
                program=PROGRAMS["sampler"],
                settings={"rank": rank, "sampler": sampler},
                takes="cpu",
            )

        yield Task(
            f"a{rank}",
            "sampler_fetch",
            pinned=machine,
            process=f"w{rank}",
            program=PROGRAMS["sampler_fetch"],
            settings={"rank": rank},
            takes="cpu",
        )

    def _phases(self, rank: int, machine: str, worker: Task) -> Iterator[Task]:
        """Yield the phases of a machine, which share the process of its worker."""
        for name, kind in PHASES.items():
            yield Task(
                f"{name}{rank}",
                kind,
                phase="training",
                # The phases are one process: the first demands for all.
                demands=worker.demands if name == "Mf" else {},
                pinned=machine,
                process=f"w{rank}",
                program=PROGRAMS[kind],
                settings={"rank": rank},
                takes="gpu",
            )

    def _sums(self, letter: str) -> list[Task]:
        return [
            Task(f"{letter}{rank}", ALL_REDUCE, pinned=machine, process=f"w{rank}")
            for rank, machine in enumerate(self.machines)
        ]

    def edges(self) -> Iterator[NamedEdge]:
        """Yield the edges: shares, rows, sums, order, credits, rings."""
        for home in self.ranks:
            for sampler in self.samplers_of(home):
                for rank in self.computing(home):
                    share = (sampler, rank, home)
                    yield NamedEdge(
                        source=f"s{sampler}",
                        destination=f"a{rank}",
                        carries="share",
                        place=share,
                    )

        # A store answers in the order of its questions: that of the machines.
        for rank in self.ranks:
            for owner in self.asked_by(rank):
                place = (rank, owner)
                yield NamedEdge(f"a{rank}", f"g{owner}", carries="ids", place=place)
                yield NamedEdge(f"g{owner}", f"Mf{rank}", carries="rows", place=place)

        for home in self.ranks:
            for rank in self.computing(home):
                if rank == home:
                    continue
                place = (home, rank)
                yield NamedEdge(
                    source=f"Mf{rank}",
                    destination=f"Df{home}",
                    carries="sums",
                    place=place,
                )
                yield NamedEdge(
                    source=f"Db{home}",
                    destination=f"Mb{rank}",
                    carries="sums",
                    place=place,
                )

        yield from self._order()
        yield from self._rings()

    def _order(self) -> Iterator[NamedEdge]:
        for rank in self.ranks:
            for phase, following in pairwise(PHASES):
                yield NamedEdge(f"{phase}{rank}", f"{following}{rank}")
            yield NamedEdge(f"Mb{rank}", f"Mf{rank}", lag=1)
            if self.window is None:
                continue
            for sampler in self.samplers_of(rank):
                for peer in self.computing(rank):
                    yield NamedEdge(
                        f"Mb{peer}", f"s{sampler}", lag=self.window, credit=True
                    )

    def _rings(self) -> Iterator[NamedEdge]:
        sums = {"w": ("Db", "upper"), "v": ("Mb", "first")}
        if self.strategy == "nfp":
            del sums["v"]
        for letter, (phase, carries) in sums.items():
            yield from all_reduce_edges(
                [f"{letter}{rank}" for rank in self.ranks],
                [f"{phase}{rank}" for rank in self.ranks],
                [f"Mf{rank}" for rank in self.ranks],
                lag=1,
                carries=carries,
            )


def columns_of(settings: JobSettings, feature_length: int) -> tuple[int, ...]:
    """Return the columns of each block of layer 1: one of all, or one per machine."""
    from emu.problem.workloads import shard_sizes  # noqa: PLC0415 - agents start here

    if settings["strategy"] == "nfp":
        return shard_sizes(feature_length, settings["workers"])
    return (feature_length,)
