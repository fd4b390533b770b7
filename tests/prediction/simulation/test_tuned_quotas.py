"""Quotas that follow a queue, computed by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from emu.prediction.analysis.bounds import bounds
from emu.prediction.simulation import makespan, simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Schedule,
    Task,
    Tuner,
)
from emu.problem.placement import pools_of
from emu.runs.problem_json import (
    problem_from_json,
    problem_to_json,
    schedule_from_json,
)
from emu.testing.strategies import problems
from emu.trust.audit import audit

MACHINE = Machine("m0", 1.0, 1.0, slots={"a": 4, "b": 1})
TUNER = Tuner(0, "a", "b", 5)


def example(*tuners: Tuner) -> tuple[Problem, Realization]:
    """Six tasks of 10 s come to pool b from 0.5 s on, one a second; eight take of a."""
    tasks = [
        *(Task(f"a{i}", "a", takes="a") for i in range(8)),
        *(Task(f"f{i}", "f") for i in range(6)),
        *(Task(f"b{i}", "b", takes="b") for i in range(6)),
    ]
    job = Job(tuple(tasks), tuple(Edge(8 + i, 14 + i) for i in range(6)), 1)
    times = [6.5, 7.5, 30, 30, *[40.0] * 4, *(i + 0.5 for i in range(6)), *[10.0] * 6]
    problem = Problem(Cluster((MACHINE,), tuners=tuners), job, Placement((0,) * 20))
    return problem, Realization(np.array(times)[:, None], np.ones((6, 1)))


def test_a_quota_falls_while_the_queue_grows_and_rises_as_it_shrinks() -> None:
    """Waiting at 1 s, 2 s, ...: 0 1 2 3 4 5 5 5 5 5 4 4, and one less at 21 s.

    At 6 s four slots are held of two: the ends at 6.5 s and 7.5 s free none.
    """
    schedule = simulate(*example(TUNER))

    quotas = [4, 4, 4, 4, 3, 2, 1, 1, 1, 1, 2, 3, 4, 5, 5, 5]
    assert schedule.quotas is not None
    assert schedule.quotas[:, 0].tolist() == [*quotas, *[5] * 54]
    starts = [0, 0, 0, 0, 12, 13, 14, 30]
    assert schedule.task_start[:8, 0].tolist() == starts
    assert schedule.makespan == 70.0
    assert makespan(*example(TUNER)) == schedule.makespan
    assert audit(schedule).passed


def test_looks_change_nothing_else() -> None:
    slow = simulate(*example(replace(TUNER, period=1e4)))
    alone = simulate(*example())

    np.testing.assert_array_equal(slow.task_end, alone.task_end)
    assert slow.quotas is not None
    assert slow.quotas.shape == (0, 1)
    assert alone.quotas is None


def test_time_slots_look_at_their_end() -> None:
    schedule = simulate(*example(TUNER), step=4.0)
    assert schedule.quotas is not None
    assert len(schedule.quotas) == schedule.makespan


def test_more_looks_than_the_first_run_keeps() -> None:
    often = replace(TUNER, period=1 / 64)
    schedule = simulate(*example(often), record_rates=True)
    assert schedule.quotas is not None
    assert len(schedule.quotas) == 64 * schedule.makespan
    assert (schedule.quotas > 0).all()
    assert schedule.makespan == makespan(*example(often))


@given(drawn=problems(own=True, slots=True, tuned=True))
def test_a_schedule_is_followed_and_kept(drawn: tuple[Problem, Realization]) -> None:
    problem, realization = drawn
    schedule = simulate(problem, realization)
    files = [json.dumps(problem_to_json(problem)), json.dumps(schedule.to_json())]
    again = problem_from_json(json.loads(files[0]), "problem.json")
    kept = schedule_from_json(again, json.loads(files[1]), "schedule.json")
    followed = simulate(again.following(kept), realization)

    assert again == problem
    np.testing.assert_array_equal(followed.task_end, schedule.task_end)
    if schedule.quotas is None:
        assert kept.quotas is followed.quotas is None
        return
    np.testing.assert_array_equal(kept.quotas, schedule.quotas)
    np.testing.assert_array_equal(followed.quotas, schedule.quotas)


def test_what_is_followed_holds_whatever_waits() -> None:
    problem, realization = example(TUNER)
    cluster = problem.cluster.following(np.full((200, 1), 2))
    schedule = simulate(replace(problem, cluster=cluster), realization)

    assert schedule.task_start[:8, 0].tolist() == [0, 0, 0, 0, 30, 30, 70, 70]


def test_the_most_slots_bound_from_below() -> None:
    problem, _ = example(TUNER)
    found = {p.name: p.most for p in pools_of(problem.cluster, problem.job, (0,) * 20)}
    assert found == {"a": 5, "b": 1}


def test_a_bound_counts_with_the_largest_quota() -> None:
    problem, realization = example(TUNER)
    machine = replace(MACHINE, slots={"a": 1, "b": 1})
    cluster = replace(problem.cluster, machines=(machine,))
    grown = cluster.following(np.full((200, 1), 5))
    schedule = simulate(replace(problem, cluster=grown), realization)

    bound = bounds(replace(problem, cluster=cluster), realization)
    assert bound.combined <= schedule.makespan


def _broken(schedule: Schedule, *path: int) -> list[str]:
    quotas = np.array(path)[:, None]
    report = audit(replace(schedule, quotas=quotas))
    return [violation.sentence for violation in report.violations]


def test_an_audit_names_what_the_rule_never_does() -> None:
    schedule = simulate(*example(TUNER))
    assert schedule.quotas is not None
    path = schedule.quotas[:, 0].tolist()

    assert _broken(schedule, *path) == []
    few = _broken(schedule, *path[:40])
    assert few == ["the quota of a of m0 was looked at 40 of 69 times"]
    jump = _broken(schedule, *path[:20], 2, *path[21:])
    assert "the quota of a of m0 went from 5 to 2 at 21 s" in jump
    low = _broken(schedule, *path[:11], *path[10:-1])
    assert "pool a of m0 of 2 slots is overdrawn at 12 s" in low


@pytest.mark.parametrize(
    ("tuners", "message"),
    [
        ((replace(TUNER, machine=1),), "a tuner is of machine number 1"),
        ((TUNER, TUNER), "pool a of m0 has 2 tuners"),
        ((replace(TUNER, pool="c"),), "pool c of m0 is tuned: it needs slots"),
    ],
)
def test_tuners_that_cannot_be(tuners: tuple[Tuner, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Cluster((MACHINE,), tuners=tuners)


@pytest.mark.parametrize("period", [0.0, -1.0, 1e-4, float("nan"), float("inf")])
def test_periods_that_cannot_be(period: float) -> None:
    with pytest.raises(ValueError, match=r"it must be 0.001 s or more"):
        replace(TUNER, period=period)


def test_a_quota_below_one() -> None:
    for changes in ({"most": 0}, {"path": (3, 0)}):
        with pytest.raises(ValueError, match="a quota must be 1 or more"):
            replace(TUNER, **changes)


def test_however_often_quotas_are_looked_at_all_looks_are_kept() -> None:
    """1,600 looks and more are kept, with rates recorded and without."""
    often = example(replace(TUNER, period=0.01))
    plain = simulate(*often).quotas
    recorded = simulate(*often, record_rates=True).quotas

    assert plain is not None
    assert len(plain) > 1600
    assert {*plain[:, 0].tolist()} == {1, 2, 3, 4, 5}
    np.testing.assert_array_equal(plain, recorded)
