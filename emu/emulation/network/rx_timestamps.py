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

from emu.emulation.network.tcp_info import read_disorder
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
#: Wall seconds from note to reading within which nothing was waited for: a segment that
#: is sent again takes a round trip, and only then is the kernel asked (0.8 us).
_PROMPT = 1e-3
#: Clock that the kernel advances once per tick, as it does the time of TCP_INFO.
_TICKS = 6  # CLOCK_MONOTONIC_COARSE of Linux, which `time` does not name


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

    Bytes count from when they can be read in order. A segment behind a lost one waits
    in the kernel until that is sent again, and keeps its own, older note. Where
    segments came out of order, the kernel's last tick at which one came in order says
    when the hole was filled. By the note alone flows ended 20 ms (a retransmission) to
    250 ms (a timeout) before they could be read.
    """

    pending = False  #: nothing waits but with the kernel

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._last = this_host.monotonic()
        self._hole = 0.0
        self._unread = 0.0
        self._delay = 0.0  # of the newest call, from arrival to reading
        self._ahead = 0  # segments that had come out of order when it was asked
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
        if age > _PROMPT:
            arrival = min(self._when_in_order(arrival), now)
        self._hole += arrival - (now - age)
        self._last = min(max(arrival, self._last), now)
        self._delay = now - self._last
        self._unread += self._delay
        return count, self._last

    def take_waits(self) -> tuple[float, float]:
        """Return wall seconds that the bytes of a frame waited, which is whole now.

        Behind a lost segment, and to be read: the last of them can hold nothing up.
        """
        waits = self._hole, max(self._unread - self._delay, 0.0)
        self._hole = self._unread = self._delay = 0.0
        return waits

    def _when_in_order(self, note: float) -> float:
        """Return when the newest byte could be read, by its note and by TCP_INFO."""
        disorder = read_disorder(self._sock)
        if disorder is None or disorder.ahead == 0:
            return note

        # Of the time at which a segment came in order, the kernel keeps the tick, and
        # ticks of a busy host come late: of 4 ms, by 2.4. A late tick moves the coarse
        # clock by one more than the count behind `quiet`. So the answer is up to 2.4 ms
        # early, and up to three ticks late (9.3 ms seen).
        begin = time.clock_gettime(_TICKS) - disorder.quiet
        end = begin + 2 * time.clock_getres(_TICKS)
        is_new = disorder.ahead != self._ahead
        self._ahead = disorder.ahead
        # A note within that tick may be of the segment that filled the hole.
        is_of_last = note >= begin and not is_new
        return note if is_of_last else max(note, end)
