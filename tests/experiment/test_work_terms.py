"""Terms of a schedule's work by hand: tasks by machine, flows by their ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.experiment import row_work
from emu.experiment.row_work import Term, list_work
from emu.prediction.analysis.critical_path import Cause
from emu.problem import Cluster, Edge, Job, Machine, Placement, Problem, Task

#: a0 and a1 on m0, b on m1 and c on m2, which takes in at a tenth of what m0 sends.
TASKS = (Task("a0", "a"), Task("a1", "a"), Task("b", "b"), Task("c", "b"))
EDGES = (Edge(0, 2), Edge(1, 2, lag=1), Edge(0, 3), Edge(2, 3), Edge(0, 1))
MACHINES = (
    Machine("m0", bandwidth_out=1000.0, bandwidth_in=50.0),
    Machine("m1", bandwidth_out=4000.0, bandwidth_in=8000.0),
    Machine("m2", bandwidth_out=2000.0, bandwidth_in=100.0),
)


def schedule() -> Any:
    """Return one of two iterations, each task of its own times."""
    problem = Problem(Cluster(MACHINES), Job(TASKS, EDGES, 2), Placement((0, 0, 1, 2)))
    start = np.array([[0.0, 10.0], [1.0, 11.0], [2.0, 12.0], [3.0, 13.0]])
    takes = np.array([[1.0, 2.0], [3.0, 6.0], [4.0, 8.0], [5.0, 5.0]])
    return SimpleNamespace(problem=problem, task_start=start, task_end=start + takes)


def test_work_is_summed_by_kind_and_machine_with_what_it_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tasks a0 and a1 run four times, 3 s on average; flows count what is ever sent."""
    path = [
        (0, -1, Cause.COMPUTE, 1.0),
        (0, -1, Cause.COMPUTE, 2.0),
        (1, -1, Cause.COMPUTE, 0.5),
        (-1, 1, Cause.TRANSFER, 0.25),
        (-1, 0, Cause.TRANSFER, 4.0),
        (3, -1, Cause.GAP, 9.0),
    ]
    links = [
        SimpleNamespace(task=task, edge=edge, cause=cause, seconds=seconds)
        for task, edge, cause, seconds in path
    ]
    monkeypatch.setattr(
        row_work, "critical_path", lambda _: SimpleNamespace(links=links)
    )
    monkeypatch.setattr(
        row_work, "RowOperations", lambda _: SimpleNamespace(counts=None)
    )
    volumes = np.array([[30.0, 70.0], [40.0, 900.0], [5.0, 15.0], [6.0, 2.0], [8.0, 8]])
    experiment: Any = SimpleNamespace(realization=SimpleNamespace(volumes=volumes))
    found = list_work(experiment, schedule())

    tasks = [(work.what, work.machine, work.tasks, work.waited) for work in found[:3]]
    assert tasks == [("a", "m0", 2, 3.5), ("b", "m1", 1, 0.0), ("b", "m2", 1, 0.0)]
    assert [work.terms for work in found[:3]] == [
        (Term("task", 4, 3.0),),
        (Term("task", 2, 6.0),),
        (Term("task", 2, 5.0),),
    ]
    flows = [(work.what, work.machine, work.pool, work.tasks) for work in found[3:]]
    assert flows == [
        ("a -> b", "m0 -> m1", "m0 out", 2),
        ("a -> b", "m0 -> m2", "m2 in", 1),
        ("b -> b", "m1 -> m2", "m2 in", 1),
    ]
    # The last iteration over an edge of lag 1 has no reader.
    assert [work.terms for work in found[3:]] == [
        (Term("byte", 140.0, 1 / 1000.0),),
        (Term("byte", 20.0, 1 / 100.0),),
        (Term("byte", 8.0, 1 / 100.0),),
    ]
    assert [work.waited for work in found[3:]] == [4.25, 0.0, 0.0]
    assert found[0].seconds == 12.0
    assert found[3].seconds == pytest.approx(0.14)
