"""Calls of ranks that are threads: what each holds, when, and what is refused."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="ranks need torch")

from emu.problem import CapacityChange, Cluster, Machine  # noqa: E402
from emu.virtual.calls import Mismatch  # noqa: E402
from emu.virtual.control import RankLost  # noqa: E402
from emu.virtual.message_costs import MessageCosts  # noqa: E402
from emu.virtual.rank.layouts import NotModelled  # noqa: E402
from emu.virtual.rank.process_group import (  # noqa: E402
    VirtualProcessGroup,
    _operation,
)
from emu.virtual.transports import NoAlgorithm  # noqa: E402
from emu.virtual.virtual_time import Deadlock  # noqa: E402
from tests.virtual.ranks_in_threads import Rank, run_in_threads  # noqa: E402

NIC = 1e6
THREE = [0, 1, 2]


def options(root: int = 0, operation: str = "SUM") -> Any:
    """Return what torch hands to a call."""
    reduction = getattr(torch.distributed.ReduceOp, operation)
    return SimpleNamespace(rootRank=root, reduceOp=reduction)


def sums(rank: Rank) -> dict[str, list[float]]:
    """Reduce numbers of which rank r brings r + 1 times as much, or its bits."""
    group = rank.group(THREE)
    held: dict[str, list[float]] = {}
    factor = rank.number + 1
    for operation in ("SUM", "AVG", "PRODUCT", "MIN", "MAX"):
        tensor = torch.tensor([1.0, -2.0, 4.0]) * factor
        group.allreduce([tensor], options(operation=operation)).wait()
        held[operation] = tensor.tolist()
    for operation in ("BAND", "BOR", "BXOR"):
        bits = torch.tensor([6 + rank.number])
        group.allreduce(bits, options(operation=operation)).wait()
        held[operation] = bits.tolist()
    large = torch.arange(5000, dtype=torch.float64) * factor
    group.allreduce([large]).wait()
    held["large"] = large[[0, 1, 2500, 4999]].tolist()
    half = torch.arange(3, dtype=torch.bfloat16) * factor
    group.allreduce([half]).wait()
    held["half"] = half.tolist()
    columns = (torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]) * factor).t()
    group.allreduce([columns]).wait()
    held["columns"] = columns.reshape(-1).tolist()
    several = [torch.tensor([1.0]) * factor, torch.tensor([[2.0, 3.0]]) * factor]
    group.allreduce_coalesced(several).wait()
    held["several"] = [*several[0].tolist(), *several[1][0].tolist()]
    nothing = torch.zeros(0)
    group.allreduce([nothing]).wait()
    held["nothing"] = nothing.tolist()
    at_root = torch.tensor([7.0]) * factor
    group.reduce([at_root], options(root=1)).wait()
    if rank.number == 1:
        held["root"] = at_root.tolist()
    return held


def test_sums_are_of_what_all_ranks_brought() -> None:
    ran = run_in_threads(sums, [NIC] * 3)
    expected = {
        "SUM": [6.0, -12.0, 24.0],
        "AVG": [2.0, -4.0, 8.0],
        "PRODUCT": [6.0, -48.0, 384.0],
        "MIN": [1.0, -6.0, 4.0],
        "MAX": [3.0, -2.0, 12.0],
        "BAND": [0],
        "BOR": [15],
        "BXOR": [9],
        "large": [0.0, 6.0, 15_000.0, 29_994.0],
        "half": [0.0, 6.0, 12.0],
        "columns": [6.0, 18.0, 30.0, 12.0, 24.0, 36.0],
        "several": [6.0, 12.0, 18.0],
        "nothing": [],
    }
    assert ran.values == {
        0: expected,
        1: expected | {"root": [42.0]},
        2: expected,
    }


def parts(rank: Rank) -> dict[str, list[float]]:
    """Reduce tensors of which each rank keeps a part."""
    group = rank.group(THREE)
    factor = rank.number + 1
    held: dict[str, list[float]] = {}
    output = torch.zeros(2)
    group.reduce_scatter_single(output, torch.arange(6.0) * factor).wait()
    held["single"] = output.tolist()
    columns = (torch.arange(6.0).view(2, 3) * factor).t()
    output = torch.zeros(1, 2)
    group.reduce_scatter_single_coalesced([output], [columns]).wait()
    held["columns"] = output.tolist()[0]
    given = [torch.full((size,), float(size)) * factor for size in (1, 2, 4)]
    output = torch.zeros(given[rank.number].shape)
    group.reduce_scatter([output], [given]).wait()
    held["uneven"] = output.tolist()
    return held


def test_parts_of_a_sum_are_kept_by_their_ranks() -> None:
    ran = run_in_threads(parts, [NIC] * 3)
    assert ran.values == {
        0: {"single": [0.0, 6.0], "columns": [0.0, 18.0], "uneven": [6.0]},
        1: {"single": [12.0, 18.0], "columns": [6.0, 24.0], "uneven": [12.0] * 2},
        2: {"single": [24.0, 30.0], "columns": [12.0, 30.0], "uneven": [24.0] * 4},
    }


def moves(rank: Rank) -> dict[str, Any]:
    """Move tensors of ranks 2, 0 and 1 as members 0, 1 and 2 of a group."""
    group = rank.group([2, 0, 1])
    number = float(rank.number)
    held: dict[str, Any] = {}
    tensor = torch.tensor([10.0 + number, 20.0])
    group.broadcast([tensor], options(root=2)).wait()
    held["broadcast"] = tensor.tolist()
    tensor = torch.tensor([number])
    group.broadcast(tensor).wait()
    held["from the first"] = tensor.tolist()
    outputs = [torch.zeros(2) for _ in THREE]
    group.allgather([outputs], [torch.tensor([number, -number])]).wait()
    held["allgather"] = [row.tolist() for row in outputs]
    whole = torch.zeros(3, 2)
    group.all_gather_single(whole, torch.tensor([[number, 5.0]])).wait()
    held["in one"] = whole.tolist()
    row = [torch.zeros(1) for _ in THREE] if group.rank() == 1 else []
    group.gather([row] if row else [], [torch.tensor([number])], options(1)).wait()
    held["gather"] = [output.item() for output in row]
    output = torch.zeros(2)
    given = [[torch.tensor([float(n), 7.0]) for n in (4, 5, 6)]]
    group.scatter([output], given if group.rank() == 2 else [], options(2)).wait()
    held["scatter"] = output.tolist()
    output = torch.zeros(3)
    group.all_to_all_single(output, torch.arange(3.0) + 10 * number, [], []).wait()
    held["even"] = output.tolist()
    # Member m has m + 1 rows for member 0, one for 1 and none for 2.
    member = group.rank()
    given_rows = [member + 1, 1, 0]
    taken_rows = {0: [1, 2, 3], 1: [1, 1, 1], 2: [0, 0, 0]}[member]
    brought = torch.full((sum(given_rows), 2), 1.0 + member)
    output = torch.zeros(sum(taken_rows), 2)
    group.all_to_all_single(output, brought, taken_rows, given_rows).wait()
    held["uneven"] = output[:, 0].tolist()
    outputs = [torch.zeros(1, 2) for _ in THREE]
    each = [torch.tensor([[10 * number + n, 1.0]]) for n in range(3)]
    group.alltoall(outputs, each).wait()
    held["lists"] = [output[0, 0].item() for output in outputs]
    group.barrier().wait()
    return held


def pairs_of(rank: Rank) -> Any:
    """Move complex numbers of rank 1."""
    group = rank.group(THREE)
    pairs = torch.tensor([1.0 + 2.0j]) * (rank.number + 1)
    group.broadcast([pairs], options(root=1)).wait()
    return pairs.tolist()


def test_values_come_of_the_member_that_gave_them() -> None:
    """Members 0, 1 and 2 are ranks 2, 0 and 1."""
    held = run_in_threads(moves, [NIC] * 3).values
    for rank, member in ((2, 0), (0, 1), (1, 2)):
        found = held[rank]
        assert found["broadcast"] == [11.0, 20.0]
        assert found["from the first"] == [2.0]
        assert found["allgather"] == [[2.0, -2.0], [0.0, -0.0], [1.0, -1.0]]
        assert found["in one"] == [[2.0, 5.0], [0.0, 5.0], [1.0, 5.0]]
        assert found["gather"] == ([2.0, 0.0, 1.0] if member == 1 else [])
        assert found["scatter"] == [4.0 + member, 7.0]
        assert found["even"] == [20.0 + member, member, 10.0 + member]
        uneven = {0: [1.0, 2, 2, 3, 3, 3], 1: [1.0, 2.0, 3.0], 2: []}
        assert found["uneven"] == uneven[member]
        assert found["lists"] == [20.0 + member, member, 10.0 + member]
    pairs = run_in_threads(pairs_of, [NIC] * 3).values
    assert [*pairs.values()] == [[2.0 + 4.0j]] * 3


def columns_of(rank: Rank) -> dict[str, Any]:
    """Bring and take transposed matrices, in groups of gloo and of nccl."""
    group = rank.group([0, 1])
    number = 10.0 * rank.number
    given = (torch.arange(6.0).view(2, 3) + number).t()
    taken = [torch.zeros(2, 3).t() for _ in range(2)]
    group.allgather([taken], [given]).wait()
    sums = [given.clone(), torch.ones(1)]
    group.allreduce_coalesced(sums).wait()
    nccl = rank.group([0, 1], "nccl")
    stacked = torch.zeros(2, 2)
    nccl.all_gather_single(stacked, torch.tensor([number, 1.0])).wait()
    flat = torch.zeros(4)
    nccl.all_gather_single(flat, torch.tensor([[number], [1.0]])).wait()
    return {
        "taken": [tensor.tolist() for tensor in taken],
        "sums": [*sums[0].reshape(-1).tolist(), *sums[1].tolist()],
        "stacked": stacked.tolist(),
        "flat": flat.tolist(),
    }


def test_matrices_are_taken_by_their_rows_however_they_lie() -> None:
    """Groups of nccl count elements alone."""
    held = run_in_threads(columns_of, [NIC] * 2).values
    rows = [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert held[0] == held[1]
    assert held[0]["taken"] == [rows, [[10 + n for n in row] for row in rows]]
    assert held[0]["sums"] == [10.0, 16.0, 12.0, 18.0, 14.0, 20.0, 2.0]
    assert held[0]["stacked"] == [[0.0, 1.0], [10.0, 1.0]]
    assert held[0]["flat"] == [0.0, 1.0, 10.0, 1.0]


def messages(rank: Rank) -> Any:
    """Send of ranks 1 and 2 to 0, which takes the second tag first."""
    group = rank.group(THREE)
    if rank.number == 1:
        sent = ((1.5, 2.5), 7), ((3.5,), 8), ((4.5, 5.5), 7)
        works = [group.send([torch.tensor(row)], 0, tag) for row, tag in sent]
        for work in works:
            work.wait()
        return None
    if rank.number == 2:
        rank.end.sleep(5.0)
        group.send([torch.tensor([9.0])], 0, 8).wait()
        return rank.end.now()
    held = []
    for size, sender, tag in ((1, 1, 8), (2, 1, 7), (2, 1, 7)):
        tensor = torch.zeros(size)
        work = group.recv([tensor], sender, tag)
        work.wait()
        held.append((tensor.tolist(), work.source_rank(), work.is_completed()))
    tensor = torch.zeros(1)
    work = group.recv_anysource([tensor], 8)
    late = work.is_completed()
    future = work.get_future()
    work.wait()
    return held, tensor.tolist(), work._source_rank(), late, future.done()


def test_messages_of_a_tag_come_in_their_order() -> None:
    """The last is of rank 2, which sends it 5 s after the start."""
    ran = run_in_threads(messages, [NIC] * 3)
    held, last, sender, was_late, is_done = ran.values[0]
    assert held == [
        ([3.5], 1, True),
        ([1.5, 2.5], 1, True),
        ([4.5, 5.5], 1, True),
    ]
    assert (last, sender, was_late, is_done) == ([9.0], 2, False, True)
    # A header of 48 bytes each way goes before four bytes of data and theirs.
    assert ran.values[2] == pytest.approx(5.0 + 2 * 48 / NIC, rel=1e-9)
    zero, one, two = ran.server.records
    assert zero.end == pytest.approx(5.0 + (3 * 48 + 4) / NIC, rel=1e-9)
    assert two.waited == pytest.approx(5.0 + 96 / NIC, rel=1e-9)
    assert one.waited < 1.0 < zero.waited
    assert [event.kind for event in two.events] == ["go", "post", "wait", "go"]
    assert two.figures == {"cpu": 2.0}
    sizes = ran.server.count_bytes()
    assert sizes[1, 0] == 3 * 2 * 48 + 20
    assert sizes[0, 2] == 48
    assert sizes[2, 1] == 0


def one_sum(rank: Rank) -> float:
    """Sum 400 kB between two ranks, of which the second computes for 2 s."""
    group = rank.group([0, 1])
    if rank.number == 1:
        rank.end.sleep(2.0)
    tensor = torch.ones(100_000)
    group.allreduce([tensor]).wait()
    rank.end.say("mark")
    rank.end.say("line", f"sum {tensor[0].item():g}")
    return rank.end.now()


def test_a_sum_takes_what_its_messages_take() -> None:
    """Each sends half of it twice; who came first waited for the other."""
    ran = run_in_threads(one_sum, [NIC, 2 * NIC])
    headers = 8 * 3 * 48 / NIC
    for end in ran.values.values():
        assert end == pytest.approx(2.4, abs=headers)
    first, second = ran.server.records
    assert first.marks == [pytest.approx(2.4, abs=headers)]
    assert first.waited == pytest.approx(2.4, abs=headers)
    assert second.waited == pytest.approx(2.4, abs=headers)
    assert {(rank, text) for rank, _, text in ran.lines} == {(0, "sum 2"), (1, "sum 2")}
    assert ran.lines[0][1] == pytest.approx(2.4, abs=headers)


def test_a_link_that_an_event_cuts_in_half_takes_longer() -> None:
    """Rank 1 sends at 0.5 MB/s from 2.1 s on: 0.3 MB of 0.4 take 0.6 s."""
    machines = (Machine("m0", NIC, NIC), Machine("m1", NIC, NIC))
    cluster = Cluster(machines, changes=(CapacityChange(2.1, "m1 out", NIC / 2),))
    ran = run_in_threads(one_sum, [NIC] * 2, cluster=cluster)
    assert max(ran.values.values()) == pytest.approx(2.7, abs=4e-3)


def test_ranks_of_one_machine_wait_for_no_nic() -> None:
    ran = run_in_threads(one_sum, [NIC], machine_of=[0, 0])
    assert max(ran.values.values()) == pytest.approx(2.0, abs=1e-6)


def charged(rank: Rank) -> tuple[float, float]:
    """Compute for a quarter of a second before each word."""
    group = rank.group([0, 1])
    tensor = torch.ones(1000)
    work = group.allreduce([tensor])
    before = rank.end.now()
    work.wait()
    return before, rank.end.now()


@pytest.mark.parametrize(("shares_core", "delay"), [(False, 0.0), (True, 1 / 6)])
def test_messages_delay_who_computes_on_their_core(
    *, shares_core: bool, delay: float
) -> None:
    """Two thirds of a core at most, of the quarter of a second after the post.

    Of 24 frames that cost 10 ms each some have come by then.
    """
    costs = MessageCosts(per_byte=0.0, per_frame=1e-2, measured="", torch="")
    ran = run_in_threads(
        charged, [NIC] * 2, charge=0.25, costs=costs, shares_core=shares_core
    )
    for before, after in ran.values.values():
        assert before == 0.75
        assert after > before + 0.25
    for record in ran.server.records:
        assert (record.delayed > 0) == shares_core
        assert record.delayed <= 4 * delay


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


def stores(rank: Rank) -> Any:
    """Ask the store: rank 1 sets after 2 s what the others wait for."""
    end = rank.end
    if rank.number == 1:
        end.sleep(2.0)
        end.ask_store("set", ["a"], [b"7"], 0.0)
        return end.ask_store("add", ["n"], [5], 0.0), end.now()
    if rank.number == 2:
        value = end.ask_store("get", ["a"], [], 300.0)
        return value, end.now()
    with pytest.raises(torch.distributed.DistStoreError) as caught:
        end.ask_store("wait", ["a", "b"], [], 1.5)
    return str(caught.value), end.now()


def test_the_store_answers_when_a_key_is_there() -> None:
    ran = run_in_threads(stores, [NIC] * 3)
    assert ran.values == {
        0: ("wait timeout: a, b did not come in 1.5 s of virtual time", 1.5),
        1: (5, 2.0),
        2: (b"7", 2.0),
    }


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


def by_nccl(rank: Rank) -> list[float]:
    """Sum twice by NCCL's ring, one call after the other."""
    group = rank.group([0, 1], "nccl")
    tensors = [torch.ones(100_000) * (rank.number + 1) for _ in range(2)]
    works = [group.allreduce([tensor]) for tensor in tensors]
    ends = []
    for work in works:
        work.wait()
        ends.append(rank.end.now())
    return ends


