"""Arrays that travel over control connections, in pieces that let others pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from emu.array_types import Array
from emu.emulation.wire.frame_layout import Fields
from emu.emulation.wire.messages import ResultPart, StatePart

Part: TypeAlias = ResultPart | StatePart
Arrays: TypeAlias = dict[str, Array]
PART = 256 * 1024  # bytes of an array per message


def parts_of(arrays: Mapping[str, Array]) -> Iterator[Fields]:
    """Yield the fields of the messages that carry some arrays, in order."""
    for name, array in arrays.items():
        data = array.tobytes()
        total = len(data)
        for start in range(0, max(total, 1), PART):  # one of an empty array, too
            yield {
                "name": name,
                "dtype": array.dtype.str,
                "shape": list(array.shape),
                "total": total,
                "data": data[start : start + PART],
            }


def state_parts(
    task: str,
    iteration: int,
    arrays: Mapping[str, Array],
) -> list[StatePart]:
    """Return the messages that carry the state of a task before an iteration."""
    pieces = list(parts_of(arrays))
    final = pieces[-1] if pieces else None
    return [
        StatePart(
            task=task,
            iteration=iteration,
            last=piece is final,
            **piece,
        )
        for piece in pieces
    ]


class ArrayParts:
    """Named arrays, put together from their pieces."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[Part, bytearray]] = {}

    def add(self, part: Part) -> None:
        """Take in an array's next piece; raises ValueError when they are too long."""
        first, data = self._parts.setdefault(part.name, (part, bytearray()))
        data.extend(part.data)
        if len(data) > first.total:
            raise ValueError(f"{part.name} is longer than announced")

    def arrays(self) -> Arrays:
        """Return the arrays by name.

        Raises ValueError when one is cut short, or its type or shape cannot be.
        """
        arrays: Arrays = {}
        for name, (first, data) in self._parts.items():
            if len(data) != first.total:
                raise ValueError(f"{name} is cut short")
            try:
                dtype = np.dtype(first.dtype)
                flat = np.frombuffer(data, dtype)
                arrays[name] = flat.reshape(first.shape)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name} is no array: {error}") from error
        return arrays
