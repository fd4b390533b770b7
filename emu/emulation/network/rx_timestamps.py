"""When bytes came to this host: by the kernel's note where it takes one.

A process that reads late, because others have the cores or because it is busy with
what came before, would otherwise have the network's time grow by its own.
"""

from __future__ import annotations

import contextlib
import platform
import socket
import struct
import sys
import time

from emu.host.this_host import this_host

#: SO_TIMESTAMPNS, which `socket` does not name, where its number and the layout of its
#: answer (struct timespec of 64-bit fields) are known.
_KNOWN = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
_STAMP = 35 if _KNOWN else None
_TIMESPEC = struct.Struct("@qq")
_ROOM = socket.CMSG_SPACE(_TIMESPEC.size) if hasattr(socket, "CMSG_SPACE") else 0
#: Wall seconds between two readings of a clock within which the core was ours.
_TIGHT = 20e-6
_TRIES = 5
#: Wall seconds by which a note is older than the emptied socket if its segment had to
#: wait for a lost one: a queue is 20 ms or more where one is lost, and the kernel may
#: take a millisecond from note to socket where others have the cores.
_OVERTAKEN = 5e-3


def both_clocks() -> tuple[float, int]:
    """Return CLOCK_MONOTONIC in seconds and CLOCK_REALTIME in ns, of one instant.

    A process that loses its core between the two would count what came as older, or
    younger, by as long: on two cores with 12 ready processes by over 1 ms for 12 of
    some 120 frames. So they are read again until nothing came in between.
    """
    now = 0.0
    real = 0
    for _ in range(_TRIES):
        start = this_host.monotonic()
        real = time.time_ns()
        now = this_host.monotonic()
        if now - start < _TIGHT:
            break
    return now, real


def arrival_device() -> str:
    """Return the source of arrival times: "kernel", or "reader" without its note."""
    with contextlib.closing(this_host.open_socket()) as sock:
        return ArrivalReader(sock).device


class ArrivalReader:
    """Receives from a non-blocking TCP socket, with the time of the last byte.

    The note costs 0.6 us per call. It is of the newest segment that was read, in
    CLOCK_REALTIME; only its age is used, so that a clock that is set meanwhile can
    do no worse than count the time of reading, or of the call before.

    A segment that came behind a lost one waits in the kernel, with its own note, until
    that is sent again. Its note is older than a call that emptied the socket: the time
    of reading counts then. By the note alone a flow counted as ended 0.2 s before it
    could be read, and its consumer as slow (a timeout of TCP on kernel NICs).
    """

    pending = False  #: nothing waits but with the kernel

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._last = this_host.monotonic()
        self._emptied = self._last  # all that could be read by then has been
        self.device = "reader"
        if _STAMP is not None:
            try:
                sock.setsockopt(socket.SOL_SOCKET, _STAMP, 1)
            except OSError:
                return
            self.device = "kernel"

    def receive(self, view: memoryview) -> tuple[int, float]:
        """Return the number of bytes received into ``view``, and when the last came.

        Wall seconds of CLOCK_MONOTONIC, never falling from call to call; 0 bytes are
        the end of the stream.

        Raises OSError as from the socket: `BlockingIOError` when nothing has come.
        """
        notes: list[tuple[int, int, bytes]] = []
        start = this_host.monotonic()
        if self.device == "kernel":
            count, notes, _, _ = self._sock.recvmsg_into([view], _ROOM)
        else:
            count = self._sock.recv_into(view)

        now, real = both_clocks()
        age = 0.0
        for _, kind, note in notes:
            if kind == _STAMP and len(note) == _TIMESPEC.size:
                seconds, nanoseconds = _TIMESPEC.unpack(note)
                age = (real - seconds * 10**9 - nanoseconds) * 1e-9

        arrival = now - age
        if arrival < self._emptied - _OVERTAKEN:
            self._last = now
        else:
            self._last = min(max(arrival, self._last), now)
        if count < len(view):
            self._emptied = start
        return count, self._last
