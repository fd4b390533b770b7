"""Tasks and edges of P3's job."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from emu.problem import Job, Task
from emu.problem.workloads.all_reduce import (
    ALL_REDUCE,
    NamedEdge,
    all_reduce_edges,
    all_reduce_tasks,
    build_named_job,
)
from emu.systems import JobSettings
from emu.systems.job_section import BuildContext
from emu.systems.p3.job import (
    ENTRIES,
    PHASES,
    PIPELINES,
    PROGRAMS,
    column_blocks,
)
from emu.systems.p3.keys import P3Keys


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
    entries
        By machine the name, without its rank, of the task that collects the columns of
        a mini-batch.
    """

    def __init__(self, section: P3Keys, context: BuildContext) -> None:
        self.section = section
        self._window = context.window
        self.machines = section.ranks(context.machines)
        self.batches = section.count_batches(context)
        self.pipeline = PIPELINES[section.pipeline]
        # The last batch's last phase comes so many cycles after its first.
        self.cycles = self.batches + self.pipeline.depth
        self.members = section.cache or len(self.machines)
        self.groups = len(self.machines) // self.members
        self.hops = section.hops if section.structure == "hashed" else 0
        places = [section.place_on(name) for name in self.machines]
        self.entries = [ENTRIES[place] for place in places]

    def brings_rows(self, rank: int) -> bool:
        """Return True where a machine's columns come from memory of its host."""
        machine = self.machines[rank]
        task = Task("", PHASES["Mf"], pinned=machine)
        return self.section.brings_rows(task)

    def share(self, rank: int) -> float:
        """Return a machine's share of the columns over an even share."""
        shares: tuple[float, ...] = self.section.columns
        if not shares:
            return 1.0
        # Shares are in any unit: over an even share their mean is 1.
        share = shares[rank % self.members]
        return share * self.members / sum(shares)

    def blocks(self, feature_length: int) -> tuple[int, ...]:
        """Return the columns of each member of a group, 0 of one without a part."""
        return column_blocks(self.section.columns, feature_length, self.members)

    def columns_of(self, rank: int, feature_length: int) -> int:
        """Return the columns of a machine."""
        blocks = self.blocks(feature_length)
        return blocks[rank % self.members]

    def job(self, settings: JobSettings) -> Job:
        """Return the job.

        Edges rank by rank: questions and answers of its samplers, if they ask, what
        travels for its batches, the order of its phases, the credits of its samplers;
        then the rings. An edge of a process's own tasks carries nothing: they share its
        memory.

        Raises ValueError as `Job`.
        """
        return build_named_job(
            tasks=self.tasks(),
            edges=self.edges(),
            iterations=self.cycles,
            settings=settings,
        )

    def samplers_of(self, rank: int) -> range:
        """Return the numbers of a machine's samplers."""
        count = self.section.samplers_per_worker
        first = rank * count
        return range(first, first + count)

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks, machine by machine, then those of the rings."""
        for rank, machine in enumerate(self.machines):
            yield from self._sampling_tasks(rank, machine)
            yield from self._phases(rank, machine)
        workers = self._ranks("w", "data_backward")
        yield from all_reduce_tasks(workers)
        if self.groups > 1:
            # Machines with the same block step the same rows: a ring for each block.
            holders = self._ranks("v", "model_backward")
            for member in range(self.members):
                ring = holders[member :: self.members]
                yield from all_reduce_tasks(ring)

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
                takes=self.section.pool_of("sampler"),
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
        worker = Task(name="", kind="", pinned=machine, process=f"w{rank}")
        if self.entries[rank] == "g":
            yield replace(
                worker,
                name=f"g{rank}",
                kind="graph_store",
                phase="sampling",
                demands=demands.graph_store.amounts(),
                program=PROGRAMS["graph_store"],
                settings={"rank": rank},
                takes=self.section.pool_of("graph_store", machine),
            )

        for name, kind in PHASES.items():
            # The phases are one process: the first demands for all.
            amounts = {}
            if name == "Mf":
                amounts = demands.worker.amounts()
            yield replace(
                worker,
                name=f"{name}{rank}",
                kind=kind,
                phase="training",
                behind=self.pipeline.behind_of(kind),
                demands=amounts,
                program=PROGRAMS[kind],
                settings={"rank": rank},
                # Phases of several batches take turns on the one GPU.
                takes="gpu",
            )

        for hop in range(1, self.hops + 1):
            yield replace(
                worker,
                name=f"g{rank}.hop{hop}",
                kind="graph_store_hop",
                program=PROGRAMS["graph_store_hop"],
                settings={"store": rank, "hop": hop},
                takes=self.section.pool_of("graph_store_hop"),
                iterations=self.batches,
            )

    def _ranks(self, letter: str, after: str) -> list[Task]:
        """Return the ranks of a ring that sums what a phase leaves."""
        cycles_behind = self.pipeline.behind_of(after)
        ranks = []
        for rank, machine in enumerate(self.machines):
            task = Task(
                f"{letter}{rank}",
                ALL_REDUCE,
                pinned=machine,
                process=f"w{rank}",
                behind=cycles_behind,
            )
            ranks.append(task)
        return ranks

    def edges(self) -> Iterator[NamedEdge]:
        """Yield the edges in the order of `job`."""
        pipeline = self.pipeline
        order = pipeline.order
        ranks = range(len(self.machines))
        for rank in ranks:
            for sampler in self.samplers_of(rank):
                yield from self._hop_edges(sampler)
            yield from self._batch_edges(rank)
            for phase, following in itertools.pairwise(order):
                yield NamedEdge(f"{phase}{rank}", f"{following}{rank}")
            # The order is static: a cycle begins when the one before has ended.
            first = f"{order[0]}{rank}"
            last = f"{order[-1]}{rank}"
            yield NamedEdge(last, first, lag=1)
            yield from self._credits(rank)

        yield from all_reduce_edges(
            [f"w{rank}" for rank in ranks],
            [f"Db{rank}" for rank in ranks],
            [f"Mf{rank}" for rank in ranks],
            # Weights of batch k are for Mf of k + 1 + tau, and Db is behind Mf.
            lag=1 + pipeline.missed - pipeline.behind_of("data_backward"),
            carries="upper",
        )
        if self.groups > 1:
            for member in range(self.members):
                holders = ranks[member :: self.members]
                yield from all_reduce_edges(
                    [f"v{rank}" for rank in holders],
                    [f"Mb{rank}" for rank in holders],
                    [f"Mf{rank}" for rank in holders],
                    # As above, from Mb, which is the whole depth behind.
                    lag=1 + pipeline.missed - pipeline.depth,
                    carries="first_layer",
                    about=(member,),
                )

    def samplers_of_group(self, rank: int) -> list[int]:
        """Return the numbers of the samplers of a machine's group."""
        peers = self.group_of(rank)
        samplers: list[int] = []
        for peer in peers:
            samplers += self.samplers_of(peer)
        return samplers

    def derived_by(self, sampler: int) -> list[int]:
        """Return the samplers of peers whose batches a sampler draws as well."""
        if self.section.push != "derived":
            return []
        rank, number = divmod(sampler, self.section.samplers_per_worker)
        peers = self._peers_of(rank)
        # Of each peer the one of its number: a machine draws every batch once.
        samplers = [self.samplers_of(peer) for peer in peers]
        return [of_peer[number] for of_peer in samplers]

    def group_of(self, rank: int) -> range:
        """Return the machines of a machine's group."""
        first = rank - rank % self.members
        return range(first, first + self.members)

    def _peers_of(self, rank: int) -> list[int]:
        return [peer for peer in self.group_of(rank) if peer != rank]

    def _hop_edges(self, sampler: int) -> Iterator[NamedEdge]:
        """Yield the questions of a sampler to all owners, and their answers."""
        for hop in range(1, self.hops + 1):
            asker = f"s{sampler}.hop{hop}"
            reader = f"s{sampler}"
            if hop < self.hops:
                reader = f"s{sampler}.hop{hop + 1}"
            for store in range(len(self.machines)):
                owner = f"g{store}.hop{hop}"
                place = (sampler, store, hop)
                yield NamedEdge(asker, owner, carries="frontier", place=place)
                yield NamedEdge(owner, reader, carries="answer", place=place)

    def _credits(self, rank: int) -> Iterator[NamedEdge]:
        """Yield what holds the samplers of a machine back, of its whole group.

        The first task of batch n waits for the end of cycle n - window.
        """
        if self._window is None:
            return
        # Where a sampler asks by hops, its first question is what has to wait.
        hop = ".hop1" if self.hops else ""
        last_phase = self.pipeline.order[-1]
        samplers = self.samplers_of(rank)
        pairs = itertools.product(samplers, self.group_of(rank))
        for sampler, peer in pairs:
            first = f"s{sampler}{hop}"
            end = f"{last_phase}{peer}"
            yield NamedEdge(end, first, lag=self._window, credit=True)

    def _batch_edges(self, rank: int) -> Iterator[NamedEdge]:
        """Yield the edges of the data for the batches of one machine."""
        peers = self._peers_of(rank)
        entry = self.entries[rank]
        for sampler in self.samplers_of(rank):
            name = f"s{sampler}"
            place = (sampler, rank)
            yield NamedEdge(name, f"{entry}{rank}", carries="batch", place=place)
            # Ids and edges of layer 1 go to all who have columns of its inputs.
            if self.section.push == "shipped":
                for peer in peers:
                    place = (sampler, peer)
                    collector = f"{self.entries[peer]}{peer}"
                    yield NamedEdge(name, collector, carries="push", place=place)
        if entry == "g":
            yield NamedEdge(f"g{rank}", f"Mf{rank}")

        behind = self.pipeline.behind_of
        # Lags are in cycles: by how many the reader's phase is behind the sender's.
        forward_lag = behind("data_forward")
        backward_lag = behind("model_backward") - behind("data_backward")
        for peer in peers:
            place = (rank, peer)
            yield NamedEdge(
                source=f"Mf{peer}",
                destination=f"Df{rank}",
                lag=forward_lag,
                carries="pull",
                place=place,
            )
            yield NamedEdge(
                source=f"Db{rank}",
                destination=f"Mb{peer}",
                lag=backward_lag,
                carries="pull",
                place=place,
            )
