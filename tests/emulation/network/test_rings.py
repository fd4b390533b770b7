"""Rings between a process and the coordinator: what passes, and what is refused."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.network import rings as rings_module
from emu.emulation.network.rings import (
    LARGEST,
    SMALLEST,
    Rings,
    create_rings,
    join_rings,
    ring_size,
)
from emu.errors import NodeMisbehaved
from emu.prediction.core import lib

WRITTEN, READ = 0, 64  # where the counters are


@contextlib.contextmanager
def joined(size: int = SMALLEST) -> Iterator[tuple[Rings, Rings]]:
    """Yield the sides of a process and of its coordinator."""
    process, numbers = create_rings(size)
    with contextlib.closing(process):
        coordinator = join_rings(os.getpid(), numbers)
        with contextlib.closing(coordinator):
            yield process, coordinator


def is_woken(side: Rings) -> bool:
    """Return whether a side would wake now."""
    ready, _, _ = select.select([side.woken], [], [], 0.0)
    return bool(ready)


def test_a_ring_holds_what_all_tasks_and_edges_say_twice() -> None:
    assert ring_size(1, 1) == SMALLEST
    assert ring_size(1000, 1000) == 1 << 18  # 224,000 bytes
    assert ring_size(0, 1000) == 1 << 17  # 96,000 bytes


def test_both_ways_are_apart() -> None:
    with joined() as (process, coordinator):
        process.write(b"ends")
        coordinator.write(b"an order")
        assert coordinator.read() == b"ends"
        assert process.read() == b"an order"
        assert process.read() == coordinator.read() == b""


@given(
    st.lists(
        st.one_of(st.none(), st.integers(1, SMALLEST)),
        min_size=1,
        max_size=40,
    )
)
def test_what_is_written_is_read_whole_and_in_order(steps: list[int | None]) -> None:
    """A number is that of bytes to write, none a reading; what is full goes on."""
    rng = np.random.default_rng(len(steps))
    with joined() as (process, coordinator):
        written = b""
        read = b""
        for step in [*steps, None]:
            if step is not None:
                piece = rng.bytes(step)
                process.write(piece)
                written += piece
                continue
            while piece := coordinator.read():
                read += piece
                process.go_on()
        assert read == written


def test_who_has_read_all_is_woken_once() -> None:
    with joined() as (process, coordinator):
        process.write(b"a")
        assert is_woken(coordinator)
        os.read(coordinator.woken, 8)
        process.write(b"b")  # it has not read the first yet
        assert not is_woken(coordinator)
        assert coordinator.read() == b"ab"
        process.write(b"c")
        assert is_woken(coordinator)
        assert not is_woken(process)


def test_a_full_ring_says_when_there_is_room() -> None:
    with joined() as (process, coordinator):
        first = bytes(SMALLEST)
        process.write(first)
        process.write(b"more")
        assert not is_woken(process)
        assert coordinator.read() == first
        assert is_woken(process)
        process.go_on()
        assert coordinator.read() == b"more"


def test_a_reader_that_stops_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings_module, "UNREAD", 3 * SMALLEST)
    with joined() as (process, coordinator):
        for _ in range(4):
            coordinator.write(bytes(SMALLEST))
        with pytest.raises(NodeMisbehaved, match="does not read its ring"):
            coordinator.write(b"more")
        assert process.read() == bytes(SMALLEST)


def test_what_a_dead_writer_left_half_written_is_not_there() -> None:
    """It dies between its bytes and the count of them."""
    with joined() as (process, coordinator):
        process.write(b"whole")
        begin = lib.RING_HEAD + len(b"whole")
        process._memory[begin : begin + 4] = b"half"
        assert coordinator.read() == b"whole"
        assert coordinator.read() == b""


@pytest.mark.parametrize("count", [SMALLEST + 1, 1 << 40, (1 << 64) - 1])
def test_more_written_than_there_is_room_is_nonsense(count: int) -> None:
    with joined() as (process, coordinator):
        process._memory[WRITTEN : WRITTEN + 8] = count.to_bytes(8, "little")
        with pytest.raises(NodeMisbehaved, match="counters of its ring cannot be"):
            coordinator.read()


@pytest.mark.parametrize("count", [1, 1 << 40, (1 << 64) - SMALLEST - 1])
def test_more_read_than_was_written_is_nonsense(count: int) -> None:
    with joined() as (process, coordinator):
        begin = lib.RING_HEAD + SMALLEST + READ
        process._memory[begin : begin + 8] = count.to_bytes(8, "little")
        with pytest.raises(NodeMisbehaved, match="counters of its ring cannot be"):
            coordinator.write(b"an order")


def test_a_size_has_room_for_all_orders_and_ends() -> None:
    assert ring_size(1, 2) == SMALLEST
    assert ring_size(500, 10_000) >= 500 * 64 + 10_000 * (16 + 32)
    assert ring_size(500, 10_000).bit_count() == 1
    assert ring_size(10_000, 100_000) <= LARGEST


@pytest.mark.parametrize("numbers", [[], [1, 2, 3], [1, 2, 3, "4"], [1, 2, 3, True]])
def test_numbers_that_are_none_are_refused(numbers: list[object]) -> None:
    with pytest.raises(NodeMisbehaved, match="not four numbers"):
        join_rings(os.getpid(), numbers)


def test_memory_that_may_be_shortened_is_not_read() -> None:
    process, numbers = create_rings(SMALLEST)
    with contextlib.closing(process):
        size = 2 * (lib.RING_HEAD + SMALLEST)
        unsealed = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
        os.ftruncate(unsealed, size)
        with pytest.raises(NodeMisbehaved, match="may be shortened"):
            join_rings(os.getpid(), [numbers[0], unsealed, *numbers[2:]])
        os.close(unsealed)

        with pytest.raises(NodeMisbehaved, match="no pipes"):
            join_rings(os.getpid(), [*numbers[:3], numbers[1]])
        with pytest.raises(NodeMisbehaved, match="not the size"):
            join_rings(os.getpid(), [2 * SMALLEST, *numbers[1:]])


def test_rings_of_who_has_gone_are_not_to_be_had() -> None:
    process, numbers = create_rings(SMALLEST)
    process.close()
    with pytest.raises(OSError, match="No such file"):
        join_rings(os.getpid(), numbers)


def test_without_descriptors_nothing_is_left_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: int) -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pipe2", refuse)
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(OSError, match="Too many"):
        create_rings(SMALLEST)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_its_memory_is_sealed() -> None:
    process, numbers = create_rings(SMALLEST)
    with contextlib.closing(process):
        assert fcntl.fcntl(numbers[1], fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
        with pytest.raises(PermissionError):
            os.ftruncate(numbers[1], SMALLEST)


def test_notes_that_no_ring_of_its_size_takes_are_refused() -> None:
    """They would stand before all that comes later, for ever."""
    with joined() as (process, coordinator):
        process.write(b"e" * SMALLEST)
        with pytest.raises(NodeMisbehaved, match="no room for 65537 bytes"):
            coordinator.write(b"o" * (SMALLEST + 1))


def test_a_size_that_parts_its_counters_is_refused() -> None:
    process, numbers = create_rings(SMALLEST + 1)
    with (
        contextlib.closing(process),
        pytest.raises(NodeMisbehaved, match="not the size"),
    ):
        join_rings(os.getpid(), numbers)


def test_without_addresses_nothing_is_left_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("emu.emulation.network.rings.mmap.mmap", refuse)
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(OSError, match="Cannot allocate"):
        create_rings(SMALLEST)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


@pytest.mark.parametrize("numbers", [[1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3, 4, "5"]])
def test_rings_are_four_numbers_and_nothing_else(numbers: list[object]) -> None:
    """None, of four true numbers and a text neither."""
    with pytest.raises(NodeMisbehaved, match="its rings are not four numbers"):
        join_rings(os.getpid(), numbers)
