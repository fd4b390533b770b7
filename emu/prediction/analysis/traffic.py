"""Traffic between machines, read off the headers of delivered packets.

Bytes are TCP payload, retransmitted ones included; times are of the switch's side of
the receiver's NIC, after shaping.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from emu.problem import Problem

_WAY = [
    ("source", "<u2"),
    ("destination", "<u2"),
    ("source_port", "<u2"),
    ("destination_port", "<u2"),
]
#: A packet as it was delivered: seconds since the programs began, machine numbers, TCP
#: ports, bytes of payload.
PACKET = np.dtype([("time", "<f8"), *_WAY, ("bytes", "<u4")])
#: Owner of a TCP port of a machine: numbers of machine, port and program.
OWNER = np.dtype([("machine", "<u2"), ("port", "<u2"), ("program", "<u2")])
#: Bytes that went one way of a connection until others came back or it fell silent.
MESSAGE = np.dtype([("first", "<f8"), ("last", "<f8"), *_WAY, ("bytes", "<u8")])
#: Seconds without a packet that part two messages of one direction. A NIC of 10 Mbit/s
#: takes 1.2 ms for one.
SILENCE = 0.02
#: Fields that name one direction of a connection.
CONNECTION = [name for name, _ in _WAY]


@dataclass(frozen=True)
class Traffic:
    """Packets that crossed in a lab, and the owners of their ports."""

    packets: NDArray[np.void]
    """Rows of `PACKET`, by time."""
    machines: tuple[str, ...]
    """Names, by number."""
    nics: NDArray[np.float64]
    """Bytes of payload per second out of and into every machine, shape (2,
    machines)."""
    programs: tuple[str, ...]
    """Names, by number."""
    owners: NDArray[np.void]
    """Rows of `OWNER`; ports that were never seen in use are missing."""


def count_bytes(packets: NDArray[np.void], machines: int) -> NDArray[np.int64]:
    """Return the bytes that each machine sent to each, shape (machines, machines)."""
    pair = packets["source"].astype(np.int64) * machines + packets["destination"]
    sums = np.bincount(pair, packets["bytes"], minlength=machines * machines)
    return sums.astype(np.int64).reshape(machines, machines)


def nic_rates(
    nics: NDArray[np.float64],
    changes: Sequence[tuple[float, int, float, float]],
    seconds: float,
    bins: int,
) -> NDArray[np.float64]:
    """Return the mean rate of every NIC over time, shape (2, machines, bins).

    Parameters
    ----------
    nics
        Bytes of payload per second out of and into every machine at first, shape
        (2, machines).
    changes
        By time: seconds, number of the machine, its rates from then on.
    seconds
        What is divided into bins, from 0.
    """
    edges = np.linspace(0.0, max(seconds, 1e-9), bins + 1)
    rates = np.repeat(nics[:, :, None], bins, axis=2)
    now = nics.copy()
    for time, machine, *new in changes:
        part = np.clip((edges[1:] - time) / edges[1], 0.0, 1.0)
        rates[:, machine] += (np.array(new) - now[:, machine])[:, None] * part
        now[:, machine] = new
    return rates


def nic_use(
    packets: NDArray[np.void], rates: NDArray[np.float64], seconds: float
) -> NDArray[np.float64]:
    """Return the share of every NIC that was used over time.

    ``seconds``: from 0; what came later counts in the last bin.

    Shares, shape (2, machines, bins). Bursts may be above 1.
    """
    _, machines, bins = rates.shape
    length = max(seconds, 1e-9) / bins
    when = np.clip((packets["time"] / length).astype(np.int64), 0, bins - 1)
    bins_of = (packets[end].astype(np.int64) * bins + when for end in CONNECTION[:2])
    volumes = [np.bincount(at, packets["bytes"], machines * bins) for at in bins_of]
    use: NDArray[np.float64] = np.reshape(volumes, rates.shape) / (rates * length)
    return use


def _ends(rows: NDArray[np.void]) -> tuple[NDArray[np.int64], ...]:
    """Return both ends, machine and port as one number: as they are, then sorted."""
    there, back = (
        rows[end].astype(np.int64) << 16 | rows[f"{end}_port"]
        for end in ("source", "destination")
    )
    return there, back, np.minimum(there, back), np.maximum(there, back)


def messages(packets: NDArray[np.void], silence: float = SILENCE) -> NDArray[np.void]:
    """Return the messages of all connections, by their first packets.

    Payload of one direction of a connection is one message until payload comes the
    other way, or nothing comes for ``silence`` seconds: requests and answers come
    apart, and so do the steps of a collective. What a program sends at once and
    without being answered is one message, however many it took it for.
    """
    if not len(packets):
        return np.zeros(0, MESSAGE)
    there, _, low, high = _ends(packets)
    order = np.lexsort((packets["time"], high, low))
    row, low, high, there = packets[order], low[order], high[order], there[order]
    starts = np.diff(row["time"]) > silence
    for way in (low, high, there):
        starts |= np.diff(way) != 0
    new = np.flatnonzero(np.append(True, starts))
    last = np.append(new[1:], len(row)) - 1
    rows = np.zeros(len(new), MESSAGE)
    for name in CONNECTION:
        rows[name] = row[name][new]
    rows["first"], rows["last"] = row["time"][new], row["time"][last]
    rows["bytes"] = np.add.reduceat(row["bytes"].astype(np.uint64), new)
    return rows[np.argsort(rows["first"], kind="stable")]


def answer_times(found: NDArray[np.void]) -> NDArray[np.float64]:
    """Return seconds from each message's end until its connection's next came back.

    NaN where that went the same way, or there was none. Messages are by time.
    """
    there, back, low, high = _ends(found)
    order = np.lexsort((found["first"], high, low))
    one = order[:-1]
    other = order[1:]
    is_answer = (there[one] == back[other]) & (back[one] == there[other])
    waits = np.full(len(found), np.nan)
    waits[one[is_answer]] = (found["first"][other] - found["last"][one])[is_answer]
    return waits


def meetings(
    packets: NDArray[np.void], leaf_of: Callable[[int, int], int]
) -> list[tuple[int, int]]:
    """Return the connections that shared a queue of a NIC while both were in use.

    ``leaf_of``: number of the queue by source and destination port.

    Pairs of source ports, one direction of a connection each.
    """
    ways, of = np.unique(packets[CONNECTION], return_inverse=True)
    first = np.full(len(ways), np.inf)
    last = np.full(len(ways), -np.inf)
    np.minimum.at(first, of, packets["time"])
    np.maximum.at(last, of, packets["time"])
    newest: dict[tuple[str, int, int], int] = {}
    pairs = set()
    for way in np.argsort(first, kind="stable").tolist():
        source, there, port, to = ways[way].tolist()
        for nic in (("out", source), ("in", there)):
            queue = (*nic, leaf_of(port, to))
            before = newest.get(queue)
            if before is not None and last[before] > first[way]:
                pairs.add((int(ways[before]["source_port"]), port))
            if before is None or last[before] < last[way]:
                newest[queue] = way
    return sorted(pairs)


def name_matrix(
    matrix: NDArray[np.int64], names: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Return a matrix of bytes by the names of sender and receiver."""
    return {
        source: dict(zip(names, row.tolist(), strict=True))
        for source, row in zip(names, matrix, strict=True)
    }


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
        for row in figures.get("received", {}).get("payloads", ()):
            counts[int(row["edge"]), str(row["kind"])] += int(row["bytes"])
    return counts


def kinds_between_machines(
    problem: Problem, statistics: Mapping[str, Mapping[str, Any]], byte_scale: float
) -> dict[str, float]:
    """Return kind of payload -> emulated bytes between machines, most first."""
    sums: Counter[str] = Counter()
    for (edge, kind), count in count_kinds(statistics).items():
        if edge < len(problem.hops) and problem.hops[edge]:
            sums[kind] += count
    return {kind: count / byte_scale for kind, count in sums.most_common() if count}
