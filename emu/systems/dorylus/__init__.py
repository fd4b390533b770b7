"""Dorylus: whole-graph training by graph servers and lambdas."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from emu.array_types import Array
from emu.problem import Job
from emu.problem.workloads import layer_shapes
from emu.systems.dorylus.deaths import function_times
from emu.systems.dorylus.steps import CARRIES, PARAMETER_KINDS, PROGRAMS
from emu.systems.setup import WEIGHTS, Transfer, ghost_features
from emu.systems.system import (
    AS_ONE_DEVICE,
    System,
    Variant,
    calling,
    initial_weights,
    on_demand,
)

if TYPE_CHECKING:
    from emu.systems.system import Holders, Lengths, Results


def _collect_parameters(job: Job, results: Results) -> Array:
    from emu.training.interval_layers import flat_weights  # noqa: PLC0415 - numpy

    weights = [results[name]["weights"] for name in _holders(job)]
    kind = job.settings["model"]["kind"]
    return flat_weights(weights, kind)


def _holders(job: Job) -> list[str]:
    """Return the task that holds the weights of each layer, of several the first."""
    layers = range(job.settings["model"]["layers"])
    tasks = {task.name for task in job.tasks}
    holders = []
    for layer in layers:
        holder = f"wu{layer}"
        # Every parameter server steps by the whole sum, so all end with the same
        # weights.
        if holder not in tasks:
            holder = f"wu{layer}_0"
        holders.append(holder)
    return holders


def _tasks_with_state(job: Job) -> Holders:
    holders = _holders(job)
    tasks = {}
    for task in job.tasks:
        # Before the first epoch no update sends: an apply begins with its weights.
        if task.kind in {"weight_update", "apply"}:
            layer = task.settings["layer"]
            tasks[task.name] = (holders[layer],)
    return tasks


def _vectors(job: Job) -> Lengths:
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy

    dataset = open_for(job.settings)
    model = job.settings["model"]
    shapes = layer_shapes(model, dataset.feature_length, dataset.classes)
    vectors = {}
    for name, layer in zip(_holders(job), shapes, strict=True):
        # A layer's weights and its attention are stepped together, as one vector.
        length = sum(map(prod, layer))
        vectors[name] = (length,)
    return vectors


def _list_setup(job: Job) -> Iterator[Transfer]:
    """Yield features of ghosts, which no epoch sends, and the first weights.

    A GAT multiplies before it scatters, and reads no feature of a ghost. Weights go
    from the first parameter server to the others, and from each to those it serves.
    """
    from emu.graph_data import open_parts  # noqa: PLC0415 - numpy

    settings = job.settings
    dataset, graph = open_parts(settings)
    precision = np.dtype(settings["precision"])
    itemsize = precision.itemsize
    model = settings["model"]
    if model["kind"] != "plain_gat":
        # The first gather of a server stands for its machine, whose intervals share
        # memory.
        firsts = range(0, graph.parts * settings["intervals"], settings["intervals"])
        servers = [f"ga0_{interval}" for interval in firsts]
        reads = [graph.part(number).remote for number in range(graph.parts)]
        row = itemsize * dataset.feature_length
        yield from ghost_features(servers, reads, dataset.owner, row)

    updates = {task.name for task in job.tasks if task.kind == "weight_update"}
    for transfer in initial_weights(job):
        # An apply has its first weights from its own server: they are the edges below.
        if transfer.destination in updates:
            yield transfer

    shapes = layer_shapes(model, dataset.feature_length, dataset.classes)
    sizes = [itemsize * prod(matrix) for matrix, *_ in shapes]  # without attention
    for edge in job.edges:
        source = job.tasks[edge.source]
        if source.name in updates:
            layer = source.settings["layer"]
            destination = job.tasks[edge.destination]
            yield Transfer(
                cause=WEIGHTS,
                source=source.name,
                destination=destination.name,
                size=sizes[layer],
            )


DORYLUS = System(
    "dorylus",
    on_demand("emu.systems.dorylus.section:DorylusJobSection"),
    programs=PROGRAMS,
    variants={
        f"dorylus.{mode}": Variant("dorylus", {"job.mode": mode})
        for mode in ("pipe", "async")
    },
    # More intervals overlap more, and each brings a copy of the weights.
    knobs={"intervals": (1, 2, 4, 8)},
    translation=on_demand("emu.systems.dorylus.section:TRANSLATION"),
    open_data=calling("emu.graph_data:open_parts"),
    trained=_collect_parameters,
    # What is read when decides the weights of `async` alone; `pipe` waits for all
    # values.
    trainer=AS_ONE_DEVICE,
    asynchronous=lambda settings: settings["mode"] == "async",
    follow=calling("emu.systems.dorylus.replay:replay_training"),
    step_kinds=("weight_update",),
    parameter_kinds=PARAMETER_KINDS,
    cuts=_tasks_with_state,
    vectors=_vectors,
    setup=_list_setup,
    functions=function_times,
    carries=CARRIES,
    remarks=calling("emu.systems.dorylus.remarks:read_lines"),
    figures=calling("emu.systems.dorylus.remarks:figures"),
)
