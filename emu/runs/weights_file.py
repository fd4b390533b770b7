"""weights.npz: the parameters that a run has learnt, flat, with named parts."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError
from emu.input_file import read_arrays
from emu.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

NAME = "weights.npz"
_ARRAYS = ("parameters", "names", "shapes", "offsets")
_NONE = -1  # stands in ``shapes`` for the dimensions that a part does not have


def write_weights(run: Path, parts: Mapping[str, NDArray[Any]]) -> None:
    """Write weights.npz: ``parameters``, and name, shape and offset of each part.

    Raises
    ------
    DataError
        When the disk refuses.
    """
    most = max(part.ndim for part in parts.values())
    sizes = [part.size for part in parts.values()]
    RunDirectory(run).write_arrays(
        NAME,
        parameters=np.concatenate([part.ravel() for part in parts.values()]),
        names=np.array([*parts], dtype=np.str_),
        shapes=np.array(
            [[*p.shape, *[_NONE] * (most - p.ndim)] for p in parts.values()], np.int64
        ).reshape(len(parts), most),
        offsets=np.cumsum([0, *sizes[:-1]], dtype=np.int64),
    )


def read_weights(run: Path) -> dict[str, NDArray[Any]]:
    """Return the parts of weights.npz by name, in the order of the parameters.

    Raises
    ------
    DataError
        When it is missing or damaged, or its arrays do not fit together.
    """
    path = run / NAME
    arrays = read_arrays(path, _ARRAYS)
    flat, names, shapes, offsets = (arrays[name] for name in _ARRAYS)
    good = flat.ndim == names.ndim == offsets.ndim == 1 and shapes.ndim == 2
    good = good and (flat.dtype.kind, names.dtype.kind) == ("f", "U")
    good = good and shapes.dtype == offsets.dtype == np.int64
    if not (good and len(names) == len(shapes) == len(offsets) == len({*names})):
        raise DataError("is damaged: holds no named parts", path=str(path))
    parts: dict[str, NDArray[Any]] = {}
    end = 0
    for name, padded, offset in zip(
        names.tolist(), shapes.tolist(), offsets.tolist(), strict=True
    ):
        shape = tuple(extent for extent in padded if extent != _NONE)
        size = prod(shape)
        if min(shape, default=0) < 0 or offset != end or end + size > len(flat):
            problem = f"is damaged: {name!r:.60} is not within its parameters"
            raise DataError(problem, path=str(path))
        parts[name] = flat[end : end + size].reshape(shape)
        end += size
    if end != len(flat):
        problem = f"is damaged: {len(flat) - end} parameters have no name"
        raise DataError(problem, path=str(path))
    return parts
