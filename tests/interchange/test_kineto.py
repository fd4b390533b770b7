"""Traces of torch.profiler: makespans by hand, and what is asked or refused."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import emu
from emu.cli.app import app
from emu.errors import DataError
from emu.interchange.kineto import _Job, count_repeats
from emu.interchange.kineto_trace import Exchange, RankTrace
from emu.interchange.workload_formats import read_workload

pytestmark = pytest.mark.usefixtures("read_here")

Event = dict[str, Any]
#: Bytes per second of the NIC below, so that 1,000 bytes take 1 ms.
RATE = 1e6


def operator(begin: float, end: float, name: str = "aten::mm", **args: Any) -> Event:
    """Return an operator; times are in ms."""
    times = {"ts": 1000 * begin, "dur": 1000 * (end - begin)}
    return {"ph": "X", "cat": "cpu_op", "name": name, **times, "pid": 1, "tid": 1,
            "args": args}  # fmt: skip


def gloo(begin: float, end: float, kind: str = "all_reduce", size: int = 8000) -> Event:
    """Return an exchange by a worker of gloo."""
    shapes = {"Input Dims": [[size // 4]], "Input type": ["float"]}
    event = operator(
        begin, end, f"gloo:{kind}", **({} if kind == "barrier" else shapes)
    )
    return {**event, "cat": "user_annotation", "tid": 2}


def step(number: int, begin: float, end: float) -> Event:
    return {**operator(begin, end, f"ProfilerStep#{number}"), "cat": "user_annotation"}


def kernel(begin: float, end: float, launch: float, **args: Any) -> list[Event]:
    """Return a kernel and its launch."""
    number = {"correlation": launch * 1000}
    name = "ncclDevKernel_AllReduce" if args else "gemm"
    return [
        {
            **operator(launch, launch, "cudaLaunchKernel", **number),
            "cat": "cuda_runtime",
        },
        {**operator(begin, end, name, **number, **args), "cat": "kernel", "tid": 7},
    ]


def nccl(kind: str = "allreduce", *, count: int = 2000, **more: Any) -> Event:
    return {
        "Collective name": kind, "In msg nelems": count, "dtype": "Float",
        "Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]",
        **more,
    }  # fmt: skip


def write_traces(folder: Path, *ranks: Sequence[Event], **about: Any) -> list[Path]:
    paths = []
    for rank, events in enumerate(ranks):
        info = {"backend": "gloo", "rank": rank, "world_size": len(ranks), **about}
        content = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}
        path = folder / f"rank{rank}.json"
        path.write_text(json.dumps(content))
        paths.append(path)
    return paths


def simulate(paths: Sequence[Path], **options: Any) -> float:
    """Return the makespan in ms, with NICs of 1 MB/s."""
    scenario = read_workload(*paths, **options).scenario("t", "8 Mbit/s")
    return 1e3 * emu.simulate(emu.loads(json.dumps(scenario))).makespan


#: Rank 1 posts 10 ms behind rank 0; 8,000 bytes take 8 ms; then 5 and 1 + 4 ms follow.
LATE = (
    [operator(0, 10), gloo(10, 33), operator(33, 38)],
    [operator(0, 20), gloo(20, 33), operator(34, 38)],
)


def test_an_exchange_begins_when_its_last_rank_has_posted(tmp_path: Path) -> None:
    paths = write_traces(tmp_path, *LATE)
    assert simulate(paths) == pytest.approx(20 + 8 + 5)
    notes = read_workload(*paths).notes
    assert "2 ranks, 1 collectives, 0 messages" in notes[-1]
    assert "computes 0.02 s and waits 0.018 s" in notes[-1]


def test_what_computes_while_an_exchange_ends_does_not_wait_for_it(
    tmp_path: Path,
) -> None:
    """The operator of rank 0 goes on to 25 ms; the step's end waits for 10 + 40 ms."""
    rank = [step(1, 0, 30), operator(0, 10), gloo(10, 20, size=40_000),
            operator(10, 25), operator(26, 30)]  # fmt: skip
    paths = write_traces(tmp_path, rank, rank)
    assert simulate(paths) == pytest.approx(50)
    assert "2 times an exchange ended while its rank" in read_workload(*paths).notes[-1]


