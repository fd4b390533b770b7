"""Collectives of custom jobs, as the tasks and flows that they are made of.

An all-reduce runs round the ring of `emu.workloads.all_reduce`. The chunk of a step is
cut into segments that follow one another, so that one is on its way while another is
added up: two in gloo, more in NCCL. A rank has one connection to the next, a channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emu.systems.custom.job import CustomFlow, CustomTask
from emu.workloads.all_reduce import ALL_REDUCE, steps_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emu.systems.custom.job import PerIteration

#: Segments of a chunk in gloo, where they are not longer than it likes (1 MB).
SEGMENTS = 2


@dataclass(frozen=True)
class AllReduce:
    """An all-reduce among tasks: each brings as many bytes, and has their sum then."""

    among: tuple[str, ...]
    """The tasks, two or more: each sends to the next, the last to the first."""
    volume: PerIteration
    """Bytes of what each brings."""
    then: tuple[str, ...] = ()
    """Per task, the one that waits for the sum; empty for the tasks themselves."""
    lag: int = 1
    """Iterations from a sum to the task that waits for it, 1 or more for themselves."""
    segments: int = SEGMENTS
    """Pieces that a chunk is sent in."""


def with_collectives(
    tasks: Sequence[CustomTask],
    flows: Sequence[CustomFlow],
    collectives: Sequence[AllReduce],
) -> tuple[list[CustomTask], list[CustomFlow]]:
    """Return tasks and flows with those of the collectives behind them.

    What rank ``w0`` sends in step 3 of segment 1 of the first one comes from the task
    ``w0.allreduce0.1.3``, in the process of ``w0``; of the steps none takes time.

    Raises
    ------
    ValueError
        When a collective names a task that is not there.
    """
    all_tasks, all_flows = [*tasks], [*flows]
    known = {task.name: task for task in tasks}
    for number, one in enumerate(collectives):
        for name in (*one.among, *one.then):
            if name not in known:
                raise ValueError(f"an all-reduce names task {name}, which is not there")
        ranks = [known[name] for name in one.among]
        for segment in range(one.segments):
            label = f"allreduce{number}.{segment}"
            all_tasks += _steps(ranks, label)
            all_flows += _ring(one, label)
    return all_tasks, all_flows


def _steps(ranks: Sequence[CustomTask], label: str) -> Iterator[CustomTask]:
    for rank in ranks:
        for step in range(len(steps_of("ring", len(ranks))) + 1):
            yield CustomTask(
                f"{rank.name}.{label}.{step}",
                0.0,
                ALL_REDUCE,
                pinned=rank.pinned,
                iterations=rank.iterations,
                process=rank.process or rank.name,
            )


def _ring(one: AllReduce, label: str) -> Iterator[CustomFlow]:
    """Yield the flows of one segment: from every task, round the ring, to its `then`.

    A step follows the one before on its rank and what came from the neighbour. Its
    flow follows the flow before by the channel: "received and sent" (specs, 2f).
    """
    steps = steps_of("ring", len(one.among))
    pieces = len(one.among) * one.segments
    volume = (
        tuple(bytes_ / pieces for bytes_ in one.volume)
        if isinstance(one.volume, tuple)
        else one.volume / pieces
    )
    for rank, name in enumerate(one.among):
        yield CustomFlow(name, f"{name}.{label}.0", 0.0)
        for step, transfers in enumerate(steps):
            here, to = f"{name}.{label}.{step}", one.among[transfers[rank].receiver]
            following = f"{label}.{step + 1}"
            yield CustomFlow(here, f"{name}.{following}", 0.0)
            yield CustomFlow(here, f"{to}.{following}", volume, channel=f"{name}->{to}")
        last = f"{name}.{label}.{len(steps)}"
        yield CustomFlow(last, one.then[rank] if one.then else name, 0.0, one.lag)
