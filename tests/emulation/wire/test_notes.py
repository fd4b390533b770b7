"""Ends and orders, packed in messages: whole, or refused."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.wire.messages import FlowEnded, RunTask, TaskEnded, WakeSender
from emu.emulation.wire.notes import (
    Ended,
    Order,
    pack_end,
    pack_order,
    unpack_ends,
    unpack_orders,
    unpack_report,
)
from emu.errors import MalformedFrame

NUMBERS = st.integers(-(2**31), 2**31 - 1)
TIMES = st.floats(allow_nan=False)
SENT = st.lists(st.tuples(NUMBERS, TIMES), max_size=4)
REPORTS = st.dictionaries(st.text(max_size=5), TIMES, max_size=3)


@st.composite
def task_ends(draw: st.DrawFn) -> TaskEnded:
    sent = draw(SENT)
    return TaskEnded(
        task=draw(NUMBERS),
        iteration=draw(NUMBERS),
        start=draw(TIMES),
        end=draw(TIMES),
        edges=[edge for edge, _ in sent],
        volumes=[volume for _, volume in sent],
        began=draw(TIMES),
        cpu=draw(TIMES),
        late=draw(TIMES),
        report=draw(REPORTS),
    )


ENDS = st.lists(
    st.builds(FlowEnded, NUMBERS, NUMBERS, TIMES, TIMES) | task_ends(), max_size=5
)
READS = st.lists(st.lists(NUMBERS, min_size=2, max_size=2), max_size=3)
ORDERS = st.lists(
    st.builds(RunTask, NUMBERS, NUMBERS, TIMES, READS)
    | st.builds(WakeSender, NUMBERS, TIMES),
    max_size=5,
)


@given(ENDS)
def test_ends_come_as_they_were_told(ends: list[Ended]) -> None:
    assert [*unpack_ends(b"".join(map(pack_end, ends)))] == ends


@given(ORDERS)
def test_orders_come_as_they_were_given(orders: list[Order]) -> None:
    assert [*unpack_orders(b"".join(map(pack_order, orders)))] == orders


@given(ENDS, st.data())
def test_a_part_of_a_note_is_none(ends: list[Ended], data: st.DataObject) -> None:
    """Whatever is cut off, what is whole before it comes as it was told."""
    packed = b"".join(map(pack_end, ends))
    size = data.draw(st.integers(0, len(packed)))
    came: list[Ended] = []
    with contextlib.suppress(MalformedFrame):
        came.extend(unpack_ends(packed[:size]))
        assert size == len(b"".join(map(pack_end, came)))


@given(st.binary(max_size=200))
def test_nonsense_is_refused(nonsense: bytes) -> None:
    for unpack in (unpack_ends, unpack_orders):
        with contextlib.suppress(MalformedFrame):
            [*unpack(nonsense)]


def test_notes_are_literal_bytes() -> None:
    """The core reads and writes them as well (`ring_turns.c`)."""
    flow = struct.pack("<4i2d", 1, 5, 6, 0, 7.5, 8.5)
    assert pack_end(FlowEnded(5, 6, 7.5, 8.5)) == flow

    ended = TaskEnded(
        task=5,
        iteration=6,
        start=1.5,
        end=2.5,
        edges=[7, 8],
        volumes=[9.5, 10.5],
        began=3.5,
        cpu=4.5,
        late=0.25,
        report={"a": 1.0},
    )
    report = b"\x81\xa1a\xcb\x3f\xf0" + bytes(6)
    head = struct.pack("<6i5d", 2, 5, 6, 2, 12, 0, 1.5, 2.5, 3.5, 4.5, 0.25)
    edges = struct.pack("<qdqd", 7, 9.5, 8, 10.5)
    assert pack_end(ended) == head + edges + report

    run = struct.pack("<4id", 3, 5, 6, 2, 1.5) + struct.pack("<4i", 7, 8, 9, -1)
    assert pack_order(RunTask(5, 6, 1.5, [[7, 8], [9, -1]])) == run
    assert pack_order(WakeSender(5, 1.5)) == struct.pack("<2id", 4, 5, 1.5)


def test_a_report_is_a_map() -> None:
    assert unpack_report(b"") == {}
    assert unpack_report(b"\x81\xa1a\x05") == {"a": 5}
    for packed in (b"\x05", b"\x91\x05", b"\xc1"):
        with pytest.raises(MalformedFrame, match="a report is no msgpack map"):
            unpack_report(packed)


def test_an_order_is_no_end() -> None:
    order = pack_order(WakeSender(1, 2.0))
    with pytest.raises(MalformedFrame, match="kind 4 is no end"):
        [*unpack_ends(order)]
    with pytest.raises(MalformedFrame, match="kind 1 is no order"):
        [*unpack_orders(pack_end(FlowEnded(1, 2, 3.0, 4.0)))]
