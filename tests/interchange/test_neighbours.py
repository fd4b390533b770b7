"""Fields, bounds, ranks and sizes that readers of workloads have to tell apart."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emu.errors import DataError
from emu.interchange.accounted import read_mapping
from emu.interchange.chakra import _Exchange, _Job, _write_span
from emu.interchange.chakra_nodes import Trace, read_nodes
from emu.interchange.kineto import _by_rank, count_repeats, find_waits
from emu.interchange.kineto import _Job as _Traces
from emu.interchange.kineto_ranges import Range, calls_of
from emu.interchange.protobuf import encode, write_varint
from emu.interchange.workload import Workload
from emu.interchange.workload_formats import read_workload
from emu.problem.fields.quantities import MOST_FEW
from emu.units import DURATION

pytestmark = pytest.mark.usefixtures("read_here")


def fixed(field: int, form: str, value: float) -> bytes:
    """Return a field of fixed width, 1 for eight bytes and 5 for four."""
    wire = 1 if struct.calcsize(form) == 8 else 5
    return write_varint(field << 3 | wire) + struct.pack(form, value)


#: Every type that Chakra's schema has for an attribute, with the bytes of one value.
ATTRIBUTES = [
    (3, fixed(3, "<d", 1.5), 1.5),
    (5, fixed(5, "<f", 2.5), 2.5),
    *((field, encode({field: -7}), -7) for field in (7, 9)),
    *((field, encode({field: 300}), 300) for field in (11, 13)),
    *((field, encode({field: 13}), -7) for field in (15, 17)),
    (19, fixed(19, "<i", 40), 40),
    (21, fixed(21, "<q", 41), 41),
    (23, fixed(23, "<i", -42), -42),
    (25, fixed(25, "<q", -43), -43),
    (27, encode({27: 1}), 1),
    *((field, encode({field: "word"}), "word") for field in (29, 31)),
]


@pytest.mark.parametrize(("field", "content", "value"), ATTRIBUTES)
def test_an_attribute_has_its_value_by_any_type(
    field: int, content: bytes, value: object, tmp_path: Path
) -> None:
    """A list of the next number is known as well, and nothing of it is left out."""
    one = encode({1: "one"}) + content
    several = encode({1: "several", field + 1: encode({1: []})})
    node = encode({1: 7, 3: 4, 10: [one, several]})
    messages = [encode({1: "0.0.4"}), node]
    path = tmp_path / "t.et"
    path.write_bytes(b"".join(write_varint(len(part)) + part for part in messages))
    trace = read_nodes(path)
    assert trace.nodes[0].attributes["one"] == value
    assert trace.nodes[0].attributes["several"] == []
    assert not trace.left_out


def chakra_job(files: int) -> Any:
    """Return a job of so many ranks without nodes."""
    paths = [Path(f"t.{number}.et") for number in range(files)]
    return _Job(Workload("t.0.et", []), paths)


def nodes_of(tmp_path: Path, *rows: dict[str, Any]) -> Trace:
    """Return the trace of a file of such nodes."""
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"workload_graph": rows}))
    return read_nodes(path)


def test_times_of_a_collective_are_made_up_where_there_are_any(tmp_path: Path) -> None:
    """One of four nodes computes, for 5 us; in a collective this time is made up."""
    trace = nodes_of(
        tmp_path,
        {"id": 1, "type": 4, "runtime": 5},
        {"id": 2, "type": 4},
        {"id": 3, "type": 2, "runtime": 6},
        {"id": 4, "type": 4, "runtime": 0},
    )
    for collective, seconds in (
        ({"collective": "x"}, DURATION.exact(0.0)),
        ({}, "5 us"),
    ):
        job = chakra_job(1)
        metadata = {**collective, "unknown": 1, "version": "0.0.4"}
        job.add_rank(0, trace._replace(metadata=metadata), [])
        made_up = job.workload.left_out["made-up time of a sum in a collective"]
        assert made_up == len(collective)
        assert job.workload.left_out["metadata unknown"] == 1
        times = [task["time"] for task in job.workload.tasks]
        nothing = DURATION.exact(0.0)
        assert times == [seconds, nothing, "6 us", nothing]


def test_dependencies_that_contradict_each_other_go_by_their_ids(
    tmp_path: Path,
) -> None:
    """Two of four dependencies, 3 before 2 and 2 before 1, contradict the ids."""
    trace = nodes_of(
        tmp_path,
        {"id": 3, "type": 4, "ctrl_deps": [1, 3]},
        {"id": 1, "type": 4, "ctrl_deps": [2, 9]},
        {"id": 2, "type": 4, "data_deps": [1], "ctrl_deps": [3]},
    )
    job = chakra_job(1)
    needs = job.order_edges(trace.nodes, "t.et")
    assert sorted(needs) == [(1, 0), (1, 2)]
    assert dict(job.workload.left_out) == {
        "dependency of a node on itself": 1,
        "dependency on a node that is not there": 1,
        "dependency against the order of ids, where they contradict": 2,
    }


@pytest.mark.parametrize("barrier", [9, "9", "BARRIER"], ids=repr)
def test_a_barrier_needs_no_size_and_holds_all(barrier: object, tmp_path: Path) -> None:
    """Another collective without one takes its time; one of 0 bytes takes nothing."""
    job = chakra_job(2)
    rows: list[dict[str, Any]] = [
        {"id": 1, "type": 7, "comm_type": barrier},
        {"id": 2, "type": 7, "comm_type": 0, "runtime": 5},
        {"id": 3, "type": 7, "comm_type": 0, "comm_size": 0},
    ]
    for rank in range(2):
        job.add_rank(rank, nodes_of(tmp_path, *rows), [])
    job.join_collectives()
    found = job.workload
    assert found.left_out["collective without comm_size, as long as it took"] == 2
    names = [task["name"] for task in found.tasks]
    assert [name for name in names if ".done" in name] == [
        *("r0.1.done", "r0.3.done", "r1.1.done", "r1.3.done")
    ]
    gates = [task for task in found.tasks if task.get("gate")]
    assert [(gate["name"], gate["kind"]) for gate in gates] == [
        ("r0.1.gate", "barrier")
    ]
    assert found.collectives == []


def test_a_group_of_unequal_collectives_names_who_has_how_many() -> None:
    """Rank 4 takes part in three, rank 2 in one, and another in two."""
    job = chakra_job(5)
    exchange = _Exchange("ALL_REDUCE", 4.0, 0, "t")
    counts = {3: 2, 4: 3, 2: 1}
    job._groups["g"] = {rank: [exchange] * count for rank, count in counts.items()}
    words = "rank 2 takes part in 1 collectives, rank 4 of its group in 3"
    with pytest.raises(DataError, match=words):
        job.join_collectives()


def test_a_span_of_counts_is_from_the_least_to_the_greatest() -> None:
    assert _write_span([5, 1200, 3]) == "3 to 1,200"
    assert _write_span([1200, 1200]) == "1,200"


@pytest.mark.parametrize("content", [[], "text", None, 7])
def test_a_file_that_is_no_mapping_is_refused(content: object) -> None:
    with pytest.raises(TypeError, match=f"no mapping but {type(content).__name__}"):
        read_mapping(content, "file")


def test_a_trace_of_coflows_has_as_many_ports_as_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text(f"{MOST_FEW} 1\n1 0 1 0 1 {MOST_FEW - 1}:2\n")
    read = read_workload(path)
    assert read.places["port0"] == "p0"
    assert read.places[f"port{MOST_FEW - 1}"] == f"p{MOST_FEW - 1}"
    path.write_text(f"{MOST_FEW + 1} 1\n1 0 1 0 1 1:2\n")
    with pytest.raises(DataError, match="there are at most"):
        read_workload(path)
    # Numbers of 18 digits are read, of which no file has so many coflows.
    for digits, words in ((18, "announces 9{18} coflows and"), (19, "more than fit")):
        path.write_text(f"3 {'9' * digits}\n1 0 1 0 1 1:2\n")
        with pytest.raises(DataError, match=words) as caught:
            read_workload(path)
        assert ("more than fit" in str(caught.value)) == (digits == 19)


def test_a_job_without_tasks_is_none() -> None:
    empty = Workload("file", [{"name": "m0"}])
    with pytest.raises(DataError, match="holds no task"):
        empty.scenario("t", "8 Mbit/s")


def test_a_scenario_has_what_its_workload_states() -> None:
    """A NIC that a machine states stays; latency is on the way out."""
    found = Workload("file", [{"name": "m0", "nic": "none"}, {"name": "m1"}])
    found.add_task("a", 1.0)
    found.add_task("b", 2.0)
    plain = found.scenario("t", "8 Mbit/s")
    assert plain["cluster"]["machines"] == [
        {"name": "m0", "nic": "none"},
        {"name": "m1", "nic": {"in": "8 Mbit/s", "out": "8 Mbit/s"}},
    ]
    assert plain["job"].keys() == {"system", "iterations", "tasks", "credit_window"}
    assert "placement" not in plain
    assert "schedule" not in plain
    assert not found.states_nics

    found.rule = "fifo"
    found.places["a"] = "m1"
    found.add_flow("a", "b", 5.0)
    found.add_collective("ALL_REDUCE", size=8.0, ranks=["a", "b"], segments=3)
    found.add_task("a.done", 0.0)
    found.add_task("b.done", 0.0)
    whole = found.scenario("t", "8 Mbit/s", "3 ms")
    assert whole["schedule"] == {"policy": "fifo"}
    assert whole["placement"] == {"policy": "explicit", "tasks": {"a": "m1"}}
    latency = whole["cluster"]["machines"][1]["nic"]["latency"]
    assert latency == {"in": "0 s", "out": "3 ms"}
    (collective,) = whole["job"]["collectives"]
    assert collective["allreduce"]["segments"] == 3
    assert found.edges == 1


@pytest.mark.parametrize(
    ("kind", "flows"),
    [
        ("SCATTER", [("c", "a.done", 30.0), ("c", "b.done", 30.0)]),
        ("REDUCE", [("a", "c.done", 90.0), ("b", "c.done", 90.0)]),
        ("GATHER", [("a", "c.done", 90.0), ("b", "c.done", 90.0)]),
    ],
)
def test_a_root_that_is_not_the_first_has_the_flows(
    kind: str, flows: list[tuple[str, str, float]]
) -> None:
    """The last of three is the root, of 90 bytes."""
    found = Workload("file", [])
    found.add_collective(kind, size=90.0, ranks=["a", "b", "c"], root=2)
    volumes = [(row["from"], row["to"], row["volume"]) for row in found.flows]
    assert volumes == [(*ends, f"{size} B") for *ends, size in flows]


def test_a_large_file_is_read_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds of what readers open are lifted by ``large`` alone."""
    lifted = []

    class Noted:
        def __init__(self, warn: object) -> None:
            lifted.append(warn is not None)

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr("emu.interchange.workload_formats.large_files", Noted)
    path = tmp_path / "t.txt"
    path.write_text("3 1\n1 0 1 0 1 1:2\n")
    read_workload(path)
    read_workload(path, large=True)
    assert lifted == [False, True]


