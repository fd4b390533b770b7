"""Traffic between machines, read off the headers of delivered packets.

Bytes are TCP payload, retransmitted ones included; times are of the switch's side of
the receiver's NIC, after shaping.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.array_types import Records

if TYPE_CHECKING:
    from emu.array_types import Floats, Ints
    from emu.problem import Problem

    Packets = NDArray[np.void]

_DIRECTION = [
    ("source", "<u2"),
    ("destination", "<u2"),
    ("source_port", "<u2"),
    ("destination_port", "<u2"),
]
#: A packet as it was delivered: seconds since the programs began, machine numbers, TCP
#: ports, bytes of payload.
PACKET = np.dtype(
    [
        ("time", "<f8"),
        *_DIRECTION,
        ("bytes", "<u4"),
    ]
)
#: Owner of a TCP port of a machine: numbers of machine, port and program.
OWNER = np.dtype(
    [
        ("machine", "<u2"),
        ("port", "<u2"),
        ("program", "<u2"),
    ]
)
#: A socket call of a program, or a wait of one of its threads: seconds of its beginning
#: and end, bytes, what it was (`SEND`, `RECEIVE`, `WAIT`, `PART`), numbers of machine,
#: program, process and thread, ports, and the other machine; a wait has no ends.
CALL = np.dtype(
    [
        ("begin", "<f8"),
        ("end", "<f8"),
        ("bytes", "<i8"),
        ("kind", "<u2"),
        ("machine", "<u2"),
        ("program", "<u2"),
        ("process", "<u4"),
        ("thread", "<u4"),
        ("port", "<u2"),
        ("peer", "<u2"),
        ("peer_port", "<u2"),
    ]
)
SEND = 1
RECEIVE = 2
WAIT = 3
#: A send of which the rest follows with the next one of its connection.
PART = 4
#: Bytes that went one way of a connection until others came back or it fell silent.
MESSAGE = np.dtype(
    [
        ("first", "<f8"),
        ("last", "<f8"),
        *_DIRECTION,
        ("bytes", "<u8"),
    ]
)
#: Seconds without a packet that part two messages of one direction. A NIC of 10 Mbit/s
#: takes 1.2 ms for one.
SILENCE = 0.02
#: Fields that name one direction of a connection.
CONNECTION = [name for name, _ in _DIRECTION]


@dataclass(frozen=True)
class Traffic:
    """Packets that crossed in a lab, and the owners of their ports."""

    packets: Packets
    """Rows of `PACKET`, by time."""
    machines: tuple[str, ...]
    """Names, by number."""
    nics: Floats
    """Bytes of payload per second out of and into every machine, shape (2,
    machines)."""
    programs: tuple[str, ...]
    """Names, by number."""
    owners: Records
    """Rows of `OWNER`; ports that were never seen in use are missing."""
    calls: Records = field(default_factory=lambda: np.empty(0, CALL))
    """Rows of `CALL` by beginning; none where they were not noted."""


def count_bytes(packets: Packets, machines: int) -> Ints:
    """Return the bytes that each machine sent to each, shape (machines, machines)."""
    source = packets["source"].astype(np.int64)
    pair = source * machines + packets["destination"]
    sums = np.bincount(pair, packets["bytes"], minlength=machines**2)
    table = sums.reshape(machines, machines)
    return table.astype(np.int64)


def nic_rates(
    nics: Floats,
    changes: Sequence[tuple[float, int, float, float]],
    seconds: float,
    bins: int,
) -> Floats:
    """Return the mean rate of every NIC over time, shape (2, machines, bins).

    Parameters
    ----------
    nics
        Bytes of payload per second out of and into every machine at first, shape
        (2, machines).
    changes
        By time: seconds, number of the machine, its rates from then on.
    seconds
        Length of the time that is divided into bins, from 0.
    """
    # Of no time at all bins have some width still: shares divide by it.
    length = max(seconds, 1e-9)
    edges = np.linspace(0.0, length, bins + 1)
    ends = edges[1:]
    width = edges[1]
    rates = np.repeat(nics[:, :, None], bins, axis=2)

    present = nics.copy()
    for time, machine, *new in changes:
        # The part of each bin that lies behind the change: 0, 1, or of one bin between.
        bins_behind = (ends - time) / width
        part = np.clip(bins_behind, 0.0, 1.0)
        increase = new - present[:, machine]
        rates[:, machine] += increase[:, None] * part
        present[:, machine] = new
    return rates


def nic_use(
    packets: Packets,
    rates: Floats,
    seconds: float,
) -> Floats:
    """Return the share of every NIC that was used over time.

    Parameters
    ----------
    packets
        Rows of `PACKET`.
    rates
        As `nic_rates` returns them.
    seconds
        Length of the time that bins divide, from 0; later packets count in the last.

    Returns
    -------
    Floats
        Shares, shape (2, machines, bins). Bursts may be above 1.
    """
    _, machines, bins = rates.shape
    length = max(seconds, 1e-9) / bins
    passed_bins = packets["time"] / length
    whole_bins = passed_bins.astype(np.int64)
    bin_of_packet = np.clip(whole_bins, 0, bins - 1)

    volumes = []
    for end in ("source", "destination"):
        machine = packets[end].astype(np.int64)
        cell = machine * bins + bin_of_packet
        volume = np.bincount(cell, packets["bytes"], machines * bins)
        volumes.append(volume)

    capacity = rates * length
    volume_by_bin = np.reshape(volumes, rates.shape)
    use: Floats = volume_by_bin / capacity
    return use


def _end_code(rows: Records, end: str) -> Ints:
    """Return machine and port of one end of a connection as one number."""
    machine: Ints = rows[end].astype(np.int64)
    port = rows[f"{end}_port"]  # of 16 bits
    code: Ints = machine << 16 | port
    return code


class _Ends(NamedTuple):
    """Codes of both ends of connections, a row per packet or message."""

    sender: Ints
    receiver: Ints
    low: Ints
    high: Ints
    """The same two by size, so that both directions have one pair."""

    @classmethod
    def of(cls, rows: Records) -> _Ends:
        sender = _end_code(rows, "source")
        receiver = _end_code(rows, "destination")
        return cls(
            sender=sender,
            receiver=receiver,
            low=np.minimum(sender, receiver),
            high=np.maximum(sender, receiver),
        )

    def order(self, times: Floats) -> Ints:
        """Return the order in which a connection's rows stand together, by time."""
        return np.lexsort((times, self.high, self.low))


