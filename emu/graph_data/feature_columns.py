"""Features cut by columns instead of rows: what a machine of P3 holds of them."""

from __future__ import annotations

import contextlib
import hashlib
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.graph_data.prepared import PreparedArrays, prepare_arrays, write_header
from emu.graph_data.raw_graph import CHUNK

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from emu.graph_data.dataset import Dataset


def open_columns(dataset: Dataset, blocks: Sequence[int]) -> PreparedArrays:
    """Open the columns of a data set, cut on first use and cached.

    Arrays ``columns_0``, ... are float32, shape (vertices, columns of the block), each
    checked when it is read: a reader of one block reads no other.

    Parameters
    ----------
    blocks
        Number of columns of each block.

    Raises
    ------
    DataError
        When they are damaged or cannot be written.
    ValueError
        When the blocks are not all columns of the data set.
    """
    if sum(blocks) != dataset.feature_length:
        raise ValueError(f"{sum(blocks)} of {dataset.feature_length} columns")
    key = hashlib.sha256(repr([*blocks]).encode()).hexdigest()[:8]
    folder = dataset.folder.with_name(f"{dataset.folder.name}-columns-{key}")
    return prepare_arrays(folder, lambda partial: _write(partial, dataset, blocks))


def _write(folder: Path, dataset: Dataset, blocks: Sequence[int]) -> dict[str, Any]:
    ends = list(accumulate(blocks))
    with contextlib.ExitStack() as open_files:
        files = []
        for number, size in enumerate(blocks):
            path = folder / f"columns_{number}.npy"
            file = open_files.enter_context(path.open("wb"))
            write_header(file, np.dtype(np.float32), (dataset.vertices, size))
            files.append(file)
        for start in range(0, dataset.vertices, CHUNK):
            stop = min(start + CHUNK, dataset.vertices)
            rows = dataset.gather(np.arange(start, stop))
            for file, size, end in zip(files, blocks, ends, strict=True):
                file.write(np.ascontiguousarray(rows[:, end - size : end]).data)
    return {"vertices": dataset.vertices, "blocks": [*blocks]}
