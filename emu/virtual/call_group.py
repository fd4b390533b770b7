"""Calls that the ranks of a process group make, and the values that they leave."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from emu.virtual.calls import Call, Mismatch, check_alike
from emu.virtual.transports import GLOO, CallsInOrder, Transport

#: Sender, receiver and tag.
_Members: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class Deposit:
    """A value that a rank left for others."""

    rank: int
    place: int
    """Where it lies among those of the rank, bytes."""
    size: int


@dataclass
class _Collective:
    """A collective that members of a group have made, or some of them."""

    calls: dict[int, Call] = field(default_factory=dict)
    """By member."""
    deposits: dict[int, Deposit] = field(default_factory=dict)
    """The same of the values that they left."""
    readers: int = 0
    """Ranks that have read what they need of them."""


@dataclass
class _Way:
    """Messages of one member to another with one tag."""

    deposits: deque[Deposit] = field(default_factory=deque)
    """Values of those that were not taken."""
    taken: int = 0


class CallGroup:
    """Ranks that were made a process group.

    Parameters
    ----------
    ranks
        In the order of members.
    backend
        That the program named: ``gloo``, ``nccl`` or ``mpi``.
    transport
        How its calls become messages.
    """

    def __init__(
        self, ranks: Sequence[int], backend: str = "gloo", transport: Transport = GLOO
    ) -> None:
        self.ranks = ranks
        self.backend = backend
        self.transport = transport
        self.calls_in_order = [CallsInOrder() for _ in ranks]
        """By member: collectives that go one after the other."""
        self.number: int | None = None
        """Its number in the network, once it is open there."""
        self.member_of = {rank: member for member, rank in enumerate(ranks)}
        self._collectives = defaultdict[int, _Collective](_Collective)
        """By slot."""
        self._ways = defaultdict[_Members, _Way](_Way)
        """By sender, receiver and tag."""

    def check(self, slot: int, member: int, call: Call) -> None:
        """Check a collective against those of the other members.

        Raises Mismatch; says which ranks the members are.
        """
        calls = self._collectives[slot].calls
        try:
            check_alike(call, member, calls)
        except Mismatch as error:
            ranks = ", ".join(map(str, self.ranks))
            raise Mismatch(f"{error}; members 0 to n are ranks {ranks}") from None
        calls[member] = call

    def note_deposit(self, slot: int, member: int, call: Call, place: int) -> None:
        """Note where a member left its value for a call."""
        size = call.figures.get("size", 0)
        deposit = Deposit(rank=self.ranks[member], place=place, size=size)
        if call.kind == "send":
            receiver = call.figures["peer"]
            messages = self._ways[member, receiver, slot]
            messages.deposits.append(deposit)
        else:
            self._collectives[slot].deposits[member] = deposit

    def find_places(self, slot: int) -> list[int | None]:
        """Return where every member's value for a collective is; None without one."""
        deposits = self._collectives[slot].deposits
        places: list[int | None] = [None] * len(self.ranks)
        for member, deposit in deposits.items():
            places[member] = deposit.place
        return places

    def count_reader(self, slot: int) -> list[Deposit]:
        """Count a rank that has read; return the values that all have read then."""
        collective = self._collectives[slot]
        collective.readers += 1
        if collective.readers < len(self.ranks):
            return []
        del self._collectives[slot]
        return [*collective.deposits.values()]

    def take_message(self, sender: int, receiver: int, tag: int) -> tuple[Deposit, int]:
        """Return the next message of a sender to a receiver, and how many came before.

        They are taken in the order in which they were sent.
        """
        way = self._ways[sender, receiver, tag]
        deposit = way.deposits.popleft()
        number = way.taken
        way.taken += 1
        return deposit, number
