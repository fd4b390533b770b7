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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emu.problem import Job, Task
from emu.problem.workloads.all_reduce import (
    ALL_REDUCE,
    RECEIVE,
    STEP,
    NamedEdge,
    all_reduce_edges,
    all_reduce_tasks,
)

if TYPE_CHECKING:
    from emu.systems.dgtp.section import DgtpJobSection

#: What ``nodes`` runs for each kind (workers without servers: ``replica``); ``emu``
#: never imports it.
PROGRAMS = {
    "graph_store": "emu_nodes.dgtp.programs:GraphStore",
    "graph_store_hop": "emu_nodes.dgtp.programs:GraphStoreHop",
    "sampler": "emu_nodes.dgtp.programs:Sampler",
    "sampler_hop": "emu_nodes.dgtp.programs:SamplerHop",
    "sampler_fetch": "emu_nodes.dgtp.programs:SamplerFetch",
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


def dgtp_tasks(section: DgtpJobSection, machines: Sequence[str]) -> Iterator[Task]:
    """Yield the tasks, whose settings tell a program its place.

    They are ``store``, ``sampler`` and ``worker`` (of a sampler: the worker it serves),
    ``server``; a hop task also its ``hop``, from 1.
    """
    demands = {kind: amounts.amounts() for kind, amounts in section.demands}
    by_server = section.sync == "parameter_server"

    def of_kind(kind: str, name: str, **settings: int) -> Task:
        program = PROGRAMS["replica" if kind == "worker" and not by_server else kind]
        demand = demands[kind]
        return Task(name, kind, demands=demand, program=program, settings=settings)

    for i, machine in enumerate(machines):
        store = replace(of_kind("graph_store", f"g{i}", store=i), pinned=machine)
        yield store
        yield from _rounds(store, "graph_store_hop", section)
    for i in range(section.workers * section.samplers_per_worker):
        worker = i // section.samplers_per_worker
        sampler = of_kind("sampler", f"s{i}", sampler=i, worker=worker)
        yield sampler
        yield from _rounds(sampler, "sampler_hop", section)
        if section.sampling == "multiround":
            yield _part(sampler, "fetch", "sampler_fetch")
    workers = [of_kind("worker", f"w{i}", worker=i) for i in range(section.workers)]
    yield from workers
    if not by_server:
        yield from all_reduce_tasks(workers, section.sync)
    for i in range(section.parameter_servers if by_server else 0):
        yield of_kind("parameter_server", f"ps{i}", server=i)


def _rounds(main: Task, kind: str, section: DgtpJobSection) -> Iterator[Task]:
    """Yield the hop tasks of a process, none of which demands anything of its own."""
    for hop in range(1, section.hops + 1 if section.sampling == "multiround" else 1):
        yield _part(main, f"hop{hop}", kind, hop=hop)


def _part(main: Task, name: str, kind: str, **settings: int) -> Task:
    """Return another task of a task's process."""
    return replace(
        main,
        name=f"{main.name}.{name}",
        kind=kind,
        demands={},
        process=main.name,
        program=PROGRAMS[kind],
        settings={**main.settings, **settings},
    )


def dgtp_edges(section: DgtpJobSection, machines: int) -> Iterator[NamedEdge]:
    """Yield the edges of a job on so many machines.

    Every g -> s (store-major), s -> its w, every w -> ps (worker-major), every ps -> w
    with lag 1 (server-major), or those of the all-reduce (`all_reduce_edges`, which
    says what its tasks know); with multi-round sampling, hop by hop, every s.hop ->
    g.hop (sampler-major) and its answers g.hop -> s (store-major), then every
    s.fetch -> g.
    """
    stores = [f"g{i}" for i in range(machines)]
    samplers = [f"s{i}" for i in range(section.workers * section.samplers_per_worker)]
    workers = [f"w{i}" for i in range(section.workers)]
    yield from (NamedEdge(g, s) for g, s in product(stores, samplers))
    for i, sampler in enumerate(samplers):
        yield NamedEdge(sampler, workers[i // section.samplers_per_worker])
    if section.sync == "parameter_server":
        servers = [f"ps{i}" for i in range(section.parameter_servers)]
        yield from (NamedEdge(w, p) for w, p in product(workers, servers))
        yield from (NamedEdge(p, w, lag=1) for p, w in product(servers, workers))
    else:
        yield from all_reduce_edges(
            workers,
            workers,
            workers,
            lag=1,
            carries="gradient",
            algorithm=section.sync,
        )
    if section.sampling == "oneshot":
        return
    steps = [f"hop{hop}" for hop in range(1, section.hops + 1)]
    for hop, following in pairwise([*steps, "fetch"]):
        for s, g in product(samplers, stores):
            yield NamedEdge(f"{s}.{hop}", f"{g}.{hop}")
        for g, s in product(stores, samplers):
            yield NamedEdge(f"{g}.{hop}", f"{s}.{following}")
    for s, g in product(samplers, stores):
        yield NamedEdge(f"{s}.fetch", g)


def dgtp_times(job: Job, times: Mapping[str, float]) -> NDArray[np.float64]:
    """Return seconds of (task, iteration) from the time of each kind of task."""
    column = np.array([times[task.kind] for task in job.tasks])
    return np.repeat(column[:, None], job.iterations, axis=1)
