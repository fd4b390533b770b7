"""What a run has trained: its parameters, and how accurate they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.graph_data import open_for
from emu.training import ColumnSplit, evaluate
from emu.workloads import column_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu.problem import Job

    Results = Mapping[str, Mapping[str, NDArray[Any]]]


def evaluate_accuracy(job: Job, results: Results) -> dict[str, float]:
    """Return the accuracy of what was trained, by split; empty when nothing was.

    Parameters
    ----------
    results
        What the program of each task left, by its name.
    """
    settings = job.settings
    if settings["compute"] == "timed" or "model" not in settings:
        return {}
    return evaluate(settings, trained_parameters(job, results))


def trained_parameters(job: Job, results: Results) -> NDArray[Any]:
    """Return all parameters, flat.

    Servers hold shards of them, machines of P3 the first layer's weights of their
    columns beside all others, and of workers that sum gradients each holds all.
    """
    if "pipeline" in job.settings:
        return _joined_columns(job.settings, results)
    names = {
        kind: [task.name for task in job.tasks if task.kind == kind]
        for kind in ("parameter_server", "worker")
    }
    holders = names["parameter_server"] or names["worker"][:1]
    return np.concatenate([results[name]["parameters"] for name in holders])


def _joined_columns(settings: Mapping[str, Any], results: Results) -> NDArray[Any]:
    members = settings["workers"] // settings["groups"]
    dataset = open_for(settings)
    blocks = column_blocks(settings["columns"], dataset.feature_length, members)
    owned = [results[f"Mf{rank}"]["own"] for rank in range(members)]
    split = ColumnSplit(settings, dataset, blocks, 0)
    return split.joined(owned, results["Mf0"]["upper"])