def trace_of(rank: int | None, world: int = 0) -> Any:
    """Return a trace that says so much of itself."""

    def error(problem: str) -> DataError:
        return DataError(problem, path=f"of{rank}")

    return SimpleNamespace(rank=rank, world=world, origin=f"of{rank}", error=error)


def test_traces_stand_by_their_ranks() -> None:
    """The number of ranks is the largest of all that say it, and of the ranks."""
    first, second = trace_of(1, 2), trace_of(0)
    assert _by_rank([first, second], in_order=False) == [second, first]
    alone = trace_of(None)
    assert _by_rank([alone], in_order=False) == [alone]
    for worlds in ((3, 0), (0, 3)):
        pair = [trace_of(rank, world) for rank, world in enumerate(worlds)]
        with pytest.raises(DataError, match="job of 3 ranks, and rank 2 is missing"):
            _by_rank(pair, in_order=False)
    with pytest.raises(DataError, match="of a job of 3 ranks, and rank 1 is missing"):
        _by_rank([trace_of(2), trace_of(0)], in_order=False)
    with pytest.raises(DataError, match="is of rank 0, as of0 is"):
        _by_rank([trace_of(0), trace_of(0)], in_order=False)
    with pytest.raises(DataError, match="is of rank 1, and file 0 of --in-order"):
        _by_rank([first, second], in_order=True)
    with pytest.raises(DataError, match="does not say its rank"):
        _by_rank([trace_of(None), second], in_order=False)


