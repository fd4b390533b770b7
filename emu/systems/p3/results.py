"""Data before a run of P3 and weights after it: a block of columns per machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.systems.p3.job import column_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu.problem import Job
    from emu.systems.system import Results


def open_columns_of(settings: Mapping[str, Any]) -> None:
    """Open the data set of a job, and every machine's columns of it.

    Raises
    ------
    ScenarioError
        When a mini-batch has more seeds than there are training vertices.
    DataError
        When the data set is missing or damaged.
    """
    from emu.graph_data import open_columns  # noqa: PLC0415 - numpy
    from emu.systems.training_section import open_fitting  # noqa: PLC0415 - numpy

    dataset = open_fitting(settings)
    open_columns(dataset, _blocks(settings, dataset.feature_length))


def joined_columns(job: Job, results: Results) -> NDArray[Any]:
    """Return all parameters, flat.

    Members of a group hold the first layer's weights of their columns, beside all
    others.
    """
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy
    from emu.systems.p3.column_split import ColumnSplit  # noqa: PLC0415 - torch

    dataset = open_for(job.settings)
    blocks = _blocks(job.settings, dataset.feature_length)
    owned = [results[f"Mf{rank}"]["own"] for rank in range(len(blocks))]
    split = ColumnSplit(job.settings, dataset, blocks, 0)
    return split.joined(owned, results["Mf0"]["upper"])


def own_state(job: Job) -> dict[str, tuple[str, ...]]:
    """Return the tasks with whose state a task begins after a cut, by its name."""
    names = [task.name for task in job.tasks if task.kind == "model_forward"]
    return {name: (name,) for name in names}


def _blocks(settings: Mapping[str, Any], feature_length: int) -> tuple[int, ...]:
    members = settings["workers"] // settings["groups"]
    return column_blocks(settings["columns"], feature_length, members)
