"""One rank's trace of torch.profiler: ranges, widths, groups, roots and waits."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emu.errors import DataError
from emu.interchange import kineto_trace
from emu.interchange.kineto import _Job, _Part, find_waits, read_traces
from emu.interchange.kineto_ranges import (
    Range,
    divide,
    find_splits,
    kind_of,
    numbers_of,
    parse_list,
    splits_text,
)
from emu.interchange.kineto_trace import Exchange, RankTrace
from emu.interchange.workload import Workload
from tests.interchange.test_kineto import (
    Event,
    gloo,
    kernel,
    nccl,
    operator,
    step,
    write_traces,
)

pytestmark = pytest.mark.usefixtures("read_here")


def trace_of(folder: Path, *events: Event, rank: int = 0, **about: Any) -> RankTrace:
    """Return the trace of a rank, which is one of two where nothing else is said."""
    info = {"rank": rank, "world_size": 2, **about}
    path = folder / "rank.json"
    path.write_text(json.dumps({"distributedInfo": info, "traceEvents": events}))
    return RankTrace(path)


def exchange_of(folder: Path, rank: Any = 0, **record: Any) -> Exchange:
    """Return the exchange of NCCL that is so recorded."""
    groups = [{"pg_name": "7", "ranks": [4, 2, 0]}]
    events = [*kernel(0, 4, 0), *kernel(4, 20, 1, **nccl(**record))]
    (found,) = trace_of(folder, *events, rank=rank, pg_config=groups).exchanges
    return found


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", "ALL_REDUCE"),
        ("gloo:all_reduce", "ALL_REDUCE"),
        ("nccl:allreduce_coalesced", "ALL_REDUCE"),
        ("c10d::_allgather_base_", "ALL_GATHER"),
        ("all_gather_into_tensor_coalesced", "ALL_GATHER"),
        ("broadcast_oop", "BROADCAST"),
        ("_reduce_scatter_base", "REDUCE_SCATTER"),
        ("reduce_scatter_tensor_coalesced", "REDUCE_SCATTER"),
        ("AllToAll_single", "ALL_TO_ALL"),
        ("all_to_allv", "ALL_TO_ALL"),
        ("reduce", "REDUCE"),
        ("_reduce_oop", "REDUCE"),
        ("gather", "GATHER"),
        ("scatter", "SCATTER"),
        ("barrier", "BARRIER"),
        ("allreduce_barrier", "BARRIER"),
        ("send", "SEND"),
        ("recv", "RECV"),
        ("wait", None),
        ("gloo:", None),
    ],
)
def test_a_name_of_an_exchange_has_its_kind(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


#: Types of numbers by their bytes, as torch and as C++ have them.
WIDTHS = {
    8: ["Double", "Long", "c10::long", "long int"],
    4: ["Float", "Int"],
    2: ["Half", "c10::BFloat16", "Short", "short int", "c10::Half"],
    1: [
        "Byte",
        "unsigned char",
        "Char",
        "signed char",
        "Bool",
        "c10::Float8_e4m3fn",
        "Float8_e5m2",
    ],
}


def test_an_exchange_has_the_bytes_of_its_numbers(tmp_path: Path) -> None:
    """An exchange counts what a rank brings, not what it gets; a barrier has none."""
    for width, names in WIDTHS.items():
        for name in names:
            found = exchange_of(tmp_path, dtype=name, **{"Out msg nelems": 9})
            assert found.size == 2000.0 * width
    barrier = exchange_of(tmp_path, kind="barrier", count=5)
    assert (barrier.kind, barrier.size) == ("BARRIER", 0.0)
    for count, problem in ((-1, "has ALL_REDUCE of -4 bytes"), (math.inf, "inf bytes")):
        with pytest.raises(DataError, match=problem):
            exchange_of(tmp_path, count=count)
    with pytest.raises(DataError, match="numbers of unknown type 'QInt'"):
        exchange_of(tmp_path, dtype="QInt")


def test_shapes_of_several_inputs_are_added_up(tmp_path: Path) -> None:
    event = gloo(10, 20)
    event["args"] = {"Input Dims": [[3, 5], [], [7]],
                     "Input type": ["float", "double", "c10::Half"]}  # fmt: skip
    (found,) = trace_of(tmp_path, operator(0, 9), event).exchanges
    assert found.size == 15 * 4 + 8 + 7 * 2
    assert found.group == "gloo"
    assert found.ranks == (0, 1)
    assert (found.post, found.end) == pytest.approx((0.010, 0.020))


@pytest.mark.parametrize(
    ("record", "ranks"),
    [
        ({"Process Group Name": "0"}, (0, 1)),
        ({"Process Group Name": "7", "Process Group Ranks": None}, None),
        (
            {
                "Process Group Name": "7",
                "Process Group Ranks": "[4, ...",
                "Group size": 3,
            },
            (4, 2, 0),
        ),
        ({"Process Group Name": "x", "Process Group Ranks": ""}, (0, 1)),
        ({"Process Group Ranks": [5, 0, 3], "Group size": 3}, (5, 0, 3)),
    ],
)
def test_ranks_of_a_group_are_those_that_the_exchange_states(
    record: dict[str, Any], ranks: tuple[int, ...] | None, tmp_path: Path
) -> None:
    """Else those of its group in the file, else all; as many as the group has."""
    if ranks is None:
        with pytest.raises(DataError, match="names 3 of 2 ranks of group '7'"):
            exchange_of(tmp_path, **record)
        return
    assert exchange_of(tmp_path, **record).ranks == ranks
    with pytest.raises(DataError, match=r"names \d of 4 ranks of group"):
        exchange_of(tmp_path, **{**record, "Group size": 4})


GROUP = {"Process Group Ranks": "[4, 2, 0]", "Group size": 3}


@pytest.mark.parametrize(
    ("kind", "stated", "ranks", "root"),
    [
        ("broadcast", {"Rank": 2, "Src Rank": 4, "Dst Rank": 2}, (4, 2, 0), 0),
        ("broadcast", {"Rank": 2}, (4, 2, 0), 2),
        ("reduce", {"Rank": 1, "Dst Rank": 4}, (4, 2, 0), 1),
        ("allreduce", {"Rank": 2, "Src Rank": 9}, (4, 2, 0), 0),
        ("send", {"Rank": 2, "Src Rank": 0, "Dst Rank": 2}, (2, 2), 0),
        ("recv", {"Rank": 2, "Src Rank": 4, "Dst Rank": 0}, (4, 2), 0),
        ("send", {"Rank": 0}, (2, 4), 0),
        ("recv", {"Rank": 2}, (0, 2), 0),
    ],
)
def test_a_root_is_a_place_in_its_group_and_a_peer_a_rank(
    kind: str, stated: Any, ranks: tuple[int, ...], root: int, tmp_path: Path
) -> None:
    """Rank 2 sends and receives; of a message of no tag the root is 0."""
    found = exchange_of(tmp_path, 2, kind=kind, **GROUP, **stated)
    assert (found.ranks, found.root) == (ranks, root)


def test_a_message_of_gloo_has_the_tag_of_its_call(tmp_path: Path) -> None:
    """The numbers of a call are its peer and its tag; without a call there is none."""
    inputs = {"Concrete Inputs": ["", "[1]", "0", "13", "99"]}
    events = [operator(0, 8), operator(9, 9, "c10d::send", **inputs)]
    (found,) = trace_of(tmp_path, *events, gloo(10, 12, "send"), rank=1).exchanges
    assert (found.ranks, found.root) == ((1, 0), 13)
    events[1] = operator(9, 9, "c10d::recv_", **{"Concrete Inputs": ["0"]})
    (found,) = trace_of(tmp_path, *events, gloo(10, 12, "recv"), rank=1).exchanges
    assert (found.ranks, found.root) == ((0, 1), 0)


def named(name: str, **args: Any) -> Range:
    """Return a range of a call."""
    return Range(0.0, 0.0, name, "cpu_op", "1/1", args)


def test_numbers_of_the_likely_call_are_its_whole_ones() -> None:
    first = named("c10d::send", **{"Concrete Inputs": ["", 3, "-1", "[4]", "05", "x"]})
    second = named("c10d::send", **{"Concrete Inputs": ["9"]})
    assert numbers_of([first, second]) == [3, 5]
    assert numbers_of([named("c10d::send"), second]) == []
    assert numbers_of([]) == []


def test_splits_are_those_of_the_first_call_with_as_many_rows() -> None:
    """The rows of a call are the sum of its splits, or else the length of its input."""
    base = "c10d::alltoall_base_"

    def splits(text: Any, rows: Any = None) -> Range:
        shapes = {} if rows is None else {"Input Dims": [[77], rows]}
        return named(
            base, **{"Concrete Inputs": ["a", "b", "c", "[7]", text], **shapes}
        )

    calls = [splits("[1, 2]"), splits("[]", [4, 9]), splits("[3, 2]"), splits("[5]")]
    assert splits_text(calls[0]) == "[1, 2]"
    assert splits_text(named("c10d::x", **calls[0].args)) is None
    short = named(base, **{"Concrete Inputs": ["a", "b", "c", "[7]"]})
    assert splits_text(short) is None
    assert find_splits([short, *calls], 5) == "[3, 2]"
    assert find_splits(calls, 4) == "[]"
    assert find_splits(calls, 9) is None
    # A call that says nothing of its rows may be of any.
    assert find_splits([splits("[]", []), *calls], 5) == "[]"
    assert find_splits([splits("[]"), *calls], 5) == "[]"
    assert divide(60.0, [1, 3, 2]) == (10.0, 30.0, 20.0)
    assert divide(60.0, [2, 2, 2]) == ()
    assert parse_list("[1, 2.5]") == [1.0, 2.5]
    assert parse_list((3, "4")) == [3.0, 4.0]
    assert parse_list("[1, ...") == parse_list(None) == parse_list(7) == []


def test_a_split_may_be_nothing_but_no_less_and_not_all(tmp_path: Path) -> None:
    found = exchange_of(tmp_path, kind="all_to_allv", **{"In split size": "[0, 5]"})
    assert found.shares == (0.0, 8000.0)
    for splits in ("[1, -1]", "[1, Infinity]"):
        with pytest.raises(DataError, match="in In split size, write rows"):
            exchange_of(tmp_path, kind="all_to_allv", **{"In split size": splits})
    # Other exchanges have no shares, whatever they state.
    assert exchange_of(tmp_path, **{"In split size": "[0, 5]"}).shares == ()


def test_what_no_number_needs_is_counted(tmp_path: Path) -> None:
    """Operators are unused where a GPU computes, and launches where none does."""
    launch = {**operator(1, 1, "cudaLaunchKernel"), "cat": "cuda_runtime"}
    driver = {**launch, "cat": "cuda_driver"}
    copy = {**operator(2, 3, "Memcpy"), "cat": "gpu_memcpy", "id": 3, "odd": 4}
    fill = {**operator(5, 6, "Memset"), "cat": "gpu_memset"}
    mark = {**operator(0, 9, "gloo:x"), "cat": "python_function"}
    exchange = gloo(7, 8)
    exchange["args"]["newest"] = 1
    call = operator(1, 2, "c10d::barrier", Rank=1, new=2, newer=3)
    plain = operator(3, 4, "aten::mm", Sizes=1, Types=2)
    about = {"ph": "M", "name": "n"}
    events = [launch, driver, mark, call, plain, about, about, step(0, 0, 9), exchange]
    on_cpu = trace_of(tmp_path, *events, world_size=1)
    assert not on_cpu.uses_gpu
    assert on_cpu.left_out == {
        "event of phase M": 2,
        "range of category cuda_runtime": 1,
        "range of category cuda_driver": 1,
        "range of category python_function": 1,
        "new of an exchange": 1,
        "newer of an exchange": 1,
        "newest of an exchange": 1,
        "argument of a range that exchanges nothing": 2,
    }
    on_gpu = trace_of(tmp_path, *events, copy, fill, world_size=1)
    assert on_gpu.uses_gpu
    assert on_gpu.busy == [pytest.approx((0.002, 0.003)), pytest.approx((0.005, 0.006))]
    assert on_gpu.left_out == {
        "event of phase M": 2,
        "odd of a range": 1,
        "range of category cpu_op": 1,
        "range of category python_function": 1,
        "new of an exchange": 1,
        "newer of an exchange": 1,
        "newest of an exchange": 1,
        "argument of a range that exchanges nothing": 2,
    }


def test_operators_compute_where_they_call_none_and_are_in_no_exchange(
    tmp_path: Path,
) -> None:
    """Threads compute side by side; what meets is one, what does not is two."""
    other = {**operator(30, 33), "tid": 3}
    events = [
        operator(0, 10, "outer"),
        operator(1, 3, "inner"),
        operator(10, 12, "next"),
        operator(12, 14, "touches"),
        operator(15, 16, "apart"),
        {**gloo(20, 24), "tid": 1},
        operator(21, 23, "within"),
        operator(24, 25, "behind"),
        operator(29, 31, "over"),
        other,
    ]
    expected = [(1, 3), (10, 14), (15, 16), (24, 25), (29, 33)]
    spans = trace_of(tmp_path, *events).busy
    assert [(1e3 * begin, 1e3 * end) for begin, end in spans] == [
        pytest.approx(span) for span in expected
    ]


def test_a_kernel_is_ready_when_all_that_were_launched_before_have_ended(
    tmp_path: Path,
) -> None:
    """Kernels that were launched no earlier, and end later, are not waited for."""
    events = [
        *kernel(0, 9, 1),
        *kernel(2, 5, 2),
        *kernel(10, 40, 3, **nccl()),
        *kernel(10, 30, 4),
        *kernel(41, 50, 4.5, **nccl()),
        *kernel(50, 60, 51),
    ]
    found = trace_of(tmp_path, *events).exchanges
    assert [exchange.post for exchange in found] == pytest.approx([0.009, 0.030])
    # A kernel that began before those had ended was ready at its begin at the latest.
    events[5] = kernel(8, 40, 3, **nccl())[1]
    first, _ = trace_of(tmp_path, *events).exchanges
    assert first.post == pytest.approx(0.008)


def test_what_a_kernel_states_goes_before_what_its_call_does(tmp_path: Path) -> None:
    link = {"External id": 5}
    call = operator(1, 1, "record_param_comms", **nccl(count=7), **link)
    late = operator(1, 1, "record_param_comms", **nccl(count=3), **{"External id": 6})
    bare = kernel(4, 20, 1, **link)
    full = kernel(4, 20, 1, **link, **{"In msg nelems": 9})
    for events, numbers in ((bare, 7), (full, 9)):
        trace = trace_of(tmp_path, *kernel(0, 4, 0), call, late, *events)
        assert trace.exchanges[0].size == 4 * numbers
        assert trace.left_out["record of an exchange without a kernel"] == 1
    events = [*kernel(0, 4, 0), call, *bare]
    used = trace_of(tmp_path, *events).left_out
    assert "record of an exchange without a kernel" not in used
    # Of two libraries one would go unseen.
    with pytest.raises(DataError, match="gloo:all_reduce states no bytes"):
        trace_of(tmp_path, *events, gloo(30, 31))
    with pytest.raises(DataError, match="states no bytes: trace CPU and CUDA"):
        trace_of(tmp_path, *kernel(0, 4, 0), late, *bare)


def test_a_file_may_announce_as_many_ranks_as_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto_trace, "_MOST_RANKS", 5)
    found = trace_of(tmp_path, operator(0, 1), world_size=5, rank=3)
    assert (found.world, found.rank) == (5, 3)
    with pytest.raises(DataError, match="announces 6 ranks"):
        trace_of(tmp_path, operator(0, 1), world_size=6)
    with pytest.raises(DataError, match="holds no range that computes"):
        trace_of(tmp_path, step(1, 0, 1))
    with pytest.raises(DataError, match=r"calls c10d::x by some library, and has"):
        trace_of(tmp_path, operator(0, 1), operator(1, 2, "c10d::x"))


def test_groups_of_gloo_are_one(tmp_path: Path) -> None:
    """The same ranks in another order are the same group, which stands in order."""
    groups = [{"pg_name": str(n), "ranks": r} for n, r in enumerate(([2, 0], [0, 2]))]
    (found,) = trace_of(
        tmp_path, operator(0, 9), gloo(10, 20), pg_config=groups
    ).exchanges
    assert found.ranks == (0, 2)
    # Of two groups nobody knows whose a range is; without ranges nobody asks.
    groups[1]["ranks"] = [0, 1]
    assert not trace_of(tmp_path, operator(0, 9), pg_config=groups).exchanges


def test_rows_of_an_all_to_all_are_the_first_length_of_its_first_input(
    tmp_path: Path,
) -> None:
    """Four rows of seven numbers and nine more, or one, of which rank 1 gets 3 / 4."""
    inputs = {"Concrete Inputs": ["", "", "", "[2, 2]", "[1, 3]"]}
    call = operator(9, 9, "c10d::alltoall_base_", **inputs)
    for more, share in (([9], 37.0), ([], 29.0)):
        event = gloo(10, 20, "all_to_all")
        event["args"] = {"Input Dims": [[4, 7], more], "Input type": ["float"] * 2}
        (found,) = trace_of(tmp_path, operator(0, 8), call, event).exchanges
        assert found.shares == (share, 3 * share)


def wait_job(by_gloo: bool = False, scale: float = 1.0) -> _Job:  # noqa: FBT001, FBT002
    """Return a job of two ranks without a trace."""
    traces: Any = [
        SimpleNamespace(by_nccl=not by_gloo, left_out={}, zero=0.0) for _ in range(2)
    ]
    return _Job(Workload("t", []), traces, scale)


def part(task: str, kind: str, size: float, **more: Any) -> _Part:
    fields = {"root": 0, "shares": (), **more}
    exchange: Any = SimpleNamespace(kind=kind, size=size, **fields)
    return _Part(task, rank=0, exchange=exchange, awaited=[f"{task}.before"])


@pytest.mark.parametrize(
    ("other", "is_refused"),
    [
        (part("b", "GATHER", 8.0), False),
        (part("b", "GATHER", 9.0), True),
        (part("b", "GATHER", 8.0, root=1), True),
        (part("b", "REDUCE", 8.0), True),
        (part("b", "GATHER", 9.0, shares=(1.0, 8.0)), False),
    ],
)
def test_parts_of_a_collective_are_of_one_kind_root_and_size(
    other: _Part,
    is_refused: bool,  # noqa: FBT001
) -> None:
    """Sizes may differ where one of the two has shares, or only a root brings some."""
    first = part("a", "GATHER", 8.0)
    job = wait_job()
    if not is_refused:
        job._check_same(first, other)
        return
    with pytest.raises(DataError, match=r"a is GATHER of 8 bytes, b beside it "):
        job._check_same(first, other)


def test_sizes_of_a_scatter_or_beside_shares_may_differ() -> None:
    job = wait_job()
    job._check_same(part("a", "SCATTER", 8.0), part("b", "SCATTER", 0.0))
    shares = (3.0, 5.0)
    first = part("a", "ALL_TO_ALL", 8.0, shares=shares)
    job._check_same(first, part("b", "ALL_TO_ALL", 6.0))
    job._check_same(part("b", "ALL_TO_ALL", 6.0), first)


def test_shares_go_to_the_rank_of_their_place() -> None:
    """Who states none sends a part to each; nobody sends to itself."""
    job = wait_job()
    parts = [
        part("a", "ALL_TO_ALL", 12.0, shares=(2.0, 3.0, 7.0)),
        part("b", "ALL_TO_ALL", 6.0),
        part("c", "ALL_TO_ALL", 9.0, shares=(0.0, 8.0, 1.0)),
    ]
    job._join_collective(parts)
    volumes = {
        (row["from"], row["to"]): row["volume"]
        for row in job.workload.flows
        if row["to"].endswith(".done")
    }
    assert volumes == {
        ("a", "b.done"): "3.0 B",
        ("a", "c.done"): "7.0 B",
        ("b", "a.done"): "2.0 B",
        ("b", "c.done"): "2.0 B",
        ("c", "a.done"): "0.0 B",
        ("c", "b.done"): "8.0 B",
    }
    orders = {(row["from"], row["to"]) for row in job.workload.flows}
    gates = {end for begin, end in orders if begin == "a.before"}
    (gate,) = gates
    assert {("b.before", gate), ("c.before", gate), (gate, "a"), (gate, "c")} <= orders


def test_unseen_exchanges_wait_for_the_end_of_the_step_that_they_end_in() -> None:
    """One that ends with a step is of that step, one behind all steps of the last."""
    busy = [(0.0, 100.0)]
    for end, step_end in (
        (5.0, 6.0),
        (6.0, 6.0),
        (6.5, 11.0),
        (11.0, 11.0),
        (12.0, 11.0),
    ):
        exchange: Any = SimpleNamespace(post=1.0, end=end, group="g", kind="X")
        (wait,) = find_waits(busy, [exchange], (6.0, 11.0), begin=0.0)
        assert wait == (step_end, step_end, [0])


def test_a_wait_begins_behind_the_last_one_and_its_own_post() -> None:
    """Three exchanges end one behind the other while nothing computes."""

    def exchange(post: float, end: float, group: str) -> Any:
        return SimpleNamespace(post=post, end=end, group=group, kind="X")

    three = [exchange(0.1 * n, end, str(n)) for n, end in enumerate((5.0, 9.0, 12.0))]
    waits = find_waits([(0.0, 1.0)], three, (20.0,), begin=0.0)
    assert waits == [(1.0, 5.0, [0]), (5.0, 9.0, [1]), (9.0, 12.0, [2])]

    # It computed from before its post on: the long gap ahead is not its own.
    pair = [exchange(0.0, 200.0, "h"), exchange(100.0, 101.0, "g")]
    waits = find_waits([(0.0, 1.0), (99.9, 205.0)], pair, (300.0,), begin=0.0)
    assert waits == [(300.0, 300.0, [0]), (300.0, 300.0, [1])]


def test_a_quarter_of_the_time_between_two_ends_is_of_one_run() -> None:
    """Four ends within 12 s are 3 s apart: drifts of 0.75 s are allowed, no more."""
    for drift, is_one_run in ((0.75, True), (0.8125, False)):
        job = wait_job()
        turns = (-drift, drift, drift, -drift)
        first = [0.0, 4.0, 8.0, 12.0]
        second = [3.0 + end + turn for end, turn in zip(first, turns, strict=True)]
        for rank, ends in enumerate((first, second)):
            rows: Any = [SimpleNamespace(exchange=SimpleNamespace(end=e)) for e in ends]
            job._groups["g", (0, 1)][rank] = rows
        if is_one_run:
            job.check_clocks()
            continue
        with pytest.raises(DataError, match="are of two runs"):
            job.check_clocks()


def test_a_collective_has_the_segments_of_its_library() -> None:
    """Gloo has two on their way; alone, or of no bytes, a rank exchanges nothing."""
    for by_gloo, segments in ((False, 1), (True, 2)):
        job = wait_job(by_gloo=by_gloo)
        job._join_collective([part("a", "ALL_REDUCE", 8.0)])
        job._join_collective([part(name, "ALL_REDUCE", 0.0) for name in "ab"])
        assert job.workload.collectives == []
        job._join_collective([part(name, "ALL_REDUCE", 8.0) for name in "ab"])
        ((section,),) = [row.values() for row in job.workload.collectives]
        assert section["segments"] == segments
        assert section["among"] == ["a", "b"]


def test_steps_and_repeats_are_those_of_the_first_rank() -> None:
    """A rank with other steps is named by its number; what lies outside is counted."""
    row = SimpleNamespace(kind="X", size=1.0, group="g")
    for count, is_whole, words in (
        (3, True, "exchanges repeat 3 times, as iterations may do"),
        (2, True, "exchanges repeat 2 times, as iterations may do"),
        (1, True, ""),
        (3, False, ""),
    ):
        job = wait_job()
        first, last = job._traces
        first.exchanges, first.is_whole = [row] * count, is_whole  # type: ignore[list-item]
        last.exchanges, last.is_whole = [row] * 5, not is_whole  # type: ignore[list-item]
        job.describe()
        assert job.workload.notes[1:] == ([words] if words else [])
    steps: Any = [
        {1: (0, 1), 3: (0, 1)},
        {3: (0, 1), 1: (0, 1)},
        {2: (0, 1), 5: (0, 1)},
    ]
    traces: Any = [SimpleNamespace(by_nccl=True, left_out={}, steps=s) for s in steps]
    with pytest.raises(DataError, match="steps from 1 to 3, rank 2 from 2 to 5: none"):
        _Job(Workload("t", []), traces, 1.0).common_steps()


def test_exchanges_outside_the_steps_are_counted(tmp_path: Path) -> None:
    """Two of five are posted within, one of them as the step begins."""
    events = [operator(9, 20, "aten::mm"), step(1, 10, 30)]
    posts = (1, 4, 10, 25, 31)
    events += [gloo(post, post + 1) for post in posts]
    paths = write_traces(tmp_path, events, events)
    read = read_traces([*reversed(paths)])
    assert read.left_out["exchange outside the steps"] == 2 * 3
    assert read.origin == str(paths[1])


def test_the_first_rank_says_which_library_exchanged() -> None:
    """It names the error of those that differ, too; a rank of few ends no drift."""
    traces: Any = [SimpleNamespace(by_nccl=by, left_out={}, zero=0.0) for by in (1, 0)]
    job = _Job(Workload("t", []), traces, 1.0)
    assert not job._by_gloo
    parts = [
        part(name, "GATHER", size) for name, size in (("a", 8), ("b", 8), ("c", 9))
    ]
    with pytest.raises(DataError, match="a is GATHER of 8 bytes, c beside it GATHER"):
        job._join_collective(parts)
    for rank, count in enumerate((2, 3)):
        row: Any = SimpleNamespace(exchange=SimpleNamespace(end=float(count)))
        job._groups["g", (0, 1)][rank] = [row] * count
    job.check_clocks()
    assert job.workload.notes == []


def test_a_trace_that_says_nothing_of_itself_is_of_rank_0(tmp_path: Path) -> None:
    """Its clock begins at 0 s; a barrier has no input."""
    inputs = {"Concrete Inputs": ["1", "3"]}
    path = tmp_path / "rank.json"
    groups = [{"pg_name": "0", "ranks": [0, 1]}]
    events = [
        operator(0, 8),
        operator(9, 9, "c10d::send", **inputs),
        gloo(10, 12, "send"),
        gloo(13, 14, "barrier"),
    ]
    content = {"traceEvents": events, "distributedInfo": {"pg_config": groups}}
    path.write_text(json.dumps(content))
    trace = RankTrace(path)
    sent, barrier = trace.exchanges
    assert (trace.rank, trace.world, trace.zero) == (None, 0, 0.0)
    assert (sent.ranks, sent.root) == ((0, 1), 3)
    assert (barrier.kind, barrier.size, barrier.shares) == ("BARRIER", 0.0, ())
