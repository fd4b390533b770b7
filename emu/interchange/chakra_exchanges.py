"""Messages and collectives of Chakra traces: what the ranks do together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from emu.errors import DataError
from emu.interchange.chakra_nodes import COLLECTIVES
from emu.interchange.workload import Data, Workload, plain_name

_SECTIONS = {
    "ALL_REDUCE": "allreduce", "ALL_GATHER": "allgather", "BROADCAST": "broadcast",
    "ALL_TO_ALL": "alltoall", "REDUCE_SCATTER": "reduce_scatter",
    "REDUCE_SCATTER_BLOCK": "reduce_scatter",
}  # fmt: skip


class Message(NamedTuple):
    """One end of a message."""

    task: str
    size: float
    """Bytes."""
    channel: str = ""
    """Messages of one go one after the other; of none, those of one tag do."""
    control: bool = False
    """True where it is order alone."""


class Exchange(NamedTuple):
    """Part of one rank in a collective."""

    kind: str
    """One of `COLLECTIVES`."""
    size: float
    """Bytes that the rank brings."""
    root: int
    task: str
    """The task that brings them; ``TASK.done`` has the outcome."""


def collective_of(stated: Any, name: str) -> str:
    """Return the collective of an attribute, by number or name.

    Raises DataError when there is none such.
    """
    text = str(stated).upper().replace("_", "")
    if text.isdecimal() and int(text) < len(COLLECTIVES):
        return COLLECTIVES[int(text)]
    for kind in COLLECTIVES:
        if text == kind.replace("_", ""):
            return kind
    raise DataError(f"is a collective of type {stated!r:.40}", path=name)


def join_messages(
    workload: Workload,
    sends: Mapping[Any, Sequence[Message]],
    receives: Mapping[Any, Sequence[Message]],
) -> None:
    """Add the flow of every message; sends and receives are by (from, to, tag).

    Raises DataError when one has no other end, or another size there.
    """
    for key in {**sends, **receives}:
        ends = sends.get(key, ()), receives.get(key, ())
        if len(ends[0]) != len(ends[1]):
            source, destination, tag = key
            problem = f"rank {source} sends {len(ends[0])} messages of tag {tag} to "
            problem += f"rank {destination}, which receives {len(ends[1])}"
            raise DataError(problem, path=workload.origin)
        way = "-".join(map(str, key)) if len(ends[0]) > 1 else ""
        for sent, got in zip(*ends, strict=True):
            if got.size not in (0, sent.size):
                problem = f"{got.task} receives {got.size:g} bytes of {sent.size:g} of "
                raise DataError(problem + sent.task, path=workload.origin)
            if sent.control:  # over a gate nothing goes
                gate, process = f"{sent.task}.gate", sent.task.partition(".")[0]
                workload.add_task(gate, 0, kind="order", gate=True, process=process)
                workload.add_flow(sent.task, gate)
                workload.add_flow(gate, got.task)
                continue
            workload.add_flow(sent.task, got.task, sent.size)
            if channel := (sent.channel or way):
                workload.flows[-1]["channel"] = plain_name(channel)


def join_collectives(
    workload: Workload, groups: Sequence[Mapping[int, Sequence[Exchange]]]
) -> None:
    """Add the collectives: of a group the first of each rank, then the second, ...

    Raises DataError when they differ between ranks.
    """
    for ranks in groups:
        counts = {len(some): rank for rank, some in ranks.items()}
        if len(counts) > 1:
            few, many = min(counts), max(counts)
            problem = f"rank {counts[few]} takes part in {few} collectives, rank "
            problem += f"{counts[many]} of its group in {many}"
            raise DataError(problem, path=workload.origin)
        for together in zip(*ranks.values(), strict=True):
            first = together[0]
            for row in together:
                if row[:3] != first[:3]:
                    problem = f"{first.task} is {first.kind} of {first.size:g} bytes, "
                    problem += f"{row.task} beside it {row.kind} of {row.size:g}"
                    raise DataError(problem, path=workload.origin)
                workload.add_flow(row.task, f"{row.task}.done")
            if len(together) > 1 and (first.size or first.kind == "BARRIER"):
                _add(workload, together)


def _add(workload: Workload, together: Sequence[Exchange]) -> None:
    kind, size, root, task = together[0]
    root %= len(together)
    ranks = [row.task for row in (*together[root:], *together[:root])]
    ends_of = [f"{name}.done" for name in ranks]
    if kind in _SECTIONS:
        section: Data = {
            "among": ranks,
            "volume": f"{size!r} B",
            "then": ends_of,
            "lag": 0,
        }
        section |= {"segments": 1} if kind == "ALL_REDUCE" else {}
        workload.collectives.append({_SECTIONS[kind]: section})
    elif kind == "BARRIER":
        gate = f"{task}.gate"
        workload.add_task(
            gate, 0, kind="barrier", gate=True, process=task.partition(".")[0]
        )
        for name, end in zip(ranks, ends_of, strict=True):
            workload.add_flow(name, gate)
            workload.add_flow(gate, end)
    elif kind == "SCATTER":
        for end in ends_of[1:]:
            workload.add_flow(ranks[0], end, size / len(ranks))
    else:  # REDUCE, GATHER
        for name in ranks[1:]:
            workload.add_flow(name, ends_of[0], size)
