"""Transfers before time 0 of training: rows, columns, weights, fetched once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from emu.array_types import Ints, SmallInts

#: Causes, plurals for tables and sentences.
GHOSTS = "ghost features"
COLUMNS = "columns"
WEIGHTS = "weights"


class Transfer(NamedTuple):
    """Bytes that the machine of one task sends that of another before training."""

    cause: str
    source: str
    destination: str
    """Names of tasks: those of one machine share its memory, and send nothing."""
    size: float
    """Real bytes."""


def ghost_features(
    tasks: Sequence[str],
    reads: Sequence[Ints],
    owner: SmallInts,
    row: int,
    cause: str = GHOSTS,
) -> Iterator[Transfer]:
    """Yield features that every part reads and others own, from their owners.

    ``tasks``, ``reads``: per part one of its tasks, and the vertices whose features it
    reads; ``owner``, ``row``: part that owns each vertex, shape (vertices,); bytes of
    its features.
    """
    for reader, vertices in zip(tasks, reads, strict=True):
        # Readers may be more than owners: those behind own nothing, and send none.
        counts = np.bincount(owner[vertices], minlength=len(tasks)).tolist()
        for holder, count in zip(tasks, counts, strict=True):
            if holder != reader:
                yield Transfer(cause, holder, reader, row * count)
