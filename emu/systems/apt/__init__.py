"""APT: layer 1 where it costs least to bring what it needs together (Ma et al.)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.problem import Job, Schedule
from emu.systems.apt.job import PHASES, PROGRAMS, columns_of
from emu.systems.setup import COLUMNS, WEIGHTS, Transfer
from emu.systems.system import (
    AS_ONE_DEVICE,
    GRADIENT_MODULES,
    System,
    Variant,
    calling,
    initial_weights,
    on_demand,
    parameter_bytes,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.systems.system import Holders, Lengths, Results


def _name_strategy(
    schedules: Mapping[str, Schedule],
    _policy: str,
) -> Iterator[str]:
    """Yield the strategy of a job, which may have been chosen."""
    schedule = next(iter(schedules.values()))
    settings = schedule.problem.job.settings
    strategy = settings["strategy"]
    yield f"layer 1 by strategy {strategy} of apt (job.strategy)"


def _holders(job: Job) -> list[str]:
    kind = PHASES["Mf"]
    return [task.name for task in job.tasks if task.kind == kind]


def _tasks_with_state(job: Job) -> Holders:
    """Return whose state machines begin with: own columns, or that of the first."""
    names = _holders(job)
    if job.settings["strategy"] == "nfp":
        return {name: (name,) for name in names}
    first = names[0]
    return dict.fromkeys(names, (first,))


def _vectors(job: Job) -> Lengths:
    """Return the weights of layer 1 that a machine has, and all other parameters."""
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy
    from emu.systems.p3.volumes import split_model  # noqa: PLC0415 - pydantic

    settings = job.settings
    dataset = open_for(settings)
    length = dataset.feature_length
    # Lengths are asked for, no bytes: the size of a number plays no role.
    split = split_model(settings["model"], length, dataset.classes, itemsize=1)
    blocks = columns_of(settings, length)
    holders = _holders(job)[: len(blocks)]
    vectors = {}
    for name, columns in zip(holders, blocks, strict=True):
        first_weights = columns * split.first_width
        vectors[name] = (first_weights, split.upper)
    return vectors


def _join(job: Job, results: Results) -> NDArray[Any]:
    """Return all parameters, flat, of which machines may have columns of layer 1."""
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy
    from emu.systems.p3.column_split import ColumnSplit  # noqa: PLC0415 - torch

    dataset = open_for(job.settings)
    blocks = columns_of(job.settings, dataset.feature_length)
    # Joining needs no block of one's own: any will do.
    split = ColumnSplit(job.settings, dataset, blocks, 0)
    ranks = range(len(blocks))
    owned = [results[f"Mf{rank}"]["own"] for rank in ranks]
    upper = results["Mf0"]["upper"]
    return split.join(owned, upper)


def _list_setup(job: Job) -> Iterator[Transfer]:
    """Yield the weights of all, and columns of those that have some of every row."""
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy

    if job.settings["strategy"] != "nfp":
        yield from initial_weights(job)
        return
    dataset = open_for(job.settings)
    blocks = columns_of(job.settings, dataset.feature_length)
    sizes = parameter_bytes(job)
    rows = np.bincount(dataset.owner, minlength=len(sizes))
    precision = np.dtype(job.settings["precision"])
    readers = zip(sizes.items(), blocks, strict=True)
    for (reader, weights), columns in readers:
        row = precision.itemsize * columns
        # The owner of a vertex has all of its columns until then.
        for holder, count in zip(sizes, rows.tolist(), strict=True):
            yield Transfer(COLUMNS, holder, reader, size=row * count)
        yield Transfer(WEIGHTS, "Mf0", reader, weights)


APT = System(
    "apt",
    on_demand("emu.systems.apt.section:AptSection"),
    programs=PROGRAMS,
    needs_torch=True,
    late_modules=GRADIENT_MODULES,
    trainer=AS_ONE_DEVICE,
    open_data=calling("emu.systems.training_section:open_fitting"),
    trained=_join,
    cuts=_tasks_with_state,
    vectors=_vectors,
    setup=_list_setup,
    remarks=_name_strategy,
    figures=lambda schedule: {"strategy": schedule.problem.job.settings["strategy"]},
    carries={
        ("sampler", "sampler_fetch"): "shares of mini-batches",
        ("sampler_fetch", "graph_store"): "questions",
        ("graph_store", "model_forward"): "features",
        ("model_forward", "data_forward"): "sums",
        ("data_backward", "model_backward"): "gradients of sums",
    },
    # Every machine trains on the training vertices of its own part.
    variants={
        "apt": Variant("apt", {"job.epoch": "local"}),
    },
    knobs={"samplers_per_worker": (1, 2)},
    translation=on_demand("emu.systems.apt.section:TRANSLATION"),
)