def test_calls_of_nccl_go_one_after_the_other() -> None:
    """Each sends half of 0.4 MB twice, which the NIC copies by itself."""
    ran = run_in_threads(by_nccl, [NIC] * 2, algorithms=("ring",))
    for first, second in ran.values.values():
        assert first == pytest.approx(0.4, rel=1e-6)
        assert second == pytest.approx(0.8, rel=1e-6)
    assert ran.server.count_bytes()[0, 1] == 800_000
    assert ran.server.count_bytes(by_ranks_alone=True) == {}
    with pytest.raises(NoAlgorithm, match=r"rank \d: NCCL has no tree for broadcast"):
        run_in_threads(a_broadcast, [NIC] * 2, algorithms=("tree",))


def a_broadcast(rank: Rank) -> None:
    """Make a call that the tree has not."""
    rank.group([0, 1], "nccl").broadcast([torch.ones(2)], options(0)).wait()


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


def test_a_group_of_a_name_that_comes_back_has_another_one() -> None:
    """Members and the number of groups of that name so far tell them apart."""
    groups: Any = type("groups", (VirtualProcessGroup,), {"_made": Counter()})
    first = groups._next_name("a/b", [0, 1])
    second = groups._next_name("a/b", [0, 1])
    other = groups._next_name("a/b", [0, 2])
    assert first.startswith("a-b.")
    assert first.endswith(".0")
    assert second == first.removesuffix("0") + "1"
    assert other.endswith(".0")
    assert other != first
    assert _operation(None) == "SUM"