def test_who_waits_for_the_second_has_the_first(tmp_path: Path) -> None:
    """10 ms, then 8 and 4 ms on one NIC; 10 ms computing within, 5 behind."""
    rank = [operator(0, 10), gloo(10, 12, size=8000), operator(10, 20),
            gloo(20, 30, size=4000), operator(30, 35)]  # fmt: skip
    paths = write_traces(tmp_path, rank, rank)
    assert simulate(paths) == pytest.approx(20 + 4 + 5)
    larger = [{**event, "args": {"Input Dims": [[4000]], "Input type": ["float"]}}
              if event["name"] == "gloo:all_reduce" and event["ts"] == 10_000 else event
              for event in rank]  # fmt: skip
    # 16 ms from 10 on, and from 20 to 28 ms both at once: 8 + 4 = 12 ms in all.
    paths = write_traces(tmp_path, larger, larger)
    assert simulate(paths) == pytest.approx(10 + 16 + 4 + 5)


def test_kernels_of_nccl_were_ready_before_the_one_ahead_ended(tmp_path: Path) -> None:
    """The second is launched at 2 ms behind a kernel that ends at 8 ms.

    It begins at 20 ms, when the first has ended; with a faster NIC it begins earlier.
    """
    rank = [
        *kernel(0, 4, 0), *kernel(4, 20, 1, **nccl(count=1000)),
        *kernel(4, 8, 1.5), *kernel(20, 40, 2, **nccl(count=500)), *kernel(40, 43, 3),
    ]  # fmt: skip
    paths = write_traces(tmp_path, rank, rank, backend="nccl")
    # 4 ms of the first from 4 on, the second 2 ms from 8 on, 3 ms behind it.
    assert simulate(paths) == pytest.approx(8 + 2 + 3)


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        ("reduce_scatter", 4.0), ("_allgather_base", 8.0), ("all_to_all", 4.0),
        ("broadcast", 8.0), ("reduce", 8.0), ("gather", 8.0), ("scatter", 4.0),
        ("barrier", 0.0), ("_reduce_scatter_base", 4.0), ("allreduce_coalesced", 8.0),
    ],
)  # fmt: skip
def test_every_collective_by_hand(tmp_path: Path, kind: str, seconds: float) -> None:
    """Two ranks bring 8,000 bytes; the root is rank 1."""
    rank = [*kernel(0, 4, 0), *kernel(4, 20, 1, **nccl(kind, Rank=1)),
            *kernel(20, 23, 2)]  # fmt: skip
    paths = write_traces(tmp_path, rank, rank, backend="nccl")
    assert simulate(paths) == pytest.approx(4 + seconds + 3)


def test_uneven_all_to_all_by_hand(tmp_path: Path) -> None:
    """Rank 0 sends 2,000 of 8,000 bytes to rank 1, and 6,000 come back."""
    ranks = [
        [*kernel(0, 4, 0), *kernel(4, 20, 1, **nccl("all_to_allv"), **{
            "In split size": splits}), *kernel(20, 23, 2)]
        for splits in ("[3, 1]", [3, 1])
    ]  # fmt: skip
    paths = write_traces(tmp_path, *ranks, backend="nccl")
    assert simulate(paths) == pytest.approx(4 + 6 + 3)


def test_messages_of_nccl_go_to_and_come_from_the_rank_that_is_theirs(
    tmp_path: Path,
) -> None:
    """Rank 0 sends 8,000 bytes at 4 ms; the other key of each end names no rank."""
    ends = (nccl("send", **{"Dst Rank": 1, "Src Rank": 7}),
            nccl("recv", **{"Src Rank": 0, "Dst Rank": 7}))  # fmt: skip
    ranks = [
        [*kernel(0, 4, 0), *kernel(4, 20, 1, **end), *kernel(20, 23, 2)] for end in ends
    ]
    paths = write_traces(tmp_path, *ranks, backend="nccl")
    assert simulate(paths) == pytest.approx(4 + 8 + 3)


#: The peer of a message by what torch states of it: without a stride between the ranks
#: of a group it states its place there alone, and the ranks beside the trace.
PEERS = [
    {"Rank": 1, "Dst Rank": 2},
    {"Rank": 1},
    {"Rank": 1, "Process Group Ranks": "[]"},
]


