"""Find requests, their answers and all-reduces round a ring in captured packets.

A process is a program on a machine. Processes of two programs talk by requests and
answers: the first sender asks. Processes of one program run all-reduces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import TypeAlias

import numpy as np

from emu.array_types import Array, Floats, Ints, Mask
from emu.prediction.analysis.traffic import Traffic

#: Numbers of a machine and of a program.
Process: TypeAlias = tuple[int, int]
#: Share of the bytes that may belong to ports whose program was never seen.
MOST_UNKNOWN = 0.01
#: Share of the bytes among processes of one program that may go beside the ring: what
#: gloo sends before the first all-reduce, and its notes of 48 bytes.
MOST_BESIDE = 0.1


@dataclass(frozen=True, eq=False)
class Measured:
    """Iterations of a run, by when they began and ended."""

    starts: Floats
    ends: Floats
    """Seconds of the run, shape (iterations,): mean over the processes of a ring, else
    of the last where each has its own."""
    first: int
    """Number of the first of the iterations in the run."""

    @property
    def count(self) -> int:
        """Number of iterations."""
        return len(self.starts)

    @property
    def seconds(self) -> float:
        """Seconds per iteration, measured."""
        length = self.ends[-1] - self.starts[0]
        return float(length) / self.count


class Unfittable(ValueError):
    """Traffic of a kind that no fit understands; the message names the part."""


@dataclass(frozen=True)
class Exchange:
    """A request and its answer: seconds of their first and last packets, bytes."""

    client: Process
    server: Process
    asked: tuple[float, float]
    answered: tuple[float, float]
    request: int
    answer: int


@dataclass(frozen=True)
class Ring:
    """Packets that the processes of one program sent among themselves, by sender."""

    members: tuple[Process, ...]
    """In the order of the ring: each sends to the next."""
    sent: tuple[tuple[Floats, Ints], ...]
    """Per member, times and bytes of the packets to the next one."""
    any_sent: tuple[Floats, ...]
    """Per member, times of all packets to any of the others."""


@dataclass(frozen=True)
class Packets:
    """Packets by process: numbers of sender and receiver, times, bytes."""

    processes: tuple[Process, ...]
    rows: Ints
    """Numbers among the packets of the traffic."""
    source: Ints
    destination: Ints
    time: Floats
    bytes: Ints

    def some(self, chosen: Mask) -> Packets:
        """Return some of them."""
        return Packets(
            processes=self.processes,
            rows=self.rows[chosen],
            source=self.source[chosen],
            destination=self.destination[chosen],
            time=self.time[chosen],
            bytes=self.bytes[chosen],
        )

    def span(self, rows: Ints) -> tuple[float, float]:
        """Return the seconds of the first and the last of some packets."""
        first = self.time[rows[0]]
        last = self.time[rows[-1]]
        return first, last


def conversations(packets: Packets) -> tuple[list[Exchange], Ring]:
    """Return the exchanges by time of request, and the ring; Unfittable without one."""
    processes = packets.processes
    programs = np.array([program for _, program in processes])
    sending_program = programs[packets.source]
    is_peer = sending_program == programs[packets.destination]
    talk = packets.some(~is_peer)
    low = np.minimum(talk.source, talk.destination)
    high = np.maximum(talk.source, talk.destination)
    pair = low * len(processes) + high
    # By pair, and then by time: the last key of lexsort counts first.
    order = np.lexsort((talk.time, high, low))

    exchanges: list[Exchange] = []
    for first, last in _runs(pair[order]):
        rows = order[first:last]  # of two processes, which ask and answer in turn
        first_row = rows[0]  # whoever speaks first asks
        client = talk.source[first_row]
        server = talk.destination[first_row]
        speakers = talk.source[rows]
        turns = [rows[begin:end] for begin, end in _runs(speakers)]
        requests = turns[::2]
        answers = turns[1::2]
        # The last request may not have been answered when the lab ended.
        for request, answer in zip(requests, answers, strict=False):
            request_sizes = talk.bytes[request]
            answer_sizes = talk.bytes[answer]
            exchange = Exchange(
                client=processes[client],
                server=processes[server],
                asked=talk.span(request),
                answered=talk.span(answer),
                request=int(request_sizes.sum()),
                answer=int(answer_sizes.sum()),
            )
            exchanges.append(exchange)

    exchanges.sort(key=attrgetter("asked"))
    among_peers = packets.some(is_peer)
    ring = _ring(among_peers)
    return exchanges, ring


def by_process(traffic: Traffic) -> Packets:
    """Return all packets by the processes that own their ports.

    Raises Unfittable when nothing was sent, or ports have no owner, or two.
    """
    rows = traffic.packets
    if not rows["bytes"].any():
        raise Unfittable(
            "nothing was sent between machines over TCP, and no other protocol is noted"
        )

    owner = _owners(traffic)
    source_machine = rows["source"]
    source_program = owner[source_machine, rows["source_port"]]
    destination_machine = rows["destination"]
    destination_program = owner[destination_machine, rows["destination_port"]]
    is_known = source_program >= 0
    is_known &= destination_program >= 0
    size = rows["bytes"].astype(np.int64)
    known_bytes = size[is_known].sum()
    unknown = 1 - known_bytes / size.sum()
    if unknown > MOST_UNKNOWN:
        raise Unfittable(
            f"{unknown:.1%} of the bytes belong to ports that no program was seen to "
            "have: connections must last longer than half a second"
        )

    programs = len(traffic.programs)
    first_of_source = programs * source_machine.astype(np.int64)
    first_of_destination = programs * destination_machine.astype(np.int64)
    source = first_of_source + source_program
    destination = first_of_destination + destination_program
    known_sources = source[is_known]
    known_destinations = destination[is_known]
    ends = np.concatenate([known_sources, known_destinations])
    codes, numbers = np.unique(ends, return_inverse=True)
    sources, destinations = np.split(numbers, 2)
    processes = [divmod(code, programs) for code in codes.tolist()]
    times = rows["time"]
    return Packets(
        processes=tuple(processes),
        rows=np.flatnonzero(is_known),
        source=sources,
        destination=destinations,
        time=times[is_known],
        bytes=size[is_known],
    )


def _owners(traffic: Traffic) -> Ints:
    """Return the program by machine and port, -1 for none; Unfittable if there are two.

    Shape (machines, 65536).
    """
    rows = traffic.owners
    cells = (rows["machine"], rows["port"])
    shape = (len(traffic.machines), 65536)
    owner = np.full(shape, -1, np.int64)
    # Of two programs at one port the last stays, and the other one differs from it.
    owner[cells] = rows["program"]
    is_shared = owner[cells] != rows["program"]
    for machine, port, program in rows[is_shared].tolist():
        machine_name = traffic.machines[machine]
        last_program = owner[machine, port]
        first = traffic.programs[program]
        last = traffic.programs[last_program]
        names = " and ".join(sorted((first, last)))
        raise Unfittable(
            f"port {port} of {machine_name} was of programs "
            f"{names}: what crossed there is of neither; give each a port of its own"
        )
    return owner


def _runs(values: Ints) -> Iterator[tuple[int, int]]:
    """Yield where runs of equal values begin and end."""
    count = len(values)
    if count:
        changes = np.flatnonzero(np.diff(values))
        ends = changes + 1
        edges = [0, *ends.tolist(), count]
        yield from pairwise(edges)


def _ring(packets: Packets) -> Ring:
    """Return the ring along which most went; Unfittable if that is not nearly all."""
    count = len(packets.processes)
    pair = packets.source * count + packets.destination
    sizes = np.bincount(pair, packets.bytes, minlength=count * count)
    sizes = sizes.reshape(count, count)
    members = _follow(sizes)
    followers = members[1:] + members[:1]

    hops = list(zip(members, followers, strict=True))
    ring_bytes = sum(sizes[hop] for hop in hops)
    least_bytes = (1 - MOST_BESIDE) * sizes.sum()
    total = sizes.sum(0) + sizes.sum(1)
    everybody = np.flatnonzero(total)
    has_all = set(members) == set(everybody.tolist())
    if not has_all or ring_bytes < least_bytes:
        raise Unfittable(
            "processes of one program ran no all-reduce round a ring, with which "
            "iterations end: a fit knows no other way to tell them apart"
        )

    streams = []
    any_sent = []
    for source, destination in hops:
        is_sent = packets.source == source
        is_taken = packets.destination == destination
        is_along = is_sent & is_taken
        times = packets.time[is_along]
        sizes_along = packets.bytes[is_along]
        stream = (times, sizes_along)
        streams.append(stream)
        any_sent.append(packets.time[is_sent])
    processes = [packets.processes[member] for member in members]
    return Ring(
        members=tuple(processes),
        sent=tuple(streams),
        any_sent=tuple(any_sent),
    )


def _follow(sizes: Array) -> list[int]:
    """Return the processes round which most went, from the least number on.

    ``sizes``: bytes by sender and receiver.
    """
    sent_bytes = sizes.sum(1)
    start = int(sent_bytes.argmax())
    ring = [start]
    last = start
    # The bound ends a way that gets into a loop without the first.
    while len(ring) <= len(sizes):
        last = int(sizes[last].argmax())
        if last == start:
            break
        ring.append(last)
    first = ring.index(min(ring))
    return ring[first:] + ring[:first]
