"""The order of moves, where the makespan of every placement is stated."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pytest

from emu.prediction.analysis.task_moves import TaskMove, _MoveOrder, task_moves
from emu.prediction.analysis.what_if import Change
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)

Lengths: TypeAlias = dict[tuple[int, ...], float]

#: Seconds by the machines of a, b and c, where all but the best stand in the way.
WORSE: Lengths = {
    (1, 0, 0): 12.0,
    (0, 1, 0): 11.0,
    (0, 0, 1): 13.0,
    (1, 1, 0): 12.0,
    (1, 0, 1): 12.5,
    (0, 1, 1): 12.0,
}


def three_tasks(policy: str = "oes") -> Change:
    """Return a, b and c on the first of two machines, where p sends to b and c."""
    tasks = (
        Task("a", "x"),
        Task("b", "y"),
        Task("c", "z"),
        Task("p", "s", pinned="m0"),
    )
    job = Job(tasks, (Edge(3, 1), Edge(3, 2)), 2)
    machines = (Machine("m0", 5.0, 4.0), Machine("m1", 8.0, 2.0))
    problem = Problem(Cluster(machines), job, Placement((0, 0, 0, 0)))
    times = np.array([[1.0, 2.0], [3.0, 1.0], [2.0, 4.0], [1.0, 0.5]])
    volumes = np.array([[3.0, 4.0], [20.0, 50.0]])
    return Change("network", "", problem, Realization(times, volumes), policy)


def steps(lengths: dict[tuple[int, ...], float], *, left: int = 1000) -> list[TaskMove]:
    """Return the steps from (0, 0, 0) to (1, 1, 1) by stated makespans."""
    order = _MoveOrder(three_tasks(), None)
    order._left = left

    def length(placement: Placement) -> float:
        return lengths[placement.machine_of[:3]]

    order.length = length  # type: ignore[method-assign]
    return list(order.steps(Placement((1, 1, 1, 0))))


def rows(found: list[TaskMove]) -> list[tuple[tuple[int, ...], float, float]]:
    return [
        (step.near.placement.machine_of[:3], step.makespan, step.gain) for step in found
    ]


def test_the_next_step_is_the_shortest_and_of_those_the_smallest() -> None:
    """Moving b alone gains as much as b with a; c gains only together with a."""
    lengths: Lengths = {
        (0, 0, 0): 10.0,
        (1, 0, 0): 9.0,
        (0, 1, 0): 5.0,
        (0, 0, 1): 9.5,
        (1, 1, 0): 5.0,
        (0, 1, 1): 6.0,
        (1, 0, 1): 8.0,
        (1, 1, 1): 4.0,
    }
    found = steps(lengths)

    assert rows(found) == [((0, 1, 0), 5.0, 5.0), ((1, 1, 1), 4.0, 1.0)]
    processes = [[move.process for move in step.near.moves] for step in found]
    assert processes == [["b"], ["a", "c"]]


def test_a_step_that_gains_nothing_is_one_with_those_after_it() -> None:
    found = steps({(0, 0, 0): 10.0, **WORSE, (1, 1, 1): 4.0})

    assert rows(found) == [((1, 1, 1), 4.0, 6.0)]
    assert len(found[0].near.moves) == 3


def test_what_may_as_well_stay_stays() -> None:
    """Leaving b costs less than a hundred thousandth and is done; c would cost more."""
    lengths: Lengths = {
        (0, 0, 0): 10.0,
        **WORSE,
        (1, 1, 1): 4.0,
        (1, 0, 1): 4.00003,
        (1, 1, 0): 4.00005,
    }
    assert rows(steps(lengths)) == [((1, 0, 1), 4.00003, 10.0 - 4.00003)]


@pytest.mark.parametrize(("left", "moved_at_once"), [(9, 2), (8, 1)])
def test_pairs_are_tried_where_the_budget_is_large(
    left: int, moved_at_once: int
) -> None:
    """Three pairs of three tasks: as many as a third of what is left."""
    lengths: Lengths = {(0, 0, 0): 10.0, **WORSE, (0, 1, 0): 9.0, (1, 0, 1): 6.0}
    found = steps({**lengths, (1, 1, 1): 4.0}, left=left)

    assert len(found[0].near.moves) == moved_at_once


def test_a_search_begins_with_the_present_placement_under_the_same_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = importlib.import_module("emu.prediction.analysis.task_moves")
    asked: list[tuple[Any, ...]] = []

    def best(*stated: Any, **options: Any) -> Any:
        asked.append((*stated[3:], options))
        return SimpleNamespace(placement=Placement((0, 0, 0, 0)))

    monkeypatch.setattr(module, "best_placement", best)
    found = task_moves(three_tasks("maxmin"))

    assert asked == [("maxmin", {"known": [Placement((0, 0, 0, 0))]})]
    assert found.steps == ()
    assert found.makespan == found.before == 1.0 + 2.0 + 4.0


def test_loads_are_of_all_iterations_by_link_and_kinds() -> None:
    """All 7 and 70 B leave m0 with b and c on m1, and 70 B with c alone there.

    The place of a, which has no edge, makes no difference.
    """
    order = _MoveOrder(three_tasks(), None)
    names = [link.name for link in three_tasks().problem.links]

    def loads(*machine_of: int) -> dict[str, dict[tuple[str, str], float]]:
        run = order.run(Placement(machine_of))
        found = order._loads(run.problem)
        return {names[port]: dict(sizes) for port, sizes in found.items()}

    both = {("s", "y"): 7.0, ("s", "z"): 70.0}
    last = {("s", "z"): 70.0}
    assert loads(0, 1, 1, 0) == {"m0 out": both, "m1 in": both}
    assert loads(1, 0, 1, 0) == {"m0 out": last, "m1 in": last}
