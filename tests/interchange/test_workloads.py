"""Workloads of others: by hand, against published figures, and what is wrong."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import emu
from emu.cli.app import app
from emu.errors import DataError
from emu.interchange import workload
from emu.interchange.chakra import _clear_roots, _places_of
from emu.interchange.chakra_nodes import COLLECTIVES, KINDS
from emu.interchange.protobuf import encode, write_varint
from emu.interchange.workload import order_nodes, reduce_edges
from emu.interchange.workload_formats import read_workload

pytestmark = pytest.mark.usefixtures("read_here")

FOLDER = Path(os.environ.get("EMU_WORKLOADS", ""))
needs_workloads = pytest.mark.skipif(
    not os.environ.get("EMU_WORKLOADS"), reason="EMU_WORKLOADS names no folder"
)
Node = dict[str, Any]


def attribute(name: str, value: Any, field: int) -> bytes:
    if isinstance(value, float):
        return encode({1: name}) + bytes([field << 3 | 1]) + struct.pack("<d", value)
    return encode({1: name, field: value})


def as_protobuf(nodes: list[Node], field: int = 9, version: str = "0.0.4") -> bytes:
    """Return a trace whose attributes are stated as one type: 9 is int64, 13 uint64."""
    messages = [encode({1: version})]
    for node in nodes:
        fields = {1: node["id"], 2: "a node", 3: node["type"]}
        deps = b"".join(write_varint(number) for number in node.get("deps", []))
        fields |= {5: deps, 7: node.get("micros", 0)}
        others = node.keys() - {"id", "type", "deps", "micros"}
        fields[10] = [attribute(name, node[name], field) for name in sorted(others)]
        messages.append(encode(fields))
    return b"".join(write_varint(len(one)) + one for one in messages)


def as_json(nodes: list[Node]) -> bytes:
    """Return the messages as chakra_jsonizer writes them: one after the other."""
    texts = [json.dumps({"version": "0.0.4"})]
    for node in nodes:
        row: Node = {"id": str(node["id"]), "type": f"{KINDS[node['type']]}_NODE"}
        row |= {"dataDeps": [*map(str, node.get("deps", []))]}
        row |= {"durationMicros": str(node.get("micros", 0))}
        others = node.keys() - {"id", "type", "deps", "micros"}
        row["attr"] = [{"name": n, "int64Val": str(node[n])} for n in sorted(others)]
        texts.append(json.dumps(row, indent=2))
    return "".join(texts).encode()


def as_graph(nodes: list[Node]) -> bytes:
    """Return them as the feeder of ASTRA-sim reads them: attributes are keys."""
    rows = [
        {
            "Id": node["id"], "NodeType": node["type"],
            "data_deps": node.get("deps", []), "runtime": node.get("micros", 0),
            **{k: node[k] for k in node.keys() - {"id", "type", "deps", "micros"}},
        }
        for node in nodes
    ]  # fmt: skip
    return json.dumps({"workload_graph": rows}).encode()


FORMS: list[tuple[str, Callable[[list[Node]], bytes]]] = [
    (".et", as_protobuf),
    (".et", lambda nodes: as_protobuf(nodes, 13)),
    (".et", lambda nodes: as_protobuf([floats(n) for n in nodes], 3)),
    (".json", as_json),
    (".json", as_graph),
]


def floats(node: Node) -> Node:
    names = node.keys() - {"id", "type", "deps", "micros"}
    return node | {name: float(node[name]) for name in names}


def makespan(
    folder: Path, ranks: list[list[Node]], form: int = 0, **more: Any
) -> float:
    end, write = FORMS[form]
    for rank, nodes in enumerate(ranks):
        (folder / f"t.{rank}{end}").write_bytes(write(nodes))
    workload = read_workload(folder / f"t.0{end}", **more)
    return emu.simulate(
        emu.loads(json.dumps(workload.scenario("t", "8 Mbit/s", "1 ms")))
    ).makespan


#: Rank 0 computes 3 ms and sends 2,000 bytes, 2 ms on a NIC of 1 MB/s and 1 ms away;
#: rank 1 computes 4 ms at first, then 5 ms with what came.
PAIR: list[list[Node]] = [
    [
        {"id": 7, "type": 4, "micros": 3000},
        {"id": 9, "type": 5, "deps": [7], "comm_size": 2000, "comm_dst": 1,
         "comm_tag": 5},
    ],
    [
        {"id": 1, "type": 6, "comm_size": 2000, "comm_src": 0, "comm_tag": 5},
        {"id": 2, "type": 4, "micros": 4000},
        {"id": 3, "type": 4, "deps": [1, 2], "micros": 5000},
    ],
]  # fmt: skip


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_a_message_by_hand_in_every_form(tmp_path: Path, form: int) -> None:
    assert makespan(tmp_path, PAIR, form) == pytest.approx(11e-3, rel=1e-12)


@pytest.mark.parametrize("form", [3, 4])
def test_a_mark_of_the_byte_order_is_read_past(tmp_path: Path, form: int) -> None:
    """Editors of Windows write one before JSON and text; it was "not JSON"."""
    end, write = FORMS[form]
    for rank, nodes in enumerate(PAIR):
        content = b"\xef\xbb\xbf" + write(nodes)
        (tmp_path / f"t.{rank}{end}").write_bytes(content)
        (tmp_path / f"u.{rank}.et").write_bytes(content)
    for name in (f"t.0{end}", "u.0.et"):
        assert len(read_workload(tmp_path / name).tasks) == 5

    path = tmp_path / "w.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(WORKFLOW).encode())
    assert len(read_workload(path).tasks) == 3


#: Seconds of a collective of 4 ranks that bring 4,000 bytes, at 1 MB/s and 1 ms away.
BY_HAND = {
    "ALL_REDUCE": 6 * 2e-3,
    "REDUCE": 3 * 4e-3 + 1e-3,
    "ALL_GATHER": 3 * 5e-3,
    "GATHER": 3 * 4e-3 + 1e-3,
    "SCATTER": 3 * 1e-3 + 1e-3,
    "BROADCAST": 5e-3 + 5e-3,
    "ALL_TO_ALL": 3e-3 + 1e-3,
    "REDUCE_SCATTER": 3 * 2e-3,
    "REDUCE_SCATTER_BLOCK": 3 * 2e-3,
    "BARRIER": 0.0,
}


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_every_collective_by_hand(tmp_path: Path, kind: str) -> None:
    """It begins after 10 ms, 20 ms follow it, and its own time is not read."""
    about = {"comm_type": COLLECTIVES.index(kind), "comm_size": 4000, "root": 3}
    nodes: list[Node] = [
        {"id": 1, "type": 4, "micros": 10_000},
        {"id": 2, "type": 7, "deps": [1], "micros": 77, **about},
        {"id": 3, "type": 4, "deps": [2], "micros": 20_000},
    ]
    seconds = makespan(tmp_path, [nodes] * 4)
    assert seconds == pytest.approx(30e-3 + BY_HAND[kind], rel=1e-12)


def in_group(kind: str, root: int) -> list[list[Node]]:
    """Return four ranks, of which 1 and 3 are a group."""
    about = {"comm_type": COLLECTIVES.index(kind), "comm_size": 4000, "pg_name": 5}
    member: list[Node] = [{"id": 2, "type": 7, **about, "root": root}]
    other: list[Node] = [{"id": 1, "type": 4, "micros": 1}]
    return [other, member, other, member]


@pytest.mark.parametrize(("root", "sender"), [(0, 1), (3, 3)])
def test_a_root_of_a_group_is_the_rank_that_alone_fits(
    tmp_path: Path, root: int, sender: int
) -> None:
    ranks = in_group("SCATTER", root)
    for rank, nodes in enumerate(ranks):
        (tmp_path / f"t.{rank}.et").write_bytes(as_protobuf(nodes))
    workload = read_workload(tmp_path / "t.0.et")
    (flow,) = [flow for flow in workload.flows if flow["volume"] == "2000.0 B"]
    assert flow["from"] == f"r{sender}.2"


@pytest.mark.parametrize(
    ("root", "problem"),
    [
        (
            1,
            "has root 1 in a group of ranks 1, 3, a place or a rank there: write 0 for",
        ),
        (2, "r1.2 has root 2 in a group of ranks 1, 3"),
        (9, "r1.2 has root 9 in a group of ranks 1, 3"),
    ],
)
def test_a_root_that_may_be_two_ranks_or_none_is_refused(
    tmp_path: Path, root: int, problem: str
) -> None:
    with pytest.raises(DataError) as caught:
        makespan(tmp_path, in_group("BROADCAST", root))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("root", "members", "remedy"),
    [
        (1, [1, 3], "write 0 for rank 1, write 3 for rank 3"),
        (2, [0, 2, 3], "write 1 for rank 2, write 3 for rank 3"),
        (2, [1, 2, 3], "no root names rank 2 alone, write 3 for rank 3"),
    ],
)
def test_a_root_that_may_be_two_ranks_has_one_to_write_for_each(
    root: int, members: list[int], remedy: str
) -> None:
    assert _clear_roots(_places_of(root, members), members) == remedy


def test_one_rank_alone_takes_what_its_collective_took(tmp_path: Path) -> None:
    nodes = [{"id": 1, "type": 7, "micros": 77, "comm_type": 0, "comm_size": 4000}]
    assert makespan(tmp_path, [nodes]) == pytest.approx(77e-6)
    # Of two copies it is for the network: 2 steps of half of it.
    assert makespan(tmp_path, [nodes], copies=2) == pytest.approx(2 * 3e-3)


def test_operations_of_a_node_are_no_time(tmp_path: Path) -> None:
    nodes: list[Node] = [
        {"id": 1, "type": 4, "num_ops": 9},
        {"id": 2, "type": 4},
        {"id": 3, "type": 4, "micros": 5, "num_ops": 7},
        {"id": 4, "type": 4, "num_ops": 2},
    ]
    (tmp_path / "t.0.et").write_bytes(as_protobuf(nodes))
    left_out = read_workload(tmp_path / "t.0.et").left_out

    assert left_out["time of a node that states num_ops alone"] == 2
    assert left_out["node without a time, which takes 0 s"] == 1


WORKFLOW = {
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "split", "id": "a/1", "parents": [], "children": ["b", "c"],
                 "inputFiles": ["in"], "outputFiles": ["f", "g"]},
                {"name": "use", "id": "b", "parents": ["a/1"], "children": [],
                 "inputFiles": ["f", "g"], "outputFiles": []},
                {"name": "use", "id": "c", "parents": ["a/1"], "children": []},
            ],
            "files": [{"id": "in", "sizeInBytes": 9}, {"id": "f", "sizeInBytes": 3000},
                      {"id": "g", "sizeInBytes": 1000}],
        },
        "execution": {
            "tasks": [
                {"id": "a/1", "runtimeInSeconds": 1.0, "machines": ["x"]},
                {"id": "b", "runtimeInSeconds": 2.0, "machines": ["y"], "coreCount": 2},
                {"id": "c", "runtimeInSeconds": 2.5, "machines": ["x"], "avgCPU": 9},
            ],
            "machines": [{"nodeName": "x", "cpu": {"coreCount": 1}},
                         {"nodeName": "y", "cpu": {"coreCount": 4}}],
        },
    },
}  # fmt: skip
#: The same before 1.5, where tasks have names, times and files themselves.
OLD = {
    "schemaVersion": "1.3",
    "workflow": {
        "machines": [{"nodeName": "x", "cpu": {"count": 1}}, {"nodeName": "y"}],
        "tasks": [
            {"name": "a/1", "parents": [], "runtime": 1.0, "machine": "x", "files": [
                {"link": "output", "name": "f", "size": 3000},
                {"link": "output", "name": "g", "size": 1000}]},
            {"name": "b", "parents": ["a/1"], "runtime": 2.0, "machine": "y",
             "cores": 2, "files": [{"link": "input", "name": "f", "size": 3000},
                       {"link": "input", "name": "g", "size": 1000}]},
            {"name": "c", "parents": ["a/1"], "runtime": 2.5, "machine": "x"},
        ],
    },
}  # fmt: skip


@pytest.mark.parametrize("content", [WORKFLOW, OLD], ids=["1.5", "1.3"])
def test_a_workflow_by_hand(tmp_path: Path, content: Any) -> None:
    """1 s, then 4,000 bytes at 1 MB/s beside 2.5 s on the one core."""
    file = tmp_path / "w.json"
    file.write_text(json.dumps(content))
    workload = read_workload(file)
    schedule = emu.simulate(emu.loads(json.dumps(workload.scenario("w", "8 Mbit/s"))))

    ends = dict(zip("abc", schedule.task_end[:, 0], strict=True))
    assert ends == pytest.approx({"a": 1.0, "b": 3.004, "c": 3.5})
    assert workload.left_out["cores of a task beyond one"] == 1
    if content is WORKFLOW:
        assert workload.left_out["read of a file that no task makes"] == 1
        assert workload.left_out["avgCPU of a task"] == 1


def test_a_file_of_two_sizes_has_that_of_the_first_task(tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    text = json.dumps(OLD)
    first, read, _ = text.partition('"link": "input", "name": "f", "size": 3000')
    other = read.replace("3000", "5000")
    file.write_text(first + text.removeprefix(first).replace(read, other))

    kind = "size of a file that another task stated otherwise"
    assert read_workload(file).left_out[kind] == 1
    file.write_text(text)
    assert kind not in read_workload(file).left_out


def test_what_ran_and_is_no_task_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    file.write_text(
        json.dumps(WORKFLOW).replace('"id": "c", "runtime', '"id": "d", "runtime')
    )
    with pytest.raises(DataError, match="ran 'd', which is no task"):
        read_workload(file)


def test_a_task_without_a_time_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    file.write_text(json.dumps(OLD).replace('"runtime": 2.5, ', ""))

    left_out = read_workload(file).left_out
    assert left_out["task without a time, which takes 0 s"] == 1


TRACE = "3 2\n1 0 2 0 1 1 2:2\n2 1000 1 2 2 0:1 2:4\n"


def test_coflows_by_hand(tmp_path: Path) -> None:
    """2 MB from two mappers into a NIC of 1 MB/s; 1 MB out of another from 1 s on."""
    file = tmp_path / "t.txt"
    file.write_text(TRACE)
    scenario = read_workload(file).scenario("t", f"{8 * 2**20} bit/s")
    schedule = emu.simulate(emu.loads(json.dumps(scenario)))

    job = schedule.problem.job
    ends = dict(zip(job.edge_names, schedule.flow_end, strict=True))
    assert ends["c1.m0->c1.r0"][0] == pytest.approx(2.0)
    assert ends["c2.m0->c2.r0"][0] == pytest.approx(2.0)
    # Mapper and reducer of one port hand over in memory.
    assert {edge.coflow for edge in job.edges} == {"", "c1", "c2"}


def test_zeros_before_a_number_of_ports_are_no_digits_of_it(tmp_path: Path) -> None:
    file = tmp_path / "t.txt"
    file.write_text("0" * 5000 + TRACE)
    assert "2 coflows of 4 flows between 3 ports" in read_workload(file).notes


@pytest.mark.parametrize(
    ("last", "first", "places"),
    [(3, 1, {"port0": "p0", "port2": "p2"}), (2, 0, {"port1": "p1", "port2": "p2"})],
)
def test_ports_count_from_one_where_the_file_names_the_last_number(
    last: int, first: int, places: dict[str, str], tmp_path: Path
) -> None:
    """A trace of three ports names port 1 and its last, which may be 2 of 0 to 2."""
    file = tmp_path / "t.txt"
    file.write_text(f"3 1\n1 0 1 1 1 {last}:2\n")
    read = read_workload(file)

    assert read.places == places
    noted = "ports are numbered from 1 to 3" in read.notes
    assert noted == (first == 1)


def test_reducers_of_one_port_get_together_what_each_is_to_get(tmp_path: Path) -> None:
    """Port 1 has two of 3 MB and of 0.5; each mapper sends half of what a port gets."""
    file = tmp_path / "t.txt"
    file.write_text("3 1\n7 500 2 0 2 3 1:3 2:1 1:0.5\n")
    read = read_workload(file)

    (collective,) = read.collectives
    megabyte = 1 << 20
    assert collective["shuffle"] == {
        "from": ["c7.m0", "c7.m1"],
        "to": ["c7.r0", "c7.r1"],
        "volume": [f"{1.75 * megabyte} B", f"{0.5 * megabyte} B"],
        "coflow": "c7",
    }
    processes = {task["name"]: task["process"] for task in read.tasks}
    assert processes["c7.r0"] == "port1"
    assert processes["c7.r1"] == "port2"


def test_what_a_format_has_no_use_for_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.txt"
    file.write_text(TRACE)
    with pytest.raises(DataError, match="2 files are given: name one"):
        read_workload(file, file)
    for option in ("copies", "in_order", "time_scale"):
        words = f"--{option.replace('_', '-')} is for another format"
        with pytest.raises(DataError, match=words):
            read_workload(file, **{option: 2})  # type: ignore[arg-type]


def broken_trace(**change: Any) -> list[list[Node]]:
    ranks: list[list[Node]] = json.loads(json.dumps(PAIR))
    ranks[0][1] |= change
    return ranks


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("receive without send", broken_trace(type=4), "sends 0 messages of tag 5"),
        ("other tag", broken_trace(comm_tag=6), "which receives 0"),
        ("other size", broken_trace(comm_size=1), "receives 2000 bytes of 1"),
        ("cycle", broken_trace(deps=[9, 7, 1]) and [[
            {"id": 1, "type": 4, "deps": [2]}, {"id": 2, "type": 4, "deps": [1]}]],
         "2 nodes wait for each other in a circle, among them node 1, node 2"),
        ("deadlock of ranks", [
            [{"id": 1, "type": 6, "comm_src": 1, "comm_size": 4},
             {"id": 2, "type": 5, "comm_dst": 1, "comm_size": 4, "deps": [1]}],
            [{"id": 1, "type": 6, "comm_src": 0, "comm_size": 4},
             {"id": 2, "type": 5, "comm_dst": 0, "comm_size": 4, "deps": [1]}]],
         "4 nodes wait for each other"),
        ("rank that is missing", PAIR[:1], "names rank 1, whose file is missing"),
        ("negative size", [[{"id": 1, "type": 7, "comm_type": 0, "comm_size": -4}]] * 2,
         "node 1 has comm_size -4"),
        ("no such collective", [[{"id": 1, "type": 7, "comm_type": 44,
                                  "comm_size": 4}]] * 2, "collective of type 44"),
        ("collectives that differ", [
            [{"id": 1, "type": 7, "comm_type": kind, "comm_size": 4}]
            for kind in (0, 2)], "ALL_REDUCE of 4 bytes, r1.1 beside it ALL_GATHER"),
        ("collective of one more", [
            [{"id": n, "type": 7, "comm_type": 0, "comm_size": 4} for n in range(c)]
            for c in (1, 2)], "rank 0 takes part in 1 collectives"),
        ("nothing", [[]], "holds no node"),
    ],
)  # fmt: skip
def test_a_trace_that_cannot_be(
    tmp_path: Path, name: str, content: list[list[Node]], problem: str
) -> None:
    with pytest.raises(DataError) as caught:
        makespan(tmp_path, content)
    assert problem in str(caught.value), name
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("t.0.et", as_protobuf(PAIR[0], version="0.0.1"), "of version '0.0.1'"),
        ("t.0.et", as_protobuf(PAIR[0])[:-3], "are announced"),
        ("t.0.et", as_protobuf([*PAIR[0], *PAIR[0]]), "two nodes of one id"),
        ("t.json", b'{"workload_graph": [{"Id": "x"}]}', "is no Chakra trace"),
        ("t.txt", TRACE.replace("0:1", "7:1").encode(), "line 3 names port 7 of 3"),
        ("t.txt", TRACE.replace("2:4", "2:-4").encode(), "a negative arrival or size"),
        ("t.txt", TRACE.replace("2:4", "2:nan").encode(), "line 3 has a negative"),
        ("t.txt", TRACE.replace(" 1000", " -1").encode(), "line 3 has a negative"),
        ("t.txt", TRACE.replace("1000 1", "1000 9").encode(), "line 3 is no coflow"),
        ("t.txt", TRACE.replace("2:4", "2:1_0").encode(), "'1_0' is no number"),
        ("t.txt", TRACE.replace("0:1", "0_0:1").encode(), "'0_0' is no whole number"),
        ("t.txt", TRACE.replace("3 2", "3 5").encode(), "announces 5 coflows"),
        ("t.txt", b"10001 1\n1 0 1 1 1 2:1\n", "has 10001 ports: of a kind"),
        ("t.txt", b"9" * 21 + b" 1\n1 0 1 1 1 2:1\n", "999 ports: of a kind there"),
        ("t.txt", b"3 1" + b"0" * 20 + b"\n1 0 1 1 1 2:1\n",
         "announces 100000000000000000000 coflows"),
        ("t.txt", b"3 " + b"9" * 5000 + b"\n1 0 1 1 1 2:1\n", "coflows, more than fit"),
        ("t.txt", TRACE.replace("\n2 ", "\n1 ").encode(), "is a second coflow 1"),
        ("w.json", json.dumps(WORKFLOW | {"schemaVersion": "2.0"}).encode(), "'2.0'"),
        ("w.json", json.dumps(WORKFLOW).replace('"a/1"]', '"q"]').encode(),
         "names 'q', no task"),
        ("w.json", json.dumps(WORKFLOW).replace('"b"', '"a_1"').encode(),
         "two tasks of one id"),
        ("w.json", json.dumps(WORKFLOW).replace("2.5", "-2.5").encode(), "-2.5 s"),
        ("w.json", json.dumps(WORKFLOW).replace('["y"]', '["z"]').encode(), "'z'"),
        ("w.json", b'{"schemaVersion": "1.5", "workflow": {}}', "no 'tasks'"),
        ("w.json", json.dumps(WORKFLOW).replace('["a/1"]', '["use"]').encode(),
         "names 'use', which several tasks are called"),
        ("t.txt", b"3 1\n7 0 0 1 2:2\n", "line 2 has no mappers or no reducers"),
        ("t.bin", b"\x00" * 99, "is no trace of torch.profiler"),
        ("t.txt", TRACE.replace("1000", "1\xe9").encode("latin-1"), "is not text"),
        ("t.txt", TRACE.replace("1 2 2 0:1 2:4", "5 2").encode(), "found 4 words"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_says_so_in_one_line(
    tmp_path: Path, file: str, content: bytes, problem: str
) -> None:
    """And nothing is written."""
    path, target = tmp_path / file, tmp_path / "out.json"
    path.write_bytes(content)
    result = CliRunner().invoke(app, ["import-workload", str(path), "-o", str(target)])

    assert result.exit_code == DataError.exit_code
    assert problem in result.stderr
    assert result.stderr.count("\n") == 1
    assert not target.exists()


def test_a_file_of_ten_million_nodes_is_refused_before_they_are_all_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emu.interchange.chakra_nodes.MOST_NODES", 2)
    nodes = [{"id": number, "type": 4} for number in range(3)]
    with pytest.raises(DataError, match="more than 2 nodes"):
        makespan(tmp_path, [nodes])
    assert makespan(tmp_path, [nodes], large=True) == 0


def test_what_files_of_many_ranks_hold_is_one_line(tmp_path: Path) -> None:
    """A line per rank filled the terminal, of hundreds of ranks."""
    for rank in range(12):
        nodes: list[Node] = [{"id": 1, "type": 4}, {"id": 2, "type": 4, "deps": [1]}]
        nodes = nodes[: 1 + rank % 2]
        (tmp_path / f"t.{rank}.et").write_bytes(as_protobuf(nodes))
    workload = read_workload(tmp_path / "t.0.et")

    (note,) = workload.notes
    assert note.startswith("t.0.et to t.11.et: 1 to 2 nodes each; 0 to 1 dependencies")


@pytest.mark.parametrize(
    ("ranks", "last", "missing"), [((0, 2), 2, 1), ((1, 2), 2, 0), ((0, 1, 10), 10, 2)]
)
def test_a_rank_before_others_is_missing(
    tmp_path: Path, ranks: tuple[int, ...], last: int, missing: int
) -> None:
    for rank in ranks:
        (tmp_path / f"t.{rank}.et").write_bytes(as_protobuf(PAIR[0]))
    problem = rf"ranks 0 to {last}, t\.{missing}\.et is missing"
    with pytest.raises(DataError, match=problem):
        read_workload(tmp_path / f"t.{ranks[0]}.et")


def test_a_version_in_a_name_is_no_rank(tmp_path: Path) -> None:
    path = tmp_path / "chakra.0.0.4.et"
    path.write_bytes(as_protobuf([{"id": 1, "type": 4, "micros": 3000}]))
    workload = read_workload(path)

    assert len(workload.tasks) == 1
    assert "are of a version" in workload.notes[0]


def test_a_collective_that_one_rank_lacks_is_refused(tmp_path: Path) -> None:
    node = {"id": 1, "type": 7, "comm_type": 0, "comm_size": 4}
    with pytest.raises(DataError, match="rank 1 takes part in 0 collectives"):
        makespan(tmp_path, [[node], [{"id": 1, "type": 4}]])


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_tasks_were_called_jobs(tmp_path: Path, version: str) -> None:
    """As in 1.3, where the same are called tasks; the other name is refused."""
    old = json.loads(json.dumps(OLD))
    old["workflow"]["jobs"] = old["workflow"].pop("tasks")
    old["schemaVersion"] = version
    file = tmp_path / "w.json"
    file.write_text(json.dumps(old))
    workload = read_workload(file)
    schedule = emu.simulate(emu.loads(json.dumps(workload.scenario("w", "8 Mbit/s"))))

    ends = dict(zip("abc", schedule.task_end[:, 0], strict=True))
    assert ends == pytest.approx({"a": 1.0, "b": 3.004, "c": 3.5})
    assert "sizes of files in bytes" in workload.notes[0]
    file.write_text(json.dumps(OLD | {"schemaVersion": version}))
    with pytest.raises(DataError, match=f"no 'jobs', which version {version}"):
        read_workload(file)


@given(st.data())
def test_no_edge_that_is_left_out_is_needed(data: st.DataObject) -> None:
    """By brute force: the same nodes are reached, and nothing less would do."""
    count = data.draw(st.integers(1, 9))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = {(min(p), max(p)) for p in data.draw(st.lists(pairs)) if p[0] != p[1]}
    names = data.draw(st.permutations(range(count)))
    edges = {(names[a], names[b]) for a, b in edges}
    order = order_nodes([*map(str, range(count))], edges, "")

    def reach(some: set[tuple[int, int]]) -> set[tuple[int, int]]:
        ways = {*some}
        for _ in range(count):
            ways |= {(a, d) for a, b in ways for c, d in some if b == c}
        return ways

    block = data.draw(st.sampled_from([1, 2, 8192]), label="nodes of a pass")
    with patch.object(workload, "_BLOCK", block):
        needed = {*reduce_edges(order, edges)}
    assert needed <= edges
    assert reach(needed) == reach(edges)
    assert all(reach(needed - {edge}) != reach(edges) for edge in needed)


@needs_workloads
def test_a_ring_of_eight_by_hand(tmp_path: Path) -> None:
    target = tmp_path / "ring.json"
    command = ["import-workload", str(FOLDER / "chakra" / "ring.0.et"), "-o"]
    command += [str(target), "--nic", "400 Gbit/s", "--latency", "3.5 us"]
    result = CliRunner().invoke(app, command)

    assert "left out: made-up time of a sum in a collective, 56 times" in result.stdout
    assert emu.simulate(emu.load(target)).makespan == pytest.approx(
        85.70016e-6, rel=1e-12
    )


@needs_workloads
def test_a_real_trace_has_few_dependencies_that_matter(tmp_path: Path) -> None:
    workload = read_workload(FOLDER / "chakra" / "chakra.0.et")
    target = tmp_path / "real.json"
    target.write_text(json.dumps(workload.scenario("real", "10 Gbit/s")))

    assert "183,180 dependencies, of which 4,059" in workload.notes[0]
    assert (len(workload.tasks), len(workload.flows)) == (3664, 4059)
    assert emu.simulate(emu.load(target)).makespan == pytest.approx(82.269e-3)


@needs_workloads
def test_the_whole_trace_of_coflows_has_its_flows() -> None:
    workload = read_workload(FOLDER / "coflow" / "FB2010-1Hr-150-0.txt")

    assert workload.notes == ["526 coflows of 706,397 flows between 150 ports"]


def test_of_an_old_and_a_new_name_of_one_figure_the_new_one_counts(
    tmp_path: Path,
) -> None:
    """Also the first of two machines; a file that its own maker reads is no flow."""
    content = json.loads(json.dumps(WORKFLOW))
    execution = content["workflow"]["execution"]
    execution["machines"][1]["cpu"]["count"] = 2
    run = execution["tasks"][1]
    run |= {"runtime": 9.0, "cores": 7, "machines": ["y", "x"]}
    content["workflow"]["specification"]["tasks"][0]["inputFiles"].append("f")
    file = tmp_path / "w.json"
    file.write_text(json.dumps(content))
    read = read_workload(file)

    assert read.machines[1] == {"name": "m1", "slots": {"core": 4}}
    assert read.tasks[1]["time"] == "2 s"
    assert read.tasks[1]["pin"] == "m1"
    assert read.left_out["cores of a task beyond one"] == 1
    assert all(flow["from"] != flow["to"] for flow in read.flows)


def test_files_of_one_name_in_two_folders_are_two(tmp_path: Path) -> None:
    content = json.loads(json.dumps(OLD))
    first, second, _ = content["workflow"]["tasks"]
    for file, folder in zip(first["files"], ("p/", "q/"), strict=True):
        file |= {"name": "f", "path": folder}
    second["files"] = [{"link": "input", "name": "f", "path": "q/", "size": 1000}]
    path = tmp_path / "w.json"
    path.write_text(json.dumps(content))

    (volume,) = [f["volume"] for f in read_workload(path).flows if f["to"] == "b"]
    assert volume == "1000.0 B"
