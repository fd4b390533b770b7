"""Try a program's model before anything runs: its size, its work, its faults."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError
from emu.foreign_code import INSTALL_TORCH, import_library
from emu.graph_data import BatchPlan, open_for, sample_batch
from emu.training.mini_batch import MiniBatch
from emu.training.own_model import OwnModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu.graph_data import Dataset

_SEEDS = 32  # of the mini-batch that faults are looked for on
_TIMED = 3  # mini-batches whose median time counts
_ENOUGH = 4.0  # seconds after which no further one is measured

#: Settings of a job that the figures depend on.
_KEYS = ("dataset", "fanouts", "batch_size", "samplers_per_worker", "precision")


@dataclass(frozen=True)
class ModelFigures:
    """Measurements of a model, for one worker's mini-batches of an iteration."""

    parameters: int
    """Numbers that are trained."""
    flops: float
    """Operations of matrix products, forward and backward; none of work along edges."""
    seconds: float
    """CPU time of forward and backward on this computer, one thread."""

    def to_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


_known: dict[str, ModelFigures] = {}


def try_out(settings: Mapping[str, Any]) -> ModelFigures:
    """Build the model of a program, look for faults, and measure it.

    Takes seconds the first time; the figures are kept while the process lives, so that
    variations of a scenario are compared with equal times.

    Parameters
    ----------
    settings
        ``Job.settings`` of a job whose model is a program.

    Raises
    ------
    DataError
        When torch or the data set is missing; as `OwnModel`; when the model draws
        random numbers that no seed decides, or keeps values from call to call.
    """
    program = settings["model"]["program"]
    import_library("torch", program, INSTALL_TORCH)
    own = {k: settings["model"][k] for k in ("program", "source", "args", "layers")}
    key = json.dumps([own, *(settings.get(name) for name in _KEYS)], sort_keys=True)
    if key not in _known:
        dataset = open_for(settings)
        _check(settings, dataset)
        _known[key] = _measured(settings, dataset)
    return _known[key]


def _check(settings: Mapping[str, Any], dataset: Dataset) -> None:
    program = settings["model"]["program"]
    first, second = OwnModel(settings, dataset), OwnModel(settings, dataset)
    if not np.array_equal(first.parameters, second.parameters, equal_nan=True):
        raise DataError(
            "draws random numbers unseeded while it is built: draw from torch, numpy's "
            "np.random or random, which emu seeds, or give your generator a seed",
            path=program,
        )
    batch, before = _small_batch(settings, dataset), first.buffers
    found = [model.gradient([batch])[0] for model in (first, first, second)]
    for name, value in first.buffers.items():
        if not np.array_equal(before[name], value, equal_nan=True):
            raise DataError(
                f"changes its buffer {name} in training, which no gradient carries to "
                "other workers: batch norm takes track_running_stats=False, and "
                "torch.nn.LayerNorm needs none",
                path=program,
            )
    if not all(np.array_equal(found[0], one, equal_nan=True) for one in found[1:]):
        raise DataError(
            "draws random numbers unseeded, or keeps values from call to call: two "
            "calls with the same blocks and seed had other gradients; draw from torch, "
            "np.random or random, which emu seeds per worker and iteration",
            path=program,
        )


def _small_batch(settings: Mapping[str, Any], dataset: Dataset) -> MiniBatch:
    """Return a mini-batch of some seeds, one of them without a neighbour if any is.

    An accuracy is of the whole graph, so that a model must bear such a vertex.
    """
    plan = BatchPlan.from_settings(settings)
    structure, train = dataset.structure, dataset.train
    plan = replace(plan, batch_size=min(plan.batch_size, _SEEDS))
    seeds = plan.seeds(train, 0, 0)
    lonely = np.flatnonzero(np.diff(structure.indptr) == 0)[:1]
    seeds = np.concatenate([seeds[~np.isin(seeds, lonely)], lonely])
    batch = sample_batch(
        structure, seeds, fanouts=plan.fanouts, stream=plan.stream(0, 0)
    )
    rows = dataset.gather(batch.vertices)
    labels = np.maximum(dataset.labels[batch.seeds], 0)  # -1 where it has none
    return MiniBatch.of(batch, rows, labels)


def _measured(settings: Mapping[str, Any], dataset: Dataset) -> ModelFigures:
    from torch.utils.flop_counter import FlopCounterMode

    plan, model = BatchPlan.from_settings(settings), OwnModel(settings, dataset)
    each = settings["samplers_per_worker"]
    seconds: list[float] = []
    flops = 0.0
    for iteration in range(_TIMED + 1):
        batches = []
        for sampler in range(each):
            drawn = plan.batch(dataset.structure, dataset.train, sampler, iteration)
            rows, labels = dataset.gather(drawn.vertices), dataset.labels[drawn.seeds]
            batches.append(MiniBatch.of(drawn, rows, labels))
        if iteration == 0:  # the first call loads libraries: its time is no measure
            with FlopCounterMode(display=False) as counter:
                model.gradient(batches)
            flops = float(counter.get_total_flops())
            continue
        began = time.thread_time()
        model.gradient(batches)
        seconds.append(time.thread_time() - began)
        if sum(seconds) > _ENOUGH:
            break
    return ModelFigures(len(model.parameters), flops, float(np.median(seconds)))
