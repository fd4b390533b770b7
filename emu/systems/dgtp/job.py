"""The DGTP job: graph stores, samplers, workers and parameter servers, or all-reduce.

Names g0.., s0.., w0.., ps0..; sampler i serves worker i // samplers_per_worker. One
store per machine, pinned there.

One-shot sampling: every store sends each sampler the features it owns of the batch.
Multi-round sampling (DistDGL): the process of a sampler asks the stores hop by hop,
tasks ``s0.hop1`` .. ``s0.hopL``, ``s0.fetch``, then ``s0`` assembles; the process of a
store answers in ``g0.hop1`` .. ``g0.hopL`` and sends features in ``g0``.

Without parameter servers every worker holds and steps the parameters, and gradients are
summed by an all-reduce: tasks ``w0.ring0`` .. and ``w0.got0`` .. of the worker's
process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, Protocol

from emu.problem import Task
from emu.problem.workloads.all_reduce import (
    ALL_REDUCE,
    RECEIVE,
    STEP,
    NamedEdge,
    all_reduce_edges,
    all_reduce_tasks,
)

#: What ``nodes`` runs for each kind (workers without servers: ``replica``; fetches of
#: samplers that ask: ``sampler_ask`` and so on); ``emu`` never imports it.
PROGRAMS = {
    "graph_store": "emu_nodes.dgtp.programs:GraphStore",
    "graph_store_hop": "emu_nodes.dgtp.programs:GraphStoreHop",
    "sampler": "emu_nodes.dgtp.programs:Sampler",
    "sampler_hop": "emu_nodes.dgtp.programs:SamplerHop",
    "sampler_fetch": "emu_nodes.dgtp.programs:SamplerFetch",
    "sampler_ask": "emu_nodes.dgtp.asking:SamplerAsk",
    "sampler_asking": "emu_nodes.dgtp.asking:AskingSampler",
    "graph_store_asked": "emu_nodes.dgtp.asking:AskedStore",
    "worker": "emu_nodes.dgtp.programs:Worker",
    "replica": "emu_nodes.dgtp.programs:Replica",
    "parameter_server": "emu_nodes.dgtp.programs:ParameterServer",
    ALL_REDUCE: STEP,
    "all_reduce_receive": RECEIVE,
}

#: Content of its flows, for tables and sentences.
CARRIES = {
    ("graph_store", "sampler"): "features",
    ("sampler", "worker"): "mini-batches",
    ("worker", "parameter_server"): "gradients",
    ("parameter_server", "worker"): "parameters",
}


class DgtpKeys(Protocol):
    """Keys of a section ``job`` that decide its tasks and edges."""

    @property
    def workers(self) -> int:
        """Number of workers."""

    @property
    def samplers_per_worker(self) -> int:
        """Number of samplers of each."""

    @property
    def parameter_servers(self) -> int:
        """Number of servers, where gradients go over them."""

    @property
    def sync(self) -> str:
        """``parameter_server``, or the algorithm of an all-reduce."""

    @property
    def sampling(self) -> str:
        """``oneshot`` or ``multiround``."""

    @property
    def hops(self) -> int:
        """Number of hops of a mini-batch."""

    @property
    def demands(self) -> Any:
        """Pairs of a kind and the resources of one process of it."""

    def pool_of(self, kind: str, machine: str = "") -> str:
        """Return the pool that a kind of task takes a slot of, on some machine."""


def dgtp_tasks(section: DgtpKeys, owners: Sequence[str]) -> Iterator[Task]:
    """Yield the tasks, whose settings tell a program its place.

    Settings are ``store``, ``sampler`` and ``worker`` (of a sampler: the worker it
    serves), ``server``; a hop task also its ``hop``, from 1. ``owners``: machines with
    a store.
    """
    demands = {kind: amounts.amounts() for kind, amounts in section.demands}
    has_servers = section.sync == "parameter_server"
    asks_by_hops = section.sampling == "multiround"

    def of_kind(kind: str, name: str, machine: str = "", **settings: int) -> Task:
        is_replica = kind == "worker" and not has_servers
        return Task(
            name,
            kind,
            demands=demands[kind],
            # Without servers a worker sums and steps itself, by another program.
            program=PROGRAMS["replica" if is_replica else kind],
            settings=settings,
            takes=section.pool_of(kind, machine),
        )

    for i, machine in enumerate(owners):
        store = of_kind("graph_store", f"g{i}", machine, store=i)
        store = replace(store, pinned=machine)
        yield store
        if asks_by_hops:
            yield from _hops(section, store, "graph_store_hop")
    for i in range(section.workers * section.samplers_per_worker):
        worker = i // section.samplers_per_worker
        sampler = of_kind("sampler", f"s{i}", sampler=i, worker=worker)
        yield sampler
        if asks_by_hops:
            yield from _hops(section, sampler, "sampler_hop")
            yield _part(section, sampler, "fetch", "sampler_fetch")
    workers = []
    for i in range(section.workers):
        worker_task = of_kind("worker", f"w{i}", worker=i)
        workers.append(worker_task)
    yield from workers

    if has_servers:
        for i in range(section.parameter_servers):
            yield of_kind("parameter_server", f"ps{i}", server=i)
    else:
        yield from all_reduce_tasks(workers, section.sync)


def _hops(section: DgtpKeys, main: Task, kind: str) -> Iterator[Task]:
    """Yield the hop tasks of a process, none of which demands anything of its own."""
    for hop in range(1, section.hops + 1):
        yield _part(section, main, f"hop{hop}", kind, hop=hop)


def _part(section: DgtpKeys, main: Task, name: str, kind: str, **settings: int) -> Task:
    """Return another task of a task's process."""
    return replace(
        main,
        name=f"{main.name}.{name}",
        kind=kind,
        # The process's main task demands for all of them.
        demands={},
        process=main.name,
        # Hops answer on a core, also where a GPU collects the rows of their process.
        takes=section.pool_of(kind),
        program=PROGRAMS[kind],
        settings={**main.settings, **settings},
    )


