"""Machines and tuners: what they refuse, and the steps of a quota."""

from __future__ import annotations

import math
from typing import Any

import pytest

from emu.problem import Machine, Tuner


@pytest.mark.parametrize(
    ("fields", "story"),
    [
        ({"bandwidth_in": 0.0}, "bandwidth in is 0.0"),
        ({"bandwidth_out": 0.0}, "bandwidth out is 0.0"),
        ({"speed": 0.0}, "speed is 0.0, it must be positive and finite"),
        ({"speed": math.inf}, "speed is inf, it must be positive and finite"),
        ({"speed": math.nan}, "speed is nan, it must be positive and finite"),
        ({"resources": {"gpu": -1.0}}, "capacity of gpu is -1.0"),
        ({"slots": {"gpu": 0}}, "pool gpu has 0 slots"),
        ({"latency_in": -0.5}, "latency -0.5 is negative or not finite"),
        ({"latency_out": math.inf}, "latency inf is negative or not finite"),
        ({"latency_out": math.nan}, "latency nan is negative or not finite"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(
    fields: dict[str, Any], story: str
) -> None:
    good: dict[str, Any] = {"bandwidth_in": 3.0, "bandwidth_out": 4.0}
    with pytest.raises(ValueError, match=f"machine m: {story}"):
        Machine("m", **{**good, **fields})


def test_a_machine_at_its_limits() -> None:
    machine = Machine("m", 0.5, 0.25, {"gpu": 0.0}, {"cpu": 1}, latency_in=0.0)

    assert machine.has_nic
    assert not Machine("none", 0.0, 0.0).has_nic


@pytest.mark.parametrize(
    ("fields", "story"),
    [
        ({"period": 0.0005}, "a period of 0.0005 s"),
        ({"period": math.inf}, "a period of inf s"),
        ({"most": 0}, "a quota must be 1 or more"),
        ({"path": (3, 0, 2)}, "a quota must be 1 or more"),
    ],
)
def test_a_tuner_that_cannot_be_is_refused(fields: dict[str, Any], story: str) -> None:
    with pytest.raises(ValueError, match=f"tuner of gpu: {story}"):
        Tuner(0, "gpu", "cpu", **{"most": 5, **fields})
    assert Tuner(0, "gpu", "cpu", most=1, period=0.001, path=(1,)).most == 1


@pytest.mark.parametrize(
    ("quota", "lower", "higher"),
    [(1, 1, 2), (9, 8, 10), (10, 9, 11), (11, 9, 13), (20, 18, 22), (95, 85, 99)],
)
def test_a_quota_goes_by_a_tenth_down_or_up(
    quota: int, lower: int, higher: int
) -> None:
    """Rounded away from what it was; up to the most, and down to one."""
    assert Tuner(0, "gpu", "cpu", most=99).steps(quota) == {quota, lower, higher}


def test_a_tuner_looks_every_second_unless_stated() -> None:
    tuner = Tuner(0, "gpu", "cpu", most=9)

    assert (tuner.period, tuner.path) == (1.0, ())
    assert [sorted(tuner.steps(quota)) for quota in (1, 5, 9)] == [
        [1, 2],
        [4, 5, 6],
        [8, 9],
    ]
