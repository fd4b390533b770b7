"""Infrastructures of InfraGraph: units, links, types of machines and ends of edges."""

from __future__ import annotations

import re
from typing import Any

import pytest

from emu.errors import DataError
from emu.interchange import infragraph
from emu.interchange.accounted import Reading
from emu.interchange.infragraph import _expand, _links, read_infrastructure
from emu.interchange.topology import Topology, Wire


def component(name: str, count: int | None = None, **more: Any) -> dict[str, Any]:
    """Return a component whose type is its name."""
    counts = {} if count is None else {"count": count}
    return {"name": name, "choice": name, **counts, **more}


def edge(near: Any, far: Any, scheme: str = "", link: str = "in") -> dict[str, Any]:
    """Return an edge between two ends; a word is a component."""
    ends = [{"component": end} if isinstance(end, str) else end for end in (near, far)]
    schemes = {"scheme": scheme} if scheme else {}
    return {"ep1": ends[0], "ep2": ends[1], "link": link, **schemes}


def device(name: str, components: list[Any], edges: list[Any], **more: Any) -> Any:
    """Return a device whose link within has 1 GB/s."""
    link = {"name": "in", "bandwidth": {"gigabytes_per_second": 1}}
    return {
        "name": name,
        "components": components,
        "edges": edges,
        "links": [link],
        **more,
    }


#: Two NPUs, each with a NIC.
BOX = device(
    "box",
    [component("npu", 2), component("nic", 2), component("port")],
    [edge("npu", "nic")],
)


def infrastructure(edges: list[Any], **more: Any) -> Topology:
    """Return two boxes and two hubs of a port, with links of 2 GB/s between them."""
    link = {"name": "eth", "bandwidth": {"gigabytes_per_second": 2}}
    content = {
        "devices": [BOX, device("hub", [component("port", 1)], [])],
        "instances": [
            {"name": "a", "device": "box", "count": 2},
            {"name": "h", "device": "hub", "count": 2},
        ],
        "links": [link],
        "edges": edges,
        **more,
    }
    return read_infrastructure(content, "two.json")


def end(instance: str, part: str) -> dict[str, str]:
    """Return an end of an edge between instances."""
    return {"instance": instance, "component": part}


@pytest.mark.parametrize(
    ("unit", "rate"),
    [
        ("gigabits_per_second", 1e9),
        ("gigabytes_per_second", 8e9),
        ("giga_bytes_per_second", 8e9),
        ("giga_bits_per_second", 1e9),
        ("gigatransfers_per_second", 1e9),
        ("giga_transfers_per_second", 1e9),
    ],
)
def test_a_rate_is_bytes_of_its_unit(unit: str, rate: float) -> None:
    """A byte is eight bits, and a transfer one; the choice is one of two units."""
    stated = {"choice": unit, unit: 8}
    for amount in (stated, {unit: 8}, {"ms": 3, **stated}):
        reading = Reading({"links": [{"name": "l", "bandwidth": amount}]}, "device")
        assert _links(reading) == {"l": Wire(rate, 0.0)}


@pytest.mark.parametrize(
    ("unit", "seconds"), [("ms", 5e-3), ("us", 5e-6), ("ns", 5e-9)]
)
def test_a_latency_is_seconds_of_its_unit(unit: str, seconds: float) -> None:
    """It may stand under what is physical, as of some versions; 0 is one, too."""
    link = {"name": "l", "latency": {unit: 5}}
    for content in (link, {"name": "l", "physical": link}):
        (wire,) = _links(Reading({"links": [content]}, "device")).values()
        assert wire.rate == 0.0
        assert wire.latency == pytest.approx(seconds, rel=1e-12)
    link["latency"] = {unit: 0, "odd": 1}
    assert _links(Reading({"links": [link]}, "device"))["l"].latency == 0.0
    link["bandwidth"] = {"gigabytes_per_second": 0}
    with pytest.raises(ValueError, match="bandwidth is 0 gigabytes_per_second"):
        _links(Reading({"links": [link]}, "device"))
    link["latency"] = {"ns": 1, "us": 2}
    problem = "latency is in us and ns, write one of them as its choice"
    with pytest.raises(ValueError, match=problem):
        _links(Reading({"links": [{**link, "bandwidth": {}}]}, "device"))
    with pytest.raises(ValueError, match="two links are called 'l'"):
        _links(Reading({"links": [{"name": "l"}, {"name": "l"}]}, "device"))


