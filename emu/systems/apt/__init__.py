"""APT: layer 1 where it costs least to bring what it needs together (Ma et al.)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from emu.problem import Job, Schedule
from emu.systems.apt.job import PROGRAMS, columns_of
from emu.systems.p3.columns import column_vectors, join_columns, list_columns
from emu.systems.p3.job import PHASES
from emu.systems.system import (
    AS_ONE_DEVICE,
    GRADIENT_MODULES,
    System,
    Variant,
    calling,
    initial_weights,
    on_demand,
)

if TYPE_CHECKING:
    from emu.systems.setup import Transfer
    from emu.systems.system import Holders, Lengths


def _name_strategy(
    schedules: Mapping[str, Schedule],
    _policy: str,
) -> Iterator[str]:
    """Yield the strategy of a job, which may have been chosen."""
    schedule = next(iter(schedules.values()))
    settings = schedule.problem.job.settings
    strategy = settings["strategy"]
    yield f"layer 1 by strategy {strategy} of apt (job.strategy)"


def _tasks_with_state(job: Job) -> Holders:
    """Return whose state machines begin with: own columns, or that of the first."""
    kind = PHASES["Mf"]
    names = [task.name for task in job.tasks if task.kind == kind]
    if job.settings["strategy"] == "nfp":
        return {name: (name,) for name in names}
    first = names[0]
    return dict.fromkeys(names, (first,))


def _blocks(job: Job) -> tuple[int, ...]:
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy

    dataset = open_for(job.settings)
    return columns_of(job.settings, dataset.feature_length)


def _vectors(job: Job) -> Lengths:
    blocks = _blocks(job)
    # Where the first machine has all columns, its state is that of all.
    return column_vectors(job, blocks, machines=len(blocks))


def _list_setup(job: Job) -> Iterator[Transfer]:
    """Return the weights of all, and columns of those that have some of every row."""
    if job.settings["strategy"] != "nfp":
        return initial_weights(job)
    return list_columns(job, _blocks(job))


APT = System(
    "apt",
    on_demand("emu.systems.apt.section:AptSection"),
    programs=PROGRAMS,
    needs_torch=True,
    late_modules=GRADIENT_MODULES,
    trainer=AS_ONE_DEVICE,
    open_data=calling("emu.systems.training_section:open_fitting"),
    trained=lambda job, results: join_columns(job, results, _blocks(job)),
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
