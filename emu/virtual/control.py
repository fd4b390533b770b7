"""Messages between a rank and who keeps the clocks: msgpack over a local socket."""

from __future__ import annotations

import socket
import struct
from typing import Any

import msgpack

from emu.errors import EmulatorError

_LENGTH = struct.Struct("<I")
#: Bytes that a message may have: names of operations and sizes, no tensors.
_MOST = 1 << 26


class RankLost(EmulatorError):
    """The other side of a connection has gone."""


class Connection:
    """One end of a local socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._socket.fileno()

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message.

        Raises RankLost when the other side has gone.
        """
        content: bytes = msgpack.packb({"kind": kind, **fields})
        try:
            self._socket.sendall(_LENGTH.pack(len(content)) + content)
        except OSError as error:
            raise RankLost("the other side has gone") from error

    def receive(self) -> dict[str, Any]:
        """Return the next message.

        Raises RankLost when the other side has gone, or sent what is no message.
        """
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if length > _MOST:
            raise RankLost(f"a message of {length} bytes came, {_MOST} may")
        message: dict[str, Any] = msgpack.unpackb(self._read(length))
        return message

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _read(self, count: int) -> bytes:
        content = b""
        while len(content) < count:
            try:
                part = self._socket.recv(count - len(content))
            except OSError as error:
                raise RankLost("the other side has gone") from error
            if not part:
                raise RankLost("the other side has gone")
            content += part
        return content
