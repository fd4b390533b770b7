"""Dorylus: whole-graph training by graph servers and lambdas."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
    from emu.systems.system import Results


def _collect_parameters(job: Job, results: Results) -> NDArray[Any]:
    from emu.training.interval_layers import flat_weights  # noqa: PLC0415 - numpy

    weights = [results[name]["weights"] for name in _holders(job)]
    return flat_weights(weights, job.settings["model"]["kind"])


def _holders(job: Job) -> list[str]:
    """Return the task that holds the weights of each layer, of several the first."""
    layers = range(job.settings["model"]["layers"])
    names = {task.name for task in job.tasks}
    # Every parameter server steps by the whole sum, so all end with the same weights.
    return [f"wu{n}" if f"wu{n}" in names else f"wu{n}_0" for n in layers]


def _tasks_with_state(job: Job) -> dict[str, tuple[str, ...]]:
    holders = _holders(job)
    return {
        task.name: (holders[task.settings["layer"]],)
        for task in job.tasks
        # Before the first epoch no update sends: an apply begins with its weights.
        if task.kind in {"weight_update", "apply"}
    }


def _vectors(job: Job) -> dict[str, tuple[int, ...]]:
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy

    dataset = open_for(job.settings)
    shapes = layer_shapes(
        job.settings["model"], dataset.feature_length, dataset.classes
    )
    vectors: dict[str, tuple[int, ...]] = {}
    for name, layer in zip(_holders(job), shapes, strict=True):
        # A layer's weights and its attention are stepped together, as one vector.
        vectors[name] = (sum(map(prod, layer)),)
    return vectors


def _list_setup(job: Job) -> Iterator[Transfer]:
    """Yield features of ghosts, which no epoch sends, and the first weights.

    A GAT multiplies before it scatters, and reads no feature of a ghost. Weights go
    from the first parameter server to the others, and from each to those it serves.
    """
    from emu.graph_data import open_parts  # noqa: PLC0415 - numpy

    settings = job.settings
    dataset, graph = open_parts(settings)
    itemsize = np.dtype(settings["precision"]).itemsize
    if settings["model"]["kind"] != "plain_gat":
        # The first gather of a server stands for its machine, whose intervals share
        # memory.
        servers = [f"ga0_{n * settings['intervals']}" for n in range(graph.parts)]
        reads = [graph.part(number).remote for number in range(graph.parts)]
        row = itemsize * dataset.feature_length
        yield from ghost_features(servers, reads, dataset.owner, row)

    updates = {task.name for task in job.tasks if task.kind == "weight_update"}
    for transfer in initial_weights(job):
        # An apply has its first weights from its own server: they are the edges below.
        if transfer.destination in updates:
            yield transfer

    shapes = layer_shapes(settings["model"], dataset.feature_length, dataset.classes)
    sizes = [itemsize * prod(matrix) for matrix, *_ in shapes]  # without attention
    for edge in job.edges:
        source = job.tasks[edge.source]
        if source.name in updates:
            yield Transfer(
                cause=WEIGHTS,
                source=source.name,
                destination=job.tasks[edge.destination].name,
                size=sizes[source.settings["layer"]],
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