@pytest.mark.parametrize("peer", PEERS)
def test_a_message_in_a_group_of_ranks_by_hand(
    tmp_path: Path, peer: dict[str, Any]
) -> None:
    """Rank 0 sends 8,000 bytes at 4 ms to rank 2, the second of their group."""
    group = {"Process Group Name": "1", "Process Group Ranks": "[0, 2]"}
    receive = nccl("recv", **{**group, **peer, "Rank": 0, "Src Rank": 0})
    ranks = [
        [*kernel(0, 4, 0), *kernel(4, 20, 1, **nccl("send", **{**group, **peer}))],
        [*kernel(0, 4, 0)],
        [*kernel(0, 4, 0), *kernel(4, 20, 1, **receive), *kernel(20, 23, 2)],
    ]
    groups = [{"pg_name": "1", "ranks": [0, 2]}]
    paths = write_traces(tmp_path, *ranks, backend="nccl", pg_config=groups)
    assert simulate(paths) == pytest.approx(4 + 8 + 3)


def test_a_message_of_gloo_in_a_group_of_ranks_by_hand(tmp_path: Path) -> None:
    """Rank 0 sends 4,000 bytes at 10 ms to rank 2; rank 1 is in no group."""

    def call(name: str, place: int) -> Event:
        inputs = ["", "", str(place), "5"]
        return operator(9.9, 10, name, **{"Concrete Inputs": inputs})

    sender = [operator(0, 9.9), call("c10d::send", 1), gloo(10, 10, "send", 4000)]
    receiver = [operator(0, 9.9), call("c10d::recv_", 0), gloo(10, 15, "recv", 4000),
                operator(15, 18)]  # fmt: skip
    ranks = [sender, [operator(0, 1)], receiver]
    groups = [{"pg_name": "1", "ranks": [0, 2]}]
    paths = write_traces(tmp_path, *ranks, pg_config=groups)
    assert simulate(paths) == pytest.approx(10 + 4 + 3)


@pytest.mark.parametrize(
    ("kind", "stated", "problem"),
    [
        ("send", {"Rank": 2}, "has SEND of rank 2 in a group of 2"),
        ("recv", {"Rank": -1}, "has RECV of rank -1 in a group of 2"),
        ("broadcast", {"Rank": 2}, "has BROADCAST of rank 2 in a group of 2"),
        ("send", {"Dst Rank": 7}, "has Dst Rank 7, which is not in its group (0, 1)"),
    ],
)
def test_a_peer_or_root_outside_the_group_is_refused(
    tmp_path: Path, kind: str, stated: dict[str, int], problem: str
) -> None:
    rank = [*kernel(0, 4, 0), *kernel(4, 20, 1, **nccl(kind, **stated))]
    paths = write_traces(tmp_path, rank, rank, backend="nccl")
    with pytest.raises(DataError) as caught:
        read_workload(*paths)
    assert problem in str(caught.value)


def test_a_group_of_many_ranks_is_cut_where_a_peer_is_not_in_it(tmp_path: Path) -> None:
    ranks = [*range(4000)]
    about = nccl("send", **{"Dst Rank": 7777}) | {
        "Process Group Name": "1",
        "Process Group Ranks": str(ranks),
        "Group size": 4000,
    }
    rank = [*kernel(0, 4, 0), *kernel(4, 20, 1, **about)]
    groups = [{"pg_name": "1", "ranks": ranks}]
    paths = write_traces(tmp_path, rank, rank, backend="nccl", pg_config=groups)
    with pytest.raises(DataError) as caught:
        read_workload(*paths)
    _, found = str(caught.value).split("in its group ")
    assert found.startswith("(0, 1, 2, ")
    assert len(found) == 60


@pytest.mark.parametrize("uneven_rank", [0, 1])
def test_one_rank_alone_may_send_unequal_shares(
    tmp_path: Path, uneven_rank: int
) -> None:
    """It sends 2,000 of 8,000 bytes; the other sends half of its 4,000."""
    ranks = []
    for rank in range(2):
        about = nccl("all_to_allv", count=1000)
        if rank == uneven_rank:
            splits = [1, 3] if rank else [3, 1]
            about = nccl("all_to_allv") | {"In split size": splits}
        ranks.append([*kernel(0, 4, 0), *kernel(4, 20, 1, **about), *kernel(20, 23, 2)])
    paths = write_traces(tmp_path, *ranks, backend="nccl")

    assert simulate(paths) == pytest.approx(4 + 2 + 3)


