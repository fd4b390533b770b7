"""Bytes of every flow of a DGTP job, from its samples alone; no feature is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.graph_data.batches import BatchPlan, batch_counts
from emu.workloads import dgtp_volumes, parameter_count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from emu.graph_data.dataset import Dataset
    from emu.problem import Job


def realize_volumes(job: Job, dataset: Dataset) -> NDArray[np.float64]:
    """Return the real bytes of every (edge, iteration) of a DGTP job.

    They are exactly the bytes that the node programs send. Divide by the byte scale for
    emulated bytes; credit edges carry 0.

    Returns
    -------
    volumes
        float64, shape (edges, iterations).

    Raises
    ------
    ValueError
        When the settings contradict each other, or the job is not DGTP's.
    """
    plan = BatchPlan.from_settings(job.settings)
    counts = [
        [
            batch_counts(
                plan.batch(dataset.structure, dataset.train, sampler, iteration),
                dataset.owner,
                dataset.parts,
            )
            for iteration in range(job.iterations)
        ]
        for sampler in range(plan.samplers)
    ]
    model = job.settings["model"]
    return dgtp_volumes(
        job,
        counts,
        feature_length=dataset.feature_length,
        parameters=parameter_count(
            dataset.feature_length, model["hidden"], dataset.classes, model["layers"]
        ),
        itemsize=8 if job.settings["precision"] == "float64" else 4,
    )