def test_a_choice_and_a_description_are_no_units() -> None:
    """Without a unit beside them nothing is stated."""
    for amount in ({"choice": ""}, {"description": "to be measured"}):
        reading = Reading({"links": [{"name": "l", "bandwidth": amount}]}, "device")
        assert _links(reading) == {"l": Wire(0.0, 0.0)}


@pytest.mark.parametrize("unit", ["terabits_per_second", "ms"])
def test_a_rate_in_another_unit_is_refused(unit: str) -> None:
    """It passed for a link without a rate, which has 64 GB/s, or for bytes."""
    link = {"name": "l", "bandwidth": {unit: 8}}
    with pytest.raises(ValueError, match=f"is in '{unit}', write gigabits_per_second"):
        _links(Reading({"links": [link]}, "device"))


def test_a_link_without_a_rate_keeps_its_latency() -> None:
    links = [{"name": "in", "latency": {"us": 2}}]
    box = device("box", [component("npu", 2)], [edge("npu[0]", "npu[1]")], links=links)
    read = read_infrastructure(box, "box.json")
    assert {*read.wires.values()} == {Wire(64e9, 2 * 1e-6)}
    assert read.left_out == {"bandwidth of link in, not stated: 64 GB/s": 1}


def test_edges_pair_instances_and_their_components() -> None:
    """Equal counts pair one to one; otherwise all of one side meet the other."""
    one_by_one = infrastructure(
        [
            edge(end("a", "nic[0]"), end("h", "port"), link="eth"),
            edge(end("a[0]", "nic[1]"), end("h[1]", "port"), link="eth"),
            edge(end("a[1]", "nic[1]"), end("h[1]", "port"), link="eth"),
            edge(end("h[0]", "port"), end("h[1]", "port"), link="eth"),
        ]
    )
    way = one_by_one.routes["a.0.npu.0", "a.1.npu.0"]
    assert way == [
        "a.0.npu.0-a.0.nic.0",
        "a.0.nic.0-h.0.port.0",
        "h.0.port.0-h.1.port.0",
        "h.1.port.0-a.1.nic.0",
        "a.1.nic.0-a.1.npu.0",
    ]
    assert [one_by_one.wires[name].rate for name in way] == [1e9, 2e9, 2e9, 2e9, 1e9]
    assert one_by_one.routes["a.0.npu.1", "a.1.npu.0"][1] == "a.0.nic.1-h.1.port.0"


def test_of_two_instances_on_either_side_each_meets_its_own() -> None:
    """All components of the two meet, and none of them another instance's."""
    read = infrastructure(
        [
            edge(end("a", "nic"), end("h", "port"), "many2many", link="eth"),
            edge(end("h[0]", "port"), end("h[1]", "port"), link="eth"),
        ]
    )
    hub_wires = [name for name in read.wires if ".nic." in name and "-h." in name]
    assert hub_wires == [
        f"a.{n}.nic.{nic}-h.{n}.port.0" for n in (0, 1) for nic in (0, 1)
    ]


def test_ends_of_unequal_numbers_of_instances_are_one_row() -> None:
    """Two boxes of two NICs at one hub: of one to one only the first pair is there."""
    with pytest.raises(DataError, match=r"a.0.npu.0 and a.0.npu.1 are not joined"):
        infrastructure([edge(end("a", "nic"), end("h[0]", "port"), link="eth")])
    far = end("h[0]", "port")
    read = infrastructure([edge(end("a", "nic"), far, "many2many", link="eth")])
    hub_wires = [name for name in read.wires if name.endswith("-h.0.port.0")]
    assert hub_wires == [f"a.{a}.nic.{n}-h.0.port.0" for a in (0, 1) for n in (0, 1)]
    # Ports of boxes, and the other hub.
    assert read.left_out == {"component port, which nothing joins": 3}


