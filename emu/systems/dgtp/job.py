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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import Any, Literal

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
    build_named_job,
    credit_edges,
)

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


@dataclass(frozen=True)
class DgtpConfig:
    """Shape of a DGTP job."""

    machines: tuple[str, ...]
    """Names of the machines, one graph store each."""
    workers: int
    samplers_per_worker: int
    parameter_servers: int
    iterations: int
    hops: int
    """Layers of the model = hops of sampling, L."""
    sampling: Literal["oneshot", "multiround"] = "oneshot"
    sync: Literal["parameter_server", "ring", "halving_doubling"] = "parameter_server"
    """Sums of gradients: by parameter servers, of which there are none otherwise, or
    by an all-reduce among the workers."""
    window: int | None = None
    """Credit window K, None for unlimited."""
    demands: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Kind of process -> amount per resource."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Handed to every node program as it is."""

    @property
    def samplers(self) -> int:
        """Number of sampler processes."""
        return self.workers * self.samplers_per_worker


def _task(name: str, kind: str, config: DgtpConfig, **settings: int) -> Task:
    return Task(
        name=name,
        kind=kind,
        demands=config.demands.get(kind, {}),
        program=PROGRAMS[kind],
        settings=settings,
    )


def _rounds(main: Task, kind: str, config: DgtpConfig) -> Iterator[Task]:
    """Yield the hop tasks of a process, none of which demands anything of its own."""
    if config.sampling == "oneshot":
        return
    for hop in range(1, config.hops + 1):
        yield replace(
            main,
            name=f"{main.name}.hop{hop}",
            kind=kind,
            demands={},
            process=main.name,
            program=PROGRAMS[kind],
            settings={**main.settings, "hop": hop},
        )


def _tasks(config: DgtpConfig) -> Iterator[Task]:
    for i, machine in enumerate(config.machines):
        store = replace(_task(f"g{i}", "graph_store", config, store=i), pinned=machine)
        yield store
        yield from _rounds(store, "graph_store_hop", config)
    for i in range(config.samplers):
        worker = i // config.samplers_per_worker
        sampler = _task(f"s{i}", "sampler", config, sampler=i, worker=worker)
        yield sampler
        yield from _rounds(sampler, "sampler_hop", config)
        if config.sampling == "multiround":
            yield replace(
                sampler,
                name=f"s{i}.fetch",
                kind="sampler_fetch",
                demands={},
                process=f"s{i}",
                program=PROGRAMS["sampler_fetch"],
            )
    by_server = config.sync == "parameter_server"
    workers = [
        replace(
            _task(f"w{i}", "worker", config, worker=i),
            program=PROGRAMS["worker" if by_server else "replica"],
        )
        for i in range(config.workers)
    ]
    yield from workers
    if by_server:
        for i in range(config.parameter_servers):
            yield _task(f"ps{i}", "parameter_server", config, server=i)
    else:
        yield from all_reduce_tasks(workers, config.sync)


def _iteration_edges(config: DgtpConfig) -> Iterator[NamedEdge]:
    """Yield the edges that features and gradients travel on."""
    stores = [f"g{i}" for i in range(len(config.machines))]
    samplers = [f"s{i}" for i in range(config.samplers)]
    workers = [f"w{i}" for i in range(config.workers)]
    yield from (NamedEdge(g, s) for g, s in product(stores, samplers))
    for i, sampler in enumerate(samplers):
        yield NamedEdge(sampler, workers[i // config.samplers_per_worker])
    if config.sync != "parameter_server":
        yield from all_reduce_edges(
            workers, workers, workers, lag=1, carries="gradient", algorithm=config.sync
        )
        return
    servers = [f"ps{i}" for i in range(config.parameter_servers)]
    yield from (NamedEdge(w, p) for w, p in product(workers, servers))
    yield from (NamedEdge(p, w, lag=1) for p, w in product(servers, workers))


def _request_edges(config: DgtpConfig) -> Iterator[NamedEdge]:
    """Yield the edges that multi-round sampling adds, hop by hop."""
    stores = [f"g{i}" for i in range(len(config.machines))]
    samplers = [f"s{i}" for i in range(config.samplers)]
    steps = [f"hop{hop}" for hop in range(1, config.hops + 1)]
    for hop, following in pairwise([*steps, "fetch"]):
        for s, g in product(samplers, stores):
            yield NamedEdge(f"{s}.{hop}", f"{g}.{hop}")
        for g, s in product(stores, samplers):
            yield NamedEdge(f"{g}.{hop}", f"{s}.{following}")
    for s, g in product(samplers, stores):
        yield NamedEdge(f"{s}.fetch", g)


def _list_edges(config: DgtpConfig) -> Iterator[NamedEdge]:
    yield from _iteration_edges(config)
    if config.sampling == "multiround":
        yield from _request_edges(config)


def dgtp_job(config: DgtpConfig) -> Job:
    """Return the job of ``config``.

    Edges in this order: every g -> s (store-major), s -> its w, every w -> ps
    (worker-major), every ps -> w with lag 1 (server-major), or those of the all-reduce
    (`all_reduce_edges`, which says what its tasks know); with multi-round sampling,
    hop by hop, every s.hop -> g.hop (sampler-major) and its answers g.hop -> s
    (store-major), then every s.fetch -> g; last the credit edges.

    Task settings tell a program its place: ``store``, ``sampler`` and ``worker`` (of a
    sampler: the worker it serves), ``server``; a hop task also its ``hop``, from 1.

    Raises
    ------
    ValueError
        As `Job`, `credit_edges` and `all_reduce_tasks`.
    """
    edges, iterations = _list_edges(config), config.iterations
    job = build_named_job(_tasks(config), edges, iterations, config.settings)
    credits_ = credit_edges(job.tasks, job.edges, config.window)
    return replace(job, edges=job.edges + credits_)


def dgtp_times(job: Job, times: Mapping[str, float]) -> NDArray[np.float64]:
    """Return seconds of (task, iteration) from the time of each kind of task.

    Raises
    ------
    ValueError
        When a kind of the job has no time.
    """
    missing = {task.kind for task in job.tasks} - times.keys()
    if missing:
        raise ValueError(f"no time for {', '.join(sorted(missing))}")
    column = np.array([times[task.kind] for task in job.tasks])
    return np.repeat(column[:, None], job.iterations, axis=1)
