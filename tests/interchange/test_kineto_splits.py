"""All-to-alls in traces of torch.profiler: what goes to which rank, by whose call."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from emu.errors import DataError
from emu.interchange.kineto_trace import RankTrace
from tests.interchange.test_kineto import (
    Event,
    gloo,
    kernel,
    nccl,
    operator,
    simulate,
    write_traces,
)

pytestmark = pytest.mark.usefixtures("read_here")


def all_to_all(begin: float, splits: str, **more: Any) -> Event:
    """Return a call by which a rank with four float32 a row sends unequal parts."""
    inputs = {"Concrete Inputs": ["", "", "", "[2000, 2000]", splits, "True"]}
    return operator(begin, begin, "c10d::alltoall_base_", **inputs, **more)


def read_rank(folder: Path, *events: Event) -> RankTrace:
    path, _ = write_traces(folder, events, events)
    return RankTrace(path)


def assumptions(trace: RankTrace) -> Counter[str]:
    counts = trace.left_out.items()
    return Counter({name: count for name, count in counts if "all-to-all" in name})


def test_uneven_all_to_all_of_gloo_by_hand(tmp_path: Path) -> None:
    """Rank 0 keeps 4,000 of 16,000 bytes, rank 1 sends 4,000: 12 ms, halves took 8."""
    ranks = []
    for splits in ("[1000, 3000]", "[1000, 3000]"):
        inputs = {"Concrete Inputs": ["", "", "", "[2000, 2000]", splits, "True"]}
        call = operator(9, 9, "c10d::alltoall_base_", **inputs)
        exchange = gloo(10, 33, "all_to_all", size=16_000)
        ranks.append([operator(0, 8.9), call, exchange, operator(33, 38)])
    paths = write_traces(tmp_path, *ranks)
    assert simulate(paths) == pytest.approx(10 + 12 + 5)

    # Equal ones are not stated; a call with other rows is of another exchange.
    for rank in ranks:
        rank[1]["args"]["Concrete Inputs"][3:5] = "[]", "[]"
    assert simulate(write_traces(tmp_path, *ranks)) == pytest.approx(10 + 8 + 5)
    for rank in ranks:
        rank[1]["args"]["Concrete Inputs"][4] = "[1, 7]"
    assert simulate(write_traces(tmp_path, *ranks)) == pytest.approx(10 + 8 + 5)


def test_queued_exchanges_have_what_their_own_calls_state(tmp_path: Path) -> None:
    """Both are called before a worker takes up the first."""
    calls = [all_to_all(9, "[1000, 3000]"), all_to_all(11, "[3000, 1000]"),
             operator(12, 12, "c10d::broadcast_", **{"Concrete Inputs": ["", "", "0"]}),
             operator(13, 13, "c10d::broadcast_", **{"Concrete Inputs": ["", "", "1"]}),
             ]  # fmt: skip
    exchanges = [gloo(14, 20, "all_to_all", 16_000), gloo(15, 33, "all_to_all", 16_000),
                 gloo(33, 35, "broadcast"), gloo(35, 37, "broadcast")]  # fmt: skip
    trace = read_rank(tmp_path, operator(0, 8), *calls, *exchanges)
    shares = [exchange.shares for exchange in trace.exchanges]
    assert shares == [(4000, 12_000), (12_000, 4000), (), ()]
    assert [exchange.root for exchange in trace.exchanges] == [0, 0, 0, 1]
    assert not assumptions(trace)


@pytest.mark.parametrize("second_call", [9.5, 10.5])
def test_a_queued_exchange_stays_behind_one_taken_up_late(
    tmp_path: Path, second_call: float
) -> None:
    """A worker of rank 0 takes up at 10 ms what was called at 9; 8 and 32 ms follow."""

    def rank(second_call: float) -> list[Event]:
        calls = [operator(at, at, "c10d::allreduce_") for at in (9, second_call)]
        exchanges = [gloo(10, 20, size=8000), gloo(20, 60, size=32_000)]
        return [operator(0, 8), *calls, *exchanges, operator(60, 65)]

    paths = write_traces(tmp_path, rank(9.5), rank(second_call))
    for path in paths:
        sizes = [exchange.size for exchange in RankTrace(path).exchanges]
        assert sizes == [8000, 32_000]
    assert simulate(paths) == pytest.approx(10 + 8 + 32 + 5)


def test_of_calls_that_do_not_pair_with_exchanges_the_last_counts(
    tmp_path: Path,
) -> None:
    """The trace ends before the third exchange; an equal call states its rows."""
    words = "call of an all-to-all, not clear: the last of its rows"
    equal = all_to_all(9.5, "[]", **{"Input Dims": [[2000], [2000]]})
    calls = [all_to_all(9, "[1000, 3000]"), equal, all_to_all(30, "[3000, 1000]")]
    exchanges = [gloo(10, 20, "all_to_all", 16_000), gloo(20, 29, "all_to_all", 8000)]
    trace = read_rank(tmp_path, operator(0, 8), *calls, *exchanges)
    shares = [exchange.shares for exchange in trace.exchanges]
    assert shares == [(4000, 12_000), ()]
    assert assumptions(trace) == {words: 2}

    # As many, but the first was called before the trace began.
    late = [all_to_all(10.5, "[1000, 3000]"), all_to_all(21, "[3000, 1000]")]
    trace = read_rank(tmp_path, operator(0, 8), *late, *exchanges)
    assert assumptions(trace) == {"call of an all-to-all, not found: taken as equal": 2}


@pytest.mark.parametrize("splits", ["", "[1000, 3000, ...", "None"])
def test_splits_that_torch_drops_are_taken_as_equal_and_named(
    tmp_path: Path, splits: str
) -> None:
    """Torch writes an empty text, or dots, for lists of more than 30 numbers."""
    words = "splits of an all-to-all, not stated in full: taken as equal"
    exchange = gloo(10, 33, "all_to_all", 16_000)
    trace = read_rank(tmp_path, operator(0, 8), all_to_all(9, splits), exchange)
    kernels = kernel(4, 20, 1, **nccl("all_to_allv"), **{"In split size": splits})
    of_nccl = read_rank(tmp_path, *kernel(0, 4, 0), *kernels)
    assert assumptions(trace) == assumptions(of_nccl) == {words: 1}
    assert not trace.exchanges[0].shares

    (equal,) = read_rank(
        tmp_path, operator(0, 8), all_to_all(9, "[]"), exchange
    ).exchanges
    other = read_rank(tmp_path, operator(0, 8), all_to_all(9, "[1, 7]"), exchange)
    assert not equal.shares
    assert assumptions(other) == {"call of an all-to-all, not found: taken as equal": 1}


@pytest.mark.parametrize(
    ("splits", "problem"),
    [
        ("[1000, 1000, 2000]", "has 3 splits for 2 ranks in "),
        ("[-1000, 5000]", r"has splits \[-1000, 5000\] in "),
    ],
)
def test_splits_are_rows_for_each_rank(
    tmp_path: Path, splits: str, problem: str
) -> None:
    exchange = gloo(10, 33, "all_to_all", 16_000)
    with pytest.raises(DataError, match=problem + "Concrete Inputs of c10d::alltoall"):
        read_rank(tmp_path, operator(0, 8), all_to_all(9, splits), exchange)
    kernels = kernel(4, 20, 1, **nccl("all_to_allv"), **{"In split size": splits})
    with pytest.raises(DataError, match=problem + "In split size"):
        read_rank(tmp_path, *kernel(0, 4, 0), *kernels)


@pytest.mark.parametrize("shapes", [[], [[]]])
def test_an_all_to_all_has_rows(tmp_path: Path, shapes: list[Any]) -> None:
    exchange = gloo(10, 33, "all_to_all")
    types = ["float"] * len(shapes)
    exchange["args"] = {"Input Dims": shapes, "Input type": types}
    with pytest.raises(
        DataError, match=r"all_to_all has Input Dims \[.*, without rows"
    ):
        read_rank(tmp_path, operator(0, 8), all_to_all(9, "[]"), exchange)
