"""Figures of a file that may be others: what each changes, where a search begins."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from emu.experiment.levers import Lever, _list_network, list_levers
from emu.scenario import Scenario, load
from emu.scenario.scenario_file import loads

#: Unequal in and out, of which out of the rack is the slowest; b is the dearest,
#: and the longest latency is that of a, on the way out.
FILE: dict[str, Any] = {
    "cluster": {
        "machines": [
            {
                "name": "a",
                "price": "1 $/h",
                "nic": {
                    "in": "10 MB/s",
                    "out": "20 MB/s",
                    "latency": {"in": "1 ms", "out": "4 ms"},
                },
            },
            {
                "name": "b",
                "price": "5 $/h",
                "nic": {
                    "in": "30 MB/s",
                    "out": "40 MB/s",
                    "latency": {"in": "2 ms", "out": "3 ms"},
                },
            },
            {"name": "c", "price": "2 $/h", "nic": "50 MB/s", "device": "quick"},
        ],
        "racks": [
            {
                "name": "r",
                "machines": ["a", "b"],
                "uplink": {"in": "7 MB/s", "out": "6 MB/s"},
            },
        ],
    },
    "job": {
        "system": "data_parallel",
        "dataset": {"name": "products-like", "scale": 0.0005},
        "model": {"hidden": 24, "layers": 2},
        "fanouts": [2, 2],
        "batch_size": 4,
        "iterations": 3,
        "rates": {
            "aggregate": "20 ps",
            "multiply": "0.4 ps",
            "sample": "30 ns",
            "collect": {"default": "200 ps", "quick": "50 ps"},
            "step": "0.5 ns",
            "launch": "50 us",
        },
    },
}


def levers() -> tuple[Scenario, dict[str, Lever]]:
    scenario = loads(json.dumps(FILE))
    found = list_levers(scenario, priced=True)
    return scenario, {lever.name: lever for lever in found}


def nics_of(scenario: Scenario) -> list[tuple[float, ...]]:
    """Return rates in MB/s and latencies in ms, in and out, of every machine."""
    nics = [machine.nic for machine in scenario.cluster.machines]
    return [
        (
            nic.inward / 1e6,
            nic.outward / 1e6,
            nic.latency.inward * 1e3,
            nic.latency.outward * 1e3,
        )
        for nic in nics
    ]


def test_a_network_is_faster_both_ways_and_as_late_as_before() -> None:
    scenario, found = levers()
    faster = load(scenario, found["network"].edit(2.0))

    expected = [(20, 40, 1, 4), (60, 80, 2, 3), (100, 100, 0, 0)]
    assert nics_of(faster) == [pytest.approx(nic) for nic in expected]
    (rack,) = faster.cluster.racks
    assert (rack.uplink.inward, rack.uplink.outward) == pytest.approx((14e6, 12e6))


def test_latencies_are_one_of_all_and_begin_at_the_longest() -> None:
    scenario, found = levers()
    assert found["latency of NICs"].now == pytest.approx(4e-3)
    later = load(scenario, found["latency of NICs"].edit(9e-3))

    expected = [(10, 20, 9, 9), (30, 40, 9, 9), (50, 50, 9, 9)]
    assert nics_of(later) == [pytest.approx(nic) for nic in expected]


def test_the_dearest_machine_alone_is_dearer() -> None:
    scenario, found = levers()
    dearer = load(scenario, found["the dearest machines"].edit(3.0))
    assert [machine.price for machine in dearer.cluster.machines] == [
        machine.price and machine.price * factor
        for machine, factor in zip(scenario.cluster.machines, (1, 3, 1), strict=True)
    ]


def test_collecting_is_as_much_faster_on_every_device() -> None:
    scenario, found = levers()
    rates = load(scenario, found["collecting"].edit(4.0)).job.operation_rates
    assert rates is not None
    assert rates.stated["collect"] == pytest.approx(
        {"default": 5e-11, "quick": 1.25e-11}
    )


def test_widths_are_whole_and_end_where_a_file_does() -> None:
    _, found = levers()
    assert found["features"].ends == [6, 1600]
    assert found["hidden width"].ends == [2, 384]
    wide = Lever("w", lambda _: {}, str, now=8_000, most=10_000, whole=True)
    assert wide.ends == [500, 10_000]
    narrow = Lever("w", lambda _: {}, str, now=1, whole=True)
    assert narrow.ends == [16]


@pytest.mark.parametrize(
    ("factor", "written"),
    [
        (1.2211, "1.23"),
        (1.22, "1.22"),
        (1.004, "1.01"),
        (15.91, "16"),
        (0.8167, "0.816"),
        (0.816, "0.816"),
        (0.0712345, "0.0712"),
    ],
)
def test_a_factor_is_written_where_it_holds_already(
    factor: float, written: str
) -> None:
    """Rounded to the nearest, 1.2211 is a network under which nothing has changed."""
    _, found = levers()
    assert found["network"].write(factor) == f"{written} x as fast"
    assert found["collecting"].write(factor) == f"{written} x as fast"
    assert found["the dearest machines"].write(factor) == f"{written} x their price"


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (4.0001e-3, "from 4.001 ms"),
        (12.5e-3, "from 12.5 ms"),
        (0.80006e-3, "down to 800 us"),
        (1.2349e-3, "down to 1.234 ms"),
    ],
)
def test_a_latency_is_written_where_it_holds_already(
    seconds: float, written: str
) -> None:
    """The present one is 4 ms: more is rounded up, and less down."""
    _, found = levers()
    lever = found["latency of NICs"]
    assert lever.words(seconds) == f"latency of NICs {written}"


def test_a_network_of_links_alone_has_no_latency_of_nics() -> None:
    """Machines that have no NIC are joined by links, each of which is faster."""
    nic = SimpleNamespace(inward=0.0, outward=0.0)
    cluster: Any = SimpleNamespace(
        machines=[SimpleNamespace(nic=nic)],
        links=[SimpleNamespace(bandwidth=3e6), SimpleNamespace(bandwidth=5e6)],
        racks=[],
    )
    (network,) = _list_network(cluster)
    assert network.name == "network"
    assert network.edit(2.0) == {
        "cluster.links[0].bandwidth": "48 Mbit/s",
        "cluster.links[1].bandwidth": "80 Mbit/s",
    }
    cluster.links = []
    assert [*_list_network(cluster)] == []


def test_where_a_file_states_no_latency_it_is_tried_around_a_microsecond() -> None:
    machines = [{"name": "a", "nic": "1 Gbit/s", "device": "quick"}]
    scenario = load(loads(json.dumps(FILE)), {"cluster": {"machines": machines}})
    found = {lever.name: lever for lever in list_levers(scenario, priced=False)}
    assert found["latency of NICs"].ends == pytest.approx([6.25e-8, 1.6e-5])
    assert "the dearest machines" not in found