def exchange(
    post: float, end: float, group: str = "g", kind: str = "ALL_REDUCE"
) -> Any:
    """Return an exchange of two ranks."""
    return SimpleNamespace(post=post, end=end, group=group, kind=kind, size=8.0)


def waits_of(
    exchanges: list[Any],
    busy: list[tuple[float, float]],
    ends: tuple[float, ...] = (100.0,),
) -> list[Any]:
    """Return the waits of a rank from 0 s on."""
    return [tuple(wait) for wait in find_waits(busy, exchanges, ends, begin=0.0)]


def test_a_rank_waits_from_where_it_last_computed_or_posted() -> None:
    """It computes up to 4 s; the exchange of 1 s ends at 9 s."""
    one = [exchange(1.0, 9.0)]
    assert waits_of(one, [(0.0, 4.0), (9.5, 12.0)]) == [(4.0, 9.0, [0])]
    # A post within the idle time begins the wait anew.
    two = [exchange(1.0, 9.0), exchange(6.0, 20.0)]
    first, second = waits_of(two, [(0.0, 4.0), (9.0, 15.0)])
    assert first == (6.0, 9.0, [0])
    assert second == (15.0, 20.0, [1])
    # Who has a later one of a group has the earlier, too; of another it has not.
    hidden = [exchange(1.0, 5.0), exchange(1.5, 5.5, "h"), exchange(2.0, 9.0)]
    busy = [(0.0, 7.0), (9.0, 12.0)]
    assert waits_of(hidden, busy, (6.0, 11.0)) == [
        (6.0, 6.0, [1]),
        (7.0, 9.0, [0, 2]),
    ]
    # What was sent needs no wait; a receive waits at the end of its step.
    sent = [exchange(1.0, 5.0, kind="SEND"), exchange(1.0, 6.5, kind="RECEIVE")]
    assert waits_of(sent, [(0.0, 12.0)], (6.0, 11.0)) == [(11.0, 11.0, [1])]
    late = [exchange(1.0, 20.0, kind="RECEIVE")]
    assert waits_of(late, [(0.0, 30.0)], (6.0, 11.0)) == [(11.0, 11.0, [0])]


