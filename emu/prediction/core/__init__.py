"""The compiled core: schedules, rates, searches, and senders that keep to rates, in C.

Python makes every array and binds it here, where kinds are checked; C allocates nothing
(core.h says which field is what, and who owns it). Must not know: what the numbers are.
"""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.array_types import Array
from emu.prediction.core import _core

__all__ = [
    "Record",
    "ffi",
    "lib",
    "new_room",
    "pointer",
    "room_in",
    "structure",
    "view",
]

ffi = _core.ffi
lib = _core.lib

#: Types of numpy -> those of C. Another type would be read as wrong numbers in silence:
#: so it is refused.
_KINDS = {
    np.dtype(np.float64): "double[]",
    np.dtype(np.int64): "int64_t[]",
    np.dtype(np.bool_): "bool[]",
    np.dtype(np.int8): "int8_t[]",
    np.dtype(np.int16): "int16_t[]",
    np.dtype(np.int32): "int32_t[]",
    np.dtype(np.uint8): "uint8_t[]",
    np.dtype(np.uint64): "uint64_t[]",
    np.dtype(np.float32): "float[]",
}
#: What structures point to lives as long as they do.
#: cffi keeps nothing alive by a pointer in a field: without this the core would read
#: arrays that are gone.
_kept: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def pointer(array: Array) -> Any:
    """Return a pointer to the entries of ``array``, which it keeps; NULL for none.

    Raises ValueError when the array is not contiguous, or of a type that the core does
    not know.
    """
    kind = _KINDS.get(array.dtype)
    if kind is None:
        raise ValueError(f"an array of {array.dtype} in place of numbers")
    if not array.flags.c_contiguous:
        raise ValueError("the array is not contiguous")
    # The core takes NULL as "there is none of this", and looks nothing up.
    return ffi.from_buffer(kind, array) if array.size else ffi.NULL


def structure(kind: str, **fields: Any) -> Any:
    """Return a new structure: arrays become pointers, records and dicts its parts.

    Raises ValueError as `pointer`.
    """
    record = ffi.new(f"{kind} *")
    _fill(record, fields)
    _kept[record] = fields
    return record


def _fill(part: Any, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        if isinstance(value, dict):
            _fill(getattr(part, name), value)
        elif isinstance(value, Record):
            # A structure within another is copied: what its pointers lead to is kept by
            # `fields`.
            setattr(part, name, value.core[0])
        elif isinstance(value, np.ndarray):
            setattr(part, name, pointer(value))
        else:
            setattr(part, name, value)


class Record(SimpleNamespace):
    """Arrays by their names in core.h, and ``core``, the structure that has them."""

    def __init__(self, kind: str, **fields: Any) -> None:
        super().__init__(**fields)
        self.core = structure(kind, **fields)


def new_room(size: int) -> NDArray[np.uint8]:
    """Return memory of ``size`` bytes for what the core lays out.

    At least a page, which numpy takes from the system and not from its small blocks: a
    build that looks for wrong addresses marks its gaps.
    """
    return np.empty(max(size, 4096), np.uint8)


def room_in(memory: NDArray[np.uint8]) -> Any:
    """Return the `Room` of ``memory``, to be handed over by value."""
    start = ffi.from_buffer("char[]", memory)
    fields = {"at": start, "end": start + memory.size}
    room = ffi.new("Room *", fields)
    return room[0]


def view(
    memory: NDArray[np.uint8],
    start: Any,
    count: int,
    dtype: type[Any],
) -> Array:
    """Return the array that the core has laid out at ``start`` within ``memory``."""
    if count == 0:
        return np.empty(0, dtype)
    # As a slice of `memory`, so that the array keeps it alive.
    address = int(ffi.cast("intptr_t", start))
    first = address - memory.ctypes.data
    size = count * np.dtype(dtype).itemsize
    part = memory[first : first + size]
    return part.view(dtype)
