"""DGTP: graph stores, samplers, workers, and parameter servers or an all-reduce."""

from __future__ import annotations

import numpy as np

from emu.problem import Job
from emu.problem.workloads import shard_sizes
from emu.problem.workloads.all_reduce import ALL_REDUCE
from emu.systems.dgtp.job import CARRIES, PROGRAMS
from emu.systems.system import (
    AS_ONE_DEVICE,
    System,
    Variant,
    calling,
    count_model,
    on_demand,
)


def _tasks_with_state(job: Job) -> dict[str, tuple[str, ...]]:
    # A server begins with its own, a worker with that of all servers; where workers
    # sum gradients, all begin with that of the first.
    holders, workers = _holders(job)
    states_of = {}
    if holders[0] not in workers:
        states_of = {server: (server,) for server in holders}
    return states_of | dict.fromkeys(workers, holders)


def _vectors(job: Job) -> dict[str, tuple[int, ...]]:
    (holders, _) = _holders(job)
    sizes = shard_sizes(count_model(job), len(holders))
    return {name: (size,) for name, size in zip(holders, sizes, strict=True)}


def _holders(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the tasks that hold all parameters together, and of workers.

    Servers hold shards of them; of workers that sum gradients each holds all.
    """
    servers, workers = (
        tuple(task.name for task in job.tasks if task.kind == kind)
        for kind in ("parameter_server", "worker")
    )
    return servers or workers[:1], workers


DGTP = System(
    "dgtp",
    on_demand("emu.systems.dgtp.section:DgtpJobSection"),
    programs=PROGRAMS,
    needs_torch=True,
    trainer=AS_ONE_DEVICE,
    open_data=calling("emu.systems.training_section:open_fitting"),
    # Shards stand in the servers' order, which is that of the flat vector.
    trained=lambda job, results: np.concatenate(
        [results[name]["parameters"] for name in _holders(job)[0]]
    ),
    # One worker alone has neither servers nor a ring: it ends its steps itself.
    step_kinds=("parameter_server", ALL_REDUCE, "worker"),
    parameter_kinds=("parameter_server",),
    cuts=_tasks_with_state,
    vectors=_vectors,
    fills=calling("emu.systems.cache_section:list_fills"),
    remarks=calling("emu.systems.cache_section:cache_lines"),
    figures=calling("emu.systems.cache_section:cache_figures"),
    carries=CARRIES,
    # DistDGL has no rule for its rates: TCP shares links. It trains on what lies near.
    variants={
        "dgtp": Variant("dgtp"),
        "distdgl": Variant(
            "dgtp",
            {
                "placement.policy": "distdgl",
                "schedule.policy": "maxmin",
                "job.epoch": "local",
            },
        ),
    },
    knobs={
        "parameter_servers": (1, 2, 4),
        "sync": ("parameter_server", "ring"),
        "samplers_per_worker": (1, 2),
        "partitioner": ("metis", "hash"),
    },
    translation=on_demand("emu.systems.dgtp.section:TRANSLATION"),
)
