"""Collectives of Chakra's nodes, by number or by name in any spelling, and machines."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emu.errors import DataError
from emu.interchange.chakra import _collective_of, _Job
from emu.interchange.chakra_nodes import COLLECTIVES, _rows, rank_files


@pytest.mark.parametrize("number", range(len(COLLECTIVES)))
def test_a_collective_has_a_number_and_a_name_in_any_spelling(number: int) -> None:
    kind = COLLECTIVES[number]
    plain = kind.replace("_", "")
    for stated in (number, str(number), kind, kind.lower(), plain, plain.title()):
        assert _collective_of(stated, "a.et") == kind


@pytest.mark.parametrize("name", ["chakra.0.0.4.et", "chakra.0.0.4.et.gz"])
def test_a_number_of_a_version_is_no_rank(name: str, tmp_path: Path) -> None:
    """Packed, the ranks 0 to 3 were missing."""
    path = tmp_path / name
    path.touch()
    assert rank_files(path) == [path]


@pytest.mark.parametrize("stated", [-1, len(COLLECTIVES), "", "ALL", "ALL_REDUCE2"])
def test_what_is_no_collective_is_refused(stated: object) -> None:
    with pytest.raises(DataError, match="is a collective of type"):
        _collective_of(stated, "a.et")


def test_of_a_field_that_comes_twice_the_last_counts() -> None:
    """A node of ids 1 and 2 and type 4, behind metadata without anything."""
    node = b"\x08\x01\x08\x02\x18\x04"
    metadata, row = _rows(b"\x00" + bytes([len(node)]) + node)

    assert metadata == {}
    assert row == {"id": 2, "type": 4, "name": 0, "durationmicros": 0}


def test_a_machine_of_a_trace_has_the_nic_that_each_way_is_stated() -> None:
    """Without one its rates are 0; a machine of two ranks is one."""
    workload: Any = SimpleNamespace(machines=[{"name": "any"}], places={})
    reader: Any = SimpleNamespace(workload=workload)
    nic = {"nic_in": 1e6, "nic_out": 2e6, "latency_in": 0.003, "latency_out": 0.004}
    without = {"machine": "b", "nic_in": 0.0, "nic_out": 0.0}

    for rank, metadata in enumerate(({"machine": "a", **nic}, without, without)):
        _Job._add_machine(reader, rank, metadata)

    latency = {"in": "3 ms", "out": "4 ms"}
    ways = {"in": "8 Mbit/s", "out": "16 Mbit/s", "latency": latency}
    assert workload.machines == [
        {"name": "a", "nic": ways},
        {"name": "b", "nic": "none"},
    ]
    assert workload.places == {"r0": "a", "r1": "b", "r2": "b"}
