"""What a placement near another one is called."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from emu.errors import PlacementError
from emu.prediction.placement.moves import Move, Neighbour, move, moves_between
from emu.problem import Cluster, Job, Machine, Placement, Problem, Task
from tests.prediction.placement.placement_cases import (
    feasible_placements,
    random_setting,
    realization,
)
from tools.studies.moves_and_bounds import neighbours


@pytest.mark.parametrize(
    ("moves", "text"),
    [
        ([("a", "m0", "m1")], "move a to m1"),
        ([("a", "m0", "m1"), ("b", "m1", "m0")], "swap a and b"),
        ([("a", "m0", "m1"), ("b", "m2", "m1")], "move a, b to m1"),
        (
            [
                ("a", "m0", "m1"),
                ("b", "m0", "m2"),
                ("c", "m2", "m0"),
                ("d", "m1", "m0"),
            ],
            "swap a, b with d, c",
        ),
        ([("a", "m0", "m1"), ("b", "m2", "m3")], "a: m0 -> m1; b: m2 -> m3"),
        ([("a", "m0", "m1"), ("b", "m1", "m2")], "a: m0 -> m1; b: m1 -> m2"),
    ],
)
def test_only_an_exchange_is_a_swap(
    moves: list[tuple[str, str, str]], text: str
) -> None:
    found = Neighbour(Placement((0, 1)), tuple(Move(*move) for move in moves))

    assert str(found) == text


def test_a_process_that_only_one_job_has_does_not_move() -> None:
    """The second store comes with its machine, and the sampler moves there."""
    machines = tuple(Machine(name, 1.0, 1.0) for name in ("m0", "m1"))
    one, more = Task("g0", "store"), Task("g1", "store")
    sampler = Task("s", "sampler")
    before = Problem(
        Cluster(machines[:1]), Job((one, sampler), (), 1), Placement((0, 0))
    )
    after = Problem(
        Cluster(machines), Job((one, more, sampler), (), 1), Placement((0, 1, 1))
    )

    assert moves_between(before, after) == (Move("s", "m0", "m1"),)


@pytest.mark.parametrize("seed", [2, 4, 10])
def test_neighbours_are_what_brute_force_finds(seed: int) -> None:
    """Every feasible placement after a move or swap of tasks, or of workers' teams."""
    rng = np.random.default_rng(seed)
    job, cluster = random_setting(rng)
    feasible = list(itertools.islice(feasible_placements(job, cluster), 100))
    named = {task.name: j for j, task in enumerate(job.tasks)}
    workers = [name for name in named if name.startswith("w")]
    here = feasible[rng.integers(len(feasible))].machine_of
    each = sum(name.startswith("s") for name in named) // len(workers)
    teams = [
        [named[w], *(named[f"s{each * i + k}"] for k in range(each))]
        for i, w in enumerate(workers)
    ]
    teams += [[j] for j, task in enumerate(job.tasks) if task.pinned is None]

    tried = [
        dict.fromkeys(team, m) for team in teams for m in range(len(cluster.machines))
    ]
    for a, b in itertools.combinations(teams, 2):
        if len(a) == len(b) and not {*a} & {*b}:
            tried.append({j: here[k] for j, k in zip(a + b, b + a, strict=True)})
    expected = {tuple(change.get(j, m) for j, m in enumerate(here)) for change in tried}
    expected = {p for p in expected if not Placement(p).violations(job, cluster)}

    run = realization(job, rng)  # no two volumes are equal: nothing is interchangeable
    found = [
        near.placement.machine_of
        for near in neighbours(Problem(cluster, job, Placement(here)), run)
    ]

    assert len(found) == len({*found})
    assert {*found} == expected - {here}


def test_processes_move_where_there_is_room_for_them() -> None:
    """All tasks of a process move; a is pinned, and c needs more than m1 has."""
    machines = (
        Machine("m0", 1.0, 1.0, {"cpu": 9.0}),
        Machine("m1", 1.0, 1.0, {"cpu": 2.0}),
    )
    tasks = (
        Task("a", "t", pinned="m0"),
        Task("b0", "t", {"cpu": 1.0}, process="b"),
        Task("b1", "t", {"cpu": 1.0}, process="b"),
        Task("c", "t", {"cpu": 3.0}),
    )
    problem = Problem(Cluster(machines), Job(tasks, (), 1), Placement((0, 0, 0, 0)))
    found = move(problem, {"b": "m1"})
    assert found.placement.machine_of == (0, 1, 1, 0)
    assert found.moves == (Move("b", "m0", "m1"),)
    for machines_of_moves, story in (
        ({"d": "m1"}, "no process is called d"),
        ({"b": "m7"}, "m7"),
        ({"a": "m1"}, "a"),
        ({"c": "m1"}, "cpu"),
        ({"b": "m1", "c": "m1"}, "cpu"),
    ):
        with pytest.raises(PlacementError, match=story):
            move(problem, machines_of_moves)