def dgtp_edges(section: DgtpKeys, count: int) -> Iterator[NamedEdge]:
    """Yield the edges of a job with so many stores.

    Every g -> s (store-major), s -> its w, every w -> ps (worker-major), every ps -> w
    with lag 1 (server-major), or those of the all-reduce (`all_reduce_edges`, which
    says what its tasks know); with multi-round sampling, hop by hop, every s.hop ->
    g.hop (sampler-major) and its answers g.hop -> s (store-major), then every
    s.fetch -> g.
    """
    stores = [f"g{i}" for i in range(count)]
    samplers = [f"s{i}" for i in range(section.workers * section.samplers_per_worker)]
    workers = [f"w{i}" for i in range(section.workers)]
    for store, sampler in product(stores, samplers):
        yield NamedEdge(store, sampler)
    for i, sampler in enumerate(samplers):
        yield NamedEdge(sampler, workers[i // section.samplers_per_worker])

    if section.sync == "parameter_server":
        servers = [f"ps{i}" for i in range(section.parameter_servers)]
        for worker, server in product(workers, servers):
            yield NamedEdge(worker, server)
        # Lag 1: a worker needs the step of the mini-batch before (specs, 2a).
        for server, worker in product(servers, workers):
            yield NamedEdge(server, worker, lag=1)
    else:
        yield from all_reduce_edges(
            workers, workers, workers, lag=1, carries="gradient", algorithm=section.sync
        )
    if section.sampling == "multiround":
        yield from _hop_edges(section.hops, stores, samplers)


def _hop_edges(
    hops: int, stores: Sequence[str], samplers: Sequence[str]
) -> Iterator[NamedEdge]:
    rounds = [f"hop{hop}" for hop in range(1, hops + 1)]
    for hop, following in pairwise([*rounds, "fetch"]):
        for sampler, store in product(samplers, stores):
            yield NamedEdge(f"{sampler}.{hop}", f"{store}.{hop}")
        for store, sampler in product(stores, samplers):
            # Only answers of all stores together make up the next frontier.
            yield NamedEdge(f"{store}.{hop}", f"{sampler}.{following}")
    for sampler, store in product(samplers, stores):
        yield NamedEdge(f"{sampler}.fetch", store)
