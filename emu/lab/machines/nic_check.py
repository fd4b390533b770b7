"""Measurement of NICs before a run: bytes that each direction carries.

Every direction is tried by one TCP connection between its machine and the switch, so
that no other NIC is on the way; all at once, since they share nothing but this
computer, and those that are off again by themselves. The bytes are counted by the
kernel, at the receiver: no loop of ours has to keep up.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import socket
import statistics
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from emu.units import format_rate

#: Share by which a NIC may be off the rate that is stated.
MOST_OFF = 0.01
#: Wall seconds of a measurement, and packets that a slow NIC carries meanwhile at
#: least: at 100 kbit/s that takes 7 s.
SECONDS = 0.25
PACKETS = 60
#: Share of that time at its beginning that does not count: queues fill.
_FILLING = 0.1
#: Parts of a measurement, of which the median counts: this computer may stand still
#: for 20 ms, 8 % of it. And measurements of a direction at most.
_PARTS = 5
_TRIES = 3
#: Wall seconds between two looks at the kernel's count, and that one look may take. A
#: line through some 400 of them was 0.05 % off at most, from 2 Mbit/s to 1 Gbit/s.
_LOOK = 0.5e-3
_TIGHT = 50e-6
#: Bytes that one call of the kernel sends, and lets go unread.
_SENT = 1 << 31
_READ = 1 << 30
#: Place of ``tcpi_bytes_received`` in the kernel's struct tcp_info.
_RECEIVED = 128
_PAYLOAD = 1448
#: Seconds, and bytes that had come by then.
_Look: TypeAlias = tuple[float, int]


@dataclass(frozen=True)
class NicDirection:
    """One direction of a machine's NIC: payload bytes per second, stated."""

    machine: str
    way: str
    """``out`` or ``in``."""
    stated: float
    time_scale: float = 1.0
    """Wall seconds in which it carries that."""

    @property
    def target(self) -> float:
        """Payload bytes per wall second that it is to carry."""
        return self.stated / self.time_scale


@dataclass(frozen=True)
class NicTrial:
    """A connection across one direction and no other NIC."""

    direction: NicDirection
    sender: socket.socket
    receiver: socket.socket

    def count(self) -> int:
        """Return the bytes of payload that have come."""
        info = self.receiver.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        (total,) = struct.unpack_from("=Q", info, _RECEIVED)
        return int(total)

    def send(self, zeros: int) -> None:
        """Send zeros until the receiver is gone, by few calls without Python's lock."""
        with contextlib.suppress(OSError):
            while True:
                os.sendfile(self.sender.fileno(), zeros, 0, _SENT)

    def read(self, sink: mmap.mmap) -> None:
        """Let everything go unread until the receiver is shut; likewise."""
        flags = socket.MSG_TRUNC | socket.MSG_WAITALL
        with contextlib.suppress(OSError):
            while self.receiver.recv_into(sink, _READ, flags):
                pass

    def end(self) -> None:
        """Break the connection, without a last word to wait for."""
        at_once = struct.pack("ii", 1, 0)
        self.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        for end in (self.receiver, self.sender):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def measure_throughput(trials: Sequence[NicTrial]) -> list[float]:
    """Return payload bytes per wall second of all directions; the trials are over."""
    slowest = min(trial.direction.target for trial in trials)
    least = PACKETS * _PAYLOAD / slowest
    seconds = max(SECONDS, least)
    zeros = os.memfd_create("zeros")
    os.ftruncate(zeros, _SENT)

    with mmap.mmap(-1, _READ) as sink:
        threads = []
        for trial in trials:
            sending = threading.Thread(target=trial.send, args=(zeros,))
            reading = threading.Thread(target=trial.read, args=(sink,))
            threads += [sending, reading]
        for thread in threads:
            thread.start()

        try:
            records = _looks(trials, seconds)
        finally:
            for trial in trials:
                trial.end()
            for thread in threads:
                thread.join()
            for trial in trials:
                trial.receiver.close()
                trial.sender.close()
    os.close(zeros)
    return [slope(looks) for looks in records]


