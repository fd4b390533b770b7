"""Calls of a group, and what the job of a recorded run makes of their messages."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from emu.interchange.workload import Workload
from emu.virtual.call_group import CallForm, CallGroup, MadeCall
from emu.virtual.calls import Call
from emu.virtual.cluster_server import Event, RankRecord
from emu.virtual.gloo_transport import Wire
from emu.virtual.recorded_job import _RankTasks
from emu.virtual.recorded_messages import (
    MessageTasks,
    RecordedCall,
    _Message,
    _Pair,
    _place_of,
)
from emu.virtual.recorded_messages import _Post as Posted


def made(
    group: CallGroup, rank: int, slot: int, kind: str = "allgather", **more: Any
) -> MadeCall:
    """Return a call of a rank."""
    figures = {"size": 8, "element": 4, **more}
    form = CallForm(group, group.member_of[rank], Call(kind, figures, ""))
    return MadeCall(rank, form, name=slot, slot=slot)


def test_values_of_a_collective_are_free_when_all_members_have_read() -> None:
    """Members are ranks 5, 3 and 8, of which the second leaves nothing."""
    group = CallGroup([5, 3, 8])
    calls = [made(group, rank, 4) for rank in group.ranks]
    assert group.find_places(4) == []
    group.note_deposit(calls[0], 64)
    group.note_deposit(calls[2], 128)
    assert group.find_places(4) == [64, None, 128]
    assert group.count_reader(calls[0]) == []
    assert group.count_reader(calls[1]) == []
    freed = group.count_reader(calls[2])
    assert [(deposit.rank, deposit.place) for deposit in freed] == [(5, 64), (8, 128)]
    assert group.find_places(4) == []


def test_messages_are_taken_in_the_order_of_their_way() -> None:
    """Messages the other way round or with another tag are not taken."""
    group = CallGroup([5, 3])
    for place, (rank, peer, slot) in enumerate(
        [(5, 1, 7), (3, 0, 7), (5, 1, 9), (5, 1, 7)]
    ):
        call = made(group, rank, slot, "send", peer=peer, tag=slot)
        group.note_deposit(call, place)
    taker = made(group, 3, 7, "recv", peer=0, tag=7)
    first = group.take_message(taker, 0)
    assert (first.rank, first.place, first.size) == (5, 0, 8)
    assert group.take_message(taker, 0).place == 3
    assert group.count_reader(taker) == []
    taker.deposit = first
    assert group.count_reader(taker) == [first]


def carried(
    size: float, buffer: float, kind: str = "recv", *, is_offloaded: bool = False
) -> Any:
    """Return the flows of a message of rank 3 to rank 4, without their order."""
    workload = Workload("w", [])
    tasks = MessageTasks(workload, [])
    send = Posted(size=size, order=7, step="r3.s", kind="send", place=0, waiter="r3.w")
    receive = Posted(size=size, order=8, step="r4.s", kind=kind, place=0, waiter="r4.w")
    pair = _Pair(group=1, sender=3, receiver=4, wire=Wire(48.0, buffer, is_offloaded))
    tasks._carry(_Message(pair, send, receive))
    return [
        (
            row["from"],
            row["to"],
            float(row["volume"].split()[0]),
            row.get("channel", ""),
        )
        for row in workload.flows
    ]


def test_a_small_message_is_one_frame_behind_two_notices() -> None:
    """The sender goes on when it may write, as the kernel takes all of it."""
    line, back = "group1.r3.r4", "group1.r4.r3"
    assert carried(10.0, 100.0) == [
        ("r3.s", "r4.w7", 48.0, line),
        ("r4.s", "r3.w8", 48.0, back),
        ("r3.s", "r3.w8", 0.0, ""),
        ("r3.w8", "r3.w", 0.0, ""),
        ("r3.w8", "r4.w7", 58.0, line),
        ("r4.w7", "r4.w", 0.0, ""),
    ]


def test_a_large_message_holds_its_sender_until_a_buffer_is_left() -> None:
    """The sender of 250 bytes goes on after 150; the rest leaves with the header."""
    line, back = "group1.r3.r4", "group1.r4.r3"
    assert carried(250.0, 100.0) == [
        ("r3.s", "r4.w7.rest", 48.0, line),
        ("r4.s", "r3.w8", 48.0, back),
        ("r3.s", "r3.w8", 0.0, ""),
        ("r3.w8", "r4.w7", 150.0, line),
        ("r4.w7", "r3.w", 0.0, ""),
        ("r3.w8", "r4.w7.rest", 148.0, line),
        ("r4.w7.rest", "r4.w", 0.0, ""),
    ]


def test_a_receive_of_anyone_is_announced_first() -> None:
    """It answers the sender; without notices of gloo there is a latency alone."""
    flows = carried(10.0, 100.0, "recv_anysource")
    assert flows[:3] == [
        ("r4.s", "r4.w7.any", 0.0, ""),
        ("r3.s", "r4.w7.any", 48.0, "group1.r3.r4"),
        ("r4.w7.any", "r3.w8", 48.0, "group1.r4.r3"),
    ]
    offloaded = carried(10.0, 100.0, is_offloaded=True)
    assert offloaded[:2] == [("r4.s", "r3.w8", 48.0, ""), ("r3.s", "r3.w8", 0.0, "")]
    assert offloaded[-1] == ("r4.w0", "r4.w", 0.0, "")


@pytest.mark.parametrize(
    ("kind", "count", "blocking"),
    [
        ("allreduce", 1, []),
        ("allreduce", 2, ["r0.e1"]),
        ("allreduce", 3, ["r0.e2"]),
        ("barrier", 1, ["r0.e0"]),
        ("barrier", 3, ["r0.e1", "r0.e2"]),
        ("send", 3, []),
    ],
)
def test_a_call_begins_when_a_worker_is_free(
    kind: str, count: int, blocking: list[str]
) -> None:
    """Calls before it end at 9, 5 and 7 s, and were not waited for."""
    group = CallGroup([0, 1])
    workload = Workload("w", [])
    tasks = MessageTasks(workload, [group])
    for number, ended in zip(range(count), (9.0, 5.0, 7.0), strict=False):
        call = made(group, 0, number)
        call.ended = ended
        recorded = RecordedCall(call, f"r0.{number}", f"r0.e{number}")
        tasks._open[group, 0].append(recorded)
    call = made(group, 0, 9, kind, peer=1, tag=0)
    begin = tasks._begin(RecordedCall(call, "r0.9", "r0.e9"))
    assert begin == ("r0.begin0" if blocking else "r0.9")
    found = [row["from"] for row in workload.flows if row["to"] == begin]
    assert found == (["r0.9", *blocking] if blocking else [])


def test_a_call_that_was_waited_for_blocks_no_other() -> None:
    """A wait takes a call off the open ones of its rank, and of no other rank."""
    group = CallGroup([0, 1])
    tasks = MessageTasks(Workload("w", []), [group])
    recorded = RecordedCall(made(group, 0, 1), "r0.1", "r0.e1")
    tasks._open[group, 0].append(recorded)
    tasks._open[group, 1].append(recorded)
    tasks.note_wait(recorded)
    tasks.note_wait(recorded)
    assert tasks._open == defaultdict(list, {(group, 0): [], (group, 1): [recorded]})


def test_messages_that_the_run_did_not_write_come_last() -> None:
    pair: Any = None
    posts = [
        Posted(1.0, number, "", "send", place) for number, place in enumerate((3, 0, 1))
    ]
    messages = [_Message(pair, post, post) for post in posts]
    assert [message.send.place for message in sorted(messages, key=_place_of)] == [
        1,
        3,
        0,
    ]


def test_a_receive_of_anyone_is_played_as_one_of_its_sender() -> None:
    """Member 1 sent it; what nobody sent is no part of the job."""
    group = CallGroup([0, 1, 2])
    workload = Workload("w", [])
    tasks = MessageTasks(workload, [group])
    call = made(group, 0, 3, "recv_anysource", peer=None, tag=3)
    call.source = 1
    tasks.add_call(RecordedCall(call, "r0.0", "r0.end0"))
    (key,) = tasks._receives
    assert key[1:3] == (1, 0)
    assert [task["name"] for task in workload.tasks] == ["r0.end0"]


@pytest.mark.parametrize(("ended", "is_there"), [(4.0, True), (float("inf"), False)])
def test_a_call_that_has_not_ended_is_waited_for_by_nobody(
    ended: float, *, is_there: bool
) -> None:
    group = CallGroup([0, 1])
    for kind in ("allgather", "recv_anysource"):
        workload = Workload("w", [])
        messages = MessageTasks(workload, [group])
        machine: Any = SimpleNamespace(speed=1.0, cpu=None)
        call = made(group, 0, 0, kind, peer=None, tag=0)
        call.ended = ended
        call.source = 1
        events = [
            Event("post", 1.0, call),
            Event("wait", 2.0, names=[0]),
            Event("go", 5.0),
        ]
        record = RankRecord(events, end=6.0)
        tasks = _RankTasks(workload, messages, 0, record, machine)
        tasks.add()
        names = [task["name"] for task in workload.tasks]
        is_played = is_there or kind == "allgather"
        assert ("r0.end0" in names) == is_played
        waits = [row for row in workload.flows if row["from"] == "r0.end0"]
        assert [row["to"] for row in waits] == ["r0.2"] * is_there
        # What no call ends is time of its own: 4 s from the wait on, or 1 from its end.
        last = next(task for task in workload.tasks if task["name"] == "r0.2")
        assert last["time"] == ("1 s" if is_there else "4 s")
