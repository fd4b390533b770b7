"""Graphs in the gnn-benchmark npz layout (Shchur et al., 2018): CSR parts in one file.

Nothing pickled is ever read: keys that hold objects are left alone.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError
from emu.graph_data.raw_graph import RawGraph, Source, build_structure, random_split
from emu.input_file import one_error, open_input, read_arrays

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_KEYS = (
    "adj_indices", "adj_indptr", "adj_shape",
    "attr_data", "attr_indices", "attr_indptr", "attr_shape", "labels",
)  # fmt: skip


#: Longer features are no feature vectors; rows of them are made dense.
_WIDEST = 1 << 20


def npz_source(path: Path, *, seed: int) -> Source:
    """Return the graph of a gnn-benchmark npz file.

    Parameters
    ----------
    seed
        Of the random split, 60 % train, 20 % valid, 20 % test.

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

    def load() -> RawGraph:
        with one_error(path):
            return _load(path, seed)

    return Source(f"npz {digest}", load)


def _load(path: Path, seed: int) -> RawGraph:
    arrays = read_arrays(path, _KEYS)
    vertices, width = int(arrays["adj_shape"][0]), int(arrays["attr_shape"][1])
    if not 0 < width <= _WIDEST:
        raise DataError(f"has features of length {width}", path=str(path))
    _check_rows(arrays, "adj", vertices, path)
    _check_rows(arrays, "attr", vertices, path)
    labels = arrays["labels"].astype(np.int32)
    if labels.shape != (vertices,) or labels.min() < 0:
        raise DataError(f"labels do not fit {vertices} vertices", path=str(path))
    structure = build_structure(
        np.repeat(np.arange(vertices), np.diff(arrays["adj_indptr"])),
        arrays["adj_indices"],
        vertices=vertices,
        symmetrise=True,
        origin=str(path),
    )
    train, valid = int(0.6 * vertices), int(0.2 * vertices)
    shares = train, valid, vertices - train - valid
    split = random_split(vertices, shares, np.random.default_rng([seed, 3]))
    return RawGraph(
        structure,
        labels,
        *split,
        classes=int(labels.max()) + 1,
        feature_length=int(arrays["attr_shape"][1]),
        rows=lambda start, stop: _dense_rows(arrays, start, stop),
        origin=str(path),
    )


def _check_rows(
    arrays: dict[str, NDArray[Any]], kind: str, vertices: int, path: Path
) -> None:
    indptr, indices = arrays[f"{kind}_indptr"], arrays[f"{kind}_indices"]
    whole = (
        indptr.shape == (vertices + 1,)
        and indptr[0] == 0
        and indptr[-1] == len(indices)
        and bool(np.all(np.diff(indptr) >= 0))
    )
    if not whole:
        raise DataError(f"{kind}_indptr does not fit {kind}_indices", path=str(path))
    if kind == "attr":
        width = int(arrays["attr_shape"][1])
        wrong = (indices < 0) | (indices >= width)
        if len(arrays["attr_data"]) != len(indices) or wrong.any():
            raise DataError(
                f"attr_indices leave the {width} columns at entry "
                f"{int(np.argmax(wrong))}",
                path=str(path),
            )


def _dense_rows(
    arrays: dict[str, NDArray[Any]], start: int, stop: int
) -> NDArray[np.float32]:
    indptr = arrays["attr_indptr"][start : stop + 1]
    rows = np.zeros((stop - start, int(arrays["attr_shape"][1])), np.float32)
    entries = slice(indptr[0], indptr[-1])
    row = np.repeat(np.arange(stop - start), np.diff(indptr))
    rows[row, arrays["attr_indices"][entries]] = arrays["attr_data"][entries]
    return rows