def test_messages_go_together_in_order(tmp_path: Path) -> None:
    """Rank 0 sends 4,000 bytes at 10 ms, 2,000 at 12; rank 1 computes 3 after each."""

    def call(begin: float, name: str, peer: int) -> Event:
        return operator(
            begin, begin + 0.1, name, **{"Concrete Inputs": ["", "", str(peer), "5"]}
        )

    sender = [
        operator(0, 9.9), call(9.9, "c10d::send", 1), gloo(10, 10, "send", 4000),
        operator(10, 11.9), call(11.9, "c10d::send", 1), gloo(12, 12, "send", 2000),
        operator(12, 13),
    ]  # fmt: skip
    receiver = [
        operator(0, 0.9), call(0.9, "c10d::recv_", 0), gloo(1, 15, "recv", 4000),
        operator(15, 17.9), call(17.9, "c10d::recv_", 0), gloo(18, 19, "recv", 2000),
        operator(19, 22),
    ]  # fmt: skip
    paths = write_traces(tmp_path, sender, receiver)
    assert simulate(paths) == pytest.approx(10 + 4 + 3 + 3)
    assert "0 collectives, 2 messages" in read_workload(*paths).notes[-1]
    words = "rank 0 sends 2 messages of tag 5 to rank 1, which receives 1"
    with pytest.raises(DataError, match=words):
        read_workload(*write_traces(tmp_path, sender, receiver[:4]))


def test_steps_that_not_all_ranks_have_are_left_out(tmp_path: Path) -> None:
    ranks = [
        [step(1, 0, 10), operator(0, 9), step(2, 10, 20), operator(10, 20)],
        [step(2, 110, 120), operator(110, 120), step(3, 120, 150), operator(120, 150)],
    ]
    paths = write_traces(tmp_path, *ranks)
    workload = read_workload(*paths)
    assert simulate(paths) == pytest.approx(10)
    assert workload.notes[0] == "steps 2 to 2"
    assert workload.left_out["step that not every rank has"] == 2


def test_steps_are_taken_from_the_first_to_the_last(tmp_path: Path) -> None:
    rank = [step(1, 0, 10), operator(0, 9), step(2, 10, 30), operator(10, 30)]
    paths = write_traces(tmp_path, rank, rank)
    assert simulate(paths) == pytest.approx(30)
    assert read_workload(*paths).notes[0] == "steps 1 to 2"


@pytest.mark.parametrize(
    ("sizes", "repeats"),
    [([], 0), ([8], 1), ([8, 8, 8], 3), ([8, 4, 8, 4], 2), ([8, 4, 8, 4, 8], 1)],
)
def test_repeats_are_counted(sizes: list[int], repeats: int) -> None:
    exchanges = [
        Exchange(post=n, end=n, kind="ALL_REDUCE", size=size, group="0", ranks=(0, 1))
        for n, size in enumerate(sizes)
    ]
    assert count_repeats(exchanges) == repeats


def test_who_gets_a_part_of_a_scatter_brings_nothing(tmp_path: Path) -> None:
    """Rank 1 has 8,000 bytes for two, and sends 4,000 of them; nothing may go at 0."""
    call = operator(9, 9, "c10d::scatter_", **{"Concrete Inputs": ["", "", "1", "0"]})
    ranks = []
    for rank in range(2):
        event = gloo(10, 33, "scatter")
        if rank == 0:
            event["args"] = {}
        ranks.append([operator(0, 8.9), call, event, operator(33, 38)])
    paths = write_traces(tmp_path, *ranks)
    assert simulate(paths) == pytest.approx(10 + 4 + 5)
    del ranks[1][2]["args"]["Input Dims"]
    with pytest.raises(DataError, match="record_shapes=True"):
        read_workload(*write_traces(tmp_path, *ranks))


