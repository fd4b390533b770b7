"""Values of a file times a factor, each direction and link by itself."""

from __future__ import annotations

import json

import pytest

import emu
from emu.problem.fields.cluster_section import Latency, Nic
from emu.scenario.events_section import EventSection
from emu.scenario.scaled_values import (
    scale_events,
    scale_latency,
    scale_nic,
    scale_value,
    write_nic,
)
from emu.units import DURATION

NIC = {"in": "3 MB/s", "out": "5 MB/s"}


@pytest.mark.parametrize(
    ("links", "rates"),
    [
        ({"a in"}, (12e6, 5e6)),
        ({"a out"}, (3e6, 20e6)),
        ({"a in", "a out"}, (12e6, 2e7)),
    ],
)
def test_only_the_named_directions_are_scaled(
    links: set[str], rates: tuple[float, float]
) -> None:
    nic = Nic.model_validate(NIC)
    content = scale_nic(nic, "a out", "a in", names=links, factor=4.0)
    scaled = Nic.model_validate(content)
    assert (scaled.inward, scaled.outward) == rates


def test_events_of_other_links_stay_as_they_are() -> None:
    assert scale_nic(Nic.model_validate(NIC), "a out", "a in", {"b in"}, 4.0) is None
    events = [
        EventSection.model_validate({"at": "1 s", **change})
        for change in (
            {"link": "core", "bandwidth": "2 MB/s"},
            {"link": "edge", "bandwidth": "2 MB/s"},
            {"machine": "a", "nic": NIC},
        )
    ]
    assert scale_events(events, {"edge"}, 4.0) == {"events[1].bandwidth": "64 Mbit/s"}


def test_both_directions_of_a_latency_are_scaled() -> None:
    latency = Latency.model_validate({"in": "1 ms", "out": "7 ms"})
    scaled = scale_latency(latency, 3.0)
    assert (scaled.inward, scaled.outward) == pytest.approx((3e-3, 21e-3))


def test_of_two_links_on_a_way_the_one_that_holds_it_up_is_written() -> None:
    bare = {"name": "bare", "nic": "none"}
    content = {
        "cluster": {
            "machines": [{"name": "m", "nic": "9 B/s"}, bare],
            "links": [
                {"name": "wide", "bandwidth": "3 B/s"},
                {"name": "narrow", "bandwidth": "2 B/s"},
            ],
            "routes": [
                {"from": "m", "to": "bare", "through": ["out", "wide", "narrow"]},
                {"from": "bare", "to": "m", "through": ["wide", "in"]},
            ],
        },
        "job": {
            "system": "custom",
            "iterations": 1,
            "tasks": [
                {"name": "a", "time": "1 s", "pin": "m"},
                {"name": "b", "time": "1 s", "pin": "bare"},
            ],
            "flows": [{"from": "a", "to": "b", "volume": "12 B"}],
        },
    }
    explanation = emu.explain(emu.loads(json.dumps(content)))
    edits = {one.change.what: one.change.edit for one in explanation.improvements}
    edit = edits["link narrow twice as fast"]
    assert edit is not None
    rates = {key: edit[key] for key in edit if key.startswith("cluster.")}
    assert rates == {"cluster.links[1].bandwidth": "4 B/s"}


@pytest.mark.parametrize(
    ("rates", "latency", "written"),
    [
        ((3e6, 5e6), {}, {"in": "24 Mbit/s", "out": "40 Mbit/s"}),
        ((5e6, 5e6), {}, "40 Mbit/s"),
        (
            (5e6, 5e6),
            {"in": "1 ms", "out": "7 ms"},
            {
                "in": "40 Mbit/s",
                "out": "40 Mbit/s",
                "latency": {"in": "1 ms", "out": "7 ms"},
            },
        ),
    ],
)
def test_a_nic_is_one_rate_where_both_directions_are_equal(
    rates: tuple[float, float], latency: dict[str, str], written: object
) -> None:
    inward, outward = rates
    stated = Latency.model_validate(latency) if latency else Latency()
    assert write_nic(inward, outward, stated) == written


@pytest.mark.parametrize(
    ("stated", "factor", "written"),
    [
        (2.0, 3.0, "6 s"),
        ((1.0, 2.0), 3.0, ["3 s", "6 s"]),
        ({"default": 1.0, "quick": 0.5}, 3.0, {"default": "3 s", "quick": "1.5 s"}),
        # Nothing is the same in all iterations and on all devices.
        (2.0, 0.0, "0 s"),
        ((1.0, 2.0), 0.0, "0 s"),
        ({"default": 1.0, "quick": 0.5}, 0.0, "0 s"),
    ],
)
def test_a_value_is_scaled_in_the_shape_that_it_has(
    stated: object, factor: float, written: object
) -> None:
    assert scale_value(DURATION, stated, factor) == written
