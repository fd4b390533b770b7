"""Find requests, their answers and all-reduces round a ring in captured packets.

A process is a program on a machine. Processes of two programs talk by requests and
answers: the first sender asks. Processes of one program run all-reduces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

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

    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
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
        return float(self.ends[-1] - self.starts[0]) / self.count


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
    sent: tuple[tuple[NDArray[np.float64], NDArray[np.int64]], ...]
    """Per member, times and bytes of the packets to the next one."""
    any_sent: tuple[NDArray[np.float64], ...]
    """Per member, times of all packets to any of the others."""


@dataclass(frozen=True)
class Packets:
    """Packets by process: numbers of sender and receiver, times, bytes."""

    processes: tuple[Process, ...]
    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    time: NDArray[np.float64]
    bytes: NDArray[np.int64]

    def some(self, which: NDArray[np.bool_]) -> Packets:
        """Return some of them."""
        ends = self.source[which], self.destination[which]
        return Packets(self.processes, *ends, self.time[which], self.bytes[which])


def conversations(packets: Packets) -> tuple[list[Exchange], Ring]:
    """Return the exchanges by time of request, and the ring; Unfittable without one."""
    program = np.array([program for _, program in packets.processes])
    peers = program[packets.source] == program[packets.destination]
    others = packets.some(~peers)
    exchanges = []
    low = np.minimum(others.source, others.destination)
    high = np.maximum(others.source, others.destination)
    order = np.lexsort((others.time, high, low))
    for first, last in _runs((low * len(packets.processes) + high)[order]):
        rows = order[first:last]  # of two processes, which ask and answer in turn
        source = others.source[rows]
        client = packets.processes[source[0]]
        server = packets.processes[others.destination[rows[0]]]
        turns = [rows[slice(*turn)] for turn in _runs(source)]
        for request, answer in zip(turns[::2], turns[1::2], strict=False):
            exchange = Exchange(
                client,
                server,
                (others.time[request[0]], others.time[request[-1]]),
                (others.time[answer[0]], others.time[answer[-1]]),
                int(others.bytes[request].sum()),
                int(others.bytes[answer].sum()),
            )
            exchanges.append(exchange)
    exchanges.sort(key=lambda one: one.asked)
    return exchanges, _ring(packets.some(peers))


def by_process(traffic: Traffic) -> Packets:
    """Return all packets by the processes that own their ports.

    Raises Unfittable when nothing was sent, or ports have no owner, or two.
    """
    rows = traffic.packets
    if not rows["bytes"].any():
        raise Unfittable(
            "nothing was sent between machines over TCP, and no other protocol is noted"
        )
    owner = np.full((len(traffic.machines), 65536), -1, np.int64)
    owner[traffic.owners["machine"], traffic.owners["port"]] = traffic.owners["program"]
    ports = traffic.owners
    others = ports[owner[ports["machine"], ports["port"]] != ports["program"]]
    for machine, port, program in others.tolist():
        both = (traffic.programs[program], traffic.programs[owner[machine, port]])
        raise Unfittable(
            f"port {port} of {traffic.machines[machine]} was of programs "
            f"{' and '.join(sorted(both))}: what crossed there is of neither; give "
            "each a port of its own"
        )
    sides = "source", "destination"
    programs = [owner[rows[end], rows[f"{end}_port"]] for end in sides]
    is_program = (programs[0] >= 0) & (programs[1] >= 0)
    size = rows["bytes"].astype(np.int64)
    unknown = 1 - size[is_program].sum() / size.sum()
    if unknown > MOST_UNKNOWN:
        raise Unfittable(
            f"{unknown:.1%} of the bytes belong to ports that no program was seen to "
            "have: connections must last longer than half a second"
        )
    width = len(traffic.programs)
    ends = [
        (rows[end].astype(np.int64) * width + program)[is_program]
        for end, program in zip(sides, programs, strict=True)
    ]
    processes, numbers = np.unique(np.concatenate(ends), return_inverse=True)
    source, destination = np.split(numbers, 2)
    return Packets(
        tuple(divmod(each, width) for each in processes.tolist()),
        source,
        destination,
        rows["time"][is_program],
        size[is_program],
    )


def _runs(values: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield where runs of equal values begin and end."""
    ends = np.flatnonzero(np.diff(values)) + 1
    yield from pairwise([0, *ends.tolist(), len(values)]) if len(values) else ()


def _ring(packets: Packets) -> Ring:
    """Return the ring along which most went."""
    count = len(packets.processes)
    sizes = np.bincount(
        packets.source * count + packets.destination,
        packets.bytes,
        minlength=count * count,
    ).reshape(count, count)
    ring = [int(sizes.sum(1).argmax())]
    while sizes.any() and len(ring) <= count:
        following = int(sizes[ring[-1]].argmax())
        if following == ring[0]:
            break
        ring.append(following)
    along = sum(sizes[a, b] for a, b in zip(ring, ring[1:] + ring[:1], strict=True))
    everybody = set(np.flatnonzero(sizes.sum(0) + sizes.sum(1)).tolist())
    is_ring = len(ring) > 1 and set(ring) == everybody
    if not is_ring or along < (1 - MOST_BESIDE) * sizes.sum():
        raise Unfittable(
            "processes of one program ran no all-reduce round a ring, with which "
            "iterations end: a fit knows no other way to tell them apart"
        )
    members = ring[ring.index(min(ring)) :] + ring[: ring.index(min(ring))]
    rows = [
        (packets.source == one) & (packets.destination == other)
        for one, other in zip(members, members[1:] + members[:1], strict=True)
    ]
    return Ring(
        tuple(packets.processes[each] for each in members),
        tuple((packets.time[row], packets.bytes[row]) for row in rows),
        tuple(packets.time[packets.source == each] for each in members),
    )
