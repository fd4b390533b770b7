"""Collectives as gloo runs them: what a rank posts, in which order, and waits for.

A script is what one rank does in one operation: it yields posts and waits, and gets the
transfer that it posted; what it yields depends on nothing that happens. Scripts follow
gloo's sources (allreduce.cc, broadcast.cc, reduce.cc, allgather.cc, gather.cc,
scatter.cc, alltoall.cc, barrier.cc of 2026) and torch 2.13, which always asks for the
ring in an allreduce. Sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any, TypeAlias

#: Bytes above which a ring cuts a tensor into more segments.
_SEGMENT = 1 << 20


@dataclass(frozen=True)
class Transfer:
    """A posted send or receive."""

    number: int
    """Posts of its operation before it."""


@dataclass(frozen=True)
class Send:
    """Post a send."""

    peer: int
    size: float


@dataclass(frozen=True)
class Receive:
    """Post a receive."""

    peer: int | None
    """None: from whoever sends first."""
    size: float


@dataclass(frozen=True)
class Wait:
    """Go on when transfers are over."""

    transfers: tuple[Transfer, ...]


#: Gives the transfer that was posted; its outcome is the one of a message, else none.
Script: TypeAlias = Generator[Send | Receive | Wait, Transfer, Any]


@dataclass(frozen=True)
class Ring:
    """Segments of a tensor that go round a ring of ranks.

    Raises ValueError when there are fewer than two ranks.
    """

    ranks: int
    size: int
    element: int
    """Bytes of one element: no segment ends within one."""

    def __post_init__(self) -> None:
        if self.ranks < 2:
            raise ValueError(f"a ring of {self.ranks} ranks has nothing to send")

    @cached_property
    def segments(self) -> int:
        """Number of segments: two or more per rank, of about 1 MiB at most."""
        full = ceil(self.size / _SEGMENT)
        wanted = max(full, 2 * self.ranks)
        per_rank = ceil(wanted / self.ranks)
        return per_rank * self.ranks

    @cached_property
    def per_rank(self) -> int:
        """Segments that each rank reduces."""
        return self.segments // self.ranks

    @cached_property
    def _whole_length(self) -> int:
        """Bytes of a segment that is not short: whole elements."""
        length = self.size / self.segments
        elements = ceil(length / self.element)
        return elements * self.element

    def length(self, segment: int) -> int:
        """Return the bytes of a segment; the last ones may be short, or empty."""
        whole = self._whole_length
        place = segment % self.segments
        left = self.size - place * whole
        return max(0, min(whole, left))


def all_reduce(rank: int, ring: Ring) -> Script:
    """Sum by a ring: segments are reduced on their way round, then handed on."""
    steps = ring.segments - ring.per_rank
    yield from _round(rank, ring, steps, ahead=1)
    yield from _round(rank, ring, steps, ahead=0)


def reduce(rank: int, ring: Ring, root: int) -> Script:
    """Sum by a ring, then every rank sends its part to the root.

    All but two segments go round: of large tensors some need not (gloo, reduce.cc).
    """
    steps = ring.segments - 2
    yield from _round(rank, ring, steps, ahead=1)

    if rank != root:
        part = _part_of(rank, ring)
        send = yield Send(root, part)
        yield Wait((send,))
        return

    receives = []
    for peer in _all_but(root, ring.ranks):
        part = _part_of(peer, ring)
        receive = Receive(peer, part)
        receives.append(receive)
    yield from _post_and_wait(receives)


def _part_of(owner: int, ring: Ring) -> int:
    """Return the bytes of the segments that a rank reduces."""
    first = owner * ring.per_rank
    segments = range(first, first + ring.per_rank)
    return sum(map(ring.length, segments))


def _all_but(root: int, ranks: int) -> list[int]:
    """Return the other ranks in their order."""
    return [peer for peer in range(ranks) if peer != root]


def _post_and_wait(steps: Sequence[Send | Receive]) -> Script:
    """Post sends and receives in their order, then wait for all."""
    posted: list[Transfer] = []
    for step in steps:
        transfer = yield step
        posted.append(transfer)
    yield Wait((*posted,))


def _round(
    rank: int,
    ring: Ring,
    steps: int,
    *,
    ahead: int,
) -> Script:
    """Send so many segments to the rank before, and take as many from the one behind.

    Two are under way. ``ahead``: ranks by which the first segment is ahead of its own.
    """
    before = (rank - 1) % ring.ranks
    behind = (rank + 1) % ring.ranks
    first = (rank + ahead) * ring.per_rank
    receives: list[Transfer | None] = []
    sends: list[Transfer | None] = []
    for step in range(steps + 2):
        if step >= 2:
            yield from _wait_for(receives[step - 2])
            yield from _wait_for(sends[step - 2])
        if step < steps:
            segment = first + step
            next_segment = segment + ring.per_rank
            length = ring.length(next_segment)
            given = ring.length(segment)
            receive = yield from _post(Receive(behind, length))
            send = yield from _post(Send(before, given))
            receives.append(receive)
            sends.append(send)


def _post(transfer: Send | Receive) -> Generator[Any, Transfer, Transfer | None]:
    """Post a send or receive; nothing where it is empty."""
    if not transfer.size:
        return None
    posted = yield transfer
    return posted


def _wait_for(transfer: Transfer | None) -> Script:
    if transfer is not None:
        yield Wait((transfer,))


def all_gather(rank: int, ranks: int, size: int) -> Script:
    """Hand blocks round a ring, each in two halves; a send goes before its receive.

    ``size``: bytes that each rank brings.
    """
    second_half = size // 2
    first_half = size - second_half
    halves = (first_half, second_half)
    after = (rank + 1) % ranks
    before = (rank - 1) % ranks
    steps = 2 * (ranks - 1)

    sends: list[Transfer] = []
    receives: list[Transfer] = []
    for step in range(steps + 2):
        if step >= 2:
            yield Wait((receives[step - 2],))
            yield Wait((sends[step - 2],))
        if step < steps:
            half = halves[step % 2]
            send = yield Send(after, half)
            receive = yield Receive(before, half)
            sends.append(send)
            receives.append(receive)


def parent_in_broadcast(place: int) -> int:
    """Return who sends to a place of a binomial tree, places counted from the root."""
    highest_bit = 1 << (place.bit_length() - 1)
    return place - highest_bit


def broadcast(
    rank: int,
    ranks: int,
    root: int,
    size: int,
) -> Script:
    """Send a tensor down a binomial tree; who has it sends to all its children."""
    place = (rank - root) % ranks
    if place > 0:
        parent = parent_in_broadcast(place)
        parent_rank = (parent + root) % ranks
        receive = yield Receive(parent_rank, size)
        yield Wait((receive,))

    last_place = ranks - 1
    first_round = place.bit_length()
    rounds = last_place.bit_length()
    sends: list[Send | Receive] = []
    for number in range(first_round, rounds):
        child = place + (1 << number)
        if child <= last_place:
            child_rank = (child + root) % ranks
            send = Send(child_rank, size)
            sends.append(send)
    yield from _post_and_wait(sends)


def gather(
    rank: int,
    ranks: int,
    root: int,
    size: int,
) -> Script:
    """Send to the root, which posts its receives in the order of ranks."""
    steps: list[Send | Receive] = [Send(root, size)]
    if rank == root:
        others = _all_but(root, ranks)
        steps = [Receive(peer, size) for peer in others]
    yield from _post_and_wait(steps)


def scatter(
    rank: int,
    ranks: int,
    root: int,
    size: int,
) -> Script:
    """Receive from the root, which posts its sends in the order of ranks."""
    steps: list[Send | Receive] = [Receive(root, size)]
    if rank == root:
        others = _all_but(root, ranks)
        steps = [Send(peer, size) for peer in others]
    yield from _post_and_wait(steps)


def all_to_all(
    rank: int,
    given: Sequence[int],
    taken: Sequence[int],
) -> Script:
    """Send to the ranks ahead and receive from those behind, the nearest first.

    A send is posted before the receive of its step, and all before any wait: between
    ranks that are not equally early, the later one's notice stands behind its payload.

    ``given``, ``taken``: bytes to each rank and from each.
    """
    ranks = len(given)
    steps: list[Send | Receive] = []
    for distance in range(1, ranks):
        ahead = (rank + distance) % ranks
        behind = (rank - distance) % ranks
        send = Send(ahead, given[ahead])
        receive = Receive(behind, taken[behind])
        steps.append(send)
        steps.append(receive)
    yield from _post_and_wait(steps)


def barrier(rank: int, ranks: int) -> Script:
    """Exchange empty messages over distances 1, 2, 4 and so on."""
    distance = 1
    while distance < ranks:
        behind = (rank - distance) % ranks
        ahead = (rank + distance) % ranks
        receive = yield Receive(behind, 0)
        send = yield Send(ahead, 0)
        yield Wait((receive, send))
        distance *= 2