def messages(packets: Packets, silence: float = SILENCE) -> Records:
    """Return the messages of all connections, rows of `MESSAGE` by their first packets.

    Payload of one direction of a connection is one message until payload comes the
    other way, or nothing comes for ``silence`` seconds: requests and answers come
    apart, and so do the steps of a collective. Bytes that a program sends at once and
    without being answered are one message, however many it took them for.
    """
    if not len(packets):
        return np.zeros(0, MESSAGE)
    ends = _Ends.of(packets)
    order = ends.order(packets["time"])
    packets = packets[order]
    times = packets["time"]

    is_start = np.ones(len(packets), dtype=bool)
    is_start[1:] = np.diff(times) > silence
    for code in (ends.low, ends.high, ends.sender):
        differs = np.diff(code[order]) != 0
        is_start[1:] |= differs
    start = np.flatnonzero(is_start)
    end = np.append(start[1:], len(packets))
    last = end - 1

    rows = np.zeros(len(start), MESSAGE)
    for name in CONNECTION:
        rows[name] = packets[name][start]
    rows["first"] = times[start]
    rows["last"] = times[last]
    sizes = packets["bytes"].astype(np.uint64)
    rows["bytes"] = np.add.reduceat(sizes, start)
    by_first = np.argsort(rows["first"], kind="stable")
    return rows[by_first]


