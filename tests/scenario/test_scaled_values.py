"""Values of a file times a factor, each direction and link by itself."""

from __future__ import annotations

import pytest

from emu.problem.fields.cluster_section import Latency, Nic
from emu.scenario.events_section import EventSection
from emu.scenario.scaled_values import scale_events, scale_latency, scale_nic

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
