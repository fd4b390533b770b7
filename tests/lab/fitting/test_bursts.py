"""Bursts that are put together to all-reduces, or parted, by bytes stated by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from emu.lab.fitting.bursts import Burst, find_sums


def sums_of(
    *bursts: Sequence[int], pieces: int = 12, times: Sequence[float] | None = None
) -> list[Burst]:
    """Return the all-reduces of 100 bytes in bursts, each stated by its packets."""
    packets = [size for burst in bursts for size in burst]
    sent = np.append(0, np.cumsum(packets))
    ends = np.cumsum([0, *map(len, bursts)])
    moments = np.arange(float(len(packets))) if times is None else np.array(times)
    rows = [*pairwise(ends.tolist())]
    return find_sums(rows, moments, sent, usual=100.0, pieces=pieces)


def test_a_burst_is_an_all_reduce() -> None:
    """Each burst of two packets is one all-reduce."""
    assert sums_of([50, 50], [40, 60]) == [(0, 2), (2, 4)]
    assert sums_of() == []


def test_pieces_are_put_together_and_what_ran_together_is_parted() -> None:
    """One in two pieces, two in one burst, parted at the byte in the middle."""
    assert sums_of([70], [20, 10], [50, 50, 50, 50], [100]) == [
        (0, 3),
        (3, 5),
        (5, 7),
        (7, 8),
    ]
    # Three in two bursts, which end between packets of 50 bytes.
    assert sums_of([50] * 3, [50] * 3) == [(0, 2), (2, 4), (4, 6)]


@pytest.mark.parametrize(
    ("size", "is_sum"),
    [(94, False), (96, True), (100, True), (145, True), (146, False)],
)
def test_a_sum_may_lack_a_twentieth_and_have_45_hundredths_sent_again(
    size: int, *, is_sum: bool
) -> None:
    """A lost part crosses twice, so that 96 to 145 bytes make a sum of 100."""
    assert sums_of([size]) == ([(0, 1)] if is_sum else [])


def test_bursts_beside_sums_are_left_out() -> None:
    """20 bytes before, between and after them."""
    assert sums_of([20], [100], [20], [30], [100], [20]) == [(1, 2), (4, 5)]


def test_of_readings_with_as_many_sums_the_whole_ones_are_taken() -> None:
    """98 bytes are a sum; those with 2 before them are a whole one."""
    assert sums_of([2], [98]) == [(0, 2)]
    # 30 more may have been sent again: they are none of it, since they take time.
    assert sums_of([100], [30]) == [(0, 1)]
    assert sums_of([30], [100]) == [(1, 2)]


def test_what_is_sent_long_before_or_after_is_no_part_of_a_sum() -> None:
    """Two of three bursts are 1 s apart and make a sum; the third is 90 s away."""
    assert sums_of([50], [50], [50], times=[0.0, 90.0, 91.0]) == [(1, 3)]
    assert sums_of([50], [50], [50], times=[0.0, 1.0, 91.0]) == [(0, 2)]


def test_so_many_bursts_are_looked_at_for_a_sum() -> None:
    """Four pieces of 25 bytes are one where four are looked at."""
    quarters = ([25], [25], [25], [25])
    assert sums_of(*quarters, pieces=4) == [(0, 4)]
    assert sums_of(*quarters, pieces=3) == []