def test_an_end_may_be_noted_a_tenth_of_its_length_late() -> None:
    """The thread goes on at 9.5 s, before the end of 10 s is noted."""
    one = [exchange(1.0, 10.0)]
    assert waits_of(one, [(0.0, 2.0), (9.5, 12.0)]) == [(2.0, 9.5, [0])]
    # It goes on at 8.5 s: too long before the end, of which it did not wait.
    assert waits_of(one, [(0.0, 2.0), (8.5, 12.0)]) == [(100.0, 100.0, [0])]
    # A gap of 10 us is a wait, one of 9 is between two kernels.
    for gap, is_wait in ((11e-6, True), (9e-6, False)):
        waits = waits_of([exchange(0.0, 10.0)], [(0.0, 10.0 - gap), (10.0, 12.0)])
        assert (waits[0][1] == 10.0) == is_wait


def test_exchanges_that_repeat_are_counted_by_the_shortest_sequence() -> None:
    """The same three times; a rest, or another size, repeats nothing."""
    a, b = exchange(0.0, 1.0), exchange(0.0, 1.0, "h")
    assert count_repeats([a, b] * 3) == 3
    assert count_repeats([a, a, b] * 2) == 2
    assert count_repeats([a] * 5) == 5
    assert count_repeats([a, b, a]) == 1
    assert count_repeats([]) == 0


def clocks_of(zeros: tuple[float, ...], *ends: list[float]) -> Any:
    """Return a job whose ranks note such ends of one group's collectives."""
    traces = [SimpleNamespace(zero=zero, by_nccl=False, left_out={}) for zero in zeros]
    job = _Traces(Workload("t", []), traces, 1.0)  # type: ignore[arg-type]
    ranks = tuple(range(len(ends)))
    for rank, row in enumerate(ends):
        parts = [SimpleNamespace(exchange=SimpleNamespace(end=end)) for end in row]
        job._groups["g", ranks][rank] = parts  # type: ignore[assignment]
    return job


def test_clocks_are_as_far_apart_as_the_ends_of_collectives() -> None:
    """Rank 1 notes them 2 s before rank 0, as its zero is 5 s later; rank 2 1 s on."""
    job = clocks_of(
        (10.0, 15.0, 10.0), [1.0, 2.0, 3.0], [-6.0, -5.0, -4.0], [2.0, 3.0, 4.0]
    )
    job.check_clocks()
    (note,) = job.workload.notes
    assert note.startswith("clocks are 2 s apart")
    # Two ends show no drift, and equal clocks no distance.
    for few in ([[1.0, 2.0], [7.0, 9.0]], [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]):
        job = clocks_of((0.0, 0.0), *few)
        job.check_clocks()
        assert job.workload.notes == []


