"""Calls of ranks that are threads: which end with a timeout, and which are refused."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="ranks need torch")

from emu.virtual.calls import Mismatch  # noqa: E402
from emu.virtual.control import RankLost  # noqa: E402
from emu.virtual.rank.layouts import NotModelled  # noqa: E402
from emu.virtual.virtual_time import Deadlock  # noqa: E402
from tests.virtual.ranks_in_threads import (  # noqa: E402
    Rank,
    options,
    run_in_threads,
)

NIC = 1e6
THREE = [0, 1, 2]


def timed_out(rank: Rank) -> list[str]:
    """Receive what nobody sends, by the timeout of a wait and of the group."""
    group = rank.group([0, 1], timeout=timedelta(seconds=3))
    told = []
    if rank.number == 0:
        for limit in (timedelta(seconds=2), None, timedelta(0)):
            work = group.recv([torch.zeros(1)], 1, 5)
            with pytest.raises(RuntimeError) as caught:
                work.wait(limit)
            rank.end.forget(work)
            told.append(str(caught.value))
        told.append(f"{rank.end.now():g}")
    return told


def test_a_wait_ends_with_its_timeout_or_that_of_its_group() -> None:
    ran = run_in_threads(timed_out, [NIC] * 2)
    assert ran.values[0] == [
        "recv passed its timeout of 2.0 s of virtual time",
        "recv passed its timeout of 3.0 s of virtual time",
        "recv passed its timeout of 3.0 s of virtual time",
        "8",
    ]


def watched(rank: Rank) -> list[str]:
    """Pass a monitored barrier, and miss others."""
    group = rank.group(THREE)
    group.monitored_barrier()
    told = []
    for names_all in (False, True):
        if rank.number == 0:
            with pytest.raises(RuntimeError) as caught:
                group.monitored_barrier(timedelta(seconds=4), wait_all_ranks=names_all)
            told.append(str(caught.value))
            told.append(f"{rank.end.now():.0f}")
        rank.end.sleep(20.0 * (1 + names_all))
    return told


def test_a_monitored_barrier_names_who_did_not_come() -> None:
    ran = run_in_threads(watched, [NIC] * 3)
    assert ran.values[0] == [
        "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 4000 ms",
        "4",
        "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 4000 ms",
        "28",
    ]


def alone(rank: Rank) -> str:
    """Come to a monitored barrier whose first member does not."""
    group = rank.group(THREE)
    if rank.number == 0:
        rank.end.sleep(100.0)
        return ""
    with pytest.raises(RuntimeError) as caught:
        group.monitored_barrier(timedelta(seconds=4))
    return f"{rank.end.now():.0f} {caught.value}"


def test_a_member_of_a_monitored_barrier_says_that_the_first_did_not_come() -> None:
    ran = run_in_threads(alone, [NIC] * 3)
    for member in (1, 2):
        words = f"4 Rank {member} successfully reached monitoredBarrier, but received"
        assert ran.values[member].startswith(words)


def stuck(rank: Rank) -> None:
    """Wait for each other, but the second, which ends."""
    group = rank.group(THREE)
    if rank.number == 0:
        group.recv([torch.zeros(2)], 2, 4).wait()
    if rank.number == 2:
        rank.end.ask_store("get", ["x"], [], 0.0)


def test_a_deadlock_names_what_each_rank_waits_for() -> None:
    with pytest.raises(Deadlock) as caught:
        run_in_threads(stuck, [NIC] * 3)
    waits = str(caught.value)
    assert (
        "rank 0 waits for recv of 8 bytes (float32) from member 2 with tag 4 at test_"
        in waits
    )
    assert "rank 1 has ended" in waits
    assert "rank 2 waits for key x of the store" in waits


def unlike(rank: Rank) -> None:
    """Make calls that do not go together, as members 1 and 0."""
    group = rank.group([2, 0]) if rank.number != 1 else None
    if group is None:
        return
    if rank.number == 0:
        rank.end.sleep(1.0)
        group.allreduce([torch.zeros(2)]).wait()
    else:
        group.allreduce([torch.zeros(3)]).wait()


def test_calls_that_do_not_go_together_are_told_by_their_members() -> None:
    with pytest.raises(Mismatch) as caught:
        run_in_threads(unlike, [NIC] * 3)
    told = str(caught.value)
    assert "calls that differ in size: member 0 allreduce of 12 bytes" in told
    assert "member 1 allreduce of 8 bytes" in told
    assert told.endswith("members 0 to n are ranks 2, 0")


def fails(rank: Rank) -> None:
    """Fail after three seconds, in one of two ranks."""
    rank.end.sleep(3.0)
    if rank.number == 1:
        raise ValueError("no such file")
    rank.end.sleep(100.0)


def test_a_rank_that_fails_ends_the_run() -> None:
    with pytest.raises(RankLost, match="rank 1 failed after 3 s: no such file"):
        run_in_threads(fails, [NIC] * 2)


def leaves(rank: Rank) -> None:
    """Go without a word, in one of two ranks."""
    rank.end.sleep(3.0)
    if rank.number == 1:
        rank.end._connection.close()
        return
    rank.end.sleep(100.0)


def test_a_rank_that_goes_without_a_word_is_told_with_its_time() -> None:
    words = "rank 1 died as 1, 3 s after the start by its clock"
    with pytest.raises(RankLost, match=words):
        run_in_threads(leaves, [NIC] * 2)


def refusals(rank: Rank) -> list[str]:
    """Ask for what no member may have."""
    group = rank.group([0])
    halves = torch.zeros(4)[::2]
    square = torch.zeros(2, 3)
    asked: list[Any] = [
        lambda: group.allreduce([torch.zeros(1, dtype=torch.int16)]),
        lambda: group.allreduce([halves]),
        lambda: group.allreduce([torch.zeros(1), torch.zeros(1, dtype=torch.int64)]),
        lambda: group.allreduce([torch.zeros(1)], options(operation="BAND")),
        lambda: group.allreduce([torch.zeros(1) * 1j], options(operation="MAX")),
        lambda: group.allgather([[torch.zeros(1)] * 2], [torch.zeros(1)]),
        lambda: group.allgather_coalesced([[torch.zeros(1)] * 2], [torch.zeros(1)]),
        lambda: group.all_to_all_single(square.t(), square.t(), [], []),
        lambda: group.all_to_all_single(square, square, [1], [1]),
        lambda: group.send([square.t()], 0),
        lambda: group.reduce_scatter_single_coalesced([square] * 2, [square] * 2),
        lambda: group.allreduce([torch.zeros(1)], SimpleNamespace(reduceOp="XX")),
        lambda: group.scatter([torch.zeros(1)], [[torch.zeros(2)]], options(0)),
        lambda: rank.end.sleep(-1.0),
        lambda: group.allreduce([torch.zeros(2).to_sparse()]),
        lambda: group.reduce_scatter_single(torch.zeros(2), torch.zeros(1, 2)),
        lambda: group.allreduce(
            [torch.zeros(1, dtype=torch.int8)], options(operation="AVG")
        ),
    ]
    told = []
    for ask in asked:
        with pytest.raises((RuntimeError, ValueError, NotModelled)) as caught:
            ask()
        told.append(str(caught.value))
    return told


def test_what_a_group_does_not_take_is_refused_before_it_is_sent() -> None:
    (told,) = run_in_threads(refusals, [NIC]).values.values()
    words = [
        "gloo has no int16",
        "dense in memory",
        "must all have the same type",
        "Cannot use ReduceOp.BAND with non-integral dtype",
        "ReduceOp.MAX is not of complex numbers",
        "expected length 1, got 2",
        "expected length 1, got 2",
        "Tensors must be contiguous",
        "splits [1] are not the 2 rows there are",
        "input tensor has to be contiguous",
        "coalesced reduce_scatter of several tensors",
        "gloo has no reduction XX",
        "invalid tensor size at index 0 (expected (1,), got (2,))",
        "sleep length must be non-negative",
        "sums of sparse tensors are not modelled",
        "of (1, 2) each of 1 members is to have a part, found (2,)",
        "can't be cast to",
    ]
    for line, expected in zip(told, words, strict=True):
        assert expected in line


def too_large(rank: Rank) -> None:
    """Receive two numbers where three were sent."""
    group = rank.group([0, 1])
    if rank.number == 0:
        group.send([torch.zeros(3)], 1, 6).wait()
    else:
        group.recv([torch.zeros(2)], 0, 6).wait()


def test_a_message_of_another_size_than_expected_is_refused() -> None:
    words = "member 0 sent 12 bytes with tag 6, 8 were expected"
    with pytest.raises(RankLost, match=words):
        run_in_threads(too_large, [NIC] * 2)
