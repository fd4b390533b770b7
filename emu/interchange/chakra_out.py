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
from typing import Any, TypeAlias

from emu.host.files import whole_file
from emu.interchange.protobuf import encode, write_varint
from emu.problem import Job, Problem, Realization

#: Types of nodes by their numbers in et_def.proto.
_COMP = 4
_SEND = 5
_RECEIVE = 6

#: Rules that know flows and what is left of them alone.
_BY_FLOW = {"oes", "maxmin", "none", "fifo", "mrtf", "mrtf_exclusive"}

#: Those that send flows one before the other: which goes first of two that tie counts.
_IN_ORDER = {"fifo", "mrtf", "mrtf_exclusive"}

#: Attributes of a node, or of a whole trace, by name.
Attributes: TypeAlias = dict[str, str | int | float]


def write_traces(
    problem: Problem,
    taken: Realization,
    folder: Path,
    rule: str = "oes",
) -> Counter[str]:
    """Write ``task.N.et`` of every task; return what they have no word for.

    ``taken`` are the times that tasks took on their machines, and the bytes; ``rule``
    is that of the rates, by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ranks = _ranks(problem)
    for number, rank in enumerate(ranks):
        metadata = _metadata(problem, number)
        metadata["rule"] = rule
        attributes = _attributes(metadata)
        messages = [encode({1: "0.0.4", 2: attributes})]
        messages += _nodes(
            problem,
            taken=taken,
            task=number,
            ranks=ranks,
        )
        frames = [write_varint(len(message)) + message for message in messages]
        content = b"".join(frames)
        with whole_file(folder / f"task.{rank}.et") as partial:
            partial.write_bytes(content)

    job = problem.job
    newest_flows = [edge for edge in job.edges if edge.latest]
    # What reads a trace makes a task of every iteration, in one job.
    is_by_flow = rule in _BY_FLOW
    groups = 0 if is_by_flow else len(job.edges)
    counts = {
        f"coflow, job or expected time that {rule} goes by": groups,
        "flow that ties go by the iteration of": _count_ties(job, rule),
        "link between machines": len(problem.cluster.shared_links),
        "change of a machine": len(problem.cluster.links.steps.rows),
        "pool that tasks share": len(problem.pools),
        "flow that reads the newest": len(newest_flows),
    }
    # The plus drops what counts 0.
    return +Counter(counts)


def _count_ties(job: Job, rule: str) -> int:
    """Return how many edges have flows whose turn may depend on their iterations."""
    # What reads a trace has one iteration: of flows that tie it takes the lower rank.
    if job.iterations == 1:
        return 0
    queues = [edge.channel for edge in job.edges if edge.channel]
    if rule in _IN_ORDER:
        # All flows stand in one queue. Those of one edge alone keep their order.
        queues = [""] * len(job.edges)
    counts = Counter(queues)
    return sum(count for count in counts.values() if count > 1)


def _ranks(problem: Problem) -> list[int]:
    """Return the rank of every task: by name, as flows that get ready at once go."""
    names = [_natural_key(task.name) for task in problem.job.tasks]
    numbers = range(len(names))
    order = sorted(numbers, key=names.__getitem__)
    ranks = [0] * len(order)
    for rank, number in enumerate(order):
        ranks[number] = rank
    return ranks


def _natural_key(name: str) -> list[Any]:
    parts: list[Any] = re.split(r"(\d+)", name)
    # Texts and numbers alternate, so that no text is compared with a number.
    parts[1::2] = map(int, parts[1::2])
    return parts


def _metadata(problem: Problem, number: int) -> Attributes:
    task = problem.job.tasks[number]
    place = problem.placement.machine_of[number]
    machine = problem.cluster.machines[place]

    return {
        "schema": "1.0.0",
        "task": task.name,
        "gate": task.gate,
        "machine": machine.name,
        "nic_in": machine.bandwidth_in,
        "nic_out": machine.bandwidth_out,
        "latency_in": machine.latency_in,
        "latency_out": machine.latency_out,
    }


def _attributes(values: Attributes) -> list[bytes]:
    rows = []
    for name, value in values.items():
        row = encode({1: name})
        if isinstance(value, float):  # double_val of et_def.proto, eight bytes long
            tag = bytes([3 << 3 | 1])
            row += tag + struct.pack("<d", value)
        else:
            # A truth value is an int, too: 0 or 1.
            field = 29 if isinstance(value, str) else 9  # string_val, int64_val
            row += encode({field: value})
        rows.append(row)
    return rows


def _nodes(
    problem: Problem,
    taken: Realization,
    task: int,
    ranks: list[int],
) -> Iterator[bytes]:
    """Yield the nodes of a task: receives, its work and sends of each iteration.

    A node's number is ``iteration * step`` and its place there, so that others know it.
    """
    job = problem.job
    in_edges = job.in_edges(task)
    out_edges = job.out_edges(task)
    step = 1 + len(in_edges) + len(out_edges)

    def message_attributes(edge: int, iteration: int) -> Attributes:
        control = bool(job.control[edge])
        # `chakra` makes a gate of an order on reading, over which no bytes may go.
        size = 0.0 if control else float(taken.volumes[edge, iteration])
        channel = job.edges[edge].channel or f"edge {edge}"
        return {
            "comm_tag": edge,
            "control": control,
            "comm_size": size,
            "channel": channel,
        }

    for iteration in range(job.rounds[task]):
        first = iteration * step
        work = first + len(in_edges)
        # One iteration follows another, whatever else it waits for.
        dependencies = [work - step] if iteration else []
        for place, edge in enumerate(in_edges):
            # With a lag it is an earlier iteration that sent, with its own bytes.
            sent_in = iteration - job.edges[edge].lag
            if job.sends(edge, sent_in):
                source = ranks[job.edges[edge].source]
                attributes: Attributes = {"comm_src": source}
                attributes |= message_attributes(edge, sent_in)
                number = first + place
                yield _node(number, _RECEIVE, attributes)
                dependencies.append(number)

        seconds = float(taken.times[task, iteration])
        times: Attributes = {"seconds": seconds}
        yield _node(work, _COMP, times, deps=dependencies, seconds=seconds)
        for place, edge in enumerate(out_edges, 1):
            if job.sends(edge, iteration):
                destination = ranks[job.edges[edge].destination]
                attributes = {"comm_dst": destination}
                attributes |= message_attributes(edge, iteration)
                yield _node(work + place, _SEND, attributes, deps=[work])


def _node(
    number: int,
    kind: int,
    attributes: Attributes,
    deps: Iterable[int] = (),
    seconds: float = 0.0,
) -> bytes:
    fields = {
        1: number,
        3: kind,
        # Packed into one field, as proto3 writes lists of numbers.
        5: b"".join(map(write_varint, deps)),
        7: round(seconds * 1e6),
        10: _attributes(attributes),
    }
    return encode(fields)
