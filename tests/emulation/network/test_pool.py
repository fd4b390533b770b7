"""Receive memory by size class."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.network.inbox import BufferPool, PoolStatistics, size_class
from emu.errors import RunError


@given(st.integers(1, 1 << 34))
def test_a_class_fits_and_wastes_at_most_a_quarter(size: int) -> None:
    length = size_class(size)

    assert size <= length <= max(4096, size * 5 // 4 + 1)
    assert size_class(length) == length


def test_memory_is_used_again() -> None:
    pool = BufferPool(1 << 20)
    first = pool.acquire(10_000)
    first.view[0] = 7
    first.release()

    second = pool.acquire(9_000)

    assert second.view[0] == 7
    assert second.view.nbytes == 9_000
    assert pool.statistics == PoolStatistics(10_240, 10_240, 10_240, 1 << 20)


def test_reserved_memory_is_held_before_it_is_needed() -> None:
    pool = BufferPool(1 << 20)

    for _ in range(3):
        pool.reserve(8192)

    assert pool.statistics == PoolStatistics(0, 0, 3 * 8192, 1 << 20)


def test_the_cap_is_hard_and_says_so() -> None:
    pool = BufferPool(16384)
    held = [pool.acquire(8192), pool.acquire(8192)]

    with pytest.raises(RunError, match="16384 of at most 16384 bytes"):
        pool.acquire(1)
    held[0].release()
    pool.acquire(1)

    assert pool.statistics.high_water == 16384


def test_ready_memory_makes_room_for_another_size() -> None:
    pool = BufferPool(16384)
    pool.acquire(8192).release()

    pool.acquire(16384)

    assert pool.statistics.held == 16384


def test_what_lies_ready_stays_up_to_the_very_cap() -> None:
    pool = BufferPool(16384)
    pool.reserve(4096)
    held = pool.acquire(12288)

    assert pool.statistics.held == 16384
    pool.acquire(4096)
    assert pool.statistics.held == 16384
    held.release()


def test_the_largest_that_lies_ready_makes_room_first() -> None:
    """A payload of 8 KiB displaces the free buffer of 16 KiB, not the one of 4 KiB."""
    pool = BufferPool(24576)
    for size in (4096, 16384):
        pool.reserve(size)

    larger = pool.acquire(8192)
    assert pool.statistics.held == 4096 + 8192
    smaller = pool.acquire(4096)
    assert pool.statistics.held == 4096 + 8192
    assert (larger.nbytes, smaller.nbytes) == (8192, 4096)


def test_giving_back_twice_is_misuse() -> None:
    buffer = BufferPool().acquire(1)
    buffer.release()

    with pytest.raises(ValueError, match="released before"):
        buffer.release()


def test_a_pool_must_hold_something() -> None:
    with pytest.raises(ValueError, match="at least"):
        BufferPool(1)
