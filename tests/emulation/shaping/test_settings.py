"""Paces of senders at time scales, and settings as manifests state them, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from emu.emulation.shaping import EmulationSettings, pace_at


@pytest.mark.parametrize(
    ("time_scale", "longest", "shortest"),
    [
        (0.25, 0.002, 0.0005),
        (1.0, 0.002, 0.0005),
        (4.0, 0.004, 0.0005),
        (25.0, 0.010, 0.0005),
        (400.0, 0.020, 0.0005),
    ],
)
def test_looks_are_apart_by_the_root_of_the_scale(
    time_scale: float, longest: float, shortest: float
) -> None:
    """And leads are three times as long, where the fluid ends flows."""
    settings = EmulationSettings(flow_ends="fluid", catch_up=0.5)

    pace = pace_at(time_scale, settings)

    assert pace.longest == pytest.approx(longest)
    assert pace.shortest == shortest
    assert pace.lead_time == pytest.approx(3 * longest)
    # What a bucket keeps are emulated seconds.
    assert pace.catch_up == 0.5 * time_scale
    assert pace_at(time_scale).lead_time == 0.0
    assert pace_at(time_scale).catch_up == math.inf


def test_no_look_is_later_than_the_longest() -> None:
    pace = pace_at(1.0, quantum=0.0002)

    assert pace.shortest == pace.longest == 0.0002


def stated(name: str, value: float) -> dict[str, Any]:
    return {name: value}


@pytest.mark.parametrize(
    "name",
    ["time_scale", "byte_scale", "deadline", "heartbeat_timeout", "memory_limit"],
)
def test_scales_and_limits_are_positive_and_finite(name: str) -> None:
    for value in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=f"{name} is {value}; it must be positive"):
            EmulationSettings(**stated(name, value))
    assert getattr(EmulationSettings(**stated(name, 1e-9)), name) == 1e-9


def test_a_sender_may_be_allowed_to_catch_up_nothing() -> None:
    assert EmulationSettings(catch_up=0.0).catch_up == 0.0
    assert EmulationSettings(catch_up=0.0).limits_bursts
    for value in (-1e-9, math.nan):
        with pytest.raises(ValueError, match="it must not be negative"):
            EmulationSettings(catch_up=value)


def test_settings_are_those_that_a_manifest_states() -> None:
    """One of before flows ended by their arrival says nothing of it."""
    assert EmulationSettings.from_json({"time_scale": 3.0}) == EmulationSettings(
        time_scale=3.0, flow_ends="fluid"
    )
    for settings in (
        EmulationSettings(byte_scale=0.5, compute="real"),
        EmulationSettings(flow_ends="fluid", catch_up=0.25),
    ):
        noted = settings.to_json()
        assert EmulationSettings.from_json(noted) == settings
        assert (noted["catch_up"] is None) == (settings.catch_up == math.inf)


@pytest.mark.parametrize(
    ("stated", "has_kills", "grouping"),
    [
        ("auto", True, "task"),
        ("auto", False, "auto"),
        ("machine", True, "machine"),
        ("task", False, "task"),
    ],
)
def test_who_may_be_killed_has_a_process_of_its_own_unless_it_is_stated(
    stated: str, grouping: str, *, has_kills: bool
) -> None:
    settings = EmulationSettings(processes=stated)  # type: ignore[arg-type]

    assert settings.grouping(has_kills=has_kills) == grouping
