"""Collectives as steps: which rank sends which chunks to which other, and when.

What is exchanged has a chunk per rank. Of a sum (allreduce, reduce_scatter) every rank
brings all chunks; of allgather its own; of alltoall one for every rank; of broadcast
the first rank has all. A rank begins a step when it has ended the one before and has
what was sent to it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple, TypeAlias

from emu.problem.workloads.all_reduce import steps_of

#: Sends of every step.
Steps: TypeAlias = tuple[tuple["Send", ...], ...]

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
        first = rank * ranks
        return range(first, first + ranks)
    if collective == "broadcast" and rank > 0:
        return range(0)
    return range(ranks)


def list_outcome(collective: str, rank: int, ranks: int) -> dict[int, range]:
    """Return the chunks that a rank is to have in the end, each with whose sum it is.

    Of one rank alone that is what this rank brought.
    """
    everybody = range(ranks)
    if collective == "alltoall":
        outcome = {}
        for sender in everybody:
            chunk = sender * ranks + rank
            outcome[chunk] = range(sender, sender + 1)
        return outcome
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
) -> Steps:
    """Return the sends of every step among so many ranks, two or more.

    Of alltoall the chunk for rank d of rank s is ``s * ranks + d``: ``ranks`` times as
    many as of the others. A ring of it hands all on that is for ranks further along.

    Raises ValueError as `steps_of`, or when the collective goes by no such algorithm.
    """
    if algorithm not in ALGORITHMS[collective]:
        words = ", ".join(ALGORITHMS[collective])
        raise ValueError(f"{collective} by {algorithm}: it goes by {words}")

    if algorithm == "direct":
        sends = _send_directly(collective, ranks)
        return (tuple(sends),)
    if collective == "broadcast":
        pass_along = _pass_chain
        if algorithm == "tree":
            pass_along = _grow_tree
        return tuple(map(tuple, pass_along(ranks)))
    if collective == "alltoall":
        steps = range(ranks - 1)
        return tuple(tuple(_pass_on(ranks, step)) for step in steps)

    steps_of_sum = steps_of(algorithm, ranks)
    half = len(steps_of_sum) // 2
    halves = {
        "allgather": steps_of_sum[half:],
        "reduce_scatter": steps_of_sum[:half],
    }
    # Between the halves rank r of a ring has chunk r + 1, which is its own here.
    shift = int(algorithm == "ring" and collective in halves)
    sends_of_steps = []
    # An allreduce is both halves.
    transfers_of_steps = halves.get(collective, steps_of_sum)
    for transfers in transfers_of_steps:
        sends_of_step = []
        for rank, (receiver, first, last) in enumerate(transfers):
            chunk = (first - shift) % ranks
            send = Send(rank, receiver, first=chunk, last=chunk + last - first)
            sends_of_step.append(send)
        sends_of_steps.append(tuple(sends_of_step))
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
        receiver = (sender + 1) % ranks
        origin = (sender - step) % ranks  # of whom it hands chunks on
        for distance in range(1, ranks - step):
            # Chunks of the origin for ranks that are still ahead.
            destination = (sender + distance) % ranks
            chunk = origin * ranks + destination
            yield Send(sender, receiver, chunk, chunk + 1)


def _grow_tree(ranks: int) -> Iterator[list[Send]]:
    """Yield the steps of a broadcast: in each twice as many ranks have all chunks."""
    distance = 1
    while distance < ranks:
        # Where ranks are no power of two the last step has fewer receivers left.
        count = min(distance, ranks - distance)
        yield [
            Send(sender, sender + distance, first=0, last=ranks)
            for sender in range(count)
        ]
        distance *= 2


def _pass_chain(ranks: int) -> Iterator[list[Send]]:
    """Yield the steps of a broadcast along a chain, chunk by chunk."""
    for step in range(2 * ranks - 2):  # rank r sends chunk c on in step r + c
        sends = []
        for rank in range(ranks - 1):
            chunk = step - rank
            if 0 <= chunk < ranks:
                send = Send(rank, rank + 1, chunk, chunk + 1)
                sends.append(send)
        yield sends
