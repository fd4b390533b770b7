"""Connections in memory: sockets as the product uses them, and the faults of wires.

A wire is one direction of a connection. It carries bytes in order; it may cut what is
sent into pieces, hold them back for a while, and do one damage at a stated byte.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import random  # noqa: TID251 -- a draw takes 0.1 us, one of numpy 3
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

Address: TypeAlias = tuple[str, int]
_CHUNK = 1 << 16
#: Bytes that wait with the receiver or on their way, at most: the kernel's buffers.
_ROOM = 1 << 18
EPOCH = 1000.0  #: wall time at which a world begins
#: Descriptors of a world begin here: no real file of this process has such a number.
_FIRST = 1000
_FIRST_PORT = 40_000
Kinds: TypeAlias = Literal["reset", "truncate", "corrupt", "delay", "again"]


@dataclass(frozen=True)
class Damage:
    """Deed of a wire that is done once, at one byte of its stream."""

    wire: int
    """Wires are counted in the order in which connections are made: 2 i carries what
    the side sends that made connection i, 2 i + 1 what it receives."""
    byte: int
    kind: Kinds
    """Both ends see a reset; the stream ends before the byte; the byte is another one;
    it and what follows come late; a stranger says the same once more, up to the byte,
    on a connection of its own."""
    seconds: float = 0.0
    """Wall seconds of a delay."""


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Draws:
    """Everything that is left to chance in a world, from its seed.

    ``calm``: wires cut and hold back nothing, and who is ready first comes first.
    """

    def __init__(self, seed: int, *, calm: bool) -> None:
        self._random = random.Random(seed)  # noqa: S311 -- all shall be guessed
        # A stream of its own: how many tokens are drawn must not move what wires do.
        self.secret = random.Random(-seed - 1).randbytes  # noqa: S311 -- likewise
        self.calm = calm

        #: Share of pieces that are cut or held back, and how long, wall seconds.
        self._share = 0.0
        self._longest = 0.0
        #: Bytes that a wire holds, which is more than a handshake says.
        self.room = _ROOM
        if not calm:
            self._share = self._random.choice((0.02, 0.1, 0.4))
            self._longest = self._random.choice((1e-4, 2e-3, 3e-2))
            self.room = self._random.choice((4096, 1 << 15, _ROOM))

    def delay(self) -> float:
        """Return the wall seconds that a wire holds a piece back."""
        if self.calm or self._random.random() >= self._share:
            return 0.0
        return self._random.random() * self._longest

    def piece(self, size: int) -> int:
        """Return the bytes of a call that go at once."""
        if self.calm or size < 2 or self._random.random() >= self._share:
            return size
        return self._random.randint(1, size)

    def order(self, ready: list[Any]) -> None:
        """Say who is served first."""
        if not self.calm:
            self._random.shuffle(ready)


class Wire:
    """Carries the bytes of one direction from a socket to its peer."""

    def __init__(
        self,
        network: Network,
        number: int,
        receiver: VirtualSocket,
    ) -> None:
        self._network = network
        self.number = number
        self._receiver = receiver
        self._damage = network.damages.get(number)
        self._due = 0.0  # wall time at which the newest piece arrives
        self._waiting: deque[bytes] = deque()
        self._held = 0
        self.carried = 0
        self._said = bytearray()  # kept where a stranger will repeat it

    @property
    def room(self) -> int:
        """Bytes that may be sent now."""
        unread = self._held + len(self._receiver.came)
        rest = self._network.draws.room - unread
        return max(rest, 0)

    def carry(self, data: bytes) -> None:
        """Take bytes, or the end of the stream if there are none."""
        damage = self._damage
        begin = self.carried
        self.carried += len(data)

        if damage is not None and damage.byte < self.carried:
            self._damage = None
            place = damage.byte - begin
            data = self._damage_bytes(damage, data, place)
        elif damage is not None and damage.kind == "again":
            self._said += data

        draws = self._network.draws
        size = draws.piece(len(data))
        while size < len(data):
            self._pass_on(data[:size])
            data = data[size:]
            size = draws.piece(len(data))
        self._pass_on(data)

    def _damage_bytes(self, damage: Damage, data: bytes, place: int) -> bytes:
        """Do a damage at a place of ``data``; return what the wire carries of it."""
        network = self._network
        receiver = self._receiver
        head = data[:place]
        network.happen(damage)
        match damage.kind:
            case "reset":
                receiver.broken = True
                receiver.peer.broken = True
                network.touch(receiver, receiver.peer)
            case "truncate":
                self._pass_on(head)
                receiver.peer.broken = True
                network.touch(receiver.peer)
                return b""
            case "corrupt":
                # One bit, by the place: a damage that is repeated is the same one.
                bit = 1 << damage.byte % 8
                byte = data[place] ^ bit
                tail = data[place + 1 :]
                return head + bytes([byte]) + tail
            case "delay":
                self._due = network.now + damage.seconds
            case "again":
                said = bytes(self._said) + head
                network.repeat(receiver.address, said)
        return data

    def _pass_on(self, data: bytes) -> None:
        network = self._network
        due = network.now + network.draws.delay()
        # TCP keeps the order: nothing arrives before what was sent earlier.
        self._due = max(self._due, due)
        if self._due <= network.now and not self._waiting:
            self._receiver.on_bytes(data, self.number)
            return
        self._waiting.append(data)
        self._held += len(data)
        network.call_at(self._due, self._arrive)

    def _arrive(self) -> None:
        data = self._waiting.popleft()
        self._held -= len(data)
        self._receiver.on_bytes(data, self.number)


class VirtualSocket:
    """A TCP socket in memory, with the calls of `socket.socket` that the product makes.

    Never blocks. Also made by `Network.listen`.
    """

    family = 0
    type = socket.SOCK_STREAM
    proto = 0
    peer: VirtualSocket
    wire: Wire

    def __init__(self, network: Network, owner: Owner | None) -> None:
        self._network = network
        self.owner = owner
        self._fd = network.adopt(self)
        self.address: Address = ("127.0.0.1", 0)
        self.came = bytearray()
        self.queue: deque[VirtualSocket] | None = None  # of one that listens
        self.connected = False
        self.ended = False
        self.broken = False

    # What the selector asks.

    @property
    def readable(self) -> bool:
        """True where a call that reads would not block."""
        return bool(self.came or self.queue or self.ended or self.broken)

    @property
    def writable(self) -> bool:
        """True where a call that writes would not block."""
        return self.broken or (self.connected and self.wire.room > 0)

    def on_bytes(self, data: bytes, wire: int) -> None:
        """Take what a wire brings; an end if that is nothing."""
        if self._fd < 0:  # closed meanwhile: the sender's kernel gets a reset
            if data:
                self.peer.broken = True
            self._network.touch(self.peer)
            return
        self._network.note(wire, data)
        self.came += data
        if not data:
            self.ended = True
        self._network.touch(self)

    # What the product calls.

    def fileno(self) -> int:
        """Return the descriptor, -1 once closed."""
        return self._fd

    def setblocking(self, flag: bool) -> None:  # noqa: FBT001 -- as a socket's
        """Do nothing: it never blocks."""

    def gettimeout(self) -> float:
        """Return that of a socket that does not block."""
        return 0.0

    def setsockopt(self, level: int, option: int, _value: Any) -> None:
        """Take what a wire in memory has: no notes of the kernel on arrivals."""
        if level == socket.SOL_SOCKET and option != socket.SO_REUSEADDR:
            raise _error(errno.ENOPROTOOPT)

    def bind(self, address: Address) -> None:
        """Take an address."""
        self.address = address

    def listen(self, _backlog: int = 0) -> None:
        """Accept connections at the address."""
        if self.queue is None:
            self.queue = deque()

    def connect(self, address: Address) -> None:
        """Connect to who listens."""
        self._network.connect(self, address)

    def accept(self) -> tuple[VirtualSocket, Address]:
        """Return a connection that waits."""
        if not self.queue:
            raise BlockingIOError
        sock = self.queue.popleft()
        return sock, sock.peer.address

    def getsockname(self) -> Address:
        """Return its own address."""
        return self.address

    def getpeername(self) -> Address:
        """Return that of the peer."""
        if not self.connected:
            raise _error(errno.ENOTCONN)
        return self.peer.address

    def send(self, data: bytes | memoryview) -> int:
        """Send some of it."""
        self._check_open()
        count = min(len(data), self.wire.room)
        if not count:
            raise BlockingIOError
        piece = bytes(data[:count])
        self.wire.carry(piece)
        return count

    def _check_open(self) -> None:
        """Refuse what a kernel refuses of a socket that is closed, or was reset."""
        if self._fd < 0:
            raise _error(errno.EBADF)
        if self.broken:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    def sendmsg(self, views: Sequence[memoryview]) -> int:
        """Send some of them."""
        data = b"".join(views)
        return self.send(data)

    def recv_into(self, view: memoryview) -> int:
        """Receive; 0 is the end of the stream."""
        self._check_open()
        if not self.came:
            if self.ended:
                return 0
            raise BlockingIOError

        most = min(len(view), len(self.came))
        count = self._network.draws.piece(most)
        view[:count] = self.came[:count]
        del self.came[:count]
        self._network.touch(self.peer)  # there is room again
        return count

    def recv(self, size: int) -> bytes:
        """Receive up to so many bytes."""
        data = bytearray(min(size, _CHUNK))
        count = self.recv_into(memoryview(data))
        return bytes(data[:count])

    def shutdown(self, _how: int) -> None:
        """Say no more."""
        if self.connected and not self.broken:
            self.wire.carry(b"")

    def close(self) -> None:
        """Let go; the peer sees an end, or a reset if something was not read."""
        if self._fd < 0:
            return
        port = 0
        if self.queue is not None:
            _, port = self.address
        self._network.forget(self._fd, port)
        self._fd = -1
        for connection in self.queue or ():
            connection.close()

        if self.connected and self.came:
            self.peer.broken = True
            self._network.touch(self.peer)
        elif self.connected and not self.broken:
            self.wire.carry(b"")


class Owner(Protocol):
    """Process that a socket belongs to."""

    name: str


class Network:
    """All sockets of a world, and what is on its way between them.

    ``damages``: of wires, each once; ``call_at``: calls back at a wall time.
    """

    def __init__(
        self,
        draws: Draws,
        damages: Iterable[Damage],
        call_at: Callable[..., object],
    ) -> None:
        self.now = EPOCH
        self.draws = draws
        self.call_at = call_at
        self.damages = {damage.wire: damage for damage in damages}
        self.happened: list[Damage | str] = []
        """Damages that came about, and names of processes that died."""
        self.began = math.inf
        """Wall seconds after which the first did."""
        self.sockets: dict[int, VirtualSocket] = {}
        self.hot: dict[int, None] = {}
        """Descriptors of those that may have become ready."""
        self.wires: list[Wire] = []
        self.ends: list[tuple[str, str]] = []
        """Names of the two processes of every connection, who made it first."""
        self._listening: dict[int, VirtualSocket] = {}
        self._fds = _FIRST
        self._ports = _FIRST_PORT
        self._digest = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """Fingerprint of every byte that arrived, with its time and wire."""
        return self._digest.hexdigest()

    def happen(self, fault: Damage | str) -> None:
        """Note that a fault has come about."""
        self.happened.append(fault)
        seconds = self.now - EPOCH
        self.began = min(self.began, seconds)

    def note(self, wire: int, data: bytes) -> None:
        """Take bytes that arrive into the fingerprint."""
        head = b"%d %r %d " % (wire, self.now, len(data))
        self._digest.update(head)
        self._digest.update(data)

    def adopt(self, sock: VirtualSocket) -> int:
        """Return a descriptor for a new socket."""
        self._fds += 1
        self.sockets[self._fds] = sock
        return self._fds

    def forget(self, fd: int, port: int) -> None:
        """Take back a descriptor, and the port that it listened at."""
        del self.sockets[fd]
        self._listening.pop(port, None)

    def touch(self, *changed: VirtualSocket) -> None:
        """Have the selector look at sockets again."""
        for sock in changed:
            self.hot[sock.fileno()] = None

    def listen(self, address: tuple[Any, ...], owner: Owner | None) -> VirtualSocket:
        """Return a socket that listens at an address, any port where that is 0."""
        sock = VirtualSocket(self, owner)
        host, port = address
        holder = self._listening.get(port)
        if holder is not None and holder.queue is not None:
            raise _error(errno.EADDRINUSE)
        self._ports += 1
        port = port or self._ports
        sock.bind((host, port))
        sock.listen()
        self._listening[port] = sock
        return sock

    def connect(self, sock: VirtualSocket, address: Address) -> None:
        """Connect a socket to who listens at an address."""
        _, port = address
        listener = self._listening.get(port)
        if listener is None or listener.queue is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        self._ports += 1
        host, _ = sock.address
        sock.address = host, self._ports

        peer = VirtualSocket(self, listener.owner)
        peer.address = listener.address
        self._join(sock, peer)
        self._join(peer, sock)

        connecting = _name_of(sock.owner)
        listening = _name_of(listener.owner)
        self.ends.append((connecting, listening))
        listener.queue.append(peer)
        self.touch(listener)

    def _join(self, sender: VirtualSocket, receiver: VirtualSocket) -> None:
        number = len(self.wires)
        wire = Wire(self, number, receiver)
        self.wires.append(wire)
        sender.peer = receiver
        sender.wire = wire
        sender.connected = True

    def repeat(self, address: Address, data: bytes) -> None:
        """Say something to an address as a stranger, and leave."""

        def speak() -> None:
            sock = VirtualSocket(self, None)
            with contextlib.suppress(OSError):
                sock.connect(address)
                sock.send(data)
            leave = self.now + 1.0
            self.call_at(leave, sock.close)

        self.call_at(self.now, speak)


def _name_of(owner: Owner | None) -> str:
    return owner.name if owner else "a stranger"
