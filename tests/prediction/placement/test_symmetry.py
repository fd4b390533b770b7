"""Tasks that can change places, found by hand, and placements named anew by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.prediction.core import Record
from emu.prediction.placement.space import Space
from emu.prediction.placement.symmetry import (
    find_symmetry,
    hub_followers,
    relabel,
    team_arrays,
)
from emu.problem import Cluster, Edge, Job, Machine, Realization, Task

#: Machines of which no two are alike.
CLUSTER = Cluster(
    (
        Machine("m0", 9.0, 4.0),
        Machine("m1", 5.0, 6.0),
        Machine("m2", 3.0, 8.0),
        Machine("m3", 2.0, 7.0),
    )
)


def symmetry_of(
    tasks: tuple[Task, ...], edges: tuple[Edge, ...], **changes: Any
) -> Record:
    """Return the symmetry of tasks of equal times and edges of equal volumes.

    ``changes``: (row, iteration) -> another time, or another volume.
    """
    job = Job(tasks, edges, 2)
    times = np.ones((len(tasks), 2))
    volumes = np.ones((len(edges), 2))
    for place, seconds in changes.get("times", {}).items():
        times[place] = seconds
    for place, size in changes.get("volumes", {}).items():
        volumes[place] = size
    return find_symmetry(Space(job, CLUSTER), Realization(times, volumes))


def list_blocks(symmetry: Record) -> list[list[list[int]]]:
    """Return the blocks of every class."""
    classes = []
    starts = symmetry.block_start.tolist()
    for number, width in enumerate(symmetry.block_width.tolist()):
        units = symmetry.block[starts[number] : starts[number + 1]]
        classes.append(units.reshape(-1, width).tolist())
    return classes


#: Two samplers of one worker.
PAIR = (Task("s0", "s"), Task("s1", "s"), Task("w", "w"))
#: The edge of the first, and that of the second which the first may not stand for.
FIRST = Edge(0, 2)


@pytest.mark.parametrize(
    ("second", "changes"),
    [
        (Edge(1, 2, lag=1), {}),
        (Edge(1, 2, credit=True), {}),
        (Edge(2, 1), {}),
        (Edge(1, 2, coflow="c"), {}),
        (Edge(1, 2, channel="c"), {}),
        (Edge(1, 2), {"volumes": {(0, 0): 2.0}}),
        (Edge(1, 2), {"volumes": {(1, 1): 2.0}}),
        (Edge(1, 2), {"times": {(0, 0): 2.0}}),
        (Edge(1, 2), {"times": {(1, 1): 2.0}}),
    ],
)
def test_tasks_differ_by_any_property_of_their_edges_and_times(
    second: Edge, changes: dict[str, Any]
) -> None:
    assert symmetry_of(PAIR, (FIRST, Edge(1, 2))).twin.tolist() == [0, 1]
    assert symmetry_of(PAIR, (FIRST, second), **changes).twin.tolist() == []


def test_tasks_of_two_jobs_are_no_twins() -> None:
    """A search may minimise the sum of the times of several jobs."""
    tasks = (Task("a/x", "x"), Task("b/x", "x"), Task("a/y", "x"))
    symmetry = symmetry_of(tasks, ())

    assert symmetry.twin.tolist() == [0, 2]
    assert symmetry.twin_start.tolist() == [0, 2]


def test_teams_change_places_beside_pairs_that_are_twins() -> None:
    """Two that send to each other may change places; so may teams behind them."""
    tasks = (
        *(Task(name, "p") for name in ("p0", "p1")),
        *(Task(name, "w") for name in ("w0", "w1")),
        *(Task(name, "s") for name in ("s0", "s1")),
    )
    edges = (Edge(0, 1), Edge(1, 0, lag=1), Edge(4, 2), Edge(5, 3))
    both_ways = (Edge(0, 1), Edge(1, 0), Edge(4, 2), Edge(5, 3))

    assert symmetry_of(tasks, edges).twin.tolist() == []
    with pytest.raises(ValueError, match="cycle"):
        Job(tasks, both_ways, 2)
    delayed = (Edge(0, 1, lag=1), Edge(1, 0, lag=1), Edge(4, 2), Edge(5, 3))
    symmetry = symmetry_of(tasks, delayed)
    assert symmetry.twin.tolist() == [0, 1]
    assert list_blocks(symmetry) == [[[4, 2], [5, 3]]]
    assert (symmetry.twin_classes, symmetry.block_classes) == (1, 1)


def test_teams_of_unlike_members_stay_where_they_are() -> None:
    """Teams of w0 and w1 are alike; a sampler of w2 is slower, w3 has one more."""
    slower = {"m1": 2.0}
    tasks = (
        *(Task(f"w{number}", "w") for number in range(4)),
        *(Task(f"s{number}", "s") for number in range(5)),
        Task("s5", "s", slowness=slower),
        *(Task(f"s{number}", "s") for number in range(6, 9)),
    )
    hubs = (0, 0, 1, 1, 2, 2, 3, 3, 3)
    edges = tuple(Edge(4 + number, hub) for number, hub in enumerate(hubs))
    symmetry = symmetry_of(tasks, edges)

    assert list_blocks(symmetry) == [[[0, 4, 5], [1, 6, 7]]]
    # Samplers of one worker are twins, but for those of which one is slower.
    assert symmetry.twin.tolist() == [4, 5, 6, 7, 10, 11, 12]


def test_classes_are_listed_one_after_the_other() -> None:
    """Three twins, then two; two teams of three, then two of two.

    Of a lone pair the second is the hub, which stands first in its block.
    """
    loners = [Task(name, "x") for name in ("x0", "x1", "x2")]
    others = [Task(name, "y") for name in ("y0", "y1")]
    workers = [Task(f"w{number}", "w") for number in range(4)]
    samplers = [Task(f"s{number}", "s") for number in range(6)]
    edges = (
        *(Edge(9, 5), Edge(10, 5), Edge(11, 6), Edge(12, 6)),
        *(Edge(13, 7), Edge(14, 8)),
    )
    tasks = (*loners, *others, *workers, *samplers)
    symmetry = symmetry_of(tasks, edges)

    assert symmetry.twin.tolist() == [0, 1, 2, 3, 4, 9, 10, 11, 12]
    assert symmetry.twin_start.tolist() == [0, 3, 5, 7, 9]
    assert symmetry.block_start.tolist() == [0, 6, 10]
    assert symmetry.block_width.tolist() == [3, 2]
    assert symmetry.block.tolist() == [5, 9, 10, 6, 11, 12, 13, 7, 14, 8]

    teams = team_arrays(Space(Job(tasks, edges, 1), CLUSTER))
    assert teams.count == 4
    assert teams.start.tolist() == [0, 3, 6, 8, 10]
    assert teams.unit.tolist() == [5, 9, 10, 6, 11, 12, 13, 7, 14, 8]


def test_without_partners_each_task_is_a_team() -> None:
    space = Space(Job((Task("a", "x"), Task("b", "x")), (), 1), CLUSTER)
    teams = team_arrays(space)

    assert teams.count == 2
    assert teams.start.tolist() == [0, 1, 2]
    assert teams.unit.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("machines", "target", "expected"),
    [
        ([0, 1, 2], [1, 2, 0], [1, 2, 0]),
        # Each unit of the target is taken once, and each machine as often as it was.
        ([1, 1, 0], [1, 0, 1], [1, 0, 1]),
        ([0, 0, 3], [3, 3, 0], [3, 0, 0]),
        ([0, 1, 2], [3, 2, 2], [0, 2, 1]),
    ],
)
def test_twins_are_named_as_they_stand_in_the_target(
    machines: list[int], target: list[int], expected: list[int]
) -> None:
    symmetry = symmetry_of(tuple(Task(name, "x") for name in "abc"), ())
    before = np.array(machines)
    found = relabel(symmetry, before, np.array(target))

    assert found.tolist() == expected
    assert before.tolist() == machines


def test_teams_are_paired_by_all_members_then_twins_within_them() -> None:
    """Team x stands on 0, 1, 2 and team y on 3, 0, 1: worker, then its samplers."""
    tasks = (
        *(Task(name, "w") for name in ("w0", "w1")),
        *(Task(f"s{number}", "s") for number in range(4)),
    )
    edges = (Edge(2, 0), Edge(3, 0), Edge(4, 1), Edge(5, 1))
    symmetry = symmetry_of(tasks, edges)
    assert list_blocks(symmetry) == [[[0, 2, 3], [1, 4, 5]]]

    # The target has x where y is named, with its samplers the other way round, and
    # agrees with y as it is named in one sampler alone.
    machines = np.array([0, 3, 1, 2, 0, 1])
    target = np.array([3, 0, 2, 1, 2, 1])
    found = relabel(symmetry, machines, target)

    assert found.tolist() == [3, 0, 0, 1, 2, 1]


def test_an_exchange_reaches_edges_to_tasks_that_stay() -> None:
    """A third task sends to both twins, or to the first alone, or them alike."""
    tasks = (*PAIR[:2], Task("g", "g", pinned="m2"))
    to_both = (Edge(2, 0), Edge(2, 1))

    assert symmetry_of(tasks, to_both).twin.tolist() == [0, 1]
    assert symmetry_of(tasks, to_both[:1]).twin.tolist() == []
    longer = (replace(to_both[0], lag=1), replace(to_both[1], lag=1))
    assert symmetry_of(tasks, longer).twin.tolist() == [0, 1]
    assert symmetry_of(tasks, (longer[0], to_both[1])).twin.tolist() == []


def test_partners_are_other_units_that_can_move_and_get_bytes() -> None:
    """Sampler s0 is of two tasks, has a store that stays, and gives w1 a credit."""
    tasks = (
        Task("s0", "s"),
        Task("s0.part", "s", process="s0"),
        *(Task(name, "w") for name in ("w0", "w1")),
        Task("s1", "s"),
        Task("g", "g", pinned="m2"),
    )
    edges = (
        *(Edge(0, 2), Edge(0, 1), Edge(5, 0), Edge(1, 5, lag=1), Edge(4, 3)),
        Edge(0, 3, lag=1, credit=True),
    )
    space = Space(Job(tasks, edges, 2), CLUSTER)

    assert [unit.name for unit in space.units] == ["s0", "w0", "w1", "s1"]
    # Of a lone pair the second is the hub.
    assert hub_followers(space) == ((1, (0,)), (3, (2,)))
