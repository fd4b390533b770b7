"""Columns of layer 1 that machines have: their lengths, what they are, how they come.

Machine r, whose first phase is ``Mf{r}``, has block r of the columns, modulo their
number, and all parameters of the other layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from emu.problem import Job
from emu.systems.setup import COLUMNS, WEIGHTS, Transfer
from emu.systems.system import parameter_bytes

if TYPE_CHECKING:
    from emu.array_types import Array
    from emu.systems.system import Lengths, Results


def column_vectors(
    job: Job,
    blocks: Sequence[int],
    machines: int,
) -> Lengths:
    """Return the weights of layer 1 that a machine has, and all other parameters."""
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy
    from emu.systems.p3.volumes import split_model  # noqa: PLC0415 - pydantic

    settings = job.settings
    dataset = open_for(settings)
    length = dataset.feature_length
    # Lengths are asked for, no bytes: the size of a number plays no role.
    model = split_model(
        settings["model"],
        length,
        dataset.classes,
        itemsize=1,
    )
    vectors = {}
    for rank in range(machines):
        columns = blocks[rank % len(blocks)]
        first_weights = columns * model.first_width
        vectors[f"Mf{rank}"] = (first_weights, model.upper)
    return vectors


def join_columns(
    job: Job,
    results: Results,
    blocks: Sequence[int],
) -> Array:
    """Return all parameters, flat, from what the first machines with a block have."""
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy
    from emu.systems.p3.column_split import ColumnSplit  # noqa: PLC0415 - torch

    dataset = open_for(job.settings)
    ranks = range(len(blocks))
    columns = [results[f"Mf{rank}"]["own"] for rank in ranks]
    upper = results["Mf0"]["upper"]

    # Joining needs no block of one's own: any will do.
    split = ColumnSplit(job.settings, dataset, blocks, block=0)
    return split.join(columns, upper)


def list_columns(
    job: Job,
    blocks: Sequence[int],
) -> Iterator[Transfer]:
    """Yield the columns of every machine, and its weights from the first.

    Rows lie with their vertices, which are hashed to machines: all take columns there.
    """
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy

    dataset = open_for(job.settings)
    sizes = parameter_bytes(job)
    # The owner of a vertex has all of its columns until then.
    rows = np.bincount(dataset.owner, minlength=len(sizes))
    counts = rows.tolist()
    precision = np.dtype(job.settings["precision"])
    for rank, (reader, weights) in enumerate(sizes.items()):
        columns = blocks[rank % len(blocks)]
        row = precision.itemsize * columns
        for holder, count in zip(sizes, counts, strict=True):
            yield Transfer(
                cause=COLUMNS,
                source=holder,
                destination=reader,
                size=row * count,
            )
        yield Transfer(WEIGHTS, "Mf0", reader, weights)
