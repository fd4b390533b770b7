"""A binary heap of (key, item) in a slice of two arrays, smallest key first.

numba does not compile heapq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.scheduling.compiled import inlined

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Floats, Ints


@inlined
def push(
    keys: Floats, items: Ints, first: int, size: int, key: float, item: int
) -> None:
    """Add to the heap of ``size`` entries that begins at ``first``."""
    hole = size
    while hole > 0:
        parent = (hole - 1) >> 1
        if keys[first + parent] <= key:
            break
        keys[first + hole] = keys[first + parent]
        items[first + hole] = items[first + parent]
        hole = parent
    keys[first + hole] = key
    items[first + hole] = item


@inlined
def pop(keys: Floats, items: Ints, first: int, size: int) -> None:
    """Remove the smallest key from the heap of ``size`` at ``first``."""
    last = size - 1
    key = keys[first + last]
    item = items[first + last]
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= last:
            break
        if child + 1 < last and keys[first + child + 1] < keys[first + child]:
            child += 1
        if keys[first + child] >= key:
            break
        keys[first + hole] = keys[first + child]
        items[first + hole] = items[first + child]
        hole = child
    keys[first + hole] = key
    items[first + hole] = item
