"""Section ``cluster``: names of links, racks and machines, and what they delay."""

from __future__ import annotations

from typing import Any

import pytest

from emu.problem.fields.cluster_section import (
    ClusterSection,
    count_slots,
    names_of,
    network_errors,
)
from emu.problem.fields.quantities import MOST_FEW

MACHINES = [
    {"name": "a", "nic": {"in": "3 B/s", "out": "4 B/s"}},
    {"name": "b", "nic": "5 B/s"},
    {"name": "c", "nic": "none"},
]


def errors(**keys: Any) -> list[tuple[tuple[str | int, ...], str]]:
    """Return where a section with these machines is wrong, and its problems."""
    section = ClusterSection.model_validate({"machines": MACHINES, **keys})
    return [(tuple(trail[1:]), problem) for trail, problem in network_errors(section)]


def link(name: str, **more: str) -> dict[str, str]:
    return {"name": name, "bandwidth": "9 B/s", **more}


def route(*through: str, source: str = "a", to: str = "b") -> dict[str, Any]:
    return {"from": source, "to": to, "through": [*through]}


def rack(name: str, *machines: str, **more: str) -> dict[str, Any]:
    return {"name": name, "machines": [*machines], "uplink": "7 B/s", **more}


def test_links_have_names_of_their_own() -> None:
    links = [link("x"), link("y"), link("x"), link("in"), link("out")]
    routes = [route("out", "x", "y", "in")]

    found = errors(links=links, routes=routes)
    assert [trail for trail, _ in found] == [
        ("links", position, "name") for position in (2, 3, 4)
    ]
    assert found[0][1] == "a link cannot be called 'x', write another name"


def test_a_latency_that_delays_nothing_is_refused() -> None:
    links = [link("x", latency="1 ms"), link("y", latency="2 ms"), link("z")]
    routes = [route("out", "x", "in")]

    (found,) = errors(links=links, routes=routes)
    problem = "no route crosses 'y', so it delays nothing"
    assert found == (("links", 1, "latency"), problem)


def test_routes_join_machines_by_links_that_there_are_once() -> None:
    routes = [
        route("out", "wire", "in"),
        route("out", "x", "in", "x", "x"),
        route("out", "b in", source="q", to="r"),
        route("out", "side up", "in"),
    ]

    found = errors(links=[link("x")], routes=routes, racks=[rack("side", "a")])
    trails = [trail for trail, _ in found]
    assert trails == [
        ("routes", 0, "through"),
        ("routes", 1, "through"),
        ("routes", 2, "from"),
        ("routes", 2, "to"),
    ]
    assert found[0][1].startswith("no link 'wire', ")
    assert found[1][1] == "the route crosses 'x' 3 times, once is right"
    assert found[2][1].startswith("no machine 'q', ")


def test_racks_have_machines_of_their_own_and_some_stand_outside() -> None:
    racks = [
        rack("left", "a", latency="1 ms"),
        rack("left", "b", "a"),
        rack("right", "d", latency="1 ms"),
    ]

    found = errors(racks=racks)
    assert [trail for trail, _ in found] == [
        ("racks", 1, "name"),
        ("racks", 1, "machines"),
        ("racks", 2, "machines"),
    ]
    assert found[0][1] == "a second rack called 'left'"
    assert found[1][1] == "'a' stands in rack 'left' already"
    assert found[2][1].startswith("no machine 'd', ")


@pytest.mark.parametrize(
    ("machines", "latency", "is_wrong"),
    [("abc", "1 ms", True), ("ab", "1 ms", False), ("abc", "0 ms", False)],
)
def test_the_uplink_of_a_rack_of_all_machines_delays_nothing(
    machines: str, latency: str, *, is_wrong: bool
) -> None:
    found = errors(racks=[rack("all", *machines, latency=latency)])

    trails = [trail for trail, _ in found]
    assert trails == [("racks", 0, "latency")] * is_wrong


def test_a_nic_is_written_as_it_was_read() -> None:
    rates = {"in": "3 B/s", "out": "4 B/s"}
    late = {**rates, "latency": "2 s"}
    striped = [
        {**rates, "latency": "1 s"},
        {"in": "5 B/s", "out": "6 B/s", "latency": "1 s"},
    ]
    machines = [{"nic": nic} for nic in (rates, late, striped, "none")]
    section = ClusterSection.model_validate({"machines": machines})

    written = [
        machine.model_dump(mode="json", by_alias=True)["nic"]
        for machine in section.machines
    ]
    assert "latency" not in written[0]
    assert "latency" in written[1]
    assert len(written[2]) == 2
    assert written[3] == "none"
    total = section.machines[2].nic
    assert (total.inward, total.outward, total.latency.inward) == (8.0, 10.0, 1.0)


def test_equal_machines_are_numbered_behind_those_before_them() -> None:
    assert names_of("x", 1, 4) == ["x"]
    assert names_of("x", 2, 4) == ["x0", "x1"]
    assert names_of(None, 1, 4) == ["m4"]
    assert names_of(None, 2, 4) == ["m4", "m5"]


def test_slots_are_whole_pieces_and_at_least_one() -> None:
    assert [count_slots(pieces) for pieces in (0.5, 1.0, 2.9)] == [1, 1, 2]
    assert count_slots(2.0 * MOST_FEW) == MOST_FEW


def test_a_machine_has_room_for_as_much_as_it_offers() -> None:
    """Resources that a machine leaves out have no limit, but GPUs others state do."""
    machines = [
        {"name": "a", "nic": "1 B/s", "memory": "4 kB", "gpu": 2},
        {"name": "b", "nic": "1 B/s", "memory": "5 kB"},
        {"name": "c", "nic": "1 B/s", "gpu": 1},
    ]
    section = ClusterSection.model_validate({"machines": machines})
    assert section.roomy({"memory": 4000.0}) == ("a", "b", "c")
    assert section.roomy({"memory": 4001.0}) == ("b", "c")
    assert section.roomy({"gpu": 1.0}) == ("a", "c")
    assert section.roomy({"gpu": 2.0, "memory": 4000.0}) == ("a",)
    assert section.roomy({}) == ("a", "b", "c")
    without = ClusterSection.model_validate({"machines": machines[1:2]})
    assert without.roomy({"gpu": 8.0}) == ("b",)
