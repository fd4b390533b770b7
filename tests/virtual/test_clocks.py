"""Clocks of ranks, calls that go together, and the store: without any process."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from emu.virtual.calls import Call, Mismatch, check_alike
from emu.virtual.gloo_transport import MessageNetwork
from emu.virtual.key_store import KeyStore
from emu.virtual.virtual_time import Deadlock, VirtualTime


def clocks(ranks: int, cores: int = 8) -> VirtualTime:
    return VirtualTime(MessageNetwork(np.array([1.0]), ranks), ranks, cores)


def turns(time: VirtualTime) -> list[tuple[int, float]]:
    return [(turn.rank, turn.time) for turn in time.go_on()]


def test_nothing_happens_before_the_least_clock() -> None:
    """Rank 1 acts at 2 s, and waits for rank 0, whose clock is at 1 s."""
    time = clocks(2)
    happened: list[float] = []
    time.note_clock(0, 1.0)
    time.note_clock(1, 2.0)
    time.schedule(1, 2.0, lambda: happened.append(2.0))

    assert turns(time) == []
    assert happened == []
    time.note_clock(0, 2.5)
    turns(time)
    assert happened == [2.0]


def test_ties_go_by_rank_and_not_by_who_spoke_first() -> None:
    time = clocks(3)
    order: list[int] = []
    for rank in (2, 0, 1):
        time.note_clock(rank, 1.0)
        time.schedule(rank, 1.0, partial(order.append, rank))
    turns(time)

    assert order == [0, 1, 2]


def test_a_wait_ends_with_the_last_of_its_calls_or_the_first() -> None:
    time = clocks(2)
    for rank, needs_all in enumerate((True, False)):
        time.note_clock(rank, 1.0)
        names = [f"a{rank}", f"b{rank}"]
        time.wait(rank, names, np.inf, needs_all=needs_all)
        time.schedule(rank, 2.0, partial(time.end, rank, f"a{rank}", 2.0, None))
        time.schedule(rank, 3.0, partial(time.end, rank, f"b{rank}", 3.0, None))

    assert turns(time) == [(1, 2.0)]
    time.leave(1)
    assert turns(time) == [(0, 3.0)]


def test_a_deadline_ends_a_wait_once() -> None:
    time = clocks(1)
    time.wait(0, ["never"], 5.0, needs_all=True)
    assert turns(time) == [(0, 5.0)]

    time.note_clock(0, 6.0)
    time.wait(0, ["again"], np.inf, needs_all=True)
    with pytest.raises(Deadlock):
        turns(time)


def test_as_many_run_as_there_are_cores() -> None:
    time = clocks(3, cores=1)
    for rank in (2, 1, 0):
        time.note_clock(rank, 1.0)
        time.stop(rank, "sleeps")
        time.wake_at(rank, 1.0)

    assert turns(time) == [(0, 1.0)]
    assert turns(time) == []
    # One that uses no core lends it.
    assert [turn.rank for turn in time.go_on(stalled={0})] == [1]


def test_members_make_one_call() -> None:
    def call(kind: str = "allreduce", **figures: object) -> Call:
        return Call(
            kind, {"size": 8, "element": 4, "dtype": "float32"} | figures, "a.py:3"
        )

    check_alike(call(), 1, {0: call()})
    for other, words in (
        (call("barrier"), "different calls"),
        (call(size=12), "differ in size"),
        (call(dtype="int32"), "differ in dtype"),
        (call(root=1), "differ in root"),
    ):
        with pytest.raises(Mismatch, match=f"{words}.*member 0 .*a.py:3, member 1"):
            check_alike(call(), 1, {0: other})


def test_an_exchange_gives_what_the_other_expects() -> None:
    def call(given: list[int], taken: list[int]) -> Call:
        return Call("alltoall", {"given": given, "taken": taken}, "a.py:3")

    check_alike(call([4, 8], [4, 12]), 0, {1: call([12, 4], [8, 4])})
    with pytest.raises(Mismatch, match="other bytes"):
        check_alike(call([4, 8], [4, 12]), 0, {1: call([12, 4], [9, 4])})


def test_the_store_answers_as_torch_s_does() -> None:
    """As its documentation of `compare_set` and `add` has it."""
    store = KeyStore()
    came: list[str] = []
    store.call_when_there(["a", "n"], lambda: came.append("both"))

    assert store.carry_out("compare_set", ["a"], [b"x", b"y"]) == b"x"
    assert store.carry_out("compare_set", ["a"], [b"", b"y"]) == b"y"
    assert store.carry_out("compare_set", ["a"], [b"z", b"w"]) == b"y"
    assert came == []
    assert store.carry_out("add", ["n"], [3]) == 3
    assert came == ["both"]
    assert store.carry_out("add", ["n"], [4]) == 7
    assert store.carry_out("get", ["n"], []) == b"7"
    store.carry_out("append", ["a"], [b"!"])
    assert store.carry_out("multi_get", ["a", "n"], []) == [b"y!", b"7"]
    assert store.carry_out("check", ["a", "b"], []) is False
    assert store.carry_out("num_keys", [], []) == 2
    assert store.carry_out("delete_key", ["a"], []) is True
    assert store.carry_out("delete_key", ["a"], []) is False