def answer_times(found: Records) -> Floats:
    """Return seconds from each message's end until its connection's next came back.

    NaN where the next went the same way, or there was none. ``found`` is by time, as
    `messages` returns it.
    """
    ends = _Ends.of(found)
    order = ends.order(found["first"])
    earlier = order[:-1]
    later = order[1:]
    is_answer = ends.sender[earlier] == ends.receiver[later]
    is_answer &= ends.receiver[earlier] == ends.sender[later]

    begin_of_next = found["first"][later]
    seconds = begin_of_next - found["last"][earlier]
    waits = np.full(len(found), np.nan)
    answered = earlier[is_answer]
    waits[answered] = seconds[is_answer]
    return waits


def meetings(
    packets: Packets,
    leaf_of: Callable[[int, int], int],
) -> list[tuple[int, int]]:
    """Return the connections that shared a queue of a NIC while both were in use.

    Parameters
    ----------
    packets
        Rows of `PACKET`.
    leaf_of
        Returns the number of the queue of a source and a destination port.

    Returns
    -------
    list[tuple[int, int]]
        Pairs of source ports, one direction of a connection each, sorted.
    """
    times = packets["time"]
    directions, direction_of = np.unique(packets[CONNECTION], return_inverse=True)
    count = len(directions)
    first = np.full(count, np.inf)
    last = np.full(count, -np.inf)
    np.minimum.at(first, direction_of, times)
    np.maximum.at(last, direction_of, times)

    # Of each queue the direction that ends last: whoever begins before that meets it.
    newest: dict[tuple[str, int, int], int] = {}
    pairs = set()
    by_first = np.argsort(first, kind="stable")
    for number in by_first.tolist():
        direction = directions[number]
        source, destination, port, destination_port = direction.tolist()
        leaf = leaf_of(port, destination_port)
        queues = [("out", source, leaf), ("in", destination, leaf)]
        for queue in queues:
            holder = newest.setdefault(queue, number)
            if holder == number:
                continue
            if last[holder] > first[number]:
                holder_port = int(directions[holder]["source_port"])
                pairs.add((holder_port, port))
            if last[holder] < last[number]:
                newest[queue] = number
    return sorted(pairs)


def name_matrix(matrix: Ints, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return a matrix of bytes by the names of sender and receiver."""
    table = {}
    for source, row in zip(names, matrix.tolist(), strict=True):
        sizes = zip(names, row, strict=True)
        table[source] = dict(sizes)
    return table


# Bytes of a run, by the kinds of tensors that the receivers counted.


def count_kinds(
    statistics: Mapping[str, Mapping[str, Any]],
) -> Counter[tuple[int, str]]:
    """Return (edge, kind of payload) -> real bytes over connections.

    ``statistics``: of every process, as in processes.json; those of an earlier emu have
    no kinds.
    """
    counts: Counter[tuple[int, str]] = Counter()
    for figures in statistics.values():
        arrivals = figures.get("received", {})
        for row in arrivals.get("payloads", ()):
            edge = int(row["edge"])
            kind = str(row["kind"])
            size = int(row["bytes"])
            counts[edge, kind] += size
    return counts


def kinds_between_machines(
    problem: Problem,
    statistics: Mapping[str, Mapping[str, Any]],
    byte_scale: float,
) -> dict[str, float]:
    """Return kind of payload -> emulated bytes between machines, most first."""
    hops = problem.hops
    counts = count_kinds(statistics)
    sums: Counter[str] = Counter()
    for (edge, kind), count in counts.items():
        # A run's files may name edges that its problem does not have.
        if edge < len(hops) and hops[edge]:
            sums[kind] += count
    sizes = {}
    for kind, count in sums.most_common():
        if count:
            sizes[kind] = count / byte_scale
    return sizes
