"""Parts of a graph, a process ``d0``, ``d1``, ... each, and the ring of their sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from emu.problem import Task
from emu.problem.workloads.all_reduce import (
    NamedEdge,
    all_reduce_edges,
    all_reduce_tasks,
)
from emu.systems import Settings


def part_tasks(
    machines: Sequence[str],
    passes: Mapping[str, Settings],
    programs: Mapping[str, str],
) -> Iterator[Task]:
    """Yield a task of each part for every kind and its settings, then the ring."""
    for rank, machine in enumerate(machines):
        process = f"d{rank}"
        for kind, settings in passes.items():
            yield Task(
                name=f"{process}.{kind}",
                kind=kind,
                pinned=machine,
                process=process,
                phase="training",
                program=programs[kind],
                settings={"rank": rank, **settings},
            )
    yield from ring_tasks(machines)


def ring_tasks(machines: Sequence[str]) -> tuple[Task, ...]:
    """Return the tasks of the ring, which read gradients in the parts' processes."""
    workers = []
    for rank, machine in enumerate(machines):
        worker = Task(
            name=f"w{rank}",
            kind="worker",
            pinned=machine,
            process=f"d{rank}",
        )
        workers.append(worker)
    return all_reduce_tasks(workers)


def ring_edges(parts: int, giver: str, taker: str) -> Iterator[NamedEdge]:
    """Yield the edges of the ring, from a task of each part to one in its next epoch.

    ``giver``, ``taker``: names of these without that of their process.
    """
    ranks = range(parts)
    return all_reduce_edges(
        [f"w{rank}" for rank in ranks],
        [f"d{rank}.{giver}" for rank in ranks],
        [f"d{rank}.{taker}" for rank in ranks],
        lag=1,
        carries="parameters",
    )
