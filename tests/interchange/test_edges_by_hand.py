"""Edges of infrastructures and dimensions of NPUs by hand: every wire of a way."""

from __future__ import annotations

from typing import Any

import pytest

from emu.errors import DataError
from emu.interchange.astra_network import read_network
from emu.interchange.infragraph import _expand, read_infrastructure
from emu.interchange.topology import Wire

#: Two NPUs and a switch of three ports; the higher number of each stands first.
HOST = {
    "name": "host",
    "components": [
        {"name": "npu", "choice": "npu"},
        {"name": "nic", "choice": "nic"},
    ],
    "links": [{"name": "pcie", "physical": {"bandwidth": {"gigabytes_per_second": 4}}}],
    "connections": ["npu.2.pcie.nic.1", "npu.0.pcie.nic.0", "npu.1.pcie.nic.1"],
}
SWITCH = {
    "name": "switch",
    "components": [{"name": "port", "choice": "port"}],
    "links": [{"name": "in", "physical": {"bandwidth": {"gigabytes_per_second": 8}}}],
    "connections": ["port.2.in.port.0", "port.1.in.port.0", "port.0.in.port.2"],
}


def infrastructure(**changes: Any) -> dict[str, Any]:
    return {
        "name": "two",
        "devices": [HOST, SWITCH],
        "instances": [
            {"name": "host", "device": "host", "count": 2},
            {"name": "switch", "device": "switch", "count": 1},
        ],
        "links": [
            {"name": "eth", "physical": {"bandwidth": {"gigabits_per_second": 16}}}
        ],
        "connections": [
            "host.0.nic.0.eth.switch.0.port.0",
            "host.0.nic.1.eth.switch.0.port.1",
            "host.1.nic.1.eth.switch.0.port.2",
            "host.1.nic.0.eth.switch.0.port.2",
        ],
        **changes,
    }


def test_connections_lead_from_component_to_component_by_their_links() -> None:
    """Numbers of components are the highest in the text and one more."""
    read = read_infrastructure(infrastructure(), "two.json")
    hosts = [f"host.{host}.npu.{npu}" for host in range(2) for npu in range(3)]

    assert read.machines == hosts
    assert read.routes["host.0.npu.0", "host.1.npu.2"] == [
        "host.0.npu.0-host.0.nic.0",
        "host.0.nic.0-switch.0.port.0",
        "switch.0.port.0-switch.0.port.2",
        "switch.0.port.2-host.1.nic.1",
        "host.1.nic.1-host.1.npu.2",
    ]
    assert read.routes["host.0.npu.1", "host.0.npu.2"] == [
        "host.0.npu.1-host.0.nic.1",
        "host.0.nic.1-host.0.npu.2",
    ]
    rates = [
        read.wires[wire].rate for wire in read.routes["host.0.npu.0", "host.1.npu.2"]
    ]
    assert rates == [4e9, 2e9, 8e9, 2e9, 4e9]
    # A port that is joined twice with another, the other way round.
    assert read.left_out == {
        "second edge between two components, the last is taken": 1,
    }


@pytest.mark.parametrize(
    ("npus", "cpus", "machines"),
    [(2, 3, ["npu", "npu"]), (1, 3, ["cpu"] * 3), (0, 2, ["cpu"] * 2)],
)
def test_machines_are_the_first_type_of_which_there_are_two(
    npus: int, cpus: int, machines: list[str]
) -> None:
    counts = {"npu": npus, "cpu": cpus, "switch": 1}
    device = {
        "name": "box",
        "components": [
            {"name": kind, "choice": kind, "count": count}
            for kind, count in counts.items()
            if count
        ],
        "links": [{"name": "in"}],
        "edges": [
            {
                "ep1": {"component": kind},
                "ep2": {"component": "switch"},
                "link": "in",
                "scheme": "many2many",
            }
            for kind in ("npu", "cpu")
            if counts[kind]
        ],
    }
    read = read_infrastructure(device, "box.json")

    assert [name.split(".")[-2] for name in read.machines] == machines
    assert {wire.rate for wire in read.wires.values()} == {64e9}


