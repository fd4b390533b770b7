"""Counts that the kernel keeps of one connection: TCP_INFO of Linux."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator

from emu.emulation.wire.frame_layout import LAST_STATE
from emu.prediction.core import ffi, lib

#: Rows kept, the newest, and how many of them go into a message.
_MOST = 15_000
_PIECE = 3_000


class RowLog:
    """Rows of one kind of `frame_layout`, the newest of a run."""

    def __init__(self) -> None:
        self._rows: deque[bytes] = deque(maxlen=_MOST)

    def add(self, row: bytes) -> None:
        """Add a packed row."""
        self._rows.append(row)

    def pieces(self) -> Iterator[bytes]:
        """Yield the rows so far, in pieces that fit into a control message."""
        rows = list(self._rows)
        count = len(rows)
        for begin in range(0, count, _PIECE):
            piece = rows[begin : begin + _PIECE]
            yield b"".join(piece)


class ConnectionLog(RowLog):
    """States of connections, each before a flow: rows of CONNECTION_ROWS."""

    def __init__(self) -> None:
        super().__init__()
        self._row = ffi.new("uint8_t[]", lib.STATE_BYTES)

    def note(self, sock: object, edge: int, iteration: int = LAST_STATE) -> None:
        """Add the state of a sending socket before a flow, or after the last one.

        Sockets of TLS, and those in virtual time, have none.
        """
        if not isinstance(sock, socket.socket):
            return
        descriptor = sock.fileno()
        is_known = lib.read_state(descriptor, edge, iteration, self._row)
        if is_known:  # else it is no connection, or of a kernel that does not say
            row = ffi.buffer(self._row)
            self.add(bytes(row))
