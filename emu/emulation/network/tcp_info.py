"""Counts that the kernel keeps of one connection: TCP_INFO of Linux."""

from __future__ import annotations

import socket
import struct
import sys
from typing import NamedTuple

#: Bytes of struct tcp_info (include/uapi/linux/tcp.h) as of Linux 6.7; kernels before
#: that fill less of it.
_SIZE = 248
#: Milliseconds since data came in order.
_QUIET = (52, "=I")
#: Segments that came ahead of one that was missing, since Linux 5.4.
_AHEAD = (224, "=I")


class Disorder(NamedTuple):
    """Segments out of order at a socket, and the last that came in order."""

    ahead: int
    """Segments that have come ahead of a missing one so far."""
    quiet: float
    """Seconds since a segment came in order, in whole ticks of the kernel."""


def read_disorder(sock: socket.socket) -> Disorder | None:
    """Return what came to a socket out of order; None where the kernel does not say."""
    info = _read_info(sock)
    if info is None:
        return None
    (ahead,) = struct.unpack_from(_AHEAD[1], info, _AHEAD[0])
    (quiet,) = struct.unpack_from(_QUIET[1], info, _QUIET[0])
    return Disorder(ahead, quiet * 1e-3)


def _read_info(sock: socket.socket) -> bytes | None:
    """Return struct tcp_info of a socket; None where the kernel does not fill it."""
    if sys.platform != "linux":
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
    except OSError:
        return None
    return info if len(info) >= _AHEAD[0] + 4 else None
