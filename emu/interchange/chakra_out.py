"""A job as Chakra execution traces: one per task, a node per iteration and message.

``duration_micros`` counts whole microseconds, so that a node states its seconds beside
it; the metadata name the task, its machine and that one's NIC. What is order alone, to
or from a gate or a credit, is a message marked ``control``.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from emu.host.files import whole_file
from emu.interchange.protobuf import encode, write_varint
from emu.problem import Problem, Realization

_COMP, _SEND, _RECEIVE = 4, 5, 6


def write_traces(problem: Problem, taken: Realization, folder: Path) -> Counter[str]:
    """Write ``task.N.et`` of every task; return what they have no word for.

    ``taken`` are the times that tasks took on their machines, and the bytes.
    """
    job, cluster = problem.job, problem.cluster
    folder.mkdir(parents=True, exist_ok=True)
    # Ranks go by name, as flows that get ready at once do.
    names = [
        [int(part) if place % 2 else part for place, part in enumerate(parts)]
        for parts in (re.split(r"(\d+)", task.name) for task in job.tasks)
    ]
    order = sorted(range(len(names)), key=names.__getitem__)
    ranks = sorted(range(len(names)), key=order.__getitem__)
    for number, task in enumerate(job.tasks):
        machine = cluster.machines[problem.placement.machine_of[number]]
        about = {"schema": "1.0.0", "task": task.name, "gate": task.gate}
        about |= {"machine": machine.name, "nic_in": machine.bandwidth_in}
        about |= {"nic_out": machine.bandwidth_out, "latency_in": machine.latency_in}
        about |= {"latency_out": machine.latency_out}
        messages = [encode({1: "0.0.4", 2: _attributes(about)})]
        messages += _nodes(problem, taken, number, ranks)
        content = b"".join(write_varint(len(one)) + one for one in messages)
        with whole_file(folder / f"task.{ranks[number]}.et") as partial:
            partial.write_bytes(content)
    counts = {
        "link between machines": len(cluster.shared_links),
        "change of a machine": len(cluster.changes),
        "pool that tasks share": len(problem.pools),
        "flow that reads the newest": sum(edge.latest for edge in job.edges),
    }
    return +Counter(counts)


def _attributes(values: dict[str, Any]) -> list[bytes]:
    rows = []
    for name, value in values.items():
        row = encode({1: name})
        if isinstance(value, float):
            row += bytes([3 << 3 | 1]) + struct.pack("<d", value)
        else:
            row += encode({29 if isinstance(value, str) else 9: value})
        rows.append(row)
    return rows


def _nodes(
    problem: Problem, taken: Realization, task: int, ranks: list[int]
) -> Iterator[bytes]:
    """Yield the nodes of a task: receives, its work and sends of each iteration.

    A node's number is ``iteration * step`` and its place there, so that others know it.
    """
    job = problem.job
    into, out = job.in_edges(task), job.out_edges(task)
    step = 1 + len(into) + len(out)

    def message(edge: int, iteration: int, number: int, *after: int) -> bytes:
        """Return the send of a flow after a node, or its receive."""
        here, control = job.edges[edge], job.control[edge]
        end = ("comm_dst", here.destination) if after else ("comm_src", here.source)
        about: dict[str, Any] = {end[0]: ranks[end[1]], "comm_tag": edge}
        size = 0.0 if control else float(taken.volumes[edge, iteration])
        about |= {"control": control, "comm_size": size}
        about["channel"] = here.channel or f"edge {edge}"
        return _node(number, _SEND if after else _RECEIVE, after, 0.0, about)

    for n in range(job.rounds[task]):
        first = n * step
        # One iteration follows another, whatever else it waits for.
        before = [first - step + len(into)] if n else []
        for place, edge in enumerate(into):
            source = n - job.edges[edge].lag
            if job.sends(edge, source):
                yield message(edge, source, first + place)
                before.append(first + place)
        seconds = float(taken.times[task, n])
        work = first + len(into)
        yield _node(work, _COMP, before, seconds, {"seconds": seconds})
        for place, edge in enumerate(out, 1):
            if job.sends(edge, n):
                yield message(edge, n, work + place, work)


def _node(
    number: int, kind: int, deps: Iterable[int], seconds: float, about: dict[str, Any]
) -> bytes:
    numbers = b"".join(map(write_varint, deps))
    fields = {1: number, 3: kind, 5: numbers, 7: round(seconds * 1e6)}
    return encode({**fields, 10: _attributes(about)})