@pytest.mark.parametrize(("drift", "is_one_run"), [(0.27, True), (0.29, False)])
def test_ends_that_differ_by_turns_are_of_two_runs(
    drift: float, *, is_one_run: bool
) -> None:
    """Five ends within 5 s and twice the drift: a quarter of a fifth is 0.278 s.

    Offsets are 3 s, and by turns less or more, so that their own median is 3 s.
    """
    first = [0.0, 1.25, 2.5, 3.75, 5.0]
    turns = [-1.0, 1.0, 0.0, -1.0, 1.0]
    second = [3.0 + end + drift * turn for end, turn in zip(first, turns, strict=True)]
    job = clocks_of((0.0, 0.0), first, second)
    if is_one_run:
        job.check_clocks()
        return
    with pytest.raises(DataError, match=r"rank 1 are of two runs: .* end 0\.29 s"):
        job.check_clocks()


def call(begin: float, name: str = "c10d::allreduce_") -> Range:
    """Return a call, of which the begin counts."""
    return range_of(begin, name)


def range_of(begin: float, name: str) -> Range:
    """Return a range of a trace."""
    fields: dict[str, Any] = dict.fromkeys(Range._fields, 0)
    fields |= {"begin": begin, "name": name, "args": {}}
    return Range(**fields)


def test_calls_pair_with_exchanges_where_each_came_before_its_own() -> None:
    """The second call came late: each exchange gets the last call before it."""
    exchanges = [range_of(at, "gloo:all_reduce") for at in (5.0, 6.0)]
    paired = [call(1.0), call(2.0)]
    assert [*calls_of(exchanges, paired)] == [[paired[0]], [paired[1]]]
    late = [call(1.0), call(7.0)]
    assert [*calls_of(exchanges, late)] == [[late[0]], [late[0]]]
    more = [call(1.0), call(2.0), call(5.5)]
    assert [*calls_of(exchanges, more)] == [more[1::-1], more[::-1]]


def goal(*operations: str) -> str:
    """Return a schedule of one rank."""
    lines = "\n".join(operations)
    return f"num_ranks 1\nrank 0 {{\n{lines}\n}}\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (goal("rank 0 {"), "rank 0 is one too many, or within another"),
        ("num_ranks 2\nrank 0 {\nrank 1 {\n}\n}\n", "rank 1 is one too many, or"),
        (goal("a: calc 5 cpu 0 cpu 1"), "a has cpu twice"),
        ("num_ranks 1\nrank 1 {\n}\n", "rank 1 is one too many"),
    ],
)
def test_a_schedule_that_says_something_twice_is_refused(
    text: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.goal"
    path.write_text(text)
    with pytest.raises(DataError, match=problem):
        read_workload(path)


def test_messages_of_a_schedule_have_their_own_ends_and_sizes(tmp_path: Path) -> None:
    """Rank 1 receives of rank 0 by two tags, and rank 0 of rank 1."""
    path = tmp_path / "x.goal"
    path.write_text(
        "num_ranks 2\nrank 0 {\na: send 10b to 1\nb: send 20b to 1 tag 3 cpu 1\n"
        "c: recv 30b from 1\nd: calc 7000 cpu 2 nic 1\n}\n"
        "rank 1 {\nx: recv 20b from 0 tag 3\ny: recv 10b from 0\nz: send 30b to 0\n}\n"
    )
    read = read_workload(path)
    flows = {(row["from"], row["to"], row["volume"]) for row in read.flows}
    assert flows == {
        ("r0.a", "r1.y", "10 B"),
        ("r0.b", "r1.x", "20 B"),
        ("r1.z", "r0.c", "30 B"),
    }
    assert read.left_out == {
        "cpu of a send or receive, which takes none": 1,
        "nic of an operation": 1,
    }
    (row,) = [task for task in read.tasks if task["name"] == "r0.d"]
    assert (row["time"], row["slot"]) == ("7 us", "cpu2")
    kinds = {task["name"]: task["kind"] for task in read.tasks}
    assert (kinds["r0.a"], kinds["r0.c"], kinds["r0.d"]) == ("send", "recv", "calc")


def test_a_workflow_s_file_has_the_size_of_either_name(tmp_path: Path) -> None:
    """Before 1.5 files of tasks had a size, in some versions under the later name."""
    tasks = [
        {
            "name": "a",
            "parents": [],
            "runtime": 1.0,
            "files": [{"link": "output", "name": "f", "sizeInBytes": 700}],
        },
        {
            "name": "b",
            "parents": ["a"],
            "runtime": 1.0,
            "files": [{"link": "input", "name": "f", "size": 700}],
        },
    ]
    path = tmp_path / "w.json"
    path.write_text(json.dumps({"schemaVersion": "1.3", "workflow": {"tasks": tasks}}))
    read = read_workload(path)
    assert [row["volume"] for row in read.flows] == ["700.0 B"]
