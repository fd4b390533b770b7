"""Times and volumes of a training job, from what its samplers will sample."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emu.errors import ScenarioError
from emu.graph_data import BatchPlan, realize_volumes, sampled_counts
from emu.problem import Realization
from emu.units import SIZE
from emu.workloads import (
    DataParallelConfig,
    DgtpConfig,
    P3Config,
    data_parallel_realization,
    dgtp_times,
    p3_realization,
    parameter_count,
    split_model,
)

_FEATURE_BYTES = 4  # float32 in the prepared form, whatever the precision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu.graph_data import Dataset
    from emu.problem import Cluster, Job
    from emu.workloads import TrainingConfig


def realize_training(
    config: TrainingConfig, job: Job, times: Mapping[str, float], dataset: Dataset
) -> Realization:
    """Return seconds and real bytes of ``job``, whose shape ``config`` is.

    Parameters
    ----------
    times
        Kind of task -> seconds.
    """
    if isinstance(config, DgtpConfig):
        return Realization(dgtp_times(job, times), realize_volumes(job, dataset))
    plan = BatchPlan.from_settings(job.settings)
    counts = sampled_counts(dataset, plan, config.batches)
    model, length = job.settings["model"], dataset.feature_length
    parameters = parameter_count(model, length, dataset.classes)
    itemsize = 8 if job.settings["precision"] == "float64" else 4
    if isinstance(config, DataParallelConfig):
        return data_parallel_realization(
            config,
            job,
            times,
            counts,
            feature_length=length,
            parameters=parameters,
            itemsize=itemsize,
        )
    split = split_model(model, length, dataset.classes, itemsize)
    return p3_realization(config, times, counts, split)


def check_columns(config: P3Config, dataset: Dataset, cluster: Cluster) -> None:
    """Hold the columns of every machine against its memory.

    Raises
    ------
    ScenarioError
        When machines would have no column and shares do not say so, or the columns of
        one do not fit beside what its process demands.
    """
    length = dataset.feature_length
    if not config.columns and config.members > length:
        problem = (
            f"{config.members} machines cannot share {length} features, "
            f"write {length} or fewer of them, or shares of which some are 0"
        )
        raise ScenarioError(problem, key="job.columns")
    blocks = config.blocks(length)
    for rank, name in enumerate(config.machines):
        room = cluster.machines[cluster.index(name)].resources.get("memory", math.inf)
        columns = blocks[rank % config.members]
        needed = dataset.vertices * columns * _FEATURE_BYTES
        lacking = needed + config.demands.get("memory", 0.0) - room
        if lacking > 0:
            problem = (
                f"{columns} of {length} columns are {SIZE.format(needed)}, "
                f"{SIZE.format(lacking)} more than machine {name} has room for"
            )
            raise ScenarioError(problem, key="job.cache")
