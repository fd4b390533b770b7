"""Bytes of a frame reach the other end once and in order, whatever the kernel takes."""

from __future__ import annotations

import contextlib
import errno
import math
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.network.out_edge import OutEdge
from emu.emulation.network.pacer import Pacer
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.network.tcp_info import ConnectionLog
from emu.emulation.wire.frame_layout import CONNECTION_ROWS
from emu.errors import EmulatorError
from emu.prediction.core import ffi, lib


def loaded(pieces: list[bytes], fd: int) -> tuple[Any, Any]:
    """Return a sender of a frame in so many buffers; and what it points to."""
    kept = [ffi.from_buffer(piece) for piece in pieces]
    buffers = ffi.new("Buffer[]", [(one, len(one)) for one in kept])
    sender = ffi.new("Sender *", {"fd": fd})
    lib.load_frame(sender, 0, buffers, len(pieces), 0.0, 0.0)
    return sender, (kept, buffers)


def drawn(sizes: list[int]) -> list[bytes]:
    """Return buffers of these sizes, of which no two bytes side by side are equal."""
    content = (np.arange(sum(sizes)) % 251).astype(np.uint8).tobytes()
    ends = np.cumsum(sizes).tolist()
    return [content[end - size : end] for size, end in zip(sizes, ends, strict=True)]


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(1, 90), st.floats(0.0, 1.0)), max_size=60),
)
def test_views_are_of_what_is_left(
    sizes: list[int], calls: list[tuple[int, float]]
) -> None:
    pieces = drawn(sizes)
    sender, _kept = loaded(pieces, -1)
    views, left = ffi.new("Buffer[]", lib.BUFFERS), b""
    for limit, share in [*calls, *[(10_000, 1.0)] * len(sizes)]:
        some = views[0 : lib.gather(sender, limit, views)]
        there = b"".join(ffi.buffer(view.start, view.size) for view in some)
        assert len(there) <= limit
        taken = there[: int(len(there) * share)]
        left += taken
        lib.on_sent(sender, len(taken))
        assert sender.sent == len(left)

    assert left == b"".join(pieces)
    assert sender.left == lib.gather(sender, 10, views) == 0
    assert sender.volume == len(left) - sender.overhead


@pytest.mark.parametrize("sizes", [[30, 5_000_000], [30, *[20_000] * 100], [7]])
def test_all_bytes_come_where_the_kernel_takes_some(sizes: list[int]) -> None:
    here, there = socket.socketpair()
    pieces, came = drawn(sizes), bytearray()
    with here, there:
        here.setblocking(False)
        sender, _kept = loaded(pieces, here.fileno())
        while (outcome := lib.send_bytes(sender, 1_500_000)) != lib.SENT:
            if outcome == lib.BLOCKED:
                came += there.recv(1 << 16)
            assert outcome in (lib.BLOCKED, lib.PACED)
        here.close()
        while data := there.recv(1 << 16):
            came += data

    assert came == b"".join(pieces)
    assert (sender.blocked > 0) == (sum(sizes) > 1_000_000)
    assert sender.first <= sender.last <= sender.end


def test_no_more_of_the_body_goes_than_was_said() -> None:
    here, there = socket.socketpair()
    with here, there:
        sender, _kept = loaded(drawn([30, 1000, 500]), here.fileno())

        outcomes = [lib.send_bytes(sender, size) for size in (10, 1100)]

        assert outcomes == [lib.PACED, lib.PACED]
        assert sender.sent == 1140
        assert len(there.recv(5000)) == 1140


def test_a_receiver_that_has_gone_is_an_error_with_its_number() -> None:
    here, there = socket.socketpair()
    with here:
        there.close()
        sender, _kept = loaded(drawn([30]), here.fileno())

        assert lib.send_bytes(sender, 10) == lib.BROKEN
        assert sender.error == errno.EPIPE


