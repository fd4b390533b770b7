"""Sets of machines that are tried, listed by hand."""

from __future__ import annotations

from itertools import combinations

import pytest

from emu.prediction.placement.machine_sets import MOST_SETS, machine_sets
from emu.problem import CapacityChange, Cluster, Job, Machine, Task
from emu.problem.changes import SpeedChange

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
