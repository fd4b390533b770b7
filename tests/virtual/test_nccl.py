"""NCCL's messages: times by hand, trees as its sources draw them, nothing left over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import ScenarioError
from emu.problem.workloads.collectives import list_steps
from emu.virtual import nccl_operations as nccl
from emu.virtual.calls import Call
from emu.virtual.gloo_transport import MessageNetwork, Operation
from emu.virtual.transports import (
    CallsInOrder,
    NoAlgorithm,
    Transport,
    WrittenLane,
    read_algorithms,
)

NIC = 125e6
RING = Transport(("ring",))
TREE = Transport(("tree", "ring"))
#: Calls of which every rank brings as many bytes.
KINDS = (
    *("allreduce", "reduce", "broadcast", "allgather", "gather", "scatter"),
    *("reduce_scatter", "barrier"),
)


def lanes_of(
    transport: Transport, kind: str, ranks: int, **figures: Any
) -> list[tuple[WrittenLane, ...]]:
    call = Call(kind, figures, "train.py:3")
    return [transport.lanes(call, member, ranks) for member in range(ranks)]


def seconds_of(
    lanes: Sequence[Sequence[WrittenLane]], rates: Sequence[float], latency: float = 0.0
) -> list[float]:
    """Return when each rank has ended a call that all begin at once."""
    ranks = len(lanes)
    network = MessageNetwork(np.array([*rates, *rates]), ranks)

    def route(sender: int, receiver: int) -> tuple[tuple[int, ...], float]:
        return (sender, ranks + receiver), latency

    group = network.open_group(range(ranks), route, RING.wire)
    ends = [0.0] * ranks

    def end(rank: int, moment: float, _: int) -> None:
        ends[rank] = max(ends[rank], moment)

    for rank, row in enumerate(lanes):
        for lane in row:
            done = partial(end, rank)
            slot = lane.slot(0)
            operation = Operation(rank, slot, lane.steps, done, uses_worker=False)
            network.submit(group, operation)
    while network.go_on(np.inf):
        pass
    return ends


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 16, 32])
def test_a_ring_of_equal_ranks_is_exact(ranks: int) -> None:
    """2 (N - 1) / N of the tensor crosses every NIC, and no NIC is ever idle."""
    size = ranks * 16 * 100_000
    rates = [NIC] * ranks
    whole = size / NIC

    summed = seconds_of(lanes_of(RING, "allreduce", ranks, size=size), rates)
    scattered = seconds_of(lanes_of(RING, "reduce_scatter", ranks, size=size), rates)
    gathered = seconds_of(lanes_of(RING, "allgather", ranks, size=size), rates)

    share = (ranks - 1) / ranks
    assert summed == pytest.approx([2 * share * whole] * ranks, rel=1e-9)
    assert scattered == pytest.approx([share * whole] * ranks, rel=1e-9)
    assert gathered == pytest.approx([(ranks - 1) * whole] * ranks, rel=1e-9)


def test_the_slowest_nic_paces_a_ring() -> None:
    """All but the pieces at both ends of its pipe: 1.5 times 64 MB at 12.5 MB/s."""
    size = 64_000_000
    lanes = lanes_of(RING, "allreduce", 4, size=size)

    ends = seconds_of(lanes, [NIC, NIC / 10, NIC, NIC])

    expected = 1.5 * size / (NIC / 10)
    assert expected < max(ends) < 1.1 * expected


def test_a_hop_of_a_small_ring_takes_a_latency() -> None:
    """A word goes six hops among four ranks, after a notice of room."""
    ends = seconds_of(lanes_of(RING, "barrier", 4), [NIC] * 4, latency=1e-3)

    assert max(ends) == pytest.approx(7e-3, abs=1e-6)


def test_a_tensor_goes_along_a_chain_piece_by_piece() -> None:
    size = 1 << 23
    ends = seconds_of(lanes_of(RING, "broadcast", 4, size=size, root=2), [NIC] * 4)

    # Two relays are each a piece behind.
    assert max(ends) == pytest.approx((size + 2 * (1 << 19)) / NIC, rel=1e-9)
    assert ends.index(max(ends)) == 1


def test_trees_are_those_of_the_sources() -> None:
    """The drawing of 14 ranks in graph/trees.cc."""
    parents = {rank: nccl.parent_in_tree(rank, 14) for rank in range(14)}
    assert parents == {
        0: None, 8: 0, 4: 8, 12: 8, 2: 4, 6: 4, 10: 12, 13: 12,
        1: 2, 3: 2, 5: 6, 7: 6, 9: 10, 11: 10,
    }  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 5, 8, 13, 16])
def test_both_trees_carry_half_and_leaves_change(ranks: int) -> None:
    """Every rank but the roots sends its half up once, and each child its sum."""
    size = 32 * 1_000_000
    given_bytes = [
        [count_bytes(lane) for lane in row]
        for row in lanes_of(TREE, "allreduce", ranks, size=size)
    ]

    assert sum(map(sum, given_bytes)) == 2 * (ranks - 1) * size
    # Nobody sends more than a leaf's half up, and a half up and to two children.
    assert max(map(sum, given_bytes)) <= 2 * size


@pytest.mark.parametrize(
    ("ranks", "levels"), [(2, 1), (3, 1), (4, 2), (7, 2), (8, 3), (9, 3), (16, 4)]
)
def test_pieces_are_halved_where_fewer_than_eight_are_in_a_level(
    ranks: int, levels: int
) -> None:
    """Cut half a tensor each, by levels below the root, as log2i of the sources."""
    step = 1 << 19
    least = 2 * levels * 8 * step
    for size, piece in ((least, step), (least - 64, step // 2)):
        lanes = lanes_of(TREE, "allreduce", ranks, size=size)
        longest = {int(lane.steps.rows[:, 2].max()) for row in lanes for lane in row}
        assert longest == {piece}


def count_bytes(lane: WrittenLane) -> int:
    rows = lane.steps.rows
    return int(rows[rows[:, 0] == 0, 2].sum())  # POST_SEND


@given(
    kind=st.sampled_from(KINDS),
    ranks=st.integers(2, 9),
    count=st.integers(1, 3_000_000),
    place=st.integers(0, 8),
    is_tree=st.booleans(),
)
def test_what_is_given_is_what_is_taken(
    kind: str, ranks: int, count: int, place: int, *, is_tree: bool
) -> None:
    """All calls end; sends and receives of a pair and channel have equal sizes."""
    size = 4 * ranks * -(-count // ranks)
    transport = TREE if is_tree else RING
    figures = {"size": size, "root": place % ranks}
    if kind == "barrier":
        figures = {}
    lanes = lanes_of(transport, kind, ranks, **figures)

    sent = defaultdict[tuple[int, int, int], list[int]](list)
    taken = defaultdict[tuple[int, int, int], list[int]](list)
    for rank, row in enumerate(lanes):
        for lane in row:
            for action, peer, length in lane.steps.rows.tolist():
                if action == 0:
                    sent[rank, peer, lane.channel].append(length)
                elif action == 1:
                    taken[peer, rank, lane.channel].append(length)
    assert sent == taken
    senders = {sender for sender, _, _ in sent}
    if kind in {"reduce", "gather"}:
        assert senders == {*range(ranks)} - {place % ranks}
    if kind in {"broadcast", "scatter"}:
        takers = {taker for _, taker, _ in sent}
        assert takers == {*range(ranks)} - {place % ranks}
    assert min(seconds_of(lanes, [NIC] * ranks)) >= 0.0
    assert sum(map(sum, sent.values())) == bytes_by_steps(kind, ranks, size)


def bytes_by_steps(kind: str, ranks: int, size: int) -> int:
    """Return the bytes that cross in all, by the steps of the project's collectives.

    A rank's part of a ring has size / N bytes; of other calls each other rank sends or
    takes the tensor once.
    """
    if kind == "barrier":
        return 2 * (ranks - 1) * 4
    if kind in {"allreduce", "reduce_scatter"}:
        steps = list_steps(kind, "ring", ranks)
        hops = sum(send.chunks for step in steps for send in step)
        return hops * size // ranks
    if kind == "allgather":
        steps = list_steps(kind, "ring", ranks)
        return sum(send.chunks for step in steps for send in step) * size
    return (ranks - 1) * size


@pytest.mark.parametrize(
    ("kind", "figures", "words"),
    [
        (
            "broadcast",
            {"size": 8, "root": 0},
            "no tree for broadcast of 8 bytes .*3: --algorithm tree,ring",
        ),
        ("recv_anysource", {"size": 8}, "NCCL has no recv_anysource of 8 bytes"),
        ("allreduce", {"size": 8, "operation": "BAND"}, "no reduction BAND"),
        (
            "reduce_scatter_list",
            {"size": 12, "parts": (4, 8)},
            "several sizes, reduce_scatter_list of 12 bytes .* leave out --algorithm",
        ),
    ],
)
def test_what_nccl_has_not_is_refused(
    kind: str, figures: dict[str, Any], words: str
) -> None:
    call = Call(kind, figures, "train.py:3")

    with pytest.raises(NoAlgorithm, match=words):
        Transport(("tree",)).check(call)


def test_names_of_algorithms_are_read() -> None:
    assert read_algorithms("Tree, ring") == ("tree", "ring")
    with pytest.raises(ScenarioError, match="found 'nvls', write ring, tree"):
        read_algorithms("nvls")


def test_calls_of_a_member_go_one_after_the_other() -> None:
    """Calls that end as soon as they begin included."""
    begun: list[int] = []
    calls = CallsInOrder()

    def begin(number: int) -> None:
        begun.append(number)
        if number == 1:
            calls.end()

    for number in range(3):
        calls.add(partial(begin, number))
    assert begun == [0]
    calls.end()
    assert begun == [0, 1, 2]


@pytest.mark.parametrize(
    ("ranks", "kilobytes"),
    [
        (2, [32, 32, 64, 64, 64, 128, 128, 256, 512, 512]),
        (4, [32, 32, 32, 64, 64, 64, 128, 128, 256, 512]),
        (16, [32, 32, 32, 32, 64, 64, 64, 128, 128, 256]),
    ],
)
def test_pieces_of_a_tree_are_as_many_as_keep_its_levels_busy(
    ranks: int, kilobytes: list[int]
) -> None:
    """Of 16 kB, 32 kB and so on up to 8 MB: 8 per level, then 4, then 1."""
    pieces = [nccl._tree_piece(ranks, 1 << power) for power in range(14, 24)]
    assert pieces == [size << 10 for size in kilobytes]
