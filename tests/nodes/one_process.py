"""A job run in one process: every program in dependency order, no sockets."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.problem import Job
from emu.systems.system import tasks_with_state_of
from emu_nodes.program import EdgeSpec, Payload, Program, TaskSpec
from tests.systems.sections import job_of


@dataclass
class JobRun:
    """Programs of a job that `drive` has run, their payloads and reports."""

    job: Job
    programs: dict[str, Program]
    payloads: dict[tuple[int, int], Payload] = field(default_factory=dict)
    reports: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict)
    states: dict[str, Payload] = field(default_factory=dict)
    """States of tasks at the cut, by their names."""

    @property
    def parameters(self) -> NDArray[Any]:
        """All servers' shards joined, or those of the first worker."""
        servers = [t.name for t in self.job.tasks if t.kind == "parameter_server"]
        servers = servers or ["w0"]
        shards = [self.programs[name].result()["parameters"] for name in servers]
        return np.concatenate(shards)

    @property
    def volumes(self) -> NDArray[np.float64]:
        """Bytes that were sent, shape (edges, iterations)."""
        volumes = np.zeros((len(self.job.edges), self.job.iterations))
        for (edge, iteration), payload in self.payloads.items():
            volumes[edge, iteration] = sum(a.nbytes for a in payload.values())
        return volumes


def brief_of(job: Job, position: int, first: int = 0) -> TaskSpec:
    task = job.tasks[position]

    def briefs(edges: tuple[int, ...], *, into: bool) -> tuple[EdgeSpec, ...]:
        found = []
        for number in edges:
            edge = job.edges[number]
            peer = job.tasks[edge.source if into else edge.destination]
            if not edge.credit:
                found.append(
                    EdgeSpec(
                        number,
                        peer.name,
                        peer.kind,
                        edge.lag,
                        job.flow_counts[number],
                    )
                )
        return tuple(found)

    return TaskSpec(
        name=task.name,
        kind=task.kind,
        iterations=job.rounds[position],
        inputs=briefs(job.in_edges(position), into=True),
        outputs=briefs(job.out_edges(position), into=False),
        settings=task.settings,
        job_settings=job.settings,
        first=first,
    )


def build(job: Job, first: int = 0) -> JobRun:
    processes: dict[str, dict[str, Any]] = {}
    programs: dict[str, Program] = {}
    for position, task in enumerate(job.tasks):
        module, _, name = task.program.partition(":")
        program = getattr(importlib.import_module(module), name)
        process = processes.setdefault(task.process_name, {})
        programs[task.name] = program(brief_of(job, position, first), process)
    return JobRun(job, programs)


def drive(
    job: Job, starts: Any = None, cut: int = 0, kept: JobRun | None = None
) -> JobRun:
    """Run all programs, in dependency order or as they start in a schedule.

    ``cut``: iteration whose state is noted; ``kept``: what has noted it, to go on from.
    """
    first = cut if kept is not None else 0
    run = build(job, first)
    holders = tasks_with_state_of(job)
    if kept is not None:
        for name, owners in holders.items():
            program: Any = run.programs[name]
            program.restore({owner: kept.states[owner] for owner in owners})
    order = [
        (task, n)
        for n in range(first, job.iterations)
        for task in job.order
        if n < job.rounds[task]
    ]
    if starts is not None:
        order.sort(key=lambda step: float(starts[step]))  # ties as they depend
    for task, n in order:
        name = job.tasks[task].name
        program = run.programs[name]
        if cut > first and name in holders:
            _note_state(run, name, n, cut)
        inputs = {
            e.edge: {k: v.copy() for k, v in run.payloads[e.edge, n - e.lag].items()}
            for e in brief_of(job, task).inputs
            if first <= n - e.lag < e.sent
        }
        for edge, payload in program.run(n, inputs).items():
            assert all(array.flags.c_contiguous for array in payload.values())
            run.payloads[edge, n] = {k: v.copy() for k, v in payload.items()}
        run.reports[name, n] = dict(program.report())
        for received in inputs.values():
            for array in received.values():
                array.view(np.uint8)[:] = 0xFF  # pooled: the next frame lands here
    return run


def _note_state(run: JobRun, name: str, iteration: int, cut: int) -> None:
    """Note what a task has at the cut, and later the updates that it lacked then."""
    program: Any = run.programs[name]
    if iteration == cut:
        run.states[name] = program.state(iteration)
    missed = getattr(program, "missed", 0)
    if missed and iteration == cut + missed:
        run.states[name] |= program.late_updates(iteration)


def small_job(iterations: int = 3, window: int | None = 4, **changes: Any) -> Job:
    settings = {
        "dataset": {"name": "products-like", "scale": 0.0005, "seed": 3},
        "partitioner": "hash",
        "parts": 3,
        "model": {"hidden": 16, "layers": 2},
        "fanouts": [4, 6],
        "batch_size": 12,
        "workers": 2,
        "samplers_per_worker": 2,
        "parameter_servers": 1,
        "optimizer": {"name": "adam", "lr": 0.01},
        "sampling": "oneshot",
        "precision": "float32",
        "epoch": "replicate",
        "compute": "real",
        "seed": 7,
        **changes,
    }
    machines = [f"m{i}" for i in range(settings["parts"])]
    keys = ("workers", "samplers_per_worker", "parameter_servers", "sampling")
    job = job_of(
        "dgtp",
        machines,
        window,
        **{key: settings[key] for key in keys},
        iterations=iterations,
        model={"hidden": 4, "layers": settings["model"]["layers"]},
        sync=settings.get("sync", "parameter_server"),
    )
    return replace(job, settings=settings)
