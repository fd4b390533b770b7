"""``nic`` as a list: striped, as one NIC of the sum; rails are links and routes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emu.errors import ScenarioError
from emu.scenario import Scenario, prepare
from emu.scenario.scenario_file import loads

RAILS = [
    {"name": f"{machine} rail{rail} {way}", "bandwidth": "40 Gbit/s"}
    for machine in ("m0", "m1", "m2")
    for rail in (0, 1)
    for way in ("out", "in")
]


def transfers(machine: dict[str, Any], ends: str, **cluster: Any) -> Scenario:
    """Return a job that sends 100 MB from m0 to each of ``ends`` at once."""
    tasks = [{"name": "a", "time": "0 s", "pin": "m0"}]
    tasks += [{"name": f"b{end}", "time": "0 s", "pin": f"m{end}"} for end in ends]
    flows = [{"from": "a", "to": f"b{end}", "volume": "100 MB"} for end in ends]
    document = {
        "cluster": {"machines": [{"name": "m", "count": 3, **machine}], **cluster},
        "job": {"system": "custom", "iterations": 1, "tasks": tasks, "flows": flows},
    }
    return loads(json.dumps(document))


def length(scenario: Scenario) -> float:
    """Return the makespan."""
    return prepare(scenario).simulate().makespan


def test_a_list_is_one_nic_of_the_sum_in_each_direction() -> None:
    stripes = [
        {
            "in": "40 Gbit/s",
            "out": "10 Gbit/s",
            "latency": {"in": "3 us", "out": "1 us"},
        },
        {
            "in": "5 Gbit/s",
            "out": "20 Gbit/s",
            "latency": {"in": "3 us", "out": "1 us"},
        },
    ]
    scenario = transfers({"nic": stripes}, "1")
    (machine, *_) = scenario.to_cluster().machines
    assert machine.bandwidth_in == pytest.approx(45e9 / 8)
    assert machine.bandwidth_out == pytest.approx(30e9 / 8)
    assert (machine.latency_in, machine.latency_out) == (3e-6, 1e-6)

    whole = {"in": "45 Gbit/s", "out": "30 Gbit/s", "latency": stripes[0]["latency"]}
    assert length(scenario) == length(transfers({"nic": whole}, "1"))
    assert length(scenario) == pytest.approx(100e6 / (30e9 / 8) + 4e-6)
    (remark,) = scenario.cluster.remarks()
    assert remark.startswith("2 NICs of m are striped, as one of 45 Gbit/s in, 30 Gbit")
    again = loads(json.dumps(scenario.to_json()))
    assert again == scenario
    assert [*again.cluster.remarks()] == [remark]


def test_a_rail_carries_the_flows_of_its_routes_alone() -> None:
    routes = [
        {
            "from": "m0",
            "to": f"m{to}",
            "through": [f"m0 rail{by} out", f"m{to} rail0 in"],
        }
        for to, by in ((1, 0), (2, 1))
    ]
    striped = {"nic": ["40 Gbit/s", "40 Gbit/s"]}
    rails = {"links": RAILS, "routes": routes}
    alone, both = 100e6 / 5e9, 100e6 / 10e9
    # One flow has both NICs where they are striped, and one on a rail.
    assert length(transfers(striped, "1")) == pytest.approx(both)
    assert length(transfers({"nic": "1 Gbit/s"}, "1", **rails)) == pytest.approx(alone)
    # Two flows are as fast either way, and half as fast on one rail.
    assert length(transfers(striped, "12")) == pytest.approx(alone)
    assert length(transfers({"nic": "1 Gbit/s"}, "12", **rails)) == pytest.approx(alone)
    routes[1]["through"] = ["m0 rail0 out", "m2 rail0 in"]
    slow = length(transfers({"nic": "1 Gbit/s"}, "12", **rails))
    assert slow == pytest.approx(2 * alone)


@pytest.mark.parametrize(
    ("nic", "text"),
    [
        ([], "machines[0].nic: found no NIC, write none for a machine without one"),
        (["40 Gbit/s", 7], "a bare number (7) does not say its unit"),
        (["40 Gbit/s", "none"], "found 'none' for a rate"),
        ([{"in": "1 Gbit/s"}], "nic.out: this key is missing"),
        (
            ["1 Gbit/s", {"in": "1 Gbit/s", "out": "1 Gbit/s", "latency": "5 us"}],
            "bytes of a flow use all NICs: write one latency for each",
        ),
    ],
)
def test_what_several_nics_cannot_be(nic: list[Any], text: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        transfers({"nic": nic}, "1")
    assert text in str(caught.value)
