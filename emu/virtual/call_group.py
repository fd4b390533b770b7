"""Calls that the ranks of a process group make, and the values that they leave."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from emu.virtual.calls import MESSAGES, Call, Mismatch, check_alike
from emu.virtual.transports import GLOO, CallsInOrder, Transport, WrittenLane

#: Sender, receiver and tag.
_Members: TypeAlias = tuple[int, int, int]


class Deposit(NamedTuple):
    """A value that a rank left for others."""

    rank: int
    place: int
    """Where it lies among those of the rank, bytes."""
    size: int


class CallForm:
    """A call that a member of a group makes, once or again and again.

    Parameters
    ----------
    group
        The group.
    member
        Who makes it.
    call
        What is alike each time.

    Raises NoAlgorithm, or KeyError, where the transport of the group has no such call.
    """

    def __init__(
        self,
        group: CallGroup,
        member: int,
        call: Call,
    ) -> None:
        transport = group.transport
        ranks = len(group.ranks)
        transport.check(call)
        self.group = group
        self.member = member
        self.call = call
        self.is_message = call.kind in MESSAGES
        self.goes_in_order = transport.is_nccl and not self.is_message
        """True of one that waits for the end of those before it."""
        self.lanes: tuple[WrittenLane, ...]
        self.lanes = transport.lanes(call, member, ranks)


@dataclass(eq=False)
class MadeCall:
    """A call that a rank has made."""

    rank: int
    form: CallForm
    name: int
    """Number among the calls of the rank."""
    slot: int
    """Number in its group, which the calls of others have that belong to it; the tag of
    a message."""
    lanes_left: int = 0
    ended: float = math.inf
    """Seconds at which it was over."""
    source: int | None = None
    """Member that sent what a receive took."""
    deposit: Deposit | None = None
    """Value that a receive took."""
    send_orders: list[Any] = field(default_factory=list)
    """Orders of NCCL's sends, by lane; empty before it begins."""


@dataclass
class _Collective:
    """A collective that members of a group have made, or some of them."""

    calls: dict[int, Call] = field(default_factory=dict)
    """By member."""
    places: list[int | None] = field(default_factory=list)
    """Where their values are, by member; empty where they leave none."""
    readers: int = 0
    """Ranks that have read what they need of them."""


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
        self,
        ranks: Sequence[int],
        backend: str = "gloo",
        transport: Transport = GLOO,
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
        self._ways = defaultdict[_Members, deque[Deposit]](deque)
        """Values of messages that were not taken, by sender, receiver and tag."""

    def check(self, made: MadeCall) -> None:
        """Check a collective against those of the other members.

        Raises Mismatch; says which ranks the members are.
        """
        form = made.form
        calls = self._collectives[made.slot].calls
        try:
            check_alike(form.call, form.member, calls)
        except Mismatch as error:
            ranks = ", ".join(map(str, self.ranks))
            raise Mismatch(f"{error}; members 0 to n are ranks {ranks}") from None
        calls[form.member] = form.call

    def note_deposit(self, made: MadeCall, place: int) -> None:
        """Note where a member left its value for a call."""
        form = made.form
        member = form.member
        if form.is_message:
            figures = form.call.figures
            deposit = Deposit(made.rank, place, figures["size"])
            receiver = figures["peer"]
            self._ways[member, receiver, made.slot].append(deposit)
            return

        collective = self._collectives[made.slot]
        if not collective.places:
            collective.places = [None] * len(self.ranks)
        collective.places[member] = place

    def find_places(self, slot: int) -> list[int | None]:
        """Return where every member's value for a collective is; None without one."""
        return self._collectives[slot].places

    def count_reader(self, made: MadeCall) -> list[Deposit]:
        """Count a rank that has read; return the values that all have read then."""
        if made.form.is_message:
            return [made.deposit] if made.deposit else []

        slot = made.slot
        collective = self._collectives[slot]
        collective.readers += 1
        if collective.readers < len(self.ranks):
            return []

        del self._collectives[slot]
        deposits = []
        for rank, place in zip(self.ranks, collective.places, strict=False):
            if place is not None:
                deposit = Deposit(rank, place, size=0)
                deposits.append(deposit)
        return deposits

    def take_message(self, made: MadeCall, sender: int) -> Deposit:
        """Return the next message of a sender, in the order in which they were sent."""
        receiver = made.form.member
        messages = self._ways[sender, receiver, made.slot]
        return messages.popleft()
