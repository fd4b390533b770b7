"""Clocks of ranks, calls that go together, and the store: without any process."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.virtual import gloo_operations as gloo
from emu.virtual.calls import Call, Mismatch, check_alike
from emu.virtual.gloo_transport import MessageNetwork, Operation, write_steps
from emu.virtual.key_store import KeyStore
from emu.virtual.run_virtual import describe_steps
from emu.virtual.virtual_time import Deadlock, VirtualTime


def clocks(ranks: int, cores: int = 8) -> VirtualTime:
    return VirtualTime(MessageNetwork(np.array([1.0]), ranks), ranks, cores)


def turns(time: VirtualTime) -> list[tuple[int, float]]:
    return [(turn.rank, turn.time) for turn in time.go_on()]


def say_wait(
    time: VirtualTime, rank: int, clock: float, names: list[int], *, needs_all: bool
) -> None:
    """Have a rank wait from a time on for operations, with a timeout of 5 s."""
    time.stop(rank)
    wait = partial(time.wait, rank, names, 5.0, needs_all=needs_all)
    time.say(rank, clock, wait)


def test_nothing_happens_before_the_least_clock() -> None:
    """Rank 1 acts at 2 s; rank 0 shows 1 s, then 2.5 s."""
    time = clocks(2)
    happened: list[float] = []
    time.say(0, 1.0, lambda: None)
    time.say(1, 2.0, lambda: happened.append(2.0))

    assert turns(time) == []
    assert happened == []
    time.say(0, 2.5, lambda: None)
    turns(time)
    assert happened == [2.0]


def test_ties_go_by_rank_and_not_by_who_spoke_first() -> None:
    time = clocks(3)
    order: list[int] = []
    for rank in (2, 0, 1):
        time.say(rank, 1.0, partial(order.append, rank))
    turns(time)

    assert order == [0, 1, 2]


def test_a_wait_ends_with_the_last_of_its_calls_or_the_first() -> None:
    time = clocks(2)
    for rank, needs_all in enumerate((True, False)):
        time.schedule(rank, 2.0, partial(time.end, rank, 5, None))
        time.schedule(rank, 3.0, partial(time.end, rank, 6, None))
        say_wait(time, rank, 1.0, [5, 6], needs_all=needs_all)

    assert turns(time) == [(1, 2.0)]
    time.leave(1)
    assert turns(time) == [(0, 3.0)]


@pytest.mark.parametrize("is_early", [True, False])
def test_what_a_rank_is_told_depends_on_no_message_s_coming_early(
    *, is_early: bool
) -> None:
    """It waits from 2 s on for a call that ended at 1 s; another ends at 1.5 s.

    Its word comes before the network has gone on, or after.
    """
    time = clocks(2)
    time.schedule(0, 1.0, partial(time.end, 0, 5, None))
    time.schedule(0, 1.5, partial(time.end, 0, 6, None))
    if is_early:
        say_wait(time, 0, 2.0, [5], needs_all=True)
    time.say(1, 1.2, lambda: None)
    assert turns(time) == []
    if not is_early:
        say_wait(time, 0, 2.0, [5], needs_all=True)
    time.say(1, 7.0, lambda: None)

    (turn,) = time.go_on()
    assert turn.time == 2.0
    assert turn.news.keys() == {5, 6}


def test_a_deadline_ends_a_wait_once() -> None:
    time = clocks(1)
    say_wait(time, 0, 0.0, [5], needs_all=True)
    assert turns(time) == [(0, 5.0)]

    time.stop(0)
    time.say(0, 6.0, partial(time.wait, 0, [6], np.inf, needs_all=True))
    with pytest.raises(Deadlock):
        turns(time)


@pytest.mark.parametrize("cores", range(1, 6))
def test_ready_ranks_get_all_cores_and_no_more(cores: int) -> None:
    """One of five runs already, on a core of its own."""
    time = clocks(5, cores)
    for rank in (4, 2, 1, 3):
        time.stop(rank)
        time.say(rank, 1.0, partial(time.wake, rank))
    time.say(0, 9.0, lambda: None)

    assert turns(time) == [(rank, 1.0) for rank in range(1, cores)]


def test_one_that_uses_no_core_lends_it() -> None:
    time = clocks(3, cores=1)
    for rank in (2, 1, 0):
        time.stop(rank)
        time.say(rank, 1.0, partial(time.wake, rank))

    assert turns(time) == [(0, 1.0)]
    assert turns(time) == []
    assert [turn.rank for turn in time.go_on(stalled={0})] == [1]


@pytest.mark.parametrize(("delay", "followed"), [(0.9e-6, 0.0), (1.1e-6, 1.1e-6)])
def test_a_delay_of_a_microsecond_is_followed_no_further(
    delay: float, followed: float
) -> None:
    """It comes while the rank computes; what the rank says last is not early for it."""
    network = MessageNetwork(np.array([1.0]), 1)
    time = VirtualTime(network, 1, 1, lambda _: delay if network.now > 0 else 0.0)
    moments: list[float] = []
    for clock in (1.0, 2.0):
        time.say(0, clock, lambda: moments.append(network.now))
    time.say(0, 3.0, lambda: None)
    turns(time)

    assert moments == pytest.approx([1.0 + followed, 2.0 + delay], rel=0, abs=1e-9)


@pytest.mark.parametrize(("share", "expected"), [(0.25, 4.0), (0.9, 9.0)])
def test_messages_delay_what_computes(share: float, expected: float) -> None:
    """Three seconds of computing beside messages that want a share of the one core.

    Of a quarter three quarters are left: 4 s. Messages have two thirds at most: 9 s.
    Rank 1 waits all the time, and is delayed by nothing.
    """
    network = MessageNetwork(np.array([1000.0, 1000.0]), 2)
    group = network.open_group([0, 1], lambda *pair: ((pair[0],), 0.0))

    def message_cpu(rank: int) -> float:
        return share * network.count_moved(rank) / 1000.0

    steps: list[gloo.Send | gloo.Receive] = [gloo.Send(1, 1e6), gloo.Receive(0, 1e6)]
    for rank, step in enumerate(steps):
        operation = Operation(rank, 0, write_steps(post(step)), lambda *_: None)
        network.submit(group, operation)
    time = VirtualTime(network, 2, 2, message_cpu)
    acted: list[float] = []
    time.stop(0)
    time.say(0, 3.0, lambda: acted.append(network.now))
    time.stop(1)
    time.say(1, 5.0, lambda: None)
    with pytest.raises(Deadlock):
        turns(time)

    assert acted == [pytest.approx(expected, abs=0.2)]


def post(step: gloo.Send | gloo.Receive) -> gloo.Script:
    transfer = yield step
    yield gloo.Wait((transfer,))


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


def test_steps_are_between_marks() -> None:
    steps = describe_steps([0.0, 5.0, 6.0, 8.0])

    assert json.loads(json.dumps(steps)) == steps
    assert (steps["first"], steps["median"], steps["count"]) == (5.0, 1.5, 3)
    assert describe_steps([]) == {"count": 0}


class _SilentNetwork:
    """A network without messages: only what ranks wait for happens."""

    now = 0.0

    def go_on(self, _limit: float) -> bool:
        return False

    def go_to(self, time: float) -> None:
        self.now = time


def test_a_deadline_wakes_no_later_wait_of_its_rank() -> None:
    network: Any = _SilentNetwork()
    clocks = VirtualTime(network, ranks=1, cores=1)
    clocks.stop(0)
    clocks.begin_wait(0, "")
    clocks.wake_after(0, 5.0)
    clocks.wake(0)
    (turn,) = clocks.go_on()
    assert (turn.rank, turn.time) == (0, 0.0)
    clocks.stop(0)
    clocks.begin_wait(0, "of another")
    with pytest.raises(Deadlock):
        list(clocks.go_on())
    assert network.now == 5.0


def test_messages_that_delay_a_rank_put_off_what_it_may_post() -> None:
    """At 10 s one computes at 5 s, another at 4.75 s, delayed by 0.5 s."""
    network: Any = SimpleNamespace(now=10.0)
    clocks = VirtualTime(network, 2, 2, lambda rank: 0.5 * rank)
    clocks.ranks[0].clock = 5.0
    clocks.ranks[1].clock = 4.75

    assert clocks._horizon() == 5.0
    clocks.ranks[0].clock = 6.0
    assert clocks._horizon() == 5.25
