"""Parent's end of the socket to a process that holds a namespace: it asks."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from emu.errors import RunError
from emu.lab.machines.netlink import Netlink

#: Bytes of one packet: a command line with its environment must fit.
LARGEST = 180_000
#: Wall seconds that the kernel may take for one request.
ANSWER = 20.0
#: What was answered, and descriptors that came with it.
Fields: TypeAlias = dict[str, Any]
Packet: TypeAlias = tuple[Fields, list[int]]


class ProgramEnd(NamedTuple):
    """A program that has ended, by its number, and its exit code."""

    number: int
    code: int


class Holder:
    """Asks what `namespace_process` answers, and keeps ends of programs."""

    def __init__(self, name: str, end: socket.socket) -> None:
        self.name = name
        self.socket = end
        self.ended = list[ProgramEnd]()
        self.process = 0
        """Process id of what holds the namespaces, as this process sees it."""
        end.settimeout(ANSWER)

    def ask(
        self,
        descriptors: Sequence[int] = (),
        /,
        **request: Any,
    ) -> Packet:
        """Return the answer to one request, and descriptors that came with it."""
        self.post(descriptors, **request)
        return self.answer()

    def post(
        self,
        descriptors: Sequence[int] = (),
        /,
        **request: Any,
    ) -> None:
        """Send a request whose answer is taken later."""
        packet = json.dumps(request).encode()
        size = len(packet)
        if size > LARGEST:
            raise RunError(f"a request of {size} bytes to {self.name}: too long")
        try:
            socket.send_fds(self.socket, [packet], list(descriptors))
        except OSError as error:
            reason = error.strerror
            raise RunError(f"machine {self.name} has gone: {reason}") from error

    def open_netlink(self, devices: Sequence[str]) -> tuple[Netlink, list[int]]:
        """Return a socket to the kernel there, and indices of devices; wakes nobody."""
        answer, (descriptor,) = self.ask(do="open_netlink", devices=list(devices))
        opened = socket.socket(fileno=descriptor)
        return Netlink(opened), answer["indices"]

    def answer(self) -> Packet:
        """Return the next packet that answers."""
        while True:
            answer = self.receive()
            if answer is not None:
                return answer

    def receive(self) -> Packet | None:
        """Return the next packet if it answers; the end of a program is kept."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.socket, LARGEST, 1)
        except TimeoutError as error:
            raise RunError(f"machine {self.name} does not answer") from error
        if not data:
            raise RunError(f"machine {self.name} has gone")

        packet: Fields = json.loads(data)
        if "error" in packet:
            problem = packet["error"]
            raise RunError(f"machine {self.name}: {problem}")
        if "ended" not in packet:
            return packet, descriptors
        end = ProgramEnd(
            number=packet["ended"],
            code=packet["code"],
        )
        self.ended.append(end)
        return None
