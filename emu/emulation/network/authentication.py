"""Authentication: a client is a stranger until both sides prove that they know a key.

    client ─► who it is, its nonce
    client ◄─ the server's nonce, and its proof
    client ─► its own proof
    client ◄─ accepted

A proof is an HMAC-SHA256 over the side that gives it, who the client is, both nonces
(as in ISO/IEC 9798-4) and, under TLS, the server's certificate: the key never travels,
a recording is of no use a second time, no side's proof can be sent back to it, and
no third party can end TLS in between. Every role has a key of its own,
derived from the run's token, so that who holds one cannot pose as another.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import msgpack

from emu.errors import NodeLost, NodeMisbehaved
from emu.host.this_host import this_host
from emu.names import printable

# Addresses as people write them: HOST:PORT, with brackets around IPv6.

_HOST = re.compile(r"[A-Za-z0-9._~-]+(%[A-Za-z0-9._-]+)?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?")
_ADDRESS = re.compile(r"(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:\[\]]*))(?::(?P<port>.*))?")
_PORTS = 1 << 16
Side: TypeAlias = Literal["client", "server"]
_NONCE = 32  # bytes
#: Why a stranger was turned away that may try again.
AGAIN = "too many strangers are at this port: try again"
#: Wall seconds before who was refused for want of room tries again.
_PAUSE = 0.02
T = TypeVar("T")


def parse_address(text: str, *, port: int | None = None) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, ``[IPV6]:PORT``.

    The port may be left out where ``port`` is what it is then.

    Raises ValueError when it is no address; says what would be right.
    """
    match = _ADDRESS.fullmatch(text)
    name, port_text = _split(match) if match else (None, None)
    optional = "[:PORT]" if port is not None else ":PORT"
    quote = repr(printable(text))
    if name is None or (port_text is None and port is None):
        raise ValueError(f"{quote} is not HOST{optional} or [IPV6]{optional}")

    if port_text is None:
        return name, port or 0
    # Nine digits are enough: Python refuses to read thousands of them.
    if not re.fullmatch("[0-9]+", port_text) or int(port_text[:9]) >= _PORTS:
        problem = f"{quote}: the port is {printable(port_text)!r}"
        raise ValueError(f"{problem}; a port is a number from 0 to {_PORTS - 1}")
    return name, int(port_text)


def _split(match: re.Match[str]) -> tuple[str | None, str | None]:
    """Return host, None where it cannot be one, and the text of the port, if any."""
    six = match["six"]
    name = six or match["host"] or ""
    form = _HOST if six is None else _IPV6
    port_text = match["port"]
    if not form.fullmatch(name):
        return None, port_text
    try:
        name.encode("idna")
    except UnicodeError:  # an empty label, or beyond 63 bytes
        return None, port_text
    return name, port_text


def format_address(host: str, port: int) -> str:
    """Return an address as `parse_address` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def derive_key(token: str, *subject: str | int) -> bytes:
    """Return the key of a subject, from which the token cannot be computed."""
    # Text of the environment may hold bytes that are no UTF-8.
    return _mac(token.encode(errors="surrogateescape"), "key", *subject)


def edge_keys(token: str, edges: Collection[int]) -> dict[int, bytes]:
    """Return the keys of data connections by edge."""
    return {edge: derive_key(token, "edge", edge) for edge in edges}


def _mac(key: bytes, *parts: str | int | bytes) -> bytes:
    """Return the HMAC of the parts, none of which can pass for two others."""
    return hmac.digest(key, msgpack.packb(["emu", *parts]), "sha256")


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of the client of a control connection, and the key that proves it."""

    role: str
    name: str
    """``agent`` or ``process``, and its name in the run."""
    key: bytes
    """`derive_key` of the token, the role and the name."""

    @classmethod
    def of(cls, token: str, role: str, name: str) -> Identity:
        """Return the identity of whoever knows the token itself."""
        return cls(role, name, derive_key(token, role, name))


def fresh_nonce() -> bytes:
    """Return fresh random bytes."""
    return this_host.draw(_NONCE)


