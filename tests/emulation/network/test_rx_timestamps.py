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
    """A socket whose segments carry notes of a stated age, with a stated TCP_INFO."""

    age = 0.0
    ahead = 0
    quiet = 0

    def setsockopt(self, *_what: object) -> None:
        """Take notes."""

    def getsockopt(self, *_what: object) -> bytes:
        """Return struct tcp_info."""
        info = bytearray(248)
        struct.pack_into("=I", info, 52, self.quiet)
        struct.pack_into("=I", info, 224, self.ahead)
        return bytes(info)

    def recvmsg_into(self, _views: object, _room: int) -> tuple[object, ...]:
        """Return a byte and its note."""
        nanoseconds = time.time_ns() - round(self.age * 1e9)
        note = struct.pack("@qq", *divmod(nanoseconds, 10**9))
        return 1, [(socket.SOL_SOCKET, arrivals._STAMP, note)], 0, None


@stamped
@pytest.mark.parametrize(
    ("ahead", "quiet", "ages"),
    [
        (0, 0, (0.2, 0.2)),  # nothing was lost: read late
        (5, 0, (0.0, 0.0)),  # the hole was filled just now
        (5, 100, (0.08, 0.104)),  # 0.1 s ago, within two ticks
        (5, 300, (0.2, 0.2)),  # before this segment came
    ],
)
def test_what_came_behind_a_lost_segment_counts_from_when_it_can_be_read(
    ahead: int, quiet: int, ages: tuple[float, float]
) -> None:
    sock = Noting()
    reader = ArrivalReader(cast("socket.socket", sock))
    reader._last -= 1.0  # the segment did not come before the connection
    sock.age, sock.ahead, sock.quiet = 0.2, ahead, quiet
    earliest = time.monotonic() - ages[1]
    _, wall = reader.receive(memoryview(bytearray(10)))
    latest = time.monotonic() - ages[0]

    assert earliest - 1e-3 <= wall <= latest + 1e-3


@stamped
def test_a_hole_that_was_filled_long_ago_holds_back_no_later_segment() -> None:
    sock = Noting()
    reader = ArrivalReader(cast("socket.socket", sock))
    reader._last -= 1.0
    sock.age, sock.ahead, sock.quiet = 0.05, 5, 50
    reader.receive(memoryview(bytearray(10)))
    sock.age, sock.quiet = 0.02, 25
    _, wall = reader.receive(memoryview(bytearray(10)))

    # Within the tick at which a segment came in order, and no more of them were ahead.
    assert wall <= time.monotonic() - 0.02


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