class Encrypted:
    """A socket that is not the kernel's own, and takes 70 bytes of a call at most."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.fileno, self.recv, self.close = sock.fileno, sock.recv, sock.close
        self.took: list[int] = []
        self.is_full = False

    def sendmsg(self, views: list[Any]) -> int:
        """Send some bytes, or none while the buffer is full."""
        if self.is_full:
            raise BlockingIOError
        count = self._sock.send(b"".join(bytes(view) for view in views)[:70])
        self.took.append(count)
        return count


@contextlib.asynccontextmanager
async def encrypted() -> AsyncIterator[tuple[OutEdge, Encrypted, socket.socket]]:
    """Yield an edge over such a socket, and its other end."""
    here, there = socket.socketpair()
    with there, contextlib.closing(RateBoard.create(1)) as board:
        here.setblocking(False)
        sock = Encrypted(here)
        with contextlib.closing(Pacer(board)) as pacer:
            edge = OutEdge(cast("Any", sock), 0, pacer)
            yield edge, sock, there
            await edge.aclose()


async def test_an_edge_sends_what_a_look_offers_and_sets_the_next_look() -> None:
    """A look offers 50 bytes: they are sent, and the time of the next look is set.

    While the socket is full, nothing is sent and no look is set. When the
    connection breaks, the edge fails.
    """
    async with encrypted() as (edge, sock, _):
        frame = edge.send(0, {"x": np.arange(200, dtype=np.uint8)}, shaped=True)
        sender = edge.sender
        sender.offered = 50
        edge.attend(lib.OFFERS)
        assert sender.sent == sender.overhead + 50
        assert sender.due <= sender.next < math.inf
        waits = [edge._writing]

        sock.is_full = True
        sender.offered = 50
        edge.attend(lib.OFFERS)
        assert sender.sent == sender.overhead + 50
        assert sender.next == math.inf
        assert sender.blocked == 1
        waits.append(edge._writing)
        assert waits == [False, True]
        sock.is_full = False

        failures: list[EmulatorError] = []
        edge.on_failure = failures.append
        sender.error = errno.EPIPE
        edge.attend(lib.BROKEN)
        assert str(failures[0]) == "the receiver of edge 0 left: [Errno 32] Broken pipe"
        assert frame.exception() is failures[0]


async def test_what_is_encrypted_goes_with_its_head_in_front_once() -> None:
    """Writes of 100, 30, 0 and 500 bytes send one head and a body of 200 bytes."""
    async with encrypted() as (edge, sock, there):
        body = np.arange(200, dtype=np.uint8)
        _ = edge.send(0, {"x": body}, shaped=True)
        sender = edge.sender
        head = sender.overhead
        assert head > 20

        sent = []
        outcomes = []
        for size in (100, 30, 0, 500):
            outcomes.append(edge._write(size))
            sent.append(sender.sent - head)
        assert sent == [100, 130, 130, 200]
        assert outcomes == [lib.PACED] * 3 + [lib.SENT]
        assert there.recv(5000)[head:] == body.tobytes()
        assert sum(sock.took) == head + 200


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO is of Linux")
def test_the_state_of_a_connection_is_that_of_the_kernel() -> None:
    """Fields of struct tcp_info (include/uapi/linux/tcp.h), read by another layout."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    with sender, receiver:
        sender.sendall(bytes(100_000))
        receiver.recv(100_000, socket.MSG_WAITALL)
        log = ConnectionLog()
        log.note(sender, 7, 3)
        info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 248)
    info = info.ljust(248, b"\0")

    (piece,) = log.pieces()
    (row,) = np.frombuffer(piece, CONNECTION_ROWS)
    words = np.frombuffer(info, "<u4")
    assert (row["edge"], row["iteration"]) == (7, 3)
    assert row["segment"] == words[4] > 0
    assert row["segments_allowed"] == words[20] > 0
    assert row["retransmitted"] == words[25]
    assert row["least_round_trip"] == words[37] > 0
    assert row["busy"] <= np.frombuffer(info[168:176], "<u8")[0]
    assert row["window"] == words[57]
    assert row["timeouts"] == np.frombuffer(info[240:242], "<u2")[0]
