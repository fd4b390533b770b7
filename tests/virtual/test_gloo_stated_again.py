"""The model of gloo against a slow statement that shares nothing with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.virtual.calls import Call, script_of
from tests.virtual import slow_gloo
from tests.virtual.slow_gloo import HEADER, Program, SlowGloo
from tests.virtual.test_gloo import Network

KINDS = (
    *("allreduce", "reduce", "broadcast", "allgather", "gather", "scatter"),
    *("alltoall", "barrier"),
)


@dataclass(frozen=True)
class Case:
    """One call of all ranks, which are not equally early."""

    kind: str
    rates: Sequence[float]
    latency: float
    starts: Sequence[float]
    size: int
    root: int
    matrix: Sequence[Sequence[int]]


@st.composite
def cases(draw: st.DrawFn, kind: str) -> Case:
    """Draw a call of two to six ranks, whose NICs differ."""
    ranks = draw(st.integers(2, 6))
    rates = st.lists(st.floats(5e6, 2e8), min_size=ranks, max_size=ranks)
    starts = st.lists(st.floats(1e-4, 0.02), min_size=ranks, max_size=ranks)
    row = st.lists(st.integers(1, 500_000), min_size=ranks, max_size=ranks)
    elements = st.integers(1, 1_500_000)
    if draw(st.booleans()):
        # Above 2 MiB per rank rings have more segments.
        elements = st.integers(3_200_000, 6_000_000)
    return Case(
        kind=kind,
        rates=draw(rates),
        latency=draw(st.floats(1e-6, 2e-3)),
        starts=draw(starts),
        size=4 * draw(elements),
        root=draw(st.integers(0, ranks - 1)),
        matrix=draw(st.lists(row, min_size=ranks, max_size=ranks)),
    )


def program_of(case: Case, rank: int) -> Program:
    ranks = len(case.rates)
    size = case.size
    root = case.root
    match case.kind:
        case "allreduce":
            program = slow_gloo.all_reduce(rank, ranks, size, 4)
        case "reduce":
            program = slow_gloo.reduce(rank, ranks, size, 4, root)
        case "broadcast":
            program = slow_gloo.broadcast(rank, ranks, size, root)
        case "allgather":
            program = slow_gloo.all_gather(rank, ranks, size)
        case "gather":
            program = slow_gloo.gather(rank, ranks, size, root)
        case "scatter":
            program = slow_gloo.scatter(rank, ranks, size, root)
        case "alltoall":
            program = slow_gloo.all_to_all(rank, case.matrix)
        case _:
            program = slow_gloo.barrier(rank, ranks)
    return program


def call_of(case: Case, rank: int) -> Call:
    figures: dict[str, Any] = {"size": case.size, "element": 4, "root": case.root}
    if case.kind == "alltoall":
        taken = [row[rank] for row in case.matrix]
        figures = {"given": case.matrix[rank], "taken": taken}
    return Call(case.kind, figures, "")


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_every_call_is_as_it_is_stated(kind: str, data: st.DataObject) -> None:
    """The same bytes from each rank to each other, and ends at the same times."""
    case = data.draw(cases(kind))
    ranks = len(case.rates)
    network = Network(case.rates, case.latency)
    for start, rank in sorted((start, rank) for rank, start in enumerate(case.starts)):
        network.go_on(start)
        network.begin(rank, script_of(call_of(case, rank), rank, ranks))
    network.go_on()
    written = network.messages.count_written(network.group)

    programs = [program_of(case, rank) for rank in range(ranks)]
    slow = SlowGloo(case.rates, case.latency, programs, case.starts)
    ends = slow.run()

    for sender in range(ranks):
        for receiver in range(ranks):
            assert written[sender, receiver] == slow.written[sender, receiver]
    # Frames of headers that are written at one instant have another order.
    headers = 2 * ranks * HEADER / min(case.rates)
    assert network.ends == pytest.approx(ends, rel=1e-6, abs=headers)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_drawn_sums_are_gloo_s_to_the_bit(tmp_path: Path) -> None:
    """Ranks, sizes, types and reductions are drawn; gloo runs in forked processes."""
    torch = pytest.importorskip("torch", reason="gloo is torch's")
    from emu.virtual.rank.sums import reduce_by_ring
    from tests.virtual.programs.drawn_sums import digest_of, draw

    rng = np.random.default_rng(63)
    drawn = []
    for ranks in (2, 3, 5, 4):
        count = int(rng.integers(1, 300_000))
        dtype = str(rng.choice(["float32", "float64", "bfloat16", "int64"]))
        operation = str(rng.choice(["SUM", "PRODUCT", "MAX"]))
        drawn.append((ranks, count, dtype, operation, int(rng.integers(1 << 30))))
    program = Path(__file__).with_name("programs") / "drawn_sums.py"
    subprocess.run(
        [sys.executable, str(program), str(tmp_path), json.dumps(drawn)],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
        check=True,
    )

    for number, (ranks, count, dtype, operation, seed) in enumerate(drawn):
        tensors = [draw(count, dtype, seed, rank) for rank in range(ranks)]
        parts = [tensor.view(torch.uint8).numpy() for tensor in tensors]
        total = reduce_by_ring(parts, tensors[0], operation)
        expected = digest_of(torch.from_numpy(np.array(total)))
        for rank in range(ranks):
            file = tmp_path / f"case{number}" / f"rank{rank}"
            assert file.read_text() == expected
