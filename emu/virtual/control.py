"""Messages between a rank and who keeps the clocks: msgpack over a local socket.

A message is a list: the first of its words says what it is.
"""

from __future__ import annotations

import socket
from typing import Any

import msgpack

from emu.errors import RunError

#: Bytes that a message may have: names of operations and sizes, no tensors.
_MOST = 1 << 26


class RankLost(RunError):
    """The other side of a connection has gone."""


class Connection:
    """One end of a local socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._unsent: list[bytes] = []
        self._pack = msgpack.Packer().pack
        self._unpacker = msgpack.Unpacker(max_buffer_size=_MOST, strict_map_key=False)

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._socket.fileno()

    def keep(self, *words: Any) -> None:
        """Keep a message, to be sent with the next one."""
        content = self._pack(words)
        self._unsent.append(content)

    def send(self, *words: Any) -> None:
        """Send a message, behind those that were kept.

        Raises RankLost when the other side has gone.
        """
        self.keep(*words)
        self.flush()

    def flush(self) -> None:
        """Send what was kept; raises RankLost when the other side has gone."""
        content = b"".join(self._unsent)
        self._unsent.clear()
        try:
            self._socket.sendall(content)
        except OSError as error:
            raise RankLost("the other side has gone") from error

    def receive(self) -> list[Any]:
        """Return the next message; raises RankLost when the other side has gone."""
        (message,) = self.receive_all()
        return message

    def receive_all(self) -> list[list[Any]]:
        """Return the messages that are there, one at least; raises as `receive`."""
        messages: list[list[Any]] = []
        while not messages:
            self._read()
            messages += self._unpacker
        return messages

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _read(self) -> None:
        try:
            part = self._socket.recv(1 << 16)
        except OSError as error:
            raise RankLost("the other side has gone") from error
        if not part:
            raise RankLost("the other side has gone")
        try:
            self._unpacker.feed(part)
        except ValueError as error:
            raise RankLost(f"a message of more than {_MOST} bytes came") from error