@dataclass(frozen=True, slots=True)
class Challenge:
    """Values of a handshake that both sides compute alike.

    Raises NodeMisbehaved when a nonce, which a stranger sent, is none.
    """

    key: bytes
    subject: tuple[str | int, ...]
    """Identity of the client."""
    client: Any
    server: Any
    """The nonces of the two sides, of which a stranger sent one: bytes."""
    binding: bytes = b""
    """Fingerprint of the server's certificate, as this side knows it; none without
    TLS."""

    def __post_init__(self) -> None:
        for nonce in (self.client, self.server):
            if not isinstance(nonce, bytes) or len(nonce) != _NONCE:
                raise NodeMisbehaved("the handshake carries no challenge of 32 bytes")

    def proof(self, side: Side, purpose: str = "proof") -> bytes:
        """Return the proof that ``side`` gives."""
        return _mac(
            self.key,
            purpose,
            side,
            *self.subject,
            self.client,
            self.server,
            self.binding,
        )

    def seal_key(self, side: Side) -> bytes:
        """Return the key with which ``side`` seals its messages afterwards."""
        return self.proof(side, "seal")

    def check(self, fields: Mapping[str, Any], side: Side) -> None:
        """Check the proof in a side's message; raises NodeMisbehaved if it is wrong."""
        proof = fields.get("proof")
        right = self.proof(side)
        if not (isinstance(proof, bytes) and hmac.compare_digest(proof, right)):
            raise NodeMisbehaved("it does not know the token of this run")


class Rejections(deque[tuple[str, str]]):
    """The last hundred strangers that a port has dropped and why; how many in all.

    A line goes out for each of the first hundred: a log must not grow for ever.
    """

    def __init__(self, notify: Callable[[str], None] | None = None) -> None:
        super().__init__(maxlen=100)
        self._notify = notify
        self.total = 0

    def note(self, peer: str, reason: str) -> None:
        """Remember one more."""
        self.total += 1
        self.append((peer, reason))
        if self._notify is not None and self.total <= (self.maxlen or 0):
            self._notify(f"refused a connection from {peer}: {printable(reason)}")


class Stranger(Protocol):
    """A connection whose peer has not proved itself."""

    def turn_away(self, reason: str) -> None:
        """Answer that it was refused, and close."""


class Strangers:
    """Peers at a port that have not proved themselves: some at a time, the newest.

    Whoever fills the port with idle connections keeps no peer out: the one that is idle
    longest makes room. A peer that was in its handshake then gets `AGAIN`.
    """

    #: A process may often have 1024 files: the others are for peers that have proved
    #: themselves.
    most = 512
    #: Wall seconds that one has to prove itself.
    patience = 10.0

    def __init__(self, most: int | None = None) -> None:
        self.most = most or self.most
        self._present: dict[Stranger, None] = {}  # the one that came first, first

    def enter(self, stranger: Stranger) -> None:
        """Take one in; the one that has been here longest makes room."""
        if len(self._present) >= self.most:
            oldest = next(iter(self._present))
            self.leave(oldest)
            oldest.turn_away(AGAIN)
        self._present[stranger] = None

    def leave(self, stranger: Stranger) -> None:
        """Forget one that has proved itself, or left."""
        self._present.pop(stranger, None)


def name_of(address: Sequence[Any] | None) -> str:
    """Return host:port of a peer's address."""
    if not address:
        return "unknown"
    host, port, *_ = address
    return format_address(str(host), port)


async def listen_within(
    port: int,
    ports: Sequence[int] | None,
    listen: Callable[[int], Awaitable[T]],
) -> T:
    """Return what listens at ``port``, or where that is 0 at the first free of a range.

    The range is its first and last port; without one the kernel chooses. Raises OSError
    when the port is in use, or all of the range are, or the address is not of this
    host.
    """
    if port or ports is None:
        return await listen(port)

    first, last = ports
    for candidate in range(first, last + 1):
        try:
            return await listen(candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"all of emulation.ports {first}-{last} are in use")


async def enter_port(enter: Callable[[float], Awaitable[T]], within: float) -> T:
    """Return what is entered, trying again where strangers take all the room.

    ``enter`` connects and proves who it is, within so many wall seconds. Raises what it
    raised for another reason, or when no time is left.
    """
    end = this_host.monotonic() + within
    rest = within
    while True:
        try:
            return await enter(rest)
        except (NodeLost, NodeMisbehaved) as error:
            rest = end - this_host.monotonic()
            if not str(error).endswith(AGAIN) or rest <= _PAUSE:
                raise
            await asyncio.sleep(_PAUSE)
