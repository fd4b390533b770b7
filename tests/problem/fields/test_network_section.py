"""Links, routes and racks of a scenario."""

from __future__ import annotations

import pytest

from emu.problem import Cluster
from emu.scenario.scenario import Scenario
from tests.integration.scenarios import read


def cluster(**stated: object) -> Cluster:
    document = {
        "name": "net",
        "cluster": {"machines": [{"count": 5, "nic": "10 B/s"}], **stated},
        "job": {
            "system": "custom",
            "iterations": 1,
            "tasks": [{"name": "a", "time": "1 s"}],
        },
    }
    scenario = read(document)
    again = Scenario.model_validate(scenario.to_json())
    assert again == scenario
    return again.to_cluster()


def names(found: Cluster, source: str, destination: str) -> list[str]:
    route = found.links.route(found.index(source), found.index(destination))
    return [found.links[port].name for port in route]


def test_racks_are_links_and_routes() -> None:
    racks = [
        {"name": "r0", "machines": ["m0", "m1"], "uplink": "40 B/s"},
        {"name": "r1", "machines": ["m2"], "uplink": {"in": "5 B/s", "out": "6 B/s"}},
    ]
    found = cluster(racks=racks)

    assert [(link.name, link.capacity) for link in found.shared_links] == [
        *(("r0 up", 40.0), ("r0 down", 40.0), ("r1 up", 6.0), ("r1 down", 5.0))
    ]
    assert names(found, "m0", "m2") == ["m0 out", "r0 up", "r1 down", "m2 in"]
    assert names(found, "m2", "m1") == ["m2 out", "r1 up", "r0 down", "m1 in"]
    assert names(found, "m0", "m1") == ["m0 out", "m1 in"]
    assert names(found, "m1", "m4") == ["m1 out", "r0 up", "m4 in"]
    assert names(found, "m3", "m2") == ["m3 out", "r1 down", "m2 in"]


def test_a_half_duplex_link_and_a_device_without_nic() -> None:
    machines = [{"name": "m0", "nic": "10 B/s"}, {"name": "d", "nic": "none"}]
    found = cluster(
        machines=machines,
        links=[{"name": "pcie", "bandwidth": "16 B/s"}],
        routes=[
            {"from": "m0", "to": "d", "through": ["out", "pcie"]},
            {"from": ["d"], "to": ["m0"], "through": ["pcie"]},
        ],
    )

    assert [link.name for link in found.links] == ["m0 out", "m0 in", "pcie"]
    assert names(found, "m0", "d") == ["m0 out", "pcie"]
    assert names(found, "d", "m0") == ["pcie"]
    assert found.links.capacities.tolist() == pytest.approx([10.0, 10.0, 16.0])
