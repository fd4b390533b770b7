"""When bytes came, however late they are read."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from emu.emulation.network.rx_timestamps import ArrivalReader, arrival_device
from emu.prediction.core import ffi, lib

Pair = tuple[socket.socket, socket.socket]
stamped = pytest.mark.skipif(
    arrival_device() != "kernel", reason="this kernel takes no note of arrivals"
)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Return both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    with sender, receiver:
        receiver.setblocking(False)
        yield sender, receiver


def received(sender: socket.socket, reader: ArrivalReader) -> tuple[float, float]:
    """Send, rest, read; return when it was sent at the latest, and the time told."""
    view = memoryview(bytearray(10))
    sender.sendall(b"x" * 10)
    sent = time.monotonic()
    time.sleep(0.005)
    count, wall = reader.receive(view)
    assert (count, bytes(view)) == (10, b"x" * 10)
    return sent, wall


@stamped
def test_bytes_count_from_when_they_came_not_from_when_they_are_read(
    pair: Pair,
) -> None:
    sender, receiver = pair
    reader = ArrivalReader(receiver)
    # The kernel begins with its notes some packets after it was asked to.
    told = [received(sender, reader) for _ in range(20)]

    assert sum(wall < sent + 0.002 for sent, wall in told) > 10


def test_where_no_note_is_taken_the_time_of_reading_counts(
    pair: Pair,
) -> None:
    sender, receiver = pair
    reader = ArrivalReader(receiver)
    reader.core.stamped = False
    sent, wall = received(sender, reader)

    assert reader.device == "reader"
    assert wall >= sent + 0.005


def noted(
    arrivals: Any, age: float, ahead: int | None = None, quiet: float = 0.0
) -> float:
    """Return how old bytes are that are read at 100, with what the kernel says."""
    told = ffi.NULL
    if ahead is not None:
        state = {"ahead": ahead, "quiet": quiet, "clock": 100.0, "tick": 0.004}
        told = ffi.new("Disorder *", state)
    return 100.0 - float(lib.note_arrival(arrivals, 100.0, age, told))


def fresh(last: float = 0.0) -> Any:
    return ffi.new("Arrivals *", {"last": last})


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_set_moves_no_arrival_out_of_its_place(hours: int) -> None:
    for last in (99.0, 100.0):
        age = noted(fresh(last), hours * 3600.0)

        assert age == (0.0 if hours < 0 else 100.0 - last)


@pytest.mark.parametrize(
    ("ahead", "quiet", "age"),
    [
        (None, 0.0, 0.2),  # the kernel does not say
        (0, 0.0, 0.2),  # nothing was lost: read late
        (5, 0.0, 0.0),  # the hole was filled just now
        (5, 0.1, 0.092),  # 0.1 s ago, within two ticks
        (5, 0.3, 0.2),  # before this segment came
    ],
)
def test_what_came_behind_a_lost_segment_counts_from_when_it_can_be_read(
    ahead: int | None, quiet: float, age: float
) -> None:
    arrivals = fresh()

    assert noted(arrivals, 0.2, ahead, quiet) == pytest.approx(age)
    assert arrivals.hole == pytest.approx(0.2 - age)
    assert arrivals.delay == arrivals.unread == pytest.approx(age)


def test_bytes_of_several_reads_wait_for_one_hole_together() -> None:
    """All of them came by 0.3 s ago and could be read from 0.192 s ago on."""
    arrivals = fresh()
    for age in (0.4, 0.35, 0.3):
        assert noted(arrivals, age, ahead=5, quiet=0.2) == pytest.approx(0.192)

    assert arrivals.hole == pytest.approx(0.4 - 0.192)


def test_a_hole_that_was_filled_long_ago_holds_back_no_later_segment() -> None:
    arrivals = fresh()
    noted(arrivals, 0.05, ahead=5, quiet=0.05)

    # Within the tick at which a segment came in order, and no more of them were ahead.
    assert noted(arrivals, 0.02, ahead=5, quiet=0.025) == pytest.approx(0.02)


def test_waits_are_of_a_frame_and_without_its_last_bytes() -> None:
    """The hole before them and the reading of what was not the last."""
    reader = ArrivalReader(cast("socket.socket", SimpleNamespace()))
    reader.core.last = 0.0
    noted(reader.core, 0.5)
    noted(reader.core, 0.3, ahead=5, quiet=0.2)

    hole, unread = reader.take_waits()

    assert hole == pytest.approx(0.3 - 0.192)
    assert unread == pytest.approx(0.5)
    assert reader.take_waits() == (0.0, 0.0)


def test_the_end_of_the_stream_and_nothing_yet(pair: Pair) -> None:
    sender, receiver = pair
    reader, view = ArrivalReader(receiver), memoryview(bytearray(10))
    with pytest.raises(BlockingIOError):
        reader.receive(view)
    sender.close()
    select.select([receiver], [], [], 10)

    assert reader.receive(view)[0] == 0
