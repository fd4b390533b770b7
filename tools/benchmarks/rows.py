"""Rows of the benchmark and the clock that fills them."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Parameters
    ----------
    section, what
        What was measured.
    seconds
        Median wall time; None when nothing was timed.
    note
        What the figure means: a ratio, a rate, why it was skipped.
    """

    section: str
    what: str
    seconds: float | None
    note: str = ""


def once(call: Callable[[], object]) -> float:
    """Return the wall time of one call, seconds."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def interleaved(
    calls: Mapping[str, Callable[[], object]], *, budget: float, most: int = 200
) -> dict[str, float]:
    """Return the median wall time of every call, seconds.

    The calls take turns, so that a slow minute of the machine hits all of them alike;
    each is called once before, and then at least 3 times, until ``budget`` seconds are
    over.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    ending = time.monotonic() + budget
    for turn in range(most):
        if turn >= 3 and time.monotonic() > ending:
            break
        for name, call in calls.items():
            taken[name].append(once(call))
    return {name: statistics.median(times) for name, times in taken.items()}


def amount(seconds: float) -> str:
    """Return a duration with three digits and its unit.

    >>> amount(0.0000674)
    '67.4 us'
    """
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
