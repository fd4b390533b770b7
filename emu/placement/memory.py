"""Placements that a search has met, with what it learned of their makespans."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.scheduling.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.scheduling.compiled_problem import Floats, Ints

PRIME = np.uint64(1099511628211)  # of the FNV-1a hash
BASIS = np.uint64(14695981039346656037)


class Memory(NamedTuple):
    """A hash table with open addressing; entries are never removed.

    Parameters
    ----------
    machines
        Machine of every unit per place of the table, shape (places, units); the number
        of places is a power of two, or 0 for a search that remembers nothing.
    low, high
        The makespan lies in [low, high], seconds; NaN in an empty place. Equal when
        the placement was simulated to the end.
    held
        Number of entries, shape (1,).
    """

    machines: NDArray[np.int16]
    low: Floats
    high: Floats
    held: Ints


def new_memory(entries: int, units: int) -> Memory:
    """Return an empty table for about ``entries`` placements; it takes no more."""
    places = 1 << (2 * entries - 1).bit_length() if entries else 0
    return Memory(
        np.zeros((places, units), dtype=np.int16),
        np.full(places, np.nan),
        np.full(places, np.nan),
        np.zeros(1, dtype=np.int64),
    )


@compiled
def place_of(memory: Memory, machines: Ints) -> int:
    """Return where ``machines`` stands, or the empty place where it would; -1: full."""
    places = memory.low.size
    if places == 0:
        return -1
    code = BASIS
    for unit in range(machines.size):
        code = (code ^ np.uint64(machines[unit] + 1)) * PRIME
    # The low bits of FNV-1a mix badly: fold the high ones in.
    place = np.int64((code ^ (code >> np.uint64(32))) & np.uint64(places - 1))
    while not np.isnan(memory.low[place]):
        same = True
        for unit in range(machines.size):
            if memory.machines[place, unit] != machines[unit]:
                same = False
                break
        if same:
            return int(place)
        place = (place + 1) & (places - 1)
    return int(place) if 2 * memory.held[0] < places else -1


@compiled
def remember(
    memory: Memory, place: int, machines: Ints, low: float, high: float
) -> None:
    """Note at ``place``, found by `place_of`, that the makespan is in [low, high]."""
    if place < 0:
        return
    if np.isnan(memory.low[place]):
        memory.held[0] += 1
        for unit in range(machines.size):
            memory.machines[place, unit] = machines[unit]
        memory.low[place], memory.high[place] = low, high
        return
    memory.low[place] = max(memory.low[place], low)
    memory.high[place] = min(memory.high[place], high)