def _looks(trials: Sequence[NicTrial], seconds: float) -> list[list[_Look]]:
    """Return when each count was seen to grow, and the count."""
    end = time.monotonic() + seconds
    rows: list[list[_Look]] = [[] for _ in trials]
    last_counts = [-1] * len(trials)

    time.sleep(_FILLING * seconds)
    while time.monotonic() < end:
        for number, trial in enumerate(trials):
            instant = time.monotonic()
            count = trial.count()
            took = time.monotonic() - instant
            # Who lost its core in between does not know when that was.
            if took < _TIGHT and count > last_counts[number]:
                look = (instant, count)
                rows[number].append(look)
                last_counts[number] = count
        time.sleep(_LOOK)
    return rows


def slope(looks: Sequence[_Look]) -> float:
    """Return the median slope of the parts of a record of (seconds, bytes).

    The first was no growth: it is when the looking began. 0 where too few are there.
    """
    points = looks[1:]
    if len(points) < 2 * _PARTS:
        return 0.0
    size = len(points) / _PARTS
    borders = [round(size * part) for part in range(_PARTS + 1)]
    lines = []
    for low, high in itertools.pairwise(borders):
        seconds, counts = zip(*points[low:high], strict=True)
        line = statistics.linear_regression(seconds, counts)
        lines.append(line)
    return statistics.median(line.slope for line in lines)


@dataclass(frozen=True)
class NicCheck:
    """NICs as they were measured."""

    shares: dict[str, dict[str, float]]
    """Part of the stated rate that each carries, by machine, ``out`` and ``in``."""
    seconds: float
    """Wall time that the measurement took."""
    off: tuple[str, ...]
    most: float
    """One sentence per direction that is off by more than may be, and that share."""

    def to_json(self) -> dict[str, object]:
        """Return the form of result.json and lab.json."""
        return {
            "seconds": self.seconds,
            "shares": self.shares,
        }

    def refusal(self, key: str) -> str:
        """Return why NICs are refused, if so; ``key`` says how far off one may be."""
        if not self.off:
            return ""
        first, *further = self.off
        count = len(further)
        directions = first
        if further:
            directions += f", and {count} more are off"

        worst = 0.0
        for shares in self.shares.values():
            for share in shares.values():
                worst = max(worst, abs(share - 1))
        percent = 100 * self.most
        worst_percent = 100 * worst
        return (
            f"{directions}, {percent:g} % may be: state what it can "
            f"carry, or {key} above {worst_percent:.2g} %"
        )


class NicTries:
    """Shares of the stated rates, of tries until each is off by ``most`` or less."""

    def __init__(self, directions: Sequence[NicDirection], most: float) -> None:
        self._most = most
        self._found: dict[NicDirection, list[float]]
        self._found = {direction: [] for direction in directions}

    def note(self, direction: NicDirection, rate: float) -> None:
        """Take what a direction carried, bytes per wall second."""
        share = rate / direction.target
        self._found[direction].append(share)

    def best(self, direction: NicDirection) -> float:
        """Return the share nearest to 1: a stall of this computer makes others."""
        return min(self._found[direction], key=lambda share: abs(share - 1))

    @property
    def again(self) -> list[NicDirection]:
        """Directions that are off, and were not tried often enough."""
        directions = []
        for direction, shares in self._found.items():
            has_tries = len(shares) < _TRIES
            if self._is_off(direction) and has_tries:
                directions.append(direction)
        return directions

    def _is_off(self, direction: NicDirection) -> bool:
        return not abs(self.best(direction) - 1) <= self._most

    def check(self, seconds: float) -> NicCheck:
        """Return the best of each, after so many wall seconds."""
        shares = dict[str, dict[str, float]]()
        sentences = []
        for direction in self._found:
            machine = direction.machine
            side = direction.way
            share = self.best(direction)
            shares.setdefault(machine, {})[side] = share
            if self._is_off(direction):
                carried = format_rate(share * direction.stated)
                stated_rate = format_rate(direction.stated)
                if carried == stated_rate:
                    carried = f"{100 * share:.6g} %"  # a rate has too few digits
                sentences.append(
                    f"{machine} {side} carries {carried} of {stated_rate} on this host"
                )

        return NicCheck(
            shares=shares,
            seconds=seconds,
            off=tuple(sentences),
            most=self._most,
        )
