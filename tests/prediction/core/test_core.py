"""Checks in Python of what is handed to C, which looks nothing up a second time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.prediction.core import ffi, lib, pointer, structure
from emu.prediction.scheduling import rate_policy
from emu.prediction.scheduling.compiled_problem import (
    JobArrays,
    Layout,
    job_arrays,
)
from emu.prediction.scheduling.state import longest_paths
from emu.testing import two_machine_example


def arrays(rule: str = "oes", **changes: Any) -> JobArrays:
    problem, _ = two_machine_example(3)
    good = job_arrays(problem.job, problem.cluster, rate_policy(rule))
    fields = {name: value for name, value in vars(good).items() if name != "core"}
    return JobArrays(**{**fields, **changes}) if changes else good


def test_a_rule_that_nobody_answers_for() -> None:
    with pytest.raises(ValueError, match="rule of one's own"):
        arrays("mrtf", policy=lib.OWN)


@pytest.mark.parametrize(
    "array",
    [np.zeros(3, np.complex128), np.zeros((3, 3))[:, 0], np.zeros(3, ">f8")],
    ids=["of another type", "with gaps", "with bytes the other way round"],
)
def test_an_array_that_c_would_read_wrongly(array: Any) -> None:
    with pytest.raises(ValueError, match=r"array"):
        pointer(array)


def test_an_array_of_another_kind_does_not_become_a_field() -> None:
    with pytest.raises(TypeError):
        structure("Ends", time=np.zeros(3, np.int64))
    assert pointer(np.empty(0)) == ffi.NULL


@pytest.mark.parametrize(
    ("field", "value", "story"),
    [
        ("destination", 6, "destination must be from 0 to 5"),
        ("source", -1, "source must be from 0 to 5"),
        ("lag", -1, "lag must be from 0"),
        ("lag", 3, "sent with lag must be from 0 to 3"),
        ("sent", 4, "sent must be from 0 to 3"),
        ("rounds", 4, "rounds must be from 0 to 3"),
        ("out_edge", 8, "out_edge must be from 0 to 7"),
        ("in_start", 9, "in_start must"),
        ("order", 6, "order must be from 0 to 5"),
        ("capacity", 0.0, "capacities must be positive"),
        ("capacity", np.nan, "capacities must be positive"),
        ("taken", 0, "taken must be from -1 to -1"),
    ],
)
def test_an_index_beyond_its_array(field: str, value: float, story: str) -> None:
    bad = getattr(arrays(), field).copy()
    bad[-1] = value
    with pytest.raises(ValueError, match=story):
        arrays(**{field: bad})


@pytest.mark.parametrize("field", ["sent", "rank", "control", "in_start"])
def test_an_array_that_is_too_short(field: str) -> None:
    short = getattr(arrays(), field)[:-1]
    with pytest.raises(ValueError, match=f"{field} must"):
        arrays(**{field: short})


@pytest.mark.parametrize(
    ("field", "value", "story"),
    [
        ("nic", 4, "nic must be from -1 to 3"),
        ("zone", 1, "zone must be from 0 to 0"),
        ("route_of", 1, "route_of must be from 0 to 0"),
        ("route_port", -3, "route_port must be from -2 to 3"),
    ],
)
def test_a_route_over_what_is_not_there(field: str, value: int, story: str) -> None:
    routes = arrays().routes
    bad = routes[field].copy()
    bad.flat[-1] = value
    with pytest.raises(ValueError, match=story):
        arrays(routes={**routes, field: bad})


def test_a_flow_over_a_nic_that_is_none() -> None:
    routes = arrays().routes
    none = arrays(routes={**routes, "nic": np.full_like(routes["nic"], -1)})
    with pytest.raises(ValueError, match="the NIC of a machine that has none"):
        Layout(none, np.array([0, 0, 1, 1, 0, 1]))


@pytest.mark.parametrize("machine", [-1, 2, 2**40])
def test_a_machine_that_is_not_there(machine: int) -> None:
    with pytest.raises(ValueError, match="a machine beyond 1"):
        Layout(arrays(), np.array([0, 0, 1, 1, 0, machine]))


def test_machines_in_other_numbers_are_refused() -> None:
    """The core would read two of 32 bits as one."""
    with pytest.raises(ValueError, match=r"must be int64 .* not int32"):
        Layout(arrays(), np.zeros(6, np.int32))


def test_times_that_do_not_fit() -> None:
    layout = Layout(arrays(), np.zeros(6, np.int64))
    with pytest.raises(ValueError, match="volumes of"):
        longest_paths(layout, np.zeros((6, 3)), np.zeros((8, 2)))


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=40))
def test_heaps_give_their_entries_back_in_order(keys: list[float]) -> None:
    key, item = np.zeros(len(keys)), np.zeros(len(keys), np.int64)
    for size, value in enumerate(keys):
        lib.heap_push(pointer(key), pointer(item), size, value, size)

    found = []
    for left in range(len(keys), 0, -1):
        found.append(keys[item[0]])
        assert key[0] == found[-1]
        lib.heap_pop(pointer(key), pointer(item), left)

    assert found == sorted(keys)
