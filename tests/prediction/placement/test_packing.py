"""Bins by hand: every vector of counts that fits, and what first fit finds."""

from __future__ import annotations

import numpy as np
import pytest

from emu.prediction.placement.packing import (
    Packing,
    ResourceLoad,
    infeasibility,
    overload,
    resource_loads,
)
from emu.prediction.placement.space import Space
from emu.problem import Cluster, Job, Machine, Placement, Task


def test_parts_of_a_unit_fit_as_often_as_there_is_room() -> None:
    """Four halves fill a bin of two; one of three quarters takes all of a resource."""
    packing = Packing(
        demand=np.array([[0.5, 0.0], [0.75, 3.0]]),
        sizes=(9, 2),
        free=np.array([[2.0, 3.0], [0.4, 9.0]]),
    )

    fit = [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1], [3, 0], [4, 0]]
    assert packing.options(0).tolist() == fit
    assert packing.options(1).tolist() == [[0, 0]]


def test_a_group_of_no_demand_is_bounded_by_its_size() -> None:
    packing = Packing(np.array([[0.0]]), (3,), np.array([[0.0]]))

    assert packing.options(0).tolist() == [[0], [1], [2], [3]]


@pytest.mark.parametrize("scale", [0.125, 1.0, 64.0])
def test_first_fit_takes_large_items_first(scale: float) -> None:
    """Two of 2 and one of 3, into bins of 5 and 4."""
    packing = Packing(
        demand=np.array([[2.0, 7.0], [3.0, 0.0]]) * scale,
        sizes=(2, 1),
        free=np.array([[5.0, np.inf], [4.0, np.inf], [9.0, np.inf]]) * scale,
    )

    assert packing.first_fit([0, 1]) == [(0, (1, 1)), (1, (1, 0))]
    assert packing.first_fit([1, 0]) == [(1, (0, 1)), (0, (2, 0))]
    assert packing.first_fit([1]) is None


def test_loads_are_of_every_machine_and_resource() -> None:
    tasks = (Task("a", "x", {"gpu": 1.0, "ram": 3.0}), Task("b", "x", {"gpu": 2.0}))
    machines = (
        Machine("m0", 3.0, 4.0, {"gpu": 4.0}),
        Machine("m1", 5.0, 6.0, {"disk": 0.0, "ram": 9.0}),
    )
    loads = resource_loads(Job(tasks, (), 1), Cluster(machines), Placement((0, 0)))

    found = [(row.machine, row.resource, row.used, row.capacity) for row in loads]
    assert found == [
        ("m0", "disk", 0.0, np.inf),
        ("m0", "gpu", 3.0, 4.0),
        ("m0", "ram", 3.0, np.inf),
        ("m1", "disk", 0.0, 0.0),
        ("m1", "gpu", 0.0, np.inf),
        ("m1", "ram", 0.0, 9.0),
    ]
    assert [row.fraction for row in loads] == [0.0, 0.75, 0.0, 0.0, 0.0, 0.0]
    assert ResourceLoad("m", "gpu", used=1.0, capacity=0.0).fraction == np.inf


def test_first_fit_leaves_out_what_no_bin_has_and_no_item_needs() -> None:
    """Items of 2 and 3, into bins of 5 and 4; nowhere is any of the other resource."""
    packing = Packing(
        demand=np.array([[2.0, 0.0], [3.0, 0.0]]),
        sizes=(2, 1),
        free=np.array([[5.0, 0.0], [4.0, 0.0]]),
    )
    assert packing.first_fit([0, 1]) == [(0, (1, 1)), (1, (1, 0))]


def space_of(cores: list[float], *demands: float, pinned: str | None = None) -> Space:
    machines = [
        Machine(f"m{number}", 1.0, 1.0, {"cpu": room})
        for number, room in enumerate(cores)
    ]
    tasks = [
        Task(f"t{number}", "x", {"cpu": demand}, pinned=pinned)
        for number, demand in enumerate(demands)
    ]
    return Space(Job(tuple(tasks), (), 1), Cluster(tuple(machines)))


def test_a_machine_that_has_nothing_is_full_where_something_is_asked_of_it() -> None:
    assert [*overload(space_of([0.0, 2.0], 0.0, 0.0, pinned="m0"))] == []
    assert [*overload(space_of([3.0], 1.0, 2.0, pinned="m0"))] == []
    (found,) = overload(space_of([0.0, 2.0], 0.5, 0.25, pinned="m0"))
    assert found[:3] == ("m0", "cpu", 0.75)


def test_parts_of_a_core_that_fill_no_machine_are_too_much_for_all() -> None:
    """Three times 0.6 are less than two, but no machine has room for two of them."""
    error = infeasibility(space_of([1.0, 1.0], 0.6, 0.6, 0.6))
    words = "of 1.8 cpu that the movable tasks need, the machines can hold 1.2 at best"
    assert str(error).startswith(words)
