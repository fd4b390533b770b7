"""All-reduce as tasks: steps that send a part on, and receivers of the parts.

A vector is cut into a chunk per rank, as ``numpy.array_split`` does. In the first half
of the steps what is received is added, in the second half it replaces: every rank has
the sum then, the same bits. A step begins when the one before has been received *and*
sent (specs, 2f), as the credit edges state: otherwise a fast rank overlaps its steps,
and the slowest gets slower.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from emu.workloads.model_shapes import shard_bounds
from emu.workloads.named_edges import NamedEdge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emu.problem import Task

#: Kind of its tasks, which take no time unless it is stated.
ALL_REDUCE = "all_reduce"
#: Programs of the tasks of a rank.
STEP, RECEIVE = "emu_nodes.all_reduce:Step", "emu_nodes.all_reduce:Receive"


class Transfer(NamedTuple):
    """Chunks that one rank sends to another in one step: ``first`` to ``last`` - 1."""

    receiver: int
    first: int
    last: int


#: Per step, the transfer of every rank.
Steps = tuple[tuple[Transfer, ...], ...]


def _ring(ranks: int) -> Steps:
    """Rank r sends to r + 1: chunk r - s to be added, then r + 1 - s (specs, 2f)."""

    def step(first_chunk: int, s: int) -> tuple[Transfer, ...]:
        chunks = [(r + first_chunk - s) % ranks for r in range(ranks)]
        return tuple(
            Transfer((r + 1) % ranks, chunk, chunk + 1)
            for r, chunk in enumerate(chunks)
        )

    return tuple(step(add, s) for add in (0, 1) for s in range(ranks - 1))


def _halving_doubling(ranks: int) -> Steps:
    """Halve what two ranks share, then double it (Thakur, Rabenseifner, Gropp 2005).

    At distance d, rank r and r xor d share 2 d chunks; r keeps those on its side.
    """
    halvings = []
    distance = ranks // 2
    while distance:
        step = []
        for rank in range(ranks):
            other = rank ^ distance
            first = other // distance * distance
            step.append(Transfer(other, first, first + distance))
        halvings.append(tuple(step))
        distance //= 2
    doublings = [
        tuple(
            step[transfer.receiver]._replace(receiver=transfer.receiver)
            for transfer in step
        )
        for step in reversed(halvings)
    ]
    return (*halvings, *doublings)


@cache
def steps_of(algorithm: str, ranks: int) -> Steps:
    """Return the steps of ``ring`` or ``halving_doubling``; of one rank there is none.

    The first half of the steps adds.

    Raises
    ------
    ValueError
        When there is no such algorithm, or halving and doubling has ranks that are not
        a power of two.
    """
    if algorithm == "ring":
        return _ring(ranks)
    if algorithm != "halving_doubling":
        raise ValueError(f"all-reduce by {algorithm}: ring and halving_doubling exist")
    if ranks & (ranks - 1):
        raise ValueError(
            f"halving and doubling needs a power of two of ranks, not {ranks}: "
            "write ring"
        )
    return _halving_doubling(ranks)


def part_bounds(elements: int, ranks: int, first: int, last: int) -> tuple[int, int]:
    """Return where the first chunk begins and where ``last``, the next one, does."""
    bounds = shard_bounds(elements, ranks)
    return bounds[first][0], bounds[last - 1][1]


def all_reduce_tasks(ranks: Sequence[Task], algorithm: str = "ring") -> Iterator[Task]:
    """Yield the steps of every rank, then what it receives; of one rank, none.

    Parameters
    ----------
    ranks
        A task per rank, whose name the steps begin with: they share its process and
        machine.

    Raises
    ------
    ValueError
        As `steps_of`.
    """
    size = len(ranks)
    steps = steps_of(algorithm, size)
    for rank, one in enumerate(ranks if steps else ()):
        part = replace(
            one,
            kind=ALL_REDUCE,
            demands={},
            process=one.process_name,
            takes="",
            frees=None,
        )
        place = {"of": one.name, "algorithm": algorithm, "ranks": size, "rank": rank}
        for step in range(len(steps) + 1):
            settings = {**place, "step": step}
            name = f"{one.name}.{algorithm}{step}"
            yield replace(part, name=name, program=STEP, settings=settings)
        for step in range(len(steps)):
            settings = {**place, "step": step}
            name = f"{one.name}.got{step}"
            yield replace(part, name=name, program=RECEIVE, settings=settings)


def all_reduce_edges(
    names: Sequence[str],
    before: Sequence[str],
    after: Sequence[str],
    *,
    lag: int,
    carries: str,
    about: tuple[int, ...] = (),
    algorithm: str = "ring",
) -> Iterator[NamedEdge]:
    """Yield the edges: each rank's ``before``, its steps, its ``after``.

    For one rank, an edge from ``before`` to ``after`` where they differ.

    Parameters
    ----------
    names
        Names of the ranks, as of the tasks that `all_reduce_tasks` was given.
    before, after
        Per rank the task whose sum is wanted, and the one that waits for it.
    lag
        Iterations from a sum to the ``after`` that waits for it.
    carries
        `NamedEdge.carries` of its flows; ``place`` is (first chunk, the one after the
        last, ranks, *about).

    Raises
    ------
    ValueError
        As `steps_of`.
    """
    size = len(names)
    steps = steps_of(algorithm, size)
    if not steps and before[0] != after[0]:
        yield NamedEdge(before[0], after[0], lag)
    for rank, name in enumerate(names if steps else ()):
        yield NamedEdge(before[rank], f"{name}.{algorithm}0")
        for step, transfers in enumerate(steps):
            here, then = f"{name}.{algorithm}{step}", f"{name}.{algorithm}{step + 1}"
            receiver, first, last = transfers[rank]
            to = names[receiver]
            place = (first, last, size, *about)
            yield NamedEdge(here, f"{to}.got{step}", carries=carries, place=place)
            yield NamedEdge(f"{to}.got{step}", f"{to}.{algorithm}{step + 1}")
            yield NamedEdge(f"{to}.got{step}", then, credit=True)
            yield NamedEdge(here, then)
        yield NamedEdge(f"{name}.{algorithm}{len(steps)}", after[rank], lag)


def all_reduce_edge_count(ranks: int, algorithm: str = "ring") -> int:
    """Return how many edges `all_reduce_edges` yields between so many ranks."""
    adding = ranks - 1 if algorithm == "ring" else ranks.bit_length() - 1
    return ranks * (8 * adding + 2) if adding else 0


def part_elements(elements: int, place: tuple[int, ...]) -> int:
    """Return the elements of a flow of `all_reduce_edges`, by its ``place``."""
    first, last, ranks, *_ = place
    begin, end = part_bounds(elements, ranks, first, last)
    return end - begin


def elements_sent(source: Task, destination: Task, elements: int) -> int:
    """Return the number of elements that an edge carries, of ``elements`` in all.

    Only from a step to the receiver at another rank anything is sent.
    """
    sender = source.settings
    if source.program != STEP or destination.program != RECEIVE:
        return 0
    steps = steps_of(sender["algorithm"], sender["ranks"])
    _, first, last = steps[sender["step"]][sender["rank"]]
    return part_elements(elements, (first, last, sender["ranks"]))