def test_a_lab_is_slower_than_the_job(tmp_path: Path) -> None:
    slow = [[{**event, "ts": 4 * event["ts"], "dur": 4 * event["dur"]}
             for event in events] for events in LATE]  # fmt: skip
    paths = write_traces(tmp_path, *slow)
    assert simulate(paths, time_scale=4.0) == pytest.approx(20 + 8 + 5)


def test_a_trace_of_one_rank_alone_is_refused(tmp_path: Path) -> None:
    first, _ = write_traces(tmp_path, *LATE)
    with pytest.raises(DataError, match="of 2 ranks, and rank 1 is missing"):
        read_workload(first)
    with pytest.raises(DataError, match="name one of every rank"):
        read_workload(first, copies=2)


def test_traces_without_ranks_go_by_their_order(tmp_path: Path) -> None:
    paths = write_traces(tmp_path, *LATE)
    for path in paths:
        content = json.loads(path.read_text())
        del content["distributedInfo"]["rank"]
        path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="does not say its rank"):
        read_workload(*paths)
    assert simulate(paths, in_order=True) == pytest.approx(33)


def changed(change: Any) -> tuple[list[Event], ...]:
    ranks: list[list[Event]] = json.loads(json.dumps(LATE))
    change(ranks)
    return tuple(ranks)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda ranks: ranks[0].pop(1), "rank 0 takes part in 0 collectives, rank 1"),
        (lambda ranks: ranks[0][1]["args"].pop("Input Dims"), "record_shapes=True"),
        (lambda ranks: ranks[0][1]["args"].update({"Input Dims": [[7]]}),
         "ALL_REDUCE of 28 bytes, r1.x0 beside it ALL_REDUCE of 8000"),
        (lambda ranks: ranks[0][1]["args"].update({"Input type": ["c10::X"]}),
         "unknown type 'c10::X'"),
        (lambda ranks: ranks[0][1].update(name="gloo:broadcast"),
         "the root or peer of a BROADCAST"),
        (lambda ranks: ranks[0][1].update(name="gloo:magic"), "which is not read"),
        (lambda ranks: ranks[0][0].pop("dur"), "a range has no 'dur'"),
        (lambda ranks: ranks[0][0].update(dur=-3), "takes -3e-06 s"),
        (lambda ranks: ranks[0].append(step(1, 0, 9)), "none is of all"),
        (lambda ranks: ranks[0].extend([step(1, 0, 9), step(1, 9, 19)]),
         "step 1 twice"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(
    tmp_path: Path, change: Any, problem: str
) -> None:
    paths = write_traces(tmp_path, *changed(change))
    with pytest.raises(DataError) as caught:
        read_workload(*paths)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ranks_of_two_runs_are_refused(tmp_path: Path) -> None:
    """Collectives of one run end together: here by turns 0 and 40 ms apart."""
    ranks = []
    for shift in (0, 40):
        events = []
        for number in range(8):
            begin = 50 * number + (shift if number % 2 else 0)
            events += [operator(begin, begin + 1), gloo(begin + 1, begin + 2)]
        ranks.append(events)
    with pytest.raises(DataError, match="are of two runs"):
        read_workload(*write_traces(tmp_path, *ranks))


@pytest.mark.parametrize(
    ("about", "problem"),
    [
        ({"rank": 0}, "is of rank 0, as"),
        ({"world_size": 3}, "of a job of 3 ranks, and rank 2 is missing"),
        ({"world_size": 2_000_000}, "announces 2,000,000 ranks"),
        ({"pg_config": [{"pg_name": "0", "ranks": [0, 1]},
                        {"pg_name": "1", "ranks": [0]}]}, "has 2 groups of ranks"),
    ],
)  # fmt: skip
def test_ranks_that_do_not_fit_are_refused(
    tmp_path: Path, about: Event, problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        read_workload(*write_traces(tmp_path, *LATE, **about))


def test_calls_without_ranges_are_refused(tmp_path: Path) -> None:
    """As of MPI, whose ranges are not read, and of NCCL without its kernels."""
    rank = [operator(0, 10), operator(10, 11, "c10d::allreduce_"), operator(20, 25)]
    paths = write_traces(tmp_path, rank, rank, backend="nccl")
    with pytest.raises(DataError, match="by nccl, and has no kernel of NCCL"):
        read_workload(*paths)


def test_gloo_may_exchange_what_kernels_computed(tmp_path: Path) -> None:
    ranks = [
        [*kernel(0, end, 0), gloo(end, 33), *kernel(33, 36, 32)] for end in (10, 20)
    ]
    paths = write_traces(tmp_path, *ranks)
    assert simulate(paths) == pytest.approx(20 + 8 + 3)


def test_steps_of_kernels_count_where_they_are_marked(tmp_path: Path) -> None:
    """The CPU is done at 5 ms; the kernels of the step end at 40, on two streams."""
    marks = [
        {**step(1, 2, 30), "cat": "gpu_user_annotation"},
        {**step(1, 4, 40), "cat": "gpu_user_annotation", "tid": 20},
    ]
    rank = [step(1, 0, 5), *marks, *kernel(2, 30, 1), *kernel(30, 40, 2)]
    paths = write_traces(tmp_path, rank, world_size=1)
    assert simulate(paths) == pytest.approx(38)
    (path,) = paths
    assert RankTrace(path).steps == {1: pytest.approx((0.002, 0.040))}


def test_a_trace_without_steps_is_from_the_first_range_to_what_ends_last(
    tmp_path: Path,
) -> None:
    """A range of the whole program begins before, and ends after all others."""
    program = {**operator(-5, 100, "main"), "cat": "python_function"}
    rank = [program, operator(1, 10), gloo(10, 33)]
    (path,) = write_traces(tmp_path, rank, world_size=2)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"baseTimeNanoseconds": 1_500_000_000}))

    trace = RankTrace(path)
    assert trace.steps == {0: pytest.approx((0.001, 0.033))}
    assert trace.zero == 1.5


