"""The same training in one process: what every distributed run must equal."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.graph_data import BatchPlan, open_for
from emu.training.mini_batch import MiniBatch
from emu.training.optimizers import make_optimizer, mean_gradient
from emu.training.parameters import build_model, initial_parameters
from emu.training.whole_graph_reference import reference_whole_graph, trains_whole_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from emu.graph_data import Dataset


def reference_training(
    settings: Mapping[str, Any],
    iterations: int,
    missed: int = 0,
    watch: Callable[[int, NDArray[Any]], None] = lambda *_: None,
) -> tuple[NDArray[Any], list[float]]:
    """Train as the workers and servers of a job would, without any of them.

    Gradients are averaged over workers in rank order, each worker's being that of its
    mean loss (specs section 2c); a system without mini-batches takes a step per epoch
    (`reference_whole_graph`). Nothing else may influence the weights.

    Parameters
    ----------
    missed
        Updates that the weights of a gradient lack: delayed descent, w_i = w_(i-1) -
        lr * grad f_i(w_(i-1-missed)), where there is no w before w_0.
    watch
        Called after every step with its number, from 0, and the parameters.

    Returns
    -------
    parameters, losses
        Flat parameters after the last step; mean loss over workers per iteration.

    Raises
    ------
    DataError, ValueError
        As `open_for` and `BatchPlan.from_settings`.
    """
    if trains_whole_graph(settings):
        return reference_whole_graph(settings, iterations, watch)
    dataset = open_for(settings)
    plan = BatchPlan.from_settings(settings)
    parameters = initial_parameters(settings, dataset)
    optimizer = make_optimizer(settings, parameters)
    model = build_model(settings, dataset)
    each = settings["samplers_per_worker"]
    losses = []
    versions: deque[NDArray[Any]] = deque(maxlen=missed + 1)
    for iteration in range(iterations):
        versions.append(parameters.copy())
        model.load(versions[0])
        results = [
            model.gradient(
                [
                    _mini_batch(dataset, plan, worker * each + number, iteration)
                    for number in range(each)
                ],
                worker,
                iteration,
            )
            for worker in range(settings["workers"])
        ]
        optimizer.step(mean_gradient([gradient for gradient, _, _ in results]))
        losses.append(float(np.mean([loss for _, loss, _ in results])))
        watch(iteration, parameters)
    return parameters, losses


def _mini_batch(
    dataset: Dataset, plan: BatchPlan, sampler: int, iteration: int
) -> MiniBatch:
    batch = plan.batch(dataset.structure, dataset.train, sampler, iteration)
    features = dataset.gather(batch.vertices)
    return MiniBatch.of(batch, features, dataset.labels[batch.seeds])