def test_connections_of_what_is_missing_are_left_out() -> None:
    """Whichever end it is; both ends name an instance, a number, and a component."""
    read = infrastructure(
        [edge(end("a", "nic"), end("h[0]", "port"), "many2many", link="eth")],
        instances=[
            {"name": "a", "device": "box", "count": 2},
            {"name": "h", "device": "hub"},
            {"name": "x", "device": "gone", "count": 3},
        ],
        connections=[
            "x.0.nic.0.eth.h.0.port.0",
            "h.0.port.0.eth.x.0.nic.0",
            "a.0.port.0.eth.h.0.port.0",
        ],
    )
    assert read.left_out == {
        "instance x of device gone, which is not in the file": 1,
        "connection of an instance of a device that is not there": 2,
        "component port, which nothing joins": 1,
    }
    assert read.wires["a.0.port.0-h.0.port.0"] == Wire(2e9)


@pytest.mark.parametrize(
    ("counts", "kind"),
    [
        ({"xpu": 2, "npu": 2, "gpu": 2, "cpu": 2}, "npu"),
        ({"gpu": 3, "xpu": 2, "cpu": 2, "npu": 1}, "xpu"),
        ({"cpu": 2, "gpu": 2, "xpu": 1}, "gpu"),
    ],
)
def test_machines_are_of_the_first_type_in_order(
    counts: dict[str, int], kind: str
) -> None:
    """Components of no usual type are counted among what is left out."""
    names = [*counts]
    components = [component(name, count) for name, count in counts.items()]
    components += [component("hub", 1), component("fan", 2), component("ash", 3)]
    edges = [edge(name, "hub", "many2many") for name in (*names, "fan", "ash")]
    read = read_infrastructure(device("box", components, edges), "box.json")

    assert read.machines == [f"box.0.{kind}.{n}" for n in range(counts[kind])]
    unused = {"ash": 3, "cpu": counts.get("cpu", 0), "fan": 2, "hub": 1}
    assert read.left_out == {
        f"component {name}, but for its links": count
        for name, count in unused.items()
        if count
    }
    assert [*read.left_out] == sorted(read.left_out)
    assert read.notes == ["no instances: one box is taken"]


def test_a_type_stands_under_the_key_that_is_chosen() -> None:
    """Since version 1 the key holds the type of its own; without, it is the type."""
    components = [
        {"name": "one", "choice": "custom", "custom": {"type": "npu"}, "count": 2},
        {"name": "two", "choice": "switch", "switch": {}},
        {"name": "old", "type": "nic"},
    ]
    edges = [edge("one", "two", "many2many"), edge("old", "two")]
    read = read_infrastructure(device("box", components, edges), "box.json")
    assert read.machines == ["box.0.one.0", "box.0.one.1"]
    assert read.left_out == {}