@pytest.mark.parametrize(
    ("rank", "busy"),
    [
        # Of operators that begin together the longer one has called the shorter.
        ([operator(0, 10), operator(0, 4)], (0.0, 0.004)),
        ([operator(0, 4), operator(0, 10)], (0.0, 0.004)),
        # A kernel that ends while another one runs ends nothing.
        ([*kernel(0, 10, 0), *kernel(2, 4, 1)], (0.0, 0.010)),
        # A job of one rank may call what exchanges nothing.
        ([operator(0, 4), operator(5, 6, "c10d::barrier")], (0.0, 0.004)),
    ],
)
def test_what_computes(
    tmp_path: Path, rank: list[Event], busy: tuple[float, float]
) -> None:
    (path,) = write_traces(tmp_path, rank)
    assert RankTrace(path).busy == [pytest.approx(busy)]


@pytest.mark.parametrize(
    ("called", "begun", "posted"),
    [(11, 20, 11), (11, 21, 11), (20, 21, 21), (21, 22, 22)],
)
def test_what_a_busy_worker_took_up_later_was_posted_when_it_was_called(
    tmp_path: Path, called: float, begun: float, posted: float
) -> None:
    """The first exchange ends at 20 ms: what was called before then has waited."""
    rank = [
        operator(0, 9), operator(9, 9.5, "c10d::allreduce_"), gloo(10, 20),
        operator(called, called + 0.1, "c10d::allreduce_"), gloo(begun, 30),
    ]  # fmt: skip
    (path,) = write_traces(tmp_path, rank, world_size=2)
    _, second = RankTrace(path).exchanges
    assert second.post == pytest.approx(1e-3 * posted)


def test_records_and_launches_that_are_missing_are_counted(tmp_path: Path) -> None:
    """A kernel without its launch could begin when it did, and no earlier."""
    called = [
        operator(
            begin, begin, "record_param_comms", **nccl(), **{"External id": number}
        )
        for begin, number in ((1.0, 5), (2.0, 6))
    ]
    _, exchange = kernel(6, 20, 1, **{"External id": 5})
    (path,) = write_traces(tmp_path, [*kernel(0, 4, 0), *called, exchange],
                           world_size=2)  # fmt: skip

    trace = RankTrace(path)
    assert [found.post for found in trace.exchanges] == [pytest.approx(0.006)]
    assert trace.left_out["record of an exchange without a kernel"] == 1
    assert trace.left_out["kernel whose launch is not there"] == 1


