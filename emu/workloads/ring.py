"""Ring all-reduce as tasks: steps that send a chunk on, and receivers of the chunks.

With R machines, step s of rank r sends chunk (r - s) mod R to rank r + 1, where
``got<s>`` receives it (specs, 2f). The first R - 1 steps add, the others hand the sums
round. A step begins when the one before has been received and sent: one flow of a pair
of neighbours at a time, which the credit edges say.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emu.workloads.named_edges import NamedEdge
from emu.workloads.volume_formulas import shard_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emu.problem import Task

#: Kind of its tasks; none of them takes time.
ALL_REDUCE = "all_reduce"


def ring_tasks(ranks: Sequence[Task]) -> Iterator[Task]:
    """Yield the steps of every rank, then what it receives.

    Parameters
    ----------
    ranks
        A task per rank, whose name the steps begin with: they share its process and
        machine.
    """
    size = len(ranks)
    for rank, one in enumerate(ranks if size > 1 else ()):
        for kind, count in (("ring", 2 * size - 1), ("got", 2 * size - 2)):
            for step in range(count):
                yield replace(
                    one,
                    name=f"{one.name}.{kind}{step}",
                    kind=ALL_REDUCE,
                    demands={},
                    takes="",
                    settings={"rank": rank, "step": step, "ranks": size},
                )


def ring_edges(
    names: Sequence[str],
    before: Sequence[str],
    after: Sequence[str],
    *,
    lag: int,
    carries: str,
    about: tuple[int, ...] = (),
) -> Iterator[NamedEdge]:
    """Yield the edges of a ring: each rank's ``before``, its steps, its ``after``.

    Parameters
    ----------
    names
        Of the ranks, as of the tasks that `ring_tasks` was given.
    before, after
        Per rank the task whose sum is wanted, and the one that waits for it.
    lag
        Iterations from a sum to the ``after`` that waits for it.
    carries
        `NamedEdge.carries` of its flows; ``place`` is (chunk, ranks, *about).
    """
    size = len(names)
    if size == 1:
        if before != after:
            yield NamedEdge(before[0], after[0], lag)
        return
    for rank, name in enumerate(names):
        to = names[(rank + 1) % size]
        yield NamedEdge(before[rank], f"{name}.ring0")
        for step in range(2 * size - 2):
            here, then = f"{name}.ring{step}", f"{name}.ring{step + 1}"
            chunk = (rank - step) % size
            got = f"{to}.got{step}"
            yield NamedEdge(here, got, carries=carries, place=(chunk, size, *about))
            yield NamedEdge(got, f"{to}.ring{step + 1}")
            yield NamedEdge(got, then, credit=True)
            yield NamedEdge(here, then)
        yield NamedEdge(f"{name}.ring{2 * size - 2}", after[rank], lag)


def chunk_bytes(parameters: int, itemsize: int, place: tuple[int, ...]) -> int:
    """Return the bytes of a chunk: array_split of the parameters over the ranks."""
    chunk, size, *_ = place
    return itemsize * shard_sizes(parameters, size)[chunk]
