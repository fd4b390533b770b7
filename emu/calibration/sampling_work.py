"""What the real sampling of a training job costs this host, tried on a few batches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from emu.graph_data import BatchPlan, open_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Job

_TRIES = 5
#: Of a sampler's own work, in batches drawn: dgl's blocks, the merged features.
_ASSEMBLY = 3


def sampling_work(job: Job) -> NDArray[np.float64]:
    """Return the CPU seconds that stores and samplers need, shape (tasks, iterations).

    A store draws the batch of every sampler and collects the rows that it owns; with
    ``multiround`` sampling it only answers, which is counted alike. Tasks of a process
    that is cut into hops share the work.

    Raises
    ------
    DataError
        When the data set cannot be used.
    """
    store, sampler = _seconds(job)
    samplers = BatchPlan.from_settings(job.settings).samplers
    of_process = {"graph_store": samplers * store, "sampler": sampler}
    seconds = np.zeros(len(job.tasks))
    for members in job.processes.values():
        kinds = {job.tasks[task].kind for task in members}
        for kind in kinds & of_process.keys():
            seconds[list(members)] = of_process[kind] / len(members)
    return np.repeat(seconds[:, None], job.iterations, axis=1)


def _seconds(job: Job) -> tuple[float, float]:
    """Return a store's seconds per sampler and a sampler's, medians of some tries."""
    dataset, plan = open_for(job.settings), BatchPlan.from_settings(job.settings)
    features = dataset.features(0)
    stores, samplers = [], []
    for number in range(_TRIES + 1):
        began = time.thread_time()
        batch = plan.batch(dataset.structure, dataset.train, number % plan.samplers, 0)
        drawn = time.thread_time()
        owned = batch.vertices[dataset.owner[batch.vertices] == 0]
        _ = features[dataset.local[owned]]
        ended = time.thread_time()
        if number:  # the first one maps arrays and loads compiled code
            stores.append(ended - began)
            samplers.append(
                _ASSEMBLY * (drawn - began) + dataset.parts * (ended - drawn)
            )
    return float(np.median(stores)), float(np.median(samplers))
