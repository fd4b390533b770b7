"""Steps of stated times, as fits find them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.lab.fitting.conversations import Process
from emu.lab.fitting.steps import ALL, Crossed, Step

Row: TypeAlias = NDArray[np.float64]


def make_step(
    source: Process,
    destination: Process,
    first: Sequence[float] | Row,
    last: Sequence[float] | Row | None = None,
    *,
    number: int = 0,
    size: float = 1000.0,
    clock: Process = ALL,
) -> Step:
    """Return a step of one packet in every iteration, which comes when it is over."""
    firsts = np.array(first, dtype=np.float64)
    lasts = firsts if last is None else np.array(last, dtype=np.float64)
    sizes = np.full(len(firsts), size)
    until = np.cumsum(sizes)
    before = np.append(0, until).astype(np.int64)
    crossed = Crossed(lasts, before)
    return Step(
        source, destination, number, clock, firsts, lasts, sizes, until, crossed
    )
