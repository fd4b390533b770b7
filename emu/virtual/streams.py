"""Streams of bytes over the links of a cluster: max-min fair, in virtual time.

A stream is what one TCP connection carries one way. Its frames go one after the other;
of all streams the first frames share the links. Unlike flows of a job, frames are not
known beforehand: they are written while time goes on.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Share of a size below which what is left of it is rounding.
_NOTHING = 1e-12


@dataclass
class Frame:
    """Bytes that are written whole, and what their reader makes of them."""

    size: float
    content: Any


@dataclass
class Stream:
    """One way of a connection: frames in their order."""

    links: tuple[int, ...]
    """Links that it crosses, by number; none within a machine."""
    latency: float
    """Seconds from the last byte's leaving to its being there."""
    frames: deque[Frame] = field(default_factory=deque)
    left: float = 0.0
    """Bytes left of the first frame."""
    rate: float = 0.0
    """Bytes per second, of now."""
    written: float = 0.0
    """Bytes of all frames that were ever written."""
    served: float = 0.0
    """Bytes of them that have left."""
    marks: list[tuple[float, int, Any]] = field(default_factory=list)
    """Heap of positions in the stream, and whom to tell when they have left."""


@dataclass(frozen=True)
class Arrival:
    """A frame that is there, or a mark that has been passed."""

    time: float
    content: Any


class Streams:
    """All streams of a cluster, at one instant.

    Parameters
    ----------
    capacities
        Bytes per second of every link, float64.
    """

    def __init__(self, capacities: NDArray[np.float64]) -> None:
        self.now = 0.0
        self._capacities = capacities.copy()
        self._streams: list[Stream] = []
        self._busy: dict[int, Stream] = {}
        self._on_the_way: list[tuple[float, int, Any]] = []
        """Heap of what has left and is there later."""
        self._count = 0
        self._has_changed = False

    def open(self, links: Sequence[int], latency: float) -> int:
        """Return the number of a new stream over links."""
        self._streams.append(Stream(tuple(links), latency))
        return len(self._streams) - 1

    def set_capacity(self, link: int, capacity: float) -> None:
        """Give a link another capacity from now on, bytes per second; 0 cuts it."""
        self._capacities[link] = capacity
        self._has_changed = True

    def write(self, number: int, size: float, content: Any) -> float:
        """Append a frame to a stream; return where in the stream it ends, bytes."""
        stream = self._streams[number]
        stream.written += size
        if not stream.links:
            stream.served = stream.written
            self._send_off(stream, content)
            return stream.written

        stream.frames.append(Frame(size, content))
        if len(stream.frames) == 1:
            stream.left = size
            self._busy[number] = stream
            self._has_changed = True
        return stream.written

    def count_written(self, number: int) -> float:
        """Return the bytes that were written to a stream so far."""
        return self._streams[number].written

    def mark(self, number: int, position: float, content: Any) -> None:
        """Have ``content`` told when a stream's bytes before a position have left."""
        stream = self._streams[number]
        self._count += 1
        if position <= stream.served:
            heapq.heappush(self._on_the_way, (self.now, self._count, content))
        else:
            heapq.heappush(stream.marks, (position, self._count, content))

    def next_time(self) -> float:
        """Return when something next leaves or is there, infinity if nothing will."""
        self._share()
        earliest = math.inf
        if self._on_the_way:
            earliest, _, _ = self._on_the_way[0]
        for stream in self._busy.values():
            if stream.rate > 0.0:
                seconds = _next_stop(stream) / stream.rate
                earliest = min(earliest, self.now + seconds)
        return earliest

    def go_to(self, time: float) -> list[Arrival]:
        """Go on to a time, not beyond `next_time`; return what is there by then."""
        self._share()
        passed = time - self.now
        self.now = time
        for number, stream in list(self._busy.items()):
            self._serve(number, stream, stream.rate * passed)

        arrivals = []
        instant = time * (1.0 + _NOTHING)
        while self._on_the_way and self._on_the_way[0][0] <= instant:
            when, _, content = heapq.heappop(self._on_the_way)
            arrivals.append(Arrival(when, content))
        return arrivals

    def _serve(self, number: int, stream: Stream, amount: float) -> None:
        stream.left -= amount
        stream.served += amount

        # What takes less than an instant, as a time can be told.
        rounding = _NOTHING * (stream.written + stream.rate * self.now)
        while stream.marks and stream.marks[0][0] <= stream.served + rounding:
            _, count, content = heapq.heappop(stream.marks)
            heapq.heappush(self._on_the_way, (self.now, count, content))

        while stream.frames and stream.left <= rounding:
            frame = stream.frames.popleft()
            self._send_off(stream, frame.content)
            self._has_changed = True
            stream.left = stream.frames[0].size if stream.frames else 0.0
        if not stream.frames:
            stream.served = stream.written
            del self._busy[number]

    def _send_off(self, stream: Stream, content: Any) -> None:
        self._count += 1
        there = self.now + stream.latency
        heapq.heappush(self._on_the_way, (there, self._count, content))

    def _share(self) -> None:
        """Fill the links: all rates rise together until a link of theirs is full."""
        if not self._has_changed:
            return
        self._has_changed = False
        streams = [*self._busy.values()]
        routes = [stream.links for stream in streams]
        rates = max_min(routes, self._capacities)
        for stream, rate in zip(streams, rates.tolist(), strict=True):
            stream.rate = rate


def _next_stop(stream: Stream) -> float:
    """Return the bytes until a stream's first frame ends, or a mark is passed."""
    if not stream.marks:
        return stream.left
    position, _, _ = stream.marks[0]
    return min(stream.left, position - stream.served)


def max_min(
    routes: Sequence[tuple[int, ...]], capacities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the max-min fair rates of streams, bytes per second.

    Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5).

    Parameters
    ----------
    routes
        Links that each stream crosses, one or more.
    capacities
        Bytes per second of every link.
    """
    count = len(routes)
    lengths = [len(links) for links in routes]
    stream_of = np.repeat(np.arange(count), lengths)
    link_of = np.array([*chain.from_iterable(routes)], dtype=np.int64)
    rates = np.zeros(count)
    is_rising = np.ones(count, dtype=bool)
    free = capacities.astype(np.float64)

    while is_rising.any():
        crossing = is_rising[stream_of]
        counts = np.bincount(link_of[crossing], minlength=free.size)
        level = np.full(free.size, np.inf)
        np.divide(free, counts, out=level, where=counts > 0)
        least = level.min()
        full = level <= least * (1.0 + _NOTHING)

        stops = crossing & full[link_of]
        freezes = np.zeros(count, dtype=bool)
        freezes[stream_of[stops]] = True
        rates[freezes] = least

        is_frozen = freezes[stream_of]
        taken = np.bincount(link_of[is_frozen], minlength=free.size)
        free = np.maximum(free - least * taken, 0.0)
        is_rising &= ~freezes
    return rates
