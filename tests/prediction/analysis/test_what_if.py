"""What would help: every line is confirmed by the slow simulator of the tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.prediction.analysis.critical_path import critical_path
from emu.prediction.analysis.what_if import (
    Change,
    Improvement,
    _seconds,
    changes_of,
    rank,
    rank_pairs,
)
from emu.prediction.simulation import simulate
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
from emu.testing import reference, two_machine_example
from tests.prediction.analysis.chains import cases


def slow_makespan(problem: Problem, realization: Realization, policy: str) -> float:
    return max(reference.run(problem, realization, policy).task_end.values())


def improvements(
    case: tuple[Problem, Realization], policy: str = "oes"
) -> list[Improvement]:
    base = Change("", "as it is", *case, policy)
    chain = critical_path(simulate(*case, policy))
    return rank(base, changes_of(base, chain))


def named(what: str, **options: Any) -> Improvement:
    (found,) = (
        one
        for one in improvements(two_machine_example(**options))
        if one.change.what == what
    )
    return found


def with_nic(problem: Problem, machine: int, factors: dict[str, float]) -> Problem:
    machines = list(problem.cluster.machines)
    old = machines[machine]
    machines[machine] = replace(
        old,
        bandwidth_in=old.bandwidth_in * factors.get("in", 1.0),
        bandwidth_out=old.bandwidth_out * factors.get("out", 1.0),
    )
    return Problem(Cluster(tuple(machines)), problem.job, problem.placement)


def test_every_gain_is_real_and_ranked() -> None:
    """The slow simulator, given the change, takes what the line says.

    Endless NICs are beyond it (the last bytes take less than the time can resolve) and
    have a test of their own below.
    """
    for case in (two_machine_example(3, credit=1), *cases()[8:14]):
        before = slow_makespan(*case, "oes")
        found = improvements(case)
        for one in found:
            change = one.change
            if change.what.endswith("endless"):
                continue
            after = slow_makespan(change.problem, change.realization, change.policy)
            assert one.makespan == pytest.approx(after, rel=1e-9), change.what
            assert one.gain == pytest.approx(before - after, abs=1e-7 * before)
        gains = [one.gain for one in found]
        assert gains == sorted(gains, reverse=True)


@pytest.mark.parametrize(
    ("what", "machine", "ways"),
    [("NIC of m1", 1, ("in", "out")), ("port m1 out", 1, ("out",))],
)
@pytest.mark.parametrize(
    ("word", "factor", "exact"), [("twice as fast", 2.0, 1e-9), ("endless", 1e3, 1e-2)]
)
def test_network_lines_change_what_they_say(
    what: str,
    machine: int,
    ways: tuple[str, ...],
    word: str,
    factor: float,
    exact: float,
) -> None:
    """A NIC a thousand times as fast is endless to 1 %."""
    problem, realization = two_machine_example(3)
    changed = with_nic(problem, machine, dict.fromkeys(ways, factor))

    assert named(f"{what} {word}", iterations=3).makespan == pytest.approx(
        slow_makespan(changed, realization, "oes"), rel=exact
    )


def test_endless_network_moves_bytes_in_no_time() -> None:
    problem, realization = two_machine_example(3)
    nothing = Realization(realization.times, np.zeros_like(realization.volumes))

    assert named("all NICs endless", iterations=3).makespan == pytest.approx(
        slow_makespan(problem, nothing, "oes"), rel=1e-6
    )


@pytest.mark.parametrize(
    ("what", "rows", "factor"),
    [
        ("every sampler twice as fast", [2, 3], 0.5),
        ("every worker in no time", [4], 0.0),
        ("s1 in no time", [3], 0.0),
    ],
)
def test_compute_lines_change_what_they_say(
    what: str, rows: list[int], factor: float
) -> None:
    problem, realization = two_machine_example(3)
    times = np.array(realization.times)
    times[rows] *= factor
    expected = slow_makespan(problem, Realization(times, realization.volumes), "oes")

    assert named(what, iterations=3).makespan == pytest.approx(expected)


def test_bytes_line_changes_every_flow_of_the_kind() -> None:
    problem, realization = two_machine_example(3)
    volumes = np.array(realization.volumes)
    volumes[4:6] /= 2
    expected = slow_makespan(problem, Realization(realization.times, volumes), "oes")

    line = named("sampler -> worker: half the bytes", iterations=3)
    assert line.makespan == pytest.approx(expected)


def test_window_lines() -> None:
    """47 s with a window of 1, 38 s with 2, 38 s without (worked out by hand)."""
    doubled = named("credit window doubled", iterations=3, credit=1)
    unlimited = named("credit window unlimited", iterations=3, credit=1)

    assert (doubled.makespan, doubled.gain) == (38.0, 9.0)
    assert (unlimited.makespan, unlimited.gain) == (38.0, 9.0)


def test_policies_are_those_that_differ() -> None:
    found = improvements(two_machine_example(1))
    policies = {one.change.policy for one in found if one.change.kind == "policy"}

    assert "oes" not in policies
    assert "maxmin" in policies
    assert "none" not in policies, "it is maxmin by another name"


def test_a_job_on_one_machine_has_no_network_to_improve() -> None:
    problem, realization = two_machine_example(1, together=True)
    alone = Problem(
        problem.cluster, problem.job, replace(problem.placement, machine_of=(0,) * 6)
    )

    kinds = {one.change.kind for one in improvements((alone, realization))}
    assert kinds == {"compute", "policy"}


@pytest.mark.parametrize("rows", [(0, 4), (4, 0)])
def test_changes_are_paired_by_the_busiest_of_their_tasks(
    rows: tuple[int, ...],
) -> None:
    """In two iterations g0 takes 2 s and w0 6 s."""
    base = Change("", "as it is", *two_machine_example(2), "oes")
    assert _seconds(base, replace(base, kind="compute", rows=rows)) == 6.0


@pytest.mark.parametrize(
    "edits", [(None, None), ({"a": 1}, {"b": 2}), ({"a": 1}, None), (None, {"b": 2})]
)
def test_what_helps_together_alone_is_one_line(
    edits: tuple[dict[str, Any] | None, dict[str, Any] | None],
) -> None:
    """A flow and a task beside it take 10 s each: only both at once save 5."""
    machines = tuple(Machine(name, 10.0, 10.0) for name in "abc")
    job = Job((Task("s", "s"), Task("r", "r"), Task("w", "w")), (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 2)))
    times = np.array([[0.0], [0.0], [10.0]])
    base = Change(
        "", "as it is", problem, Realization(times, np.array([[100.0]])), "oes"
    )
    chain = critical_path(simulate(base.problem, base.realization))
    alone = {one.change.what: one for one in rank(base, changes_of(base, chain))}
    with_edits = [
        replace(one, change=replace(one.change, edit=edit))
        for one, edit in zip(
            (alone["every w twice as fast"], _both_nics(base)), edits, strict=True
        )
    ]

    (pair,) = rank_pairs(base, with_edits, lambda change: change)

    assert (pair.makespan, pair.gain) == (5.0, 5.0)
    assert pair.change.what == "every w and NICs twice as fast"
    known = None not in edits
    assert pair.change.edit == ({"a": 1, "b": 2} if known else None)


def _both_nics(base: Change) -> Improvement:
    """Return the change of all NICs, which alone gains nothing."""
    rows = tuple(range(len(base.problem.capacities)))
    cluster = base.problem.cluster.with_capacities(rows, 2.0)
    changed = replace(
        base,
        kind="network",
        what="NICs twice as fast",
        rows=rows,
        factor=2.0,
        problem=replace(base.problem, cluster=cluster),
    )
    return Improvement(changed, 10.0, 0.0)
