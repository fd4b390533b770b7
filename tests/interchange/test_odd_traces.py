"""Traces as other writers put them: packed, spelt otherwise, with ids that are none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from emu.errors import DataError
from emu.interchange.known_formats import describe
from emu.interchange.simgrid import read_platform
from emu.interchange.slurm_switches import read_switches
from emu.interchange.topology import Answers
from emu.interchange.workload_formats import read_workload
from tests.interchange.platforms import BACKBONE

pytestmark = pytest.mark.usefixtures("read_here")

GOAL = "num_ranks 1\nrank 0 {\na: calc 5\n}\n"
COFLOWS = "2 1\n1 0 1 0 1 1:2.5\n"
NODE = {"id": 0, "type": "COMP_NODE", "duration_micros": 5}


def trace(*nodes: Any) -> str:
    """Return a Chakra trace of a rank, a line per value."""
    return json.dumps({"version": "0.0.4", "workload_graph": nodes}, indent=1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.goal", GOAL),
        ("a.txt", COFLOWS),
        ("a.json", trace(NODE)),
        ("a.0.et", trace(NODE)),
    ],
)
def test_a_workload_is_read_packed_as_it_is_plain(
    name: str, text: str, tmp_path: Path
) -> None:
    """`emu what` unpacked them and named the command, which took them for damaged."""
    plain = tmp_path / name
    plain.write_text(text)
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))

    assert describe(packed)["commands"] == [
        f"emu import-workload {packed} -o NAME.json"
    ]
    assert read_workload(packed).tasks == read_workload(plain).tasks != []


def test_a_topology_is_read_packed(tmp_path: Path) -> None:
    for name, text in (("p.xml", BACKBONE), ("t.conf", "SwitchName=s Nodes=a,b")):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    assert read_platform(tmp_path / "p.xml").machines
    answers = Answers(nic=1.0)
    assert read_switches(tmp_path / "t.conf", answers).machines == ["a", "b"]


def test_a_node_without_lists_or_in_small_letters_is_one(tmp_path: Path) -> None:
    """A send of small letters took no time and sent nothing."""
    lists: dict[str, Any] = {"data_deps": None, "ctrl_deps": None, "attr": None}
    for rank, (kind, key) in enumerate((("send", "comm_dst"), ("recv", "comm_src"))):
        node = {"id": 0, "type": f"comm_{kind}_node", "comm_size": 7, key: 1 - rank}
        (tmp_path / f"a.{rank}.json").write_text(trace({**node, **lists}))
    (flow,) = read_workload(tmp_path / "a.0.json").flows
    assert flow == {"from": "r0.0", "to": "r1.0", "volume": "7.0 B"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"id": 0.5}, "an id is 0.5, write a whole number"),
        ({"data_deps": [0.5]}, "a dependency is 0.5, write a whole number"),
        (
            {"type": "COMM_SEND_NODE", "comm_dst": 0.5, "comm_size": 1},
            "comm_dst is 0.5, write a whole number",
        ),
    ],
)
def test_a_part_of_a_number_is_no_id(
    changes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    """It was cut to the id before it, on which others depended."""
    path = tmp_path / "a.json"
    path.write_text(trace({**NODE, **changes}))
    with pytest.raises(DataError, match=problem):
        read_workload(path)


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """The last one counted; keys of two nodes are not two of one."""
    path = tmp_path / "a.json"
    text = trace(NODE)
    assert '"id"' in text
    path.write_text(text.replace('"id"', '"id": 7, "id"', 1))
    with pytest.raises(DataError, match='"id" is there twice: keep one of them'):
        read_workload(path)


NIC = {"nic_in": 1e6, "nic_out": 2e6, "latency_in": 0.0, "latency_out": 0.0}


@pytest.mark.parametrize(
    ("first", "second", "places"),
    [
        ({}, {}, "m0 m1"),
        ({"machine": "x86"}, {}, "m0 m1"),
        ({"machine": "a", **NIC}, {"machine": "a", **NIC}, "a a"),
        ({"machine": "a", **NIC}, {"machine": "b", **NIC, "nic_in": 5.0}, "a b"),
        ({"machine": "a", **NIC}, {"machine": "x86"}, "the machine of 1 of 2 ranks"),
        (
            {"machine": "a", **NIC},
            {"machine": "a", **NIC, "nic_in": 5.0},
            "rank 1 states another NIC of machine a",
        ),
    ],
)
def test_machines_that_metadata_name_agree(
    first: dict[str, Any], second: dict[str, Any], places: str, tmp_path: Path
) -> None:
    """A second NIC was passed over; one rank without a machine had none at all."""
    for rank, metadata in enumerate((first, second)):
        rows = [{"name": key, "value": value} for key, value in metadata.items()]
        text = json.dumps([{"version": "0.0.4", "attr": rows}, NODE])
        (tmp_path / f"a.{rank}.json").write_text(text)
    if " of " in places:
        with pytest.raises(DataError, match=places):
            read_workload(tmp_path / "a.0.json")
        return
    found = read_workload(tmp_path / "a.0.json")
    assert list(found.places.values()) == places.split()
    assert ("metadata machine" in found.left_out) == ("x86" in first.values())


def test_a_rank_of_two_files_is_refused(tmp_path: Path) -> None:
    """One of them was read, whichever the folder named last."""
    for name in ("a.0.json", "a.00.json"):
        (tmp_path / name).write_text(trace(NODE))
    with pytest.raises(DataError, match=r"rank 0 twice .*: a\.0\.json and a\.00\.json"):
        read_workload(tmp_path / "a.0.json")
