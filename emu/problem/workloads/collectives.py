"""Collectives as steps: which rank sends which chunks to which other, and when.

What is exchanged has a chunk per rank. Of a sum (allreduce, reduce_scatter) every rank
brings all chunks; of allgather its own; of alltoall one for every rank; of broadcast
the first rank has all. A rank begins a step when it has ended the one before and has
what was sent to it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


def list_own(collective: str, rank: int, n: int) -> range:
    """Return the chunks that a rank of ``n`` brings."""
    if collective == "allgather":
        return range(rank, rank + 1)
    if collective == "alltoall":
        return range(rank * n, rank * n + n)
    return range(n if collective != "broadcast" or rank == 0 else 0)


def list_outcome(collective: str, rank: int, n: int) -> dict[int, range]:
    """Return the chunks that a rank is to have in the end, each with whose sum it is.

    Of one rank alone that is what this rank brought.
    """
    if collective == "alltoall":
        return {other * n + rank: range(other, other + 1) for other in range(n)}
    if collective == "allgather":
        return {other: range(other, other + 1) for other in range(n)}
    if collective == "broadcast":
        return dict.fromkeys(range(n), range(1))
    chunks = (rank,) if collective == "reduce_scatter" else range(n)
    return dict.fromkeys(chunks, range(n))


def adds_up(collective: str, step: int, steps: int) -> bool:
    """Return True where what a step of so many brings is added to what is there."""
    if collective == "allreduce":
        return 2 * step < steps
    return collective == "reduce_scatter"


@cache
def list_steps(collective: str, algorithm: str, n: int) -> tuple[tuple[Send, ...], ...]:
    """Return the sends of every step among ``n`` ranks, two or more.

    Of alltoall the chunk for rank d of rank s is ``s * n + d``: ``n`` times as many as
    of the others. A ring of it hands all on that is for ranks further along.

    Raises ValueError as `steps_of`, or when the collective goes by no such algorithm.
    """
    if algorithm not in ALGORITHMS[collective]:
        words = ", ".join(ALGORITHMS[collective])
        raise ValueError(f"{collective} by {algorithm}: it goes by {words}")
    pairs = [(r, (r + d) % n) for d in range(1, n) for r in range(n)]
    if algorithm == "direct":
        return (tuple(_directly(collective, pairs, n)),)
    if collective == "broadcast":
        return tuple(map(tuple, _broadcast(algorithm, n)))
    if collective == "alltoall":
        return tuple(
            tuple(
                Send(r, (r + 1) % n, o * n + d, o * n + d + 1)
                for r in range(n)
                for o in [(r - step) % n]  # of whom it hands chunks on
                for d in [(r + 1 + further) % n for further in range(n - 1 - step)]
            )
            for step in range(n - 1)
        )
    whole = steps_of(algorithm, n)
    half = len(whole) // 2
    halves = {"allgather": whole[half:], "reduce_scatter": whole[:half]}
    # Between the halves rank r of a ring has chunk r + 1, which is its own here.
    shift = int(algorithm == "ring" and collective in halves)
    return tuple(
        tuple(
            Send(rank, to, (first - shift) % n, (first - shift) % n + last - first)
            for rank, (to, first, last) in enumerate(step)
        )
        for step in halves.get(collective, whole)
    )


def _directly(
    collective: str, pairs: Iterable[tuple[int, int]], n: int
) -> Iterator[Send]:
    """Yield the sends of one step, from everybody to everybody but of broadcast."""
    for source, to in pairs:
        first = {"allgather": source, "alltoall": source * n + to}.get(collective, to)
        if collective != "broadcast":
            yield Send(source, to, first, first + 1)
        elif source == 0:
            yield Send(0, to, 0, n)


def _broadcast(algorithm: str, n: int) -> Iterator[list[Send]]:
    """Yield the steps: twice as many ranks with all chunks, or a chain of chunks."""
    if algorithm == "tree":
        for far in (1 << step for step in range((n - 1).bit_length())):
            yield [Send(r, r + far, 0, n) for r in range(far) if r + far < n]
        return
    for step in range(2 * n - 2):  # rank r sends chunk c on in step r + c
        chunks = ((rank, step - rank) for rank in range(n - 1))
        yield [Send(r, r + 1, c, c + 1) for r, c in chunks if 0 <= c < n]
