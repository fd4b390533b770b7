"""Collectives carried out on arrays, step by step: who has what at the end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.problem.workloads.collectives import (
    ALGORITHMS,
    adds_up,
    list_outcome,
    list_own,
    list_steps,
)

PAIRS = [(kind, how) for kind, some in ALGORITHMS.items() for how in some]
SUMS = ("allreduce", "reduce_scatter")


def carry_out(kind: str, how: str, n: int) -> tuple[list[dict[int, int]], int]:
    """Return what each rank has of every chunk, as bits of ranks, and chunks sent.

    A rank that did not have what it sends, or adds the same share twice, fails here.
    """
    chunks: list[dict[int, int]] = []
    for r in range(n):
        row = dict.fromkeys(range(n), 1 << r)
        row = {r: 1 << r} if kind == "allgather" else row
        row = {r * n + d: 1 << r for d in range(n)} if kind == "alltoall" else row
        row = {} if kind == "broadcast" and r else row
        chunks.append(row)
    steps, count = list_steps(kind, how, n), 0
    for number, step in enumerate(steps):
        adds = kind in SUMS and (kind != "allreduce" or 2 * number < len(steps))
        before = [dict(row) for row in chunks]
        for sender, receiver, first, last in step:
            assert sender != receiver
            for chunk in range(first, last):
                part = before[sender][chunk]
                there = chunks[receiver].get(chunk, 0)
                assert not (adds and there & part), "a share is added twice"
                chunks[receiver][chunk] = there | part if adds else part
                count += 1
    return chunks, count


@pytest.mark.parametrize(("kind", "how"), PAIRS)
@given(n=st.integers(2, 17))
def test_everybody_has_what_it_should(kind: str, how: str, n: int) -> None:
    """And no algorithm sends more than the least, but rings of alltoall."""
    n = 1 << n.bit_length() - 1 if how == "halving_doubling" else n
    chunks, count = carry_out(kind, how, n)
    whole = (1 << n) - 1
    least = n * (n - 1)  # chunks
    for rank, row in enumerate(chunks):
        if kind == "allreduce":
            assert row == dict.fromkeys(range(n), whole)
        elif kind == "reduce_scatter":
            assert row[rank] == whole
        elif kind == "allgather":
            assert row == {other: 1 << other for other in range(n)}
        elif kind == "broadcast":
            assert row == dict.fromkeys(range(n), 1)
        else:
            assert {row[other * n + rank] for other in range(n)} == {
                1 << other for other in range(n)
            }
    through = {"allreduce": 2 * least, ("alltoall", "ring"): least * n // 2}
    assert count == through.get((kind, how), through.get(kind, least))


def test_a_ring_has_one_neighbour_and_a_tree_few_steps() -> None:
    for kind in ("allreduce", "allgather", "reduce_scatter", "alltoall"):
        steps = list_steps(kind, "ring", 5)
        assert {(s.receiver - s.sender) % 5 for step in steps for s in step} == {1}
    assert len(list_steps("broadcast", "tree", 9)) == 4
    assert np.prod([len(step) for step in list_steps("allgather", "direct", 9)]) == 72


def test_an_algorithm_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="broadcast by halving: it goes by tree, ring"):
        list_steps("broadcast", "halving", 4)
    with pytest.raises(ValueError, match="power of two"):
        list_steps("allgather", "halving_doubling", 6)


def test_sends_of_a_ring_of_three_by_hand() -> None:
    """A rank first sends its own chunk; in a reduce-scatter it receives that last."""
    first_sends = [
        [(send.sender, send.receiver, send.first, send.last) for send in steps[0]]
        for steps in (
            list_steps("allreduce", "ring", 3),
            list_steps("reduce_scatter", "ring", 3),
            list_steps("allgather", "ring", 3),
        )
    ]
    assert first_sends == [
        [(0, 1, 0, 1), (1, 2, 1, 2), (2, 0, 2, 3)],
        [(0, 1, 2, 3), (1, 2, 0, 1), (2, 0, 1, 2)],
        [(0, 1, 0, 1), (1, 2, 1, 2), (2, 0, 2, 3)],
    ]


@pytest.mark.parametrize(
    ("kind", "own", "outcome"),
    [
        ("allreduce", [0, 1, 2], {0: [0, 1, 2], 1: [0, 1, 2], 2: [0, 1, 2]}),
        ("reduce_scatter", [0, 1, 2], {1: [0, 1, 2]}),
        ("allgather", [1], {0: [0], 1: [1], 2: [2]}),
        ("alltoall", [3, 4, 5], {1: [0], 4: [1], 7: [2]}),
        ("broadcast", [], {0: [0], 1: [0], 2: [0]}),
    ],
)
def test_what_the_second_of_three_ranks_brings_and_gets(
    kind: str, own: list[int], outcome: dict[int, list[int]]
) -> None:
    assert list(list_own(kind, 1, 3)) == own
    found = {chunk: list(of) for chunk, of in list_outcome(kind, 1, 3).items()}
    assert found == outcome


def test_what_a_step_brings_is_added_in_the_first_half_of_a_sum() -> None:
    assert [adds_up("allreduce", step, 4) for step in range(4)] == [1, 1, 0, 0]
    assert [adds_up("reduce_scatter", step, 2) for step in range(2)] == [1, 1]
    assert not adds_up("allgather", 0, 2)
    assert list(list_own("broadcast", 0, 3)) == [0, 1, 2]


def test_sends_of_broadcasts_and_of_one_step_by_hand() -> None:
    """A tree doubles who has the data, a chain hands it on; the next rank is first."""

    def pairs(kind: str, how: str, ranks: int) -> list[list[tuple[int, int]]]:
        steps = list_steps(kind, how, ranks)
        return [[(send.sender, send.receiver) for send in step] for step in steps]

    assert {send.chunks for send in list_steps("broadcast", "direct", 3)[0]} == {3}
    assert pairs("broadcast", "tree", 4) == [[(0, 1)], [(0, 2), (1, 3)]]
    assert pairs("broadcast", "direct", 3) == [[(0, 1), (0, 2)]]
    assert pairs("allgather", "direct", 3) == [
        [(0, 1), (1, 2), (2, 0), (0, 2), (1, 0), (2, 1)]
    ]
