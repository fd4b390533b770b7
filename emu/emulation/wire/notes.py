"""Ends and orders as they are packed, one behind the other, in a message.

They come thousands of times: as a msgpack map each, sealed and framed alone, a note
took a third of what the coordinator had to do for it. A note is a head of fixed length,
little-endian, whose first number is its kind, and what it counts behind it:

    FLOW   edge, iteration, 0                     time, volume
    TASK   task, iteration, edges, report, 0      start, end, began, cpu, late
           (edge, volume) of each edge, and the bytes of its report, a msgpack map
    RUN    task, iteration, reads                 start
           (edge, iteration) of each of its reads
    WAKE   edge                                   since
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, TypeAlias

import msgpack

from emu.emulation.wire.messages import FlowEnded, RunTask, TaskEnded, WakeSender
from emu.errors import MalformedFrame

Ended: TypeAlias = TaskEnded | FlowEnded
Order: TypeAlias = RunTask | WakeSender


class Kind(IntEnum):
    """Kinds of notes."""

    FLOW = 1
    TASK = 2
    RUN = 3
    WAKE = 4


_KIND = struct.Struct("<i")
_FLOW = struct.Struct("<4i2d")
_TASK = struct.Struct("<6i5d")
_SENT = struct.Struct("<qd")
_RUN = struct.Struct("<4id")
_READ = struct.Struct("<2i")
_WAKE = struct.Struct("<2id")


def pack_end(end: Ended) -> bytes:
    """Return the note of an end."""
    if isinstance(end, FlowEnded):
        return _FLOW.pack(
            Kind.FLOW,
            end.edge,
            end.iteration,
            0,
            end.time,
            end.volume,
        )

    report = msgpack.packb(end.report) if end.report else b""
    head = _TASK.pack(
        Kind.TASK,
        end.task,
        end.iteration,
        len(end.edges),
        len(report),
        0,
        end.start,
        end.end,
        end.began,
        end.cpu,
        end.late,
    )
    records = map(_SENT.pack, end.edges, end.volumes)
    return b"".join([head, *records, report])


def pack_order(order: Order) -> bytes:
    """Return the note of an order."""
    if isinstance(order, WakeSender):
        return _WAKE.pack(Kind.WAKE, order.edge, order.since)
    head = _RUN.pack(
        Kind.RUN,
        order.task,
        order.iteration,
        len(order.reads),
        order.start,
    )
    reads = [_READ.pack(*read) for read in order.reads]
    return b"".join([head, *reads])


def unpack_ends(notes: bytes) -> Iterator[Ended]:
    """Yield the ends of a message; raises MalformedFrame where it has none."""
    reader = _Reader(notes)
    while reader.rest:
        kind = reader.kind()
        if kind == Kind.FLOW:
            _, edge, iteration, _, time, volume = reader.take(_FLOW)
            yield FlowEnded(edge, iteration, time, volume)
        elif kind == Kind.TASK:
            yield _unpack_task(reader)
        else:
            raise MalformedFrame(f"a note of kind {kind} is no end")


def unpack_orders(notes: bytes) -> Iterator[Order]:
    """Yield the orders of a message; raises MalformedFrame where it has none."""
    reader = _Reader(notes)
    while reader.rest:
        kind = reader.kind()
        if kind == Kind.WAKE:
            _, edge, since = reader.take(_WAKE)
            yield WakeSender(edge, since)
        elif kind == Kind.RUN:
            _, task, iteration, count, start = reader.take(_RUN)
            reads = [[*read] for read in reader.rows(_READ, count)]
            yield RunTask(task, iteration, start, reads)
        else:
            raise MalformedFrame(f"a note of kind {kind} is no order")


def _unpack_task(reader: _Reader) -> TaskEnded:
    _, task, iteration, count, size, _, *times = reader.take(_TASK)
    start, end, began, cpu, late = times
    records = reader.rows(_SENT, count)
    return TaskEnded(
        task=task,
        iteration=iteration,
        start=start,
        end=end,
        edges=[edge for edge, _ in records],
        volumes=[volume for _, volume in records],
        began=began,
        cpu=cpu,
        late=late,
        report=unpack_report(reader.bytes(size)),
    )


def unpack_report(packed: bytes) -> dict[str, float]:
    """Return the figures of a task; raises MalformedFrame where they are none."""
    if not packed:
        return {}
    try:
        report = msgpack.unpackb(packed)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MalformedFrame(f"a report is no msgpack map: {error}"[:200]) from error
    if not isinstance(report, dict):
        raise MalformedFrame("a report is no msgpack map")
    return report


class _Reader:
    """Reads what is packed in notes, from their first byte on."""

    def __init__(self, notes: bytes) -> None:
        self._notes = notes
        self._place = 0

    @property
    def rest(self) -> int:
        """Bytes that are left."""
        return len(self._notes) - self._place

    def kind(self) -> int:
        """Return the kind of the note that is next."""
        self._need(_KIND.size)
        kind: int
        (kind,) = _KIND.unpack_from(self._notes, self._place)
        return kind

    def take(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Return the fields of a layout."""
        self._need(layout.size)
        fields = layout.unpack_from(self._notes, self._place)
        self._place += layout.size
        return fields

    def rows(self, layout: struct.Struct, count: int) -> list[tuple[Any, ...]]:
        """Return so many times the fields of a layout."""
        packed = self.bytes(count * layout.size)
        return [*layout.iter_unpack(packed)]

    def bytes(self, size: int) -> bytes:
        """Return so many bytes."""
        self._need(size)
        start = self._place
        self._place += size
        return self._notes[start : self._place]

    def _need(self, size: int) -> None:
        if not 0 <= size <= self.rest:
            raise MalformedFrame(f"a note of {size} bytes is cut short")
