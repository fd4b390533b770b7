"""Keys of random streams that are functions of whole numbers: no state is kept."""

from __future__ import annotations

import numpy as np

#: Sums and products are of 64 bits.
_MASK = (1 << 64) - 1


def stream_key(*parts: int) -> np.uint64:
    """Return a 64-bit key for whole numbers such as (seed, sampler, iteration).

    References
    ----------
    splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
    OOPSLA 2014.
    """
    key = 0
    for part in parts:
        key = (key + part + 0x9E3779B97F4A7C15) & _MASK
        key ^= key >> 30
        key = (key * 0xBF58476D1CE4E5B9) & _MASK
        key ^= key >> 27
        key = (key * 0x94D049BB133111EB) & _MASK
        key ^= key >> 31
    return np.uint64(key)
