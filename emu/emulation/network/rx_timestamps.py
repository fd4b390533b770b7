"""When bytes came to this host: by the kernel's note where it takes one.

A process that reads late, because others have the cores or because it is busy with
what came before, would otherwise have the network's time grow by its own.
"""

from __future__ import annotations

import contextlib
import os
import socket

from emu.host.this_host import this_host
from emu.prediction.core import ffi, lib


def arrival_device() -> str:
    """Return the source of arrival times: "kernel", or "reader" without its note."""
    with contextlib.closing(this_host.open_socket()) as sock:
        return ArrivalReader(sock).device


class ArrivalReader:
    """Receives from a non-blocking TCP socket, with the time of the last byte.

    The note is of the newest segment that was read; `note_arrival` of the core says
    what follows from it. Sockets of trials in virtual time have none.
    """

    pending = False  #: nothing waits but with the kernel

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        is_plain = type(sock) is socket.socket
        self.fd = sock.fileno() if is_plain else -1
        """Descriptor from which the core can receive; -1 for none."""
        self.core = ffi.new("Arrivals *", {"last": this_host.monotonic()})
        """Its `Arrivals` of the core."""
        self.core.stamped = self.fd >= 0 and lib.ask_for_stamps(self.fd)

    @property
    def device(self) -> str:
        """Source of its times, as `arrival_device` names it."""
        return "kernel" if self.core.stamped else "reader"

    def receive(self, view: memoryview) -> tuple[int, float]:
        """Return the number of bytes received into ``view``, and when the last came.

        Wall seconds of CLOCK_MONOTONIC, never falling from call to call; 0 bytes are
        the end of the stream.

        Raises OSError as from the socket: `BlockingIOError` when nothing has come.
        """
        core = self.core
        if self.fd < 0:
            count = self._sock.recv_into(view)
            now = this_host.monotonic()
            # Without a note, what comes has come when it is read.
            lib.note_arrival(core, now, 0.0, ffi.NULL)
            return count, core.last

        memory = ffi.from_buffer("uint8_t[]", view)
        count = lib.receive_bytes(self.fd, memory, len(view), core)
        if count < 0:
            error = -count
            raise OSError(error, os.strerror(error))
        return count, core.last

    def take_waits(self) -> tuple[float, float]:
        """Return wall seconds that the bytes of a frame waited, which is whole now.

        Behind a lost segment, and to be read: the last of them can hold nothing up.
        """
        core = self.core
        hole = core.hole
        unread = core.unread - core.delay
        # The next frame begins with none.
        core.hole = 0.0
        core.unread = 0.0
        core.delay = 0.0
        return hole, max(unread, 0.0)
