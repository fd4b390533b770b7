"""Bad input is refused with its story, before any compiled code runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from emu.errors import SchedulingError
from emu.prediction.simulation import makespan, simulate
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)
from emu.testing import two_machine_example

PAIR = (Task("a", "task"), Task("b", "task"))
CLUSTER = Cluster((Machine("m0", 1.0, 1.0), Machine("m1", 1.0, 1.0)))


def run(
    volume: float = 1.0,
    time: float = 1.0,
    *,
    tasks: tuple[Task, ...] = PAIR,
    edges: tuple[Edge, ...] = (Edge(0, 1),),
    machine_of: tuple[int, ...] = (0, 1),
    step: float = 0.0,
) -> float:
    job = Job(tasks, edges, 1)
    realization = Realization(
        np.full((len(tasks), 1), time), np.full((len(edges), 1), volume)
    )
    problem = Problem(CLUSTER, job, Placement(machine_of))
    return makespan(problem, realization, step=step)


BAD: dict[str, tuple[Callable[[], float], str]] = {
    "a negative volume": (lambda: run(-1.0), r"volumes \[0, 0\] is -1.0; it must be"),
    "no number": (lambda: run(np.nan), r"volumes \[0, 0\] is nan; it must be finite"),
    "endless bytes": (lambda: run(np.inf), r"volumes \[0, 0\] is inf; it must be"),
    "no time": (lambda: run(1.0, np.nan), r"times \[0, 0\] is nan; it must be finite"),
    "a cycle without lag": (
        lambda: run(edges=(Edge(0, 1), Edge(1, 0))),
        "edges without lag form a cycle through a, b; give one of them lag 1",
    ),
    "a loop without lag": (lambda: run(edges=(Edge(0, 0),)), "a cycle through a"),
    "a negative lag": (
        lambda: run(edges=(Edge(0, 1, -1),)),
        "a->b: lag -1 is negative",
    ),
    "an unknown machine": (
        lambda: run(machine_of=(0, 2)),
        "task b is on machine number 2",
    ),
    "a machine before the first": (
        lambda: run(machine_of=(-1, 0)),
        "task a is on machine number -1",
    ),
    "an unknown task": (
        lambda: run(edges=(Edge(0, 7),)),
        "an edge names task number 7",
    ),
    "no tasks": (
        lambda: run(tasks=(), edges=(), machine_of=()),
        "a job needs at least one task",
    ),
    "a step backwards": (lambda: run(step=-0.5), "a step of -0.5 s"),
    "a step of no number": (lambda: run(step=np.nan), "a step of nan s"),
}


@pytest.mark.parametrize("what", BAD)
def test_refused_with_its_story(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled_code(*_: object) -> float:
        raise AssertionError("the compiled code was reached")

    module = sys.modules[
        "emu.prediction.simulation.simulate"
    ]  # the package exports a function
    monkeypatch.setattr(module, "lib", SimpleNamespace(run=compiled_code))
    call, story = BAD[what]
    with pytest.raises(ValueError, match=story):
        call()


def test_what_could_never_start_is_named() -> None:
    """No job of this kind can be made; a forged one is still not waited for."""
    problem, realization = two_machine_example(2)
    edges = [*problem.job.edges, Edge(4, 0, 1)]
    job = Job(problem.job.tasks, tuple(edges), 2)
    object.__setattr__(job.edges[-1], "lag", 0)
    job.columns.lag[-1] = 0
    volumes = np.vstack([realization.volumes, [[1.0, 1.0]]])
    with pytest.raises(SchedulingError, match="nothing would ever start g0, s0, s1"):
        simulate(
            Problem(problem.cluster, job, problem.placement),
            Realization(realization.times, volumes),
        )


@pytest.mark.parametrize(
    ("readers", "flows"),
    [
        (3, "a->b0 (iteration 1), a->b1 (iteration 1), a->b2 (iteration 1)"),
        (4, "a->b0 (iteration 1), a->b1 (iteration 1), a->b2 (iteration 1) and 1 more"),
    ],
)
def test_flows_over_a_link_that_is_cut_for_good_are_named(
    readers: int, flows: str
) -> None:
    """Into m1, from 9 s on: a sends anew at 10 s, also to c, of m2; d never begins.

    Over the link out of m2, cut as well, nothing goes.
    """
    behind = 8
    names = ["a", "c", *(f"b{n}" for n in range(readers)), "d"]
    names += [f"e{n}" for n in range(behind)]
    tasks = tuple(Task(name, "x") for name in names)
    first, last = 2, len(names) - behind - 1
    edges = [Edge(0, reader) for reader in range(first, last)]
    edges += [Edge(0, 1), Edge(first, last)]
    edges += [Edge(last, last + 1 + n) for n in range(behind)]
    machine_of = (0, 2, *([1] * readers), 0, *([1] * behind))
    machines = tuple(Machine(f"m{n}", 40.0 + n, 50.0 + n) for n in range(3))
    changes = (
        CapacityChange(4.0, "m1 in", 30.0),
        CapacityChange(9.0, "m1 in", 0.0),
        CapacityChange(2.0, "m2 out", 0.0),
    )
    problem = Problem(
        Cluster(machines, changes=changes),
        Job(tasks, tuple(edges), 2),
        Placement(machine_of),
    )
    times = np.full((len(tasks), 2), 0.25)
    times[0] = 1.0, 9.0
    run = Realization(times, np.ones((len(edges), 2)))

    with pytest.raises(SchedulingError) as caught:
        simulate(problem, run)
    left = ", ".join([*names[first : last + 1], *names[last + 1 :]][:8])
    assert str(caught.value) == (
        f"nothing would ever start {left}; {flows} wait for m1 in, which carries "
        "nothing from 9 s on: write for how long (events, for)"
    )


def test_tasks_that_wait_for_a_slot_are_named_with_its_holders() -> None:
    """Task a took a slot; f gives it back behind b, which needs one. c gave its own."""
    tasks = (
        Task("c", "x", takes="gpu"),
        Task("a", "x", takes="gpu", frees=""),
        Task("g", "x", takes="gpu", frees=""),
        Task("b", "x", takes="gpu"),
        Task("f", "x", frees="gpu"),
        Task("h", "x", takes="cpu"),
    )
    edges = (Edge(0, 1), Edge(1, 2), Edge(2, 3), Edge(3, 4))
    pools = {"cpu": 1, "gpu": 2}
    machines = Machine("m0", 3.0, 4.0), Machine("m1", 5.0, 6.0, slots=pools)
    problem = Problem(Cluster(machines), Job(tasks, edges, 1), Placement((1,) * 6))

    with pytest.raises(SchedulingError) as caught:
        simulate(problem, Realization(np.ones((6, 1)), np.ones((4, 1))))
    assert str(caught.value) == (
        "nothing would ever start b, f; b wait for a slot of gpu on m1, "
        "held by a (iteration 0), g (iteration 0)"
    )


@pytest.mark.nightly
@pytest.mark.slow
def test_two_hundred_thousand_tasks() -> None:
    """A chain across two machines and back, and nothing about it is quadratic."""
    count = 200_000
    tasks = tuple(Task(f"t{j}", "link") for j in range(count))
    edges = tuple(Edge(j, j + 1) for j in range(count - 1))
    machine_of = tuple(j % 2 for j in range(count))
    span = run(tasks=tasks, edges=edges, machine_of=machine_of)
    assert span == 2.0 * count - 1.0
