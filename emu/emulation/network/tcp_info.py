"""Counts that the kernel keeps of one connection: TCP_INFO of Linux."""

from __future__ import annotations

import socket
import struct
import sys
from collections import deque
from collections.abc import Iterator

from emu.emulation.wire.frame_layout import LAST_STATE

#: Bytes of struct tcp_info (include/uapi/linux/tcp.h) as of Linux 6.7; kernels before
#: that fill less of it, and count no timeouts.
_SIZE = 248
#: Its fields that `frame_layout.CONNECTION_ROWS` has, in that order.
_STATE = struct.Struct("=8xI4xI48xI8xI16xI44xI16xQQQ36xI8xH2xI")
_EDGE = struct.Struct("=II")
_ROW = struct.Struct("=IIIIIIQQQIHI")
#: Rows kept, the newest, and how many of them go into a message.
_MOST = 15_000
_PIECE = 3_000


def _read_info(sock: socket.socket) -> bytes | None:
    """Return struct tcp_info of a socket; None where the kernel does not fill it."""
    if sys.platform != "linux":
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
    except OSError:
        return None
    return info.ljust(_SIZE, b"\0")


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
        for begin in range(0, len(rows), _PIECE):
            yield b"".join(rows[begin : begin + _PIECE])


class ConnectionLog(RowLog):
    """States of connections, each before a flow: rows of CONNECTION_ROWS."""

    def note(self, sock: object, edge: int, iteration: int = LAST_STATE) -> None:
        """Add the state of a sending socket before a flow, or after the last one.

        Sockets of TLS, and those in virtual time, have none.
        """
        info = _read_info(sock) if isinstance(sock, socket.socket) else None
        if info is not None:
            state = _ROW.pack(*_STATE.unpack(info))
            self.add(_EDGE.pack(edge, iteration) + state)
