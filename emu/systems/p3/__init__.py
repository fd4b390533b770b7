"""P3: push the structure, pull partial activations, never a feature."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from emu.prediction.analysis.traffic import count_kinds
from emu.problem import Job
from emu.problem.payloads import FEATURES
from emu.systems.p3.columns import column_vectors, join_columns, list_columns
from emu.systems.p3.job import PHASES, PIPELINES, PROGRAMS, column_blocks
from emu.systems.system import (
    AS_ONE_DEVICE,
    GRADIENT_MODULES,
    System,
    Variant,
    on_demand,
)
from emu.trust.violation import Finding

if TYPE_CHECKING:
    from emu.systems import JobSettings
    from emu.systems.system import Holders
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
    open_columns(dataset, _blocks(settings))


def _blocks(settings: JobSettings) -> tuple[int, ...]:
    """Return the columns of each member of a group."""
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy

    members = settings["workers"] // settings["groups"]
    dataset = open_for(settings)
    return column_blocks(settings["columns"], dataset.feature_length, members)


def _tasks_with_state(job: Job) -> Holders:
    """Return the tasks of machines, each of which goes on from its own state."""
    kind = PHASES["Mf"]
    names = [task.name for task in job.tasks if task.kind == kind]
    return {name: (name,) for name in names}


P3 = System(
    "p3",
    on_demand("emu.systems.p3.section:P3JobSection"),
    programs=PROGRAMS,
    needs_torch=True,
    late_modules=GRADIENT_MODULES,
    trainer=AS_ONE_DEVICE,
    guards=(no_features,),
    open_data=open_columns_of,
    # Groups end with the same columns: the first group's are taken.
    trained=lambda job, results: join_columns(job, results, _blocks(job.settings)),
    updates_missed=lambda settings: PIPELINES[settings["pipeline"]].missed,
    cuts=_tasks_with_state,
    vectors=lambda job: column_vectors(
        job, _blocks(job.settings), machines=job.settings["workers"]
    ),
    setup=lambda job: list_columns(job, _blocks(job.settings)),
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
