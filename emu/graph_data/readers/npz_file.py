"""Graphs in npz files, in the layouts of `named_arrays`.

Nothing pickled is ever read: keys that hold objects are left alone.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from emu.errors import DataError
from emu.graph_data.raw_graph import Source, split_at_random
from emu.graph_data.readers.named_arrays import NAMES, found_graph
from emu.input_file import one_error, open_input, read_arrays

if TYPE_CHECKING:
    from pathlib import Path

    from emu.graph_data.readers.found_graph import FoundGraph


def npz_source(path: Path, *, seed: int) -> Source:
    """Return the graph of an npz file.

    Parameters
    ----------
    seed
        Seed of the random split where the file has none.

    Raises
    ------
    DataError
        When the file cannot be read.
    """
    try:
        with open_input(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(error.strerror or "cannot be read", path=str(path)) from error
    return Source(
        f"npz {digest}", lambda: split_at_random(read_npz(path).checked(), seed)
    )


def read_npz(path: Path) -> FoundGraph:
    """Return the graph that an npz file states.

    Raises
    ------
    DataError
        When it is damaged or holds no edges.
    """
    with one_error(path):
        return found_graph(read_arrays(path, NAMES, optional=True), str(path))
