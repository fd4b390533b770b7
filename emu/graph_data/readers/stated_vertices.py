"""Numbers of vertices that arrays state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from emu.array_types import Array
from emu.errors import DataError

#: Names of arrays with the number of vertices.
COUNTS = ("num_nodes", "num_vertices", "n_nodes")
#: Two types, and the shape of the adjacency between them.
Shape: TypeAlias = tuple[str, str, Array]
#: Numbers that an error lists.
_SHOWN = 6


def read_stated_vertices(
    arrays: Mapping[str, Array],
    vertices: int | None,
    origin: str,
) -> int | None:
    """Return the number of vertices, ``vertices`` where no array states one.

    Raises DataError where two statements differ, or one is no whole number.
    """
    for name in COUNTS:
        if name not in arrays:
            continue
        numbers = np.unique(arrays[name])
        count = whole_number(numbers[0]) if len(numbers) == 1 else None
        if count is None:
            shown = ", ".join(map(str, numbers[:_SHOWN]))
            problem = f"{name} is {shown or 'empty'}, one whole number is needed"
            raise DataError(problem, path=origin)
        if vertices not in {None, count}:
            problem = f"states {count} vertices in {name}, and elsewhere {vertices}"
            raise DataError(problem, path=origin)
        vertices = count
    return vertices


def note_sizes(
    arrays_by_type: dict[str, dict[str, Array]],
    shapes: Sequence[Shape],
    path: Path,
) -> None:
    """Add numbers of vertices, which adjacencies state, to the arrays of their types.

    Raises DataError where two statements differ.
    """
    for source, target, shape in shapes:
        kinds = (source, target)
        for kind, size in zip(kinds, shape, strict=True):
            arrays = arrays_by_type.setdefault(kind, {})
            origin = f"{path} ({kind})"
            stated = read_stated_vertices(arrays, int(size), origin)
            are_missing = arrays.keys().isdisjoint(COUNTS)
            if are_missing:
                arrays[COUNTS[0]] = np.array([stated])


def read_shape(name: str, shape: Array, origin: str) -> list[int]:
    """Return the rows and columns that an array states; DataError for others."""
    sides = []
    for side in shape.reshape(-1):
        number = whole_number(side)
        if number is not None:
            sides.append(number)
    if len(sides) != 2 or shape.size != 2:
        problem = f"{name} is {shape.tolist()}, two whole numbers are needed"
        raise DataError(problem, path=origin)
    return sides


def whole_number(number: Any) -> int | None:
    """Return a number of an array as a whole one; None where it is none."""
    try:
        whole = int(number)
    except (ValueError, OverflowError):
        return None
    return whole if whole == number else None
