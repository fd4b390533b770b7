"""Collectives as steps: which rank sends which chunks to which other, and when.

What is exchanged has a chunk per rank. Of a sum (allreduce, reduce_scatter) every rank
brings all chunks; of allgather its own; of alltoall one for every rank; of broadcast
the first rank has all. A rank begins a step when it has ended the one before and has
what was sent to it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from emu.problem.workloads.all_reduce import steps_of

#: Collective -> algorithms that it goes by, the default first.
ALGORITHMS = {
    "allreduce": ("ring", "halving_doubling"),
    "allgather": ("ring", "halving_doubling", "direct"),
    "reduce_scatter": ("ring", "halving_doubling", "direct"),
    "alltoall": ("direct", "ring"),
    "broadcast": ("tree", "ring", "direct"),
}


class Send(NamedTuple):
    """Chunks ``first`` to ``last`` - 1 of one rank to another."""

    sender: int
    receiver: int
    first: int
    last: int

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return self.last - self.first


def list_own(collective: str, rank: int, ranks: int) -> range:
    """Return the chunks that a rank of so many brings."""
    if collective == "allgather":
        return range(rank, rank + 1)
    if collective == "alltoall":
        return range(rank * ranks, (rank + 1) * ranks)
    if collective == "broadcast" and rank > 0:
        return range(0)
    return range(ranks)


def list_outcome(collective: str, rank: int, ranks: int) -> dict[int, range]:
    """Return the chunks that a rank is to have in the end, each with whose sum it is.

    Of one rank alone that is what this rank brought.
    """
    everybody = range(ranks)
    if collective == "alltoall":
        return {
            sender * ranks + rank: range(sender, sender + 1) for sender in everybody
        }
    if collective == "allgather":
        return {sender: range(sender, sender + 1) for sender in everybody}
    if collective == "broadcast":
        return dict.fromkeys(everybody, range(1))
    if collective == "reduce_scatter":
        return {rank: everybody}
    return dict.fromkeys(everybody, everybody)


def adds_up(collective: str, step: int, steps: int) -> bool:
    """Return True where what a step of so many brings is added to what is there."""
    if collective == "allreduce":
        # In the second half sums are passed on, which replace.
        return 2 * step < steps
    return collective == "reduce_scatter"


@cache
def list_steps(
    collective: str,
    algorithm: str,
    ranks: int,
) -> tuple[tuple[Send, ...], ...]:
    """Return the sends of every step among so many ranks, two or more.

    Of alltoall the chunk for rank d of rank s is ``s * ranks + d``: ``ranks`` times as
    many as of the others. A ring of it hands all on that is for ranks further along.

    Raises ValueError as `steps_of`, or when the collective goes by no such algorithm.
    """
    if algorithm not in ALGORITHMS[collective]:
        words = ", ".join(ALGORITHMS[collective])
        raise ValueError(f"{collective} by {algorithm}: it goes by {words}")

    if algorithm == "direct":
        return (tuple(_send_directly(collective, ranks)),)
    if collective == "broadcast":
        steps = _grow_tree(ranks) if algorithm == "tree" else _pass_chain(ranks)
        return tuple(map(tuple, steps))
    if collective == "alltoall":
        return tuple(tuple(_pass_on(ranks, step)) for step in range(ranks - 1))

    steps_of_sum = steps_of(algorithm, ranks)
    half = len(steps_of_sum) // 2
    halves = {"allgather": steps_of_sum[half:], "reduce_scatter": steps_of_sum[:half]}
    # Between the halves rank r of a ring has chunk r + 1, which is its own here.
    shift = int(algorithm == "ring" and collective in halves)
    sends_of_steps = []
    # An allreduce is both halves.
    for transfers in halves.get(collective, steps_of_sum):
        sends = []
        for rank, (receiver, first, last) in enumerate(transfers):
            chunk = (first - shift) % ranks
            sends.append(Send(rank, receiver, chunk, chunk + last - first))
        sends_of_steps.append(tuple(sends))
    return tuple(sends_of_steps)


def _send_directly(collective: str, ranks: int) -> Iterator[Send]:
    """Yield the sends of one step, from everybody to everybody but of broadcast."""
    for distance in range(1, ranks):
        for sender in range(ranks):
            receiver = (sender + distance) % ranks
            if collective == "broadcast":
                if sender == 0:
                    yield Send(sender, receiver, 0, ranks)
                continue

            chunk = receiver
            if collective == "allgather":
                chunk = sender
            elif collective == "alltoall":
                chunk = sender * ranks + receiver
            yield Send(sender, receiver, chunk, chunk + 1)


def _pass_on(ranks: int, step: int) -> Iterator[Send]:
    """Yield the sends of a step of an alltoall in a ring."""
    for sender in range(ranks):
        origin = (sender - step) % ranks  # of whom it hands chunks on
        for distance in range(1, ranks - step):
            # Chunks of the origin for ranks that are still ahead.
            chunk = origin * ranks + (sender + distance) % ranks
            yield Send(sender, (sender + 1) % ranks, chunk, chunk + 1)


def _grow_tree(ranks: int) -> Iterator[list[Send]]:
    """Yield the steps of a broadcast: in each twice as many ranks have all chunks."""
    distance = 1
    while distance < ranks:
        # Where ranks are no power of two the last step has fewer receivers left.
        senders = range(min(distance, ranks - distance))
        yield [Send(rank, rank + distance, 0, ranks) for rank in senders]
        distance *= 2


def _pass_chain(ranks: int) -> Iterator[list[Send]]:
    """Yield the steps of a broadcast along a chain, chunk by chunk."""
    for step in range(2 * ranks - 2):  # rank r sends chunk c on in step r + c
        sends = []
        for rank in range(ranks - 1):
            chunk = step - rank
            if 0 <= chunk < ranks:
                sends.append(Send(rank, rank + 1, chunk, chunk + 1))
        yield sends