def test_a_device_within_a_device_has_its_own_components() -> None:
    """The outer one stands for an infrastructure; its edge names both in either way."""
    inner = device("card", [component("npu", 2)], [edge("npu[0]", "npu[1]")])
    outer = device(
        "host",
        [{"name": "card", "choice": "device", "count": 2}, component("hub", 1)],
        [
            edge({"device": "card[0]", "component": "npu"}, "hub", "many2many"),
            edge("card[1].npu", "hub", "many2many"),
        ],
    )
    read = read_infrastructure({"devices": [inner, outer]}, "host.json")
    npus = [f"host.0.card.{card}.npu.{npu}" for card in (0, 1) for npu in (0, 1)]
    assert read.machines == npus
    assert read.routes[npus[0], npus[3]] == [
        "host.0.card.0.npu.0-host.0.hub.0",
        "host.0.hub.0-host.0.card.1.npu.1",
    ]
    with pytest.raises(DataError, match="device 'card' is not in the file"):
        read_infrastructure({"devices": [outer]}, "host.json")
    with pytest.raises(DataError, match=r"has no instance .* \(card, card2\)"):
        read_infrastructure(
            {"devices": [inner, {**inner, "name": "card2"}]}, "host.json"
        )
    with pytest.raises(DataError, match=r"has no instance .* \(none\): write"):
        read_infrastructure({"instances": []}, "host.json")
    with pytest.raises(DataError, match="two devices are called 'card'"):
        read_infrastructure({"devices": [inner, inner]}, "host.json")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"components": [component("npu"), component("npu")]}, "two components are"),
        ({"components": [component("npu", components=[{}])]}, "within 'npu', which"),
        ({"edges": [edge("npu", "gpu")]}, "box has no component 'gpu'"),
        ({"edges": [edge("npu", "nic", "ring")]}, "has a scheme 'ring', one2one and"),
        ({"edges": [edge("npu", "nic", link="x")]}, "an edge names link 'x', which"),
        ({"edges": [edge("npu[0]x", "nic")]}, r"found 'npu\[0\]x', not name\[first:"),
        ({"connections": ["npu.0.in.nic"]}, "connection 'npu.0.in.nic' is not of five"),
        ({"connections": ["npu.0.in.nic.7.x"]}, "is not of five words"),
    ],
)
def test_a_device_that_cannot_be_is_refused(
    changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        read_infrastructure({**BOX, **changes}, "box.json")


def test_an_infrastructure_that_cannot_be_is_refused() -> None:
    with pytest.raises(DataError, match="there is no instance 'b' of a device"):
        infrastructure([edge(end("b", "nic"), end("h", "port"), link="eth")])
    with pytest.raises(DataError, match="two instances are called 'a'"):
        infrastructure([], instances=[{"name": "a", "device": "box"}] * 2)
    for words in ("a.0.nic.0.eth.h.0.port", "a.0.nic.0.eth.h.0.port.0.x"):
        with pytest.raises(DataError, match="is not of nine words"):
            infrastructure([], connections=[words])


def test_as_many_components_are_read_as_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two NPUs, two NICs and a port are five."""
    edges = [edge("npu", "nic"), edge("nic", "port", "many2many")]
    box = {**BOX, "edges": edges}
    monkeypatch.setattr(infragraph, "_MOST_PLACES", 5)
    assert len(read_infrastructure(box, "box.json").machines) == 2
    monkeypatch.setattr(infragraph, "_MOST_PLACES", 4)
    with pytest.raises(DataError, match="it has more than 4 components"):
        read_infrastructure(box, "box.json")


@pytest.mark.parametrize(
    ("stated", "numbers"),
    [
        ("x", [0, 1, 2, 3]),
        ("x[]", [0, 1, 2, 3]),
        ("x[:]", [0, 1, 2, 3]),
        ("x[3]", [3]),
        ("x[-4]", [0]),
        ("x[1:4:2]", [1, 3]),
        ("x[:2]", [0, 1]),
        ("x[2:]", [2, 3]),
        ("x[:-1]", [0, 1, 2]),
        ("x[-2:]", [2, 3]),
        ("x[-4:]", [0, 1, 2, 3]),
        ("x[:4]", [0, 1, 2, 3]),
        ("x[1:4:9]", [1]),
    ],
)
def test_a_slice_names_what_python_s_does(stated: str, numbers: list[int]) -> None:
    assert [*_expand(stated, 4)] == [f"x.{number}" for number in numbers]
    assert [*_expand("x", 0)] == []


@pytest.mark.parametrize(
    "stated", ["x[4]", "x[-5]", "x[4:]", "x[2:1]", "x[:5]", "x[-5:]", "x[:-5]"]
)
def test_a_slice_of_none_or_beyond_the_end_is_refused(stated: str) -> None:
    """An edge of none went missing; of a number the error did not say which it was."""
    problem = re.escape(f"found {stated!r}, and there are 4")
    with pytest.raises(ValueError, match=f"^{problem}$"):
        _expand(stated, 4)
