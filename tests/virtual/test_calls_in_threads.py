"""Calls of ranks that are threads: what each holds, and when."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="ranks need torch")

from emu.problem import CapacityChange, Cluster, Machine  # noqa: E402
from emu.virtual.message_costs import MessageCosts  # noqa: E402
from emu.virtual.rank.process_group import (  # noqa: E402
    VirtualProcessGroup,
    _operation,
)
from emu.virtual.transports import NoAlgorithm  # noqa: E402
from tests.virtual.ranks_in_threads import (  # noqa: E402
    Rank,
    options,
    run_in_threads,
)

NIC = 1e6
THREE = [0, 1, 2]


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


def a_broadcast(rank: Rank) -> None:
    """Make a call that the tree has not."""
    rank.group([0, 1], "nccl").broadcast([torch.ones(2)], options(0)).wait()


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
