"""Sets of machines that are tried, listed by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from emu.prediction.placement.machine_sets import (
    MOST_SETS,
    _spread_evenly,
    machine_sets,
)
from emu.problem import CapacityChange, Cluster, Job, Machine, Task
from emu.problem.changes import SpeedChange
from emu.problem.fields.cluster_section import RackSection, rack_links, rack_routes

JOB = Job((Task("a", "x"),), (), 1)


def unlike(count: int) -> Cluster:
    """Return machines of which later ones have faster NICs, each way another rate."""
    machines = [Machine(f"m{n}", 10.0 + n, 30.0 + n) for n in range(count)]
    return Cluster(tuple(machines))


def test_few_kinds_are_tried_in_all_numbers() -> None:
    """Two machines are alike: the first of them stands for either."""
    machines = (
        Machine("a", 3.0, 4.0),
        Machine("b", 9.0, 4.0),
        Machine("c", 3.0, 4.0),
    )
    found = machine_sets(JOB, Cluster(machines), 9)

    assert found[0] == ("a", "b", "c")
    assert sorted(found[1:]) == [("a",), ("a", "b"), ("a", "c"), ("b",)]
    assert [len(names) for names in found[1:]] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"changes": (CapacityChange(1.0, "c in", 2.0),)},
        {"speed_changes": (SpeedChange(1.0, "c", 0.5),)},
    ],
)
def test_a_machine_that_changes_is_like_no_other(change: dict[str, object]) -> None:
    machines = tuple(Machine(name, 3.0, 4.0) for name in "abc")
    cluster = Cluster(machines, **change)  # type: ignore[arg-type]

    assert ("c",) in machine_sets(JOB, cluster, 9)
    assert ("c",) not in machine_sets(JOB, Cluster(machines), 9)


@pytest.mark.parametrize("most", [2, 5, 31])
def test_so_many_sets_are_tried_from_the_smallest_to_the_largest(most: int) -> None:
    """Five machines that all differ make 31 sets: as many as are listed."""
    found = machine_sets(JOB, unlike(5), most)

    assert len(found) == most
    assert len(found[0]) == 5
    assert len(found[1]) == 1
    if most > 2:
        assert len(found[-1]) == 4
        assert [*map(len, found[1:])] == sorted(map(len, found[1:]))
    assert machine_sets(JOB, unlike(5), 1) == found[:1]


def test_all_sets_are_tried_where_they_are_32_or_fewer() -> None:
    """Two kinds of 2 and 10 machines make 3 x 11 numbers less that of no machine."""

    def listed(first: int, second: int) -> int:
        rates = [3.0] * first + [5.0] * second
        machines = [Machine(f"m{n}", rate, rate) for n, rate in enumerate(rates)]
        return len(machine_sets(JOB, Cluster(tuple(machines)), 99))

    assert listed(2, 10) == 32
    assert listed(1, 15) == 31
    # Of 33 prefixes are left: of all 17 machines, and of those of either kind.
    assert listed(1, 16) < 33


def test_of_very_many_sets_prefixes_are_tried() -> None:
    """In order of the slower way of their NICs, which the last machine has fastest."""
    found = machine_sets(JOB, unlike(6), MOST_SETS)

    names = [f"m{n}" for n in range(6)]
    fastest = [tuple(names[first:]) for first in range(5, 0, -1)]
    slowest = [tuple(names[:count]) for count in range(1, 6)]
    assert {*found} - {*slowest} == {tuple(names), *fastest}


def test_sets_of_a_size_hold_what_is_held_and_all_of_them_otherwise() -> None:
    names = [f"m{n}" for n in range(4)]
    pairs = machine_sets(JOB, unlike(4), 99, size=2)
    assert pairs == [*combinations(names, 2)]
    held = machine_sets(JOB, unlike(4), 99, held=["m2"])
    assert all("m2" in found for found in held)
    assert len(held) == 8


#: Rates into and out of machines: by the slower one m0 is last and m5 first, by those
#: into them m0 is first, by those out of them m1 is before m4.
BOTH_WAYS = ((9.0, 1.0), (2.0, 8.0), (7.0, 3.0), (4.0, 6.0), (5.5, 5.0), (6.0, 9.0))


def test_prefixes_are_of_the_slower_way_then_of_the_device() -> None:
    """The mean over all tasks ranks m2 first; the slower way of the NICs ranks m5."""
    machines = tuple(Machine(f"m{n}", *rates) for n, rates in enumerate(BOTH_WAYS))
    mean = {"m0": 4.0, "m1": 3.0, "m2": 1.5, "m3": 6.0, "m4": 5.0, "m5": 2.0}
    spread = {"m0": 0.5, "m1": 2.5, "m2": 1.4, "m3": 0.1, "m4": 0.2, "m5": 0.3}
    slower = {name: mean[name] + spread[name] for name in mean}
    faster = {name: mean[name] - spread[name] for name in mean}
    job = Job((Task("a", "x", slowness=slower), Task("b", "x", slowness=faster)), (), 1)

    found = machine_sets(job, Cluster(machines), MOST_SETS)

    expected = set()
    by_device = "251043"
    for order in ("543210", by_device):
        for count in range(1, 7):
            names = sorted(f"m{number}" for number in order[:count])
            expected.add(tuple(names))
    assert {*found} == expected


@pytest.mark.parametrize(
    "change",
    [
        {"resources": {"gpu": 2.0, "ram": 4.0}},
        {"resources": {"gpu": 3.0}},
        {"slots": {"lambda": 3}},
        {"bandwidth_in": 2.0},
        {"bandwidth_out": 2.0},
        {"latency_in": 2.0},
        {"latency_out": 2.0},
        {"speed": 2.0},
    ],
)
def test_machines_are_alike_in_all_that_a_job_may_notice(
    change: dict[str, Any],
) -> None:
    """The first of two alike machines stands for both; one change parts them."""
    machine = Machine(
        "a",
        3.0,
        4.0,
        {"gpu": 2.0},
        {"lambda": 2},
        latency_in=0.25,
        latency_out=0.5,
    )
    twin = replace(machine, name="b")
    other = replace(twin, **change)

    assert machine_sets(JOB, Cluster((machine, twin)), 9) == [("a", "b"), ("a",)]
    found = machine_sets(JOB, Cluster((machine, other)), 9)
    assert sorted(found) == [("a",), ("a", "b"), ("b",)]


def test_a_machine_on_which_a_task_is_slower_is_of_another_kind() -> None:
    machines = tuple(Machine(name, 3.0, 4.0) for name in "ab")
    job = Job((Task("x", "x"), Task("y", "x", slowness={"b": 1.5})), (), 1)

    assert ("b",) in machine_sets(job, Cluster(machines), 9)


def test_racks_are_tried_one_after_the_other_and_within_them() -> None:
    """Six machines by the slower way, m5 first, of racks of three."""
    machines = tuple(Machine(f"m{n}", *rates) for n, rates in enumerate(BOTH_WAYS))
    names = [machine.name for machine in machines]
    racks = [
        RackSection.model_validate(
            {"name": name, "machines": members, "uplink": f"{rate} B/s"}
        )
        for name, members, rate in (
            ("r0", names[:3], 5.0),
            ("r1", names[3:], 7.0),
        )
    ]
    cluster = Cluster(
        machines, tuple(rack_links(racks)), tuple(rack_routes(racks, names))
    )

    found = machine_sets(JOB, cluster, MOST_SETS)
    # Beside the prefixes of all: first those of the rack of m5, then of the other one.
    of_racks = {("m2",), ("m1", "m2"), ("m0", "m1", "m2")}
    prefixes = {tuple(names[first:]) for first in range(6)}
    assert {*found} == of_racks | prefixes

    pairs = machine_sets(JOB, cluster, MOST_SETS, size=2)
    assert ("m1", "m2") in pairs
    assert all(len(pair) == 2 for pair in pairs)


@pytest.mark.parametrize(
    ("most", "places"),
    [(9, [0, 1, 2, 3, 4]), (5, [0, 1, 2, 3, 4]), (3, [0, 2, 4]), (2, [0, 4]), (0, [])],
)
def test_sets_are_left_evenly(most: int, places: list[int]) -> None:
    sets: list[tuple[int, ...]] = [(number,) for number in range(5)]

    assert _spread_evenly(sets, most) == [sets[place] for place in places]


def test_one_machine_is_the_only_set() -> None:
    assert machine_sets(JOB, unlike(1), 5) == [("m0",)]
    assert machine_sets(JOB, unlike(1), 5, size=1) == [("m0",)]
