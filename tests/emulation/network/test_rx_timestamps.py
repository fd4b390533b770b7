"""When bytes came, however late they are read."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from emu.emulation.network import rx_timestamps as arrivals
from emu.emulation.network.rx_timestamps import ArrivalReader, arrival_device
from emu.host.this_host import this_host

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
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_STAMP", None)
    sender, receiver = pair
    reader = ArrivalReader(receiver)
    sent, wall = received(sender, reader)

    assert reader.device == "reader"
    assert wall >= sent + 0.005


@stamped
@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_set_moves_no_arrival_out_of_its_place(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    sender, receiver = pair
    reader = ArrivalReader(receiver)
    _, before = received(sender, reader)
    shifted = hours * 3600 * 10**9
    true = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: true() + shifted)
    for _ in range(5):
        _, wall = received(sender, reader)

        assert before <= wall <= time.monotonic()


class Noting:
    """A socket whose segments carry notes of a stated age; it is emptied each time."""

    age = 0.0

    def setsockopt(self, *_what: object) -> None:
        """Take notes."""

    def recvmsg_into(self, _views: object, _room: int) -> tuple[object, ...]:
        """Return a byte and its note."""
        nanoseconds = time.time_ns() - round(self.age * 1e9)
        note = struct.pack("@qq", *divmod(nanoseconds, 10**9))
        return 1, [(socket.SOL_SOCKET, arrivals._STAMP, note)], 0, None


@stamped
@pytest.mark.parametrize("since_lost", [0.0, 0.04])
def test_what_came_behind_a_lost_segment_counts_from_when_it_can_be_read(
    since_lost: float,
) -> None:
    sock, view = Noting(), memoryview(bytearray(10))
    reader = ArrivalReader(cast("socket.socket", sock))
    reader.receive(view)
    time.sleep(0.02)
    begun, sock.age = time.monotonic(), since_lost or 0.01
    _, wall = reader.receive(view)

    assert (wall >= begun) == bool(since_lost)


def test_the_end_of_the_stream_and_nothing_yet(pair: Pair) -> None:
    sender, receiver = pair
    reader, view = ArrivalReader(receiver), memoryview(bytearray(10))
    with pytest.raises(BlockingIOError):
        reader.receive(view)
    sender.close()
    select.select([receiver], [], [], 10)

    assert reader.receive(view)[0] == 0


@pytest.mark.parametrize("taken", [1, 2])
def test_clocks_are_read_again_when_the_core_was_taken_in_between(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the second or the third reading of a clock 5 ms go by, once."""
    readings, true = 0, 100.0

    def read() -> float:
        nonlocal readings, true
        true += 0.005 if readings == taken else 1e-7
        readings += 1
        return true

    clocks = SimpleNamespace(time_ns=lambda: round(read() * 1e9))
    monkeypatch.setattr(this_host, "monotonic", read)
    monkeypatch.setattr(arrivals, "time", clocks)
    now, real = arrivals.both_clocks()

    assert now - real * 1e-9 == pytest.approx(0, abs=1e-6)
    assert readings == 6
