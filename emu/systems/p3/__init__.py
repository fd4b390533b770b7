"""P3: push the structure, pull partial activations, never a feature."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.prediction.analysis.traffic import count_kinds
from emu.problem import Job
from emu.problem.payloads import FEATURES
from emu.systems.p3.job import PHASES, PIPELINES, PROGRAMS, column_blocks
from emu.systems.setup import COLUMNS, WEIGHTS, Transfer
from emu.systems.system import (
    AS_ONE_DEVICE,
    GRADIENT_MODULES,
    System,
    Variant,
    on_demand,
    parameter_bytes,
)
from emu.trust.violation import Finding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.systems import JobSettings
    from emu.systems.system import Holders, Lengths, Results
    from emu.trust.guards import Evidence

PAYLOADS = "payloads"


def no_features(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every edge of P3 that brought features to another process.

    P3 spreads columns so that no row of features ever travels. Kinds are what the
    receivers read in the frames, not what the workload says of its edges.
    """
    job = evidence.schedule.problem.job
    # Several jobs may run together: another system's features may travel. So may those
    # of apt, which has the same phases and asks stores for rows.
    with_phases = set()
    asking = set()
    for task in job.tasks:
        if task.kind == PHASES["Mf"]:
            with_phases.add(task.job_name)
        elif task.kind == "sampler_fetch":
            asking.add(task.job_name)
    of_p3 = with_phases - asking

    counts = count_kinds(evidence.statistics)
    for (edge, kind), count in counts.items():
        source = job.tasks[job.edges[edge].source]
        if kind == FEATURES and count and source.job_name in of_p3:
            size = count / evidence.byte_scale
            name = job.edge_names[edge]
            yield Finding(
                PAYLOADS,
                math.nan,
                f"{name} carried {size:,.0f} bytes of features; under "
                "P3 every machine keeps its columns",
            )


def open_columns_of(settings: JobSettings) -> None:
    """Open the data set of a job, and every machine's columns of it.

    Raises ScenarioError when a mini-batch has more seeds than there are training
    vertices; DataError when the data set is missing or damaged.
    """
    from emu.graph_data import open_columns  # noqa: PLC0415 - numpy
    from emu.systems.training_section import open_fitting  # noqa: PLC0415 - numpy

    dataset = open_fitting(settings)
    blocks = _blocks(settings, dataset.feature_length)
    open_columns(dataset, blocks)


def join_columns(job: Job, results: Results) -> NDArray[Any]:
    """Return all parameters, flat: of layer 1 a group's members have their columns."""
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy
    from emu.systems.p3.column_split import ColumnSplit  # noqa: PLC0415 - torch

    dataset = open_for(job.settings)
    blocks = _blocks(job.settings, dataset.feature_length)
    # Groups end with the same columns: the first group's are taken.
    ranks = range(len(blocks))
    columns = [results[f"Mf{rank}"]["own"] for rank in ranks]
    # Joining needs no block of one's own: any will do.
    split = ColumnSplit(job.settings, dataset, blocks, 0)
    upper = results["Mf0"]["upper"]
    return split.join(columns, upper)


def _blocks(settings: JobSettings, feature_length: int) -> tuple[int, ...]:
    members = settings["workers"] // settings["groups"]
    return column_blocks(settings["columns"], feature_length, members)


def _vectors(job: Job) -> Lengths:
    """Return a machine's own columns of layer 1, and all other parameters."""
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy
    from emu.systems.p3.volumes import split_model  # noqa: PLC0415 - pydantic

    settings = job.settings
    dataset = open_for(settings)
    length = dataset.feature_length
    # Lengths are asked for, no bytes: the size of a number plays no role.
    model = split_model(settings["model"], length, dataset.classes, itemsize=1)
    blocks = _blocks(settings, length)
    vectors = {}
    for rank in range(settings["workers"]):
        columns = blocks[rank % len(blocks)]
        first_weights = columns * model.first_width
        vectors[f"Mf{rank}"] = (first_weights, model.upper)
    return vectors


def _tasks_with_state(job: Job) -> Holders:
    """Return the tasks of machines, each of which goes on from its own state."""
    kind = PHASES["Mf"]
    names = [task.name for task in job.tasks if task.kind == kind]
    return {name: (name,) for name in names}


def _list_setup(job: Job) -> Iterator[Transfer]:
    """Yield the columns of every machine, and its weights from the first.

    Rows lie with their vertices, which are hashed to machines: all take columns there.
    """
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy

    dataset = open_for(job.settings)
    blocks = _blocks(job.settings, dataset.feature_length)
    sizes = parameter_bytes(job)
    # The owner of a vertex has all of its columns until then.
    rows = np.bincount(dataset.owner, minlength=len(sizes))
    precision = np.dtype(job.settings["precision"])
    for rank, (reader, weights) in enumerate(sizes.items()):
        columns = blocks[rank % len(blocks)]
        row = precision.itemsize * columns
        for holder, count in zip(sizes, rows.tolist(), strict=True):
            yield Transfer(COLUMNS, holder, reader, size=row * count)
        yield Transfer(WEIGHTS, "Mf0", reader, weights)


P3 = System(
    "p3",
    on_demand("emu.systems.p3.section:P3JobSection"),
    programs=PROGRAMS,
    needs_torch=True,
    late_modules=GRADIENT_MODULES,
    trainer=AS_ONE_DEVICE,
    guards=(no_features,),
    open_data=open_columns_of,
    trained=join_columns,
    updates_missed=lambda settings: PIPELINES[settings["pipeline"]].missed,
    cuts=_tasks_with_state,
    vectors=_vectors,
    setup=_list_setup,
    variants={
        "p3.none": Variant("p3", {"job.pipeline": "none"}),
        "p3.A": Variant("p3", {"job.pipeline": "A"}),
    },
    knobs={
        "push": ("shipped", "derived"),
        "samplers_per_worker": (1, 2),
        "features": ("device", "host"),
    },
    translation=on_demand("emu.systems.p3.section:TRANSLATION"),
)