def test_messages_of_ranks_in_order(tmp_path: Path) -> None:
    """A message is between the rank of its file and the one that its call names."""
    call = {"Concrete Inputs": ["", "", "1", "0"]}
    back = {"Concrete Inputs": ["", "", "0", "0"]}
    paths = write_traces(
        tmp_path,
        [operator(0, 9), operator(9, 9, "c10d::send", **call), gloo(10, 10, "send")],
        [operator(0, 1), operator(1, 1, "c10d::recv_", **back), gloo(2, 18, "recv"),
         operator(18, 20)],
    )  # fmt: skip
    for path in paths:
        content = json.loads(path.read_text())
        del content["distributedInfo"]["rank"]
        path.write_text(json.dumps(content))
    assert simulate(paths, in_order=True) == pytest.approx(10 + 8 + 2)


def test_the_command_says_what_it_left_out(tmp_path: Path) -> None:
    extra = [
        {"ph": "M", "name": "process_name"},
        {**operator(0, 1), "cat": "python_function"},
    ]
    paths = write_traces(tmp_path, [*LATE[0], *extra], LATE[1], color=3)
    packed = tmp_path / "rank0.json.gz"
    packed.write_bytes(gzip.compress(paths[0].read_bytes()))
    command = [
        "import-workload",
        str(packed),
        str(paths[1]),
        "-o",
        str(tmp_path / "o.json"),
    ]
    result = CliRunner().invoke(app, command)

    assert result.exit_code == 0, result.output
    assert "left out: event of phase M, 1 time" in result.stdout
    assert "left out: range of category python_function, 1 time" in result.stdout
    assert "left out: color of a distributedInfo, 2 times" in result.stdout
    assert emu.simulate(emu.load(tmp_path / "o.json")).makespan > 0.025


@given(st.data())
def test_makespans_follow_from_computing_and_bytes_alone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """By a recursion: an exchange begins with its last rank and takes its bytes.

    How long ranks waited, and where their clocks begin, is drawn: it must not matter.
    """
    ranks = data.draw(st.integers(2, 3), "ranks")
    count = data.draw(st.integers(1, 2), "exchanges")  # of three, clocks are compared
    times = st.integers(1, 30)
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    ends = [0.0] * ranks
    clocks = [float(data.draw(st.integers(0, 10**6), "clock")) for _ in range(ranks)]
    events: list[list[Event]] = [[] for _ in range(ranks)]
    for size in sizes:
        for rank in range(ranks):
            computing = data.draw(times, "computing")
            waiting = data.draw(times, "waiting")
            events[rank].append(operator(clocks[rank], clocks[rank] + computing))
            clocks[rank] += computing
            event = gloo(clocks[rank], clocks[rank] + waiting, size=12_000 * size)
            events[rank].append(event)
            clocks[rank] += waiting
            ends[rank] += computing
        seconds = 12 * size * 2 * (ranks - 1) / ranks
        ends = [max(ends) + seconds] * ranks
    for rank in range(ranks):
        last = data.draw(times, "last")
        events[rank].append(operator(clocks[rank], clocks[rank] + last))
        ends[rank] += last
    paths = write_traces(tmp_path_factory.mktemp("drawn"), *events)
    assert simulate(paths) == pytest.approx(max(ends), rel=1e-9)


@pytest.mark.parametrize(
    ("by_gloo", "awaited"),
    [
        (False, [[], ["t0.done"], ["t1.done"], ["t2.done"]]),
        (True, [[], [], ["t0.done"], ["t1.done"]]),
    ],
)
def test_a_collective_waits_for_those_ahead_of_its_rank_in_its_group(
    by_gloo: bool,  # noqa: FBT001
    awaited: list[list[str]],
) -> None:
    """NCCL carries out one at a time and gloo two; another rank's are no matter."""
    job: Any = SimpleNamespace(
        _add_task=lambda *_, **__: None,
        workload=SimpleNamespace(add_flow=lambda *_: None),
        _groups=defaultdict(dict),
        _by_gloo=by_gloo,
    )
    exchange: Any = SimpleNamespace(kind="allreduce", group="g", ranks=(0, 1))
    _Job._add_part(job, "other", 1, exchange)

    parts = [_Job._add_part(job, f"t{number}", 0, exchange) for number in range(4)]

    assert [part.awaited for part in parts] == awaited
