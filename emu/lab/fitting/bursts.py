"""Bursts of packets that a process of a ring sent, put together to all-reduces.

A burst is mostly one all-reduce. One may come in several pieces, and several may have
run together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from emu.array_types import Floats, Ints

#: Numbers of a burst's first packet, and of the one behind its last.
Burst: TypeAlias = tuple[int, int]
#: What an all-reduce may carry beside its mean share, by which barriers are recognised.
TOLERANCE = 0.05
#: Likewise with what is sent again: 30 % of an all-reduce into a slow NIC was seen.
AGAIN = 0.45
#: Bursts that are looked at for one all-reduce, or for some that ran together.
MOST_PIECES = 12


class _Best(NamedTuple):
    """The most all-reduces that bursts can be, and where the last of them begin."""

    sums: int
    lack: int
    """Hundredths of a sum by which they are short, below 0."""
    span: float
    """Seconds that they take, below 0: what was sent long before or after is none."""
    start: int


def find_sums(
    bursts: Sequence[Burst],
    times: Floats,
    sent: Ints,
    *,
    usual: float,
    pieces: int,
) -> list[Burst]:
    """Return the bursts that are all-reduces, put together and parted where need be.

    A process that has the sum may still have packets of its own in a queue: before a
    slow NIC, and after a loss, they come behind answers of the next iteration, or with
    the next all-reduce. As many as can be are found, whole, and in the least time.

    Parameters
    ----------
    times
        Seconds of the packets.
    sent
        Bytes before each of them, and of all.
    usual
        Bytes of an all-reduce.
    pieces
        Bursts that are looked at for one.
    """
    best = _find_best(bursts, times, sent, usual=usual, pieces=pieces)
    sums: list[Burst] = []
    end = len(bursts)
    while end:
        start = best[end].start
        if start == end:
            end -= 1
            continue

        first, _ = bursts[start]
        _, last = bursts[end - 1]
        count = best[end].sums - best[start].sums
        # All-reduces that ran together are of as many bytes each.
        marks = np.linspace(sent[first], sent[last], count + 1)
        inner_marks = marks[1:-1]
        cuts = np.searchsorted(sent, inner_marks)
        edges = [first, *cuts.tolist(), last]
        parts = list(pairwise(edges))
        sums += reversed(parts)
        end = start
    return sums[::-1]


def _find_best(
    bursts: Sequence[Burst],
    times: Floats,
    sent: Ints,
    *,
    usual: float,
    pieces: int,
) -> list[_Best]:
    """Return the best reading of the bursts before each, and of all."""
    best = [_Best(sums=0, lack=0, span=0.0, start=0)]
    for end, (_, last) in enumerate(bursts, 1):
        choice = best[-1]._replace(start=end)  # the burst is none, nor part of one
        earliest = max(end - pieces, 0)
        for start in reversed(range(earliest, end)):
            first, _ = bursts[start]
            size = int(sent[last] - sent[first])
            volumes = size / usual
            count = round(volumes)
            excess = volumes - count
            # What was lost crossed twice, so that a sum may be larger than it is.
            if -TOLERANCE <= excess <= AGAIN:
                rest = best[start]
                hundredths = round(100 * excess)
                lack = min(hundredths, 0)
                span = times[first] - times[last - 1]
                candidate = _Best(
                    sums=rest.sums + count,
                    lack=rest.lack + lack,
                    span=rest.span + span,
                    start=start,
                )
                # Of equals the first stays: the fewest bursts that make as many sums.
                choice = max(choice, candidate, key=lambda found: found[:3])
        best.append(choice)
    return best
