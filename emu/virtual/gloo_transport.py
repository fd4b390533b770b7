"""Messages as gloo moves them: notices and payload in one stream per pair of ranks.

Facts are of gloo's sources (tcp/pair.cc, context.cc; torch 2.13): a message is three
frames of 48 bytes and its data. Who posts a receive writes "I am ready" into its stream
to the sender; a sender writes its data when that has come, at once where it has come
already. A stream has one order and no priorities, so a notice waits behind payload:
where both ranks of a pair have something to send and one comes late, they send one
after the other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from emu.virtual.streams import Streams

#: Bytes of a frame's header: six words of eight bytes.
HEADER = 48.0
#: Bytes that the kernel takes of a connection before it has sent them; Linux lets its
#: send buffer grow up to 4 MB (tcp_wmem), of which half are data.
SEND_BUFFER = 2.5e6


class Opcode(Enum):
    """Kind of a frame."""

    PAYLOAD = 1
    SEND_READY = 2
    RECEIVE_READY = 3


@dataclass(eq=False)
class Transfer:
    """One side of a message: a posted send or receive."""

    rank: int
    peer: int
    slot: int
    size: float
    number: int = 0
    """Receives before this one from this peer, with this slot."""
    is_over: bool = False
    ended: float = 0.0
    """Seconds, once it is over."""
    waiters: list[Callable[[], None]] = field(default_factory=list)
    """Called once, when it is over."""


#: Sender, receiver and slot.
Way: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class _Notice:
    """Content of a frame."""

    opcode: Opcode
    sender: int
    receiver: int
    slot: int


class GlooTransport:
    """Connections between the ranks of one context.

    Parameters
    ----------
    streams
        Streams of the cluster.
    numbers
        Number of the stream from each rank to each other one.
    """

    def __init__(self, streams: Streams, numbers: dict[tuple[int, int], int]) -> None:
        self._streams = streams
        self._numbers = numbers
        self._ready: defaultdict[Way, int] = defaultdict(int)
        """By (sender, receiver, slot): notices of the receiver that the sender has."""
        self._sends: defaultdict[Way, deque[Transfer]] = defaultdict(deque)
        """By the same: sends whose receiver is not known to be ready."""
        self._receives: defaultdict[Way, deque[Transfer]] = defaultdict(deque)
        """By the same: receives whose data are not there."""
        self._received: defaultdict[Way, int] = defaultdict(int)
        """By the same: receives so far."""
        self._announced: defaultdict[Way, int] = defaultdict(int)
        """By the same: sends that the receiver knows of, less its receives."""
        self._open: defaultdict[tuple[int, int], deque[Transfer]] = defaultdict(deque)
        """By (receiver, slot): receives from whoever sends first."""

    def post_receive(self, rank: int, peer: int, slot: int, size: float) -> Transfer:
        """Post a receive of a rank; its notice goes to the peer."""
        receive = Transfer(rank, peer, slot, size)
        self._expect(receive)
        return receive

    def post_receive_of_any(self, rank: int, slot: int, size: float) -> Transfer:
        """Post a receive from whoever sends first: its notice waits for a send's."""
        receive = Transfer(rank, -1, slot, size)
        self._open[rank, slot].append(receive)
        for sender, receiver, announced in sorted(self._announced):
            if (receiver, announced) == (rank, slot):
                self._match(sender, rank, slot)
        return receive

    def _expect(self, receive: Transfer) -> None:
        way = receive.peer, receive.rank, receive.slot
        receive.number = self._received[way]
        self._received[way] += 1
        self._announced[way] -= 1
        self._receives[way].append(receive)
        self._write(Opcode.RECEIVE_READY, receive)

    def _match(self, sender: int, receiver: int, slot: int) -> None:
        """Have a receive from anyone be from a sender that nobody expects."""
        waiting = self._open[receiver, slot]
        if waiting and self._announced[sender, receiver, slot] > 0:
            receive = waiting.popleft()
            receive.peer = sender
            self._expect(receive)

    def post_send(self, rank: int, peer: int, slot: int, size: float) -> Transfer:
        """Post a send of a rank; data go at once where the peer is ready."""
        send = Transfer(rank, peer, slot, size)
        self._write(Opcode.SEND_READY, send)

        way = rank, peer, slot
        if self._ready[way] > 0:
            self._ready[way] -= 1
            self._write_payload(send)
        else:
            self._sends[way].append(send)
        return send

    def take_in(self, content: _Notice | Transfer) -> None:
        """Take in a frame that is there, or a send that the kernel has whole."""
        if isinstance(content, Transfer):
            self._end(content)
            return

        sender = content.sender
        receiver = content.receiver
        slot = content.slot
        way = sender, receiver, slot
        way_back = receiver, sender, slot
        match content.opcode:
            case Opcode.PAYLOAD:
                receive = self._receives[way].popleft()
                self._end(receive)
            case Opcode.RECEIVE_READY:
                self._take_in_readiness(way_back)
            case Opcode.SEND_READY:
                self._announced[way] += 1
                self._match(sender, receiver, slot)

    def _take_in_readiness(self, way: Way) -> None:
        """Have the first send of a way go, or the next one that is posted."""
        sends = self._sends[way]
        if sends:
            self._write_payload(sends.popleft())
        else:
            self._ready[way] += 1

    def _write_payload(self, send: Transfer) -> None:
        end = self._write(Opcode.PAYLOAD, send, send.size)
        number = self._numbers[send.rank, send.peer]
        self._streams.mark(number, end - SEND_BUFFER, (self, send))

    def _write(self, opcode: Opcode, transfer: Transfer, size: float = 0.0) -> float:
        """Write a frame of a transfer to its peer; return where the frame ends."""
        notice = _Notice(
            opcode=opcode,
            sender=transfer.rank,
            receiver=transfer.peer,
            slot=transfer.slot,
        )
        number = self._numbers[transfer.rank, transfer.peer]
        return self._streams.write(number, HEADER + size, (self, notice))

    def _end(self, transfer: Transfer) -> None:
        transfer.is_over = True
        transfer.ended = self._streams.now
        for tell in transfer.waiters:
            tell()
        transfer.waiters.clear()
