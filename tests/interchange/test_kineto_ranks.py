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
from emu.interchange.kineto import _Job, _Part, find_waits
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


#: Bytes of the types of numbers, as torch and as C++ have them.
WIDTHS = {
    8: "Double Long c10::long long_int",
    4: "Float Int",
    2: "Half c10::BFloat16 Short short_int c10::Half",
    1: "Byte unsigned_char Char signed_char Bool Float8_e4m3fn Float8_e5m2",
}


def test_an_exchange_has_the_bytes_of_its_numbers(tmp_path: Path) -> None:
    """What the rank brings, and not what it gets; a barrier brings nothing."""
    for width, names in WIDTHS.items():
        for name in names.replace("_int", " int").replace("_char", " char").split(" "):
            if name in ("int", "char", "unsigned", "signed"):
                continue
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
    """What it sends of its second input; one of equal parts has that's first length."""
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
    call = operator(1, 2, "c10d::barrier", Rank=1, new=2, newer=3)
    plain = operator(3, 4, "aten::mm", Sizes=1, Types=2)
    about = {"ph": "M", "name": "n"}
    events = [launch, driver, mark, call, plain, about, about, step(0, 0, 9)]
    on_cpu = trace_of(tmp_path, *events, world_size=1)
    assert not on_cpu.uses_gpu
    assert on_cpu.left_out == {
        "event of phase M": 2,
        "range of category cuda_runtime": 1,
        "range of category cuda_driver": 1,
        "range of category python_function": 1,
        "new of an exchange": 1,
        "newer of an exchange": 1,
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
    """What is launched at the same time or later, and ends later, is not waited for."""
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


def wait_job(by_gloo: bool = False, scale: float = 1.0) -> _Job:  # noqa: FBT001, FBT002
    """Return a job of two ranks without a trace."""
    traces: Any = [SimpleNamespace(by_nccl=not by_gloo, left_out={}) for _ in range(2)]
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