def test_an_edge_of_a_set_with_itself_joins_each_pair_once() -> None:
    """Three NPUs have six wires, two for a pair; no NPU has a wire to itself."""
    device = {
        "name": "box",
        "components": [{"name": "npu", "choice": "npu", "count": 3}],
        "links": [{"name": "in"}],
        "edges": [
            {
                "ep1": {"component": "npu"},
                "ep2": {"component": "npu"},
                "link": "in",
                "scheme": "many2many",
            }
        ],
    }
    read = read_infrastructure(device, "box.json")

    assert len(read.wires) == 6
    assert read.left_out == {"bandwidth of link in, not stated: 64 GB/s": 1}


def test_what_has_no_partner_in_an_edge_one_to_one_is_left_out() -> None:
    device = {
        "name": "box",
        "components": [
            {"name": "npu", "choice": "npu", "count": 2},
            {"name": "nic", "choice": "nic", "count": 5},
            {"name": "switch", "choice": "switch", "count": 1},
        ],
        "links": [
            {"name": "pcie", "bandwidth": {"gigabytes_per_second": 4}},
        ],
        "edges": [
            {
                "ep1": {"component": "npu"},
                "ep2": {"component": "nic"},
                "link": "pcie",
                "scheme": "one2one",
            },
            {
                "ep1": {"component": "nic"},
                "ep2": {"component": "switch"},
                "link": "pcie",
                "scheme": "many2many",
            },
        ],
    }
    read = read_infrastructure(device, "box.json")

    assert len(read.routes["box.0.npu.0", "box.0.npu.1"]) == 4
    assert read.left_out == {
        "component that is one too many for a one2one edge": 3,
    }


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"connections": ["host.0.nic.9.eth.switch.0.port.0"]},
            "ends at 'host.0.nic.9', which is not there",
        ),
        ({"connections": "host.0.nic.0"}, "connections are no list"),
        ({"connections": [7]}, "a connection is no text"),
        (
            {"links": [{"name": "eth", "bandwidth": {"choice": "baud", "baud": 9}}]},
            "bandwidth is in 'baud'",
        ),
    ],
)
def test_what_an_infrastructure_cannot_say(
    changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        read_infrastructure(infrastructure(**changes), "two.json")


def test_a_route_goes_through_three_dimensions_in_their_order() -> None:
    """NPUs stand in a ring of 2, at a switch of 3 and in fully connected pairs.

    The route goes from (1, 2, 0), which is NPU 5 = 1 + 2 * 2, to (0, 1, 1), which is
    NPU 8 = 2 * 1 + 6 * 1.
    """
    content = {
        "topology": ["Ring", "Switch", "FullyConnected"],
        "npus_count": [2, 3, 2],
        "bandwidth": [50, 25, 12.5],
        "latency": [500, 1000, 2000],
    }
    read = read_network(content, "network.yml")

    route = read.routes["npu5", "npu8"]
    assert route == [
        "dim0 npu5-npu4",
        "dim1 npu4-switch0",
        "dim1 switch0-npu2",
        "dim2 npu2-npu8",
    ]
    assert [read.wires[name] for name in route] == [
        Wire(50e9, 5e-7),
        Wire(25e9, 1e-6),
        Wire(25e9, 1e-6),
        Wire(12.5e9, 2e-6),
    ]
    assert read.routes["npu9", "npu11"] == ["dim1 npu9-switch7", "dim1 switch7-npu11"]


def test_half_way_round_a_ring_rising_numbers_are_taken() -> None:
    ring = {key: [value] for key, value in (("bandwidth", 1), ("latency", 0))}
    read = read_network({"topology": ["Ring"], "npus_count": [4], **ring}, "n.yml")

    assert read.routes["npu1", "npu3"] == ["dim0 npu1-npu2", "dim0 npu2-npu3"]
    assert read.routes["npu3", "npu1"] == ["dim0 npu3-npu0", "dim0 npu0-npu1"]
    assert read.routes["npu0", "npu3"] == ["dim0 npu0-npu3"]


def test_a_slice_has_all_that_it_names_or_is_refused() -> None:
    assert [*_expand("gpu[1:3]", 3)] == ["gpu.1", "gpu.2"]
    assert [*_expand("gpu[-1]", 3)] == ["gpu.2"]
    for beyond in ("gpu[0:4]", "gpu[4:]"):
        with pytest.raises(ValueError, match="and there are 3"):
            [*_expand(beyond, 3)]
