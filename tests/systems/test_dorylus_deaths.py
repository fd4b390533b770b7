"""Lambdas that die or answer too late: who is drawn, time and money by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import ScenarioError
from emu.prediction.analysis.throughput import Prices
from emu.prediction.simulation import simulate
from emu.scenario import Experiment, prepare
from emu.scenario.experiment import cost_of
from emu.scenario.scenario_file import loads
from emu.systems.dorylus.deaths import (
    ANSWERS,
    DIES,
    IDLE,
    LATE,
    UnansweredLambda,
    draw_attempts,
    epochs_of_edge,
    function_times,
    relaunches,
    timeouts,
)
from emu.systems.dorylus.remarks import read_lines
from emu.systems.dorylus.sections import DyingLambdasSection
from emu.trust.audit import audit
from tests.systems.test_dorylus_job import built, shape_of

FILE = """\
cluster:
  machines:
    - {name: g, count: 2, nic: 1 Gbit/s, price: 1 $/h}
    - {name: ps, nic: 1 Gbit/s, price: 1 $/h}
job:
  system: dorylus
  dataset: {name: products-like, scale: 0.0005}
  model: {hidden: 6}
  parameter_servers: [ps]
  intervals: 2
  epochs: 8
  times: {gather: 8 ms, apply: 20 ms, scatter: 2 ms}
"""


def _prepared(*changes: str) -> Experiment:
    return prepare(loads(FILE, changes))


def dying_of(share: float, late: float = 0.5, **more: Any) -> DyingLambdasSection:
    return DyingLambdasSection.model_construct(share=share, late=late, **more)


shares = st.floats(0, 0.6)


@settings(deadline=None, max_examples=40)
@given(share=shares, more=shares, late=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_who_is_drawn(share: float, more: float, late: float, seed: int) -> None:
    """Ends follow each other; fewer epochs or a smaller share change nothing else."""
    shape, dying = (7, 5, 3), dying_of(min(share, more), late, attempts=60)
    found = draw_attempts(dying, seed, shape)
    short = draw_attempts(dying, seed, (4, 5, 3))
    larger = draw_attempts(dying_of(max(share, more), late, attempts=60), seed, shape)
    for key, attempts in found.items():
        for n in range(shape[0]):
            ends = [one.ends[n] for one in attempts]
            last = ends.index(ANSWERS)
            assert {*ends[:last]} <= {DIES, LATE}
            assert {*ends[last + 1 :]} <= {IDLE}
            assert [one.ends[n] for one in larger[key]][:last] == ends[:last]
            if n < 4:
                early = [one.ends[n] for one in short.get(key, [])] or [ANSWERS]
                assert early[: last + 1] == ends[: last + 1]
            for one in attempts:
                work = one.done[n]
                assert work == {IDLE: 0.0, DIES: work}.get(one.ends[n], 1.0)
                assert 0 <= work <= 1
        assert any(one.ends != (ANSWERS,) * shape[0] for one in attempts)
        assert ANSWERS in attempts[-1].ends  # there are no more than some epoch needs


def test_shares_are_those_that_are_stated() -> None:
    dying = dying_of(0.2, late=0.3, attempts=40)
    found = draw_attempts(dying, 3, (50, 40, 10))
    ends = np.array(
        [[end == kind for kind in (DIES, LATE)] for attempts in found.values()
         for one in attempts for end in one.ends]
    )  # fmt: skip
    failed = ends.sum()
    launched = 50 * 40 * 10 + failed  # one for each that failed
    assert failed / launched == pytest.approx(0.2, abs=0.01)
    assert ends[:, 1].sum() / failed == pytest.approx(0.3, abs=0.02)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), attempts=st.integers(1, 5))
def test_that_all_die_is_an_error(seed: int, attempts: int) -> None:
    dying = dying_of(1.0, attempts=attempts)
    message = f"{attempts} lambdas in a row do not answer.*interval 0 in epoch 0"
    with pytest.raises(UnansweredLambda, match=message):
        draw_attempts(dying, seed, (2, 3, 2))
    with pytest.raises(ScenarioError, match=r"job\.dying_lambdas: 5 lambdas in a row"):
        _prepared("job.dying_lambdas.share=100 %")


@settings(deadline=None, max_examples=30)
@given(
    work=st.lists(st.lists(st.floats(0, 3), min_size=6, max_size=6), min_size=2),
    ratio=st.floats(0.1, 9),
)
def test_timeouts_against_one_number_after_the_other(
    work: list[list[float]], ratio: float
) -> None:
    """Three servers, two intervals each, one step."""
    dying = dying_of(0.1, ratio=ratio)
    seconds = np.array(work).reshape(-1, 3, 2, 1)
    found = timeouts(dying, seconds)
    for server in range(3):
        mean: float | None = None
        for n in range(len(work)):
            wanted = 0.5 if mean is None else max(0.5, ratio * mean)
            assert found[n, server, 0] == pytest.approx(wanted)
            for one in seconds[n, server, :, 0]:
                mean = one if mean is None else 0.95 * mean + 0.05 * one


def test_a_share_of_nothing_changes_nothing() -> None:
    without, none = _prepared(), _prepared("job.dying_lambdas={share: 0, late: 1}")
    assert without.problem.job == none.problem.job
    for name in ("times", "volumes"):
        one, other = (getattr(x.realization, name) for x in (without, none))
        np.testing.assert_array_equal(one, other)
    assert relaunches(none.simulate()) is None


def _one_chain(*changes: str) -> Experiment:
    """Return a job in which everything happens one after the other."""
    return _prepared(
        "job.machines=[g0]", "job.intervals=1", "cluster.machines[0].nic=100 Gbit/s",
        "cluster.machines[1].nic=100 Gbit/s", "job.lambda_nic=100 Gbit/s",
        "job.lambda_uplink=100 Gbit/s", *changes,
    )  # fmt: skip


@pytest.mark.parametrize("late", ["0", "1"])
@pytest.mark.parametrize("launch", ["{cold: 0 ms}", "{cold: 300 ms, warm: 5 ms}"])
def test_time_and_money_by_hand(late: str, launch: str) -> None:
    """Without NICs to wait for, every relaunch takes a timeout and a cold launch."""
    changes = (f"job.launch={launch}", "job.times.apply=130 ms", "job.epochs=12")
    dying = f"job.dying_lambdas={{share: 30 %, late: {late}, timeout: 200 ms}}"
    without, found = _one_chain(*changes), _one_chain(*changes, dying)
    job, schedule = found.problem.job, found.simulate()
    assert audit(schedule).passed

    # Every step takes 0.13 s, so that its smoothed time is that from epoch 1 on.
    again = [
        (n, task.settings["attempt"])
        for task in job.tasks
        if task.kind == "recall"
        for n in range(12)
        if task.settings["ends"][n] != IDLE
    ]
    cold = 0.3 if "300" in launch else 0.0
    waited = [(0.65 if n else 0.2) + cold for n, _ in again]
    assert len(again) > 5
    figures = relaunches(schedule)
    assert figures is not None
    assert figures["count"] == len(again)
    assert figures["late"] == (len(again) if late == "1" else 0)
    assert figures["seconds"] == pytest.approx(sum(waited))
    longer = schedule.makespan - without.simulate().makespan
    assert longer == pytest.approx(sum(waited), abs=0.02)
    assert f"{len(again)} lambdas launched again" in "".join(
        read_lines({"simulated": schedule}, "oes")
    )

    cost, before = (cost_of(x.scenario, x.simulate()) for x in (found, without))
    assert cost is not None
    assert before is not None
    done = [
        0.13 * task.settings["done"][n]
        for task in job.tasks
        if "done" in task.settings and task.kind.startswith("apply")
        for n in range(12)
        if task.settings["ends"][n] in {DIES, LATE}
    ]
    if late == "1":  # paid until the next one is launched
        done = waited
    assert cost.lost == pytest.approx(Prices().functions(np.array(done)), rel=0.02)
    assert cost.lambdas == pytest.approx(before.lambdas + cost.lost, rel=1e-6)
    assert cost.to_json()["lost"] == cost.lost


def test_a_lambda_launched_again_is_not_slow_as_the_first_was() -> None:
    """Servers wait by what the lambdas that answered took, 0.13 s or three times it."""
    found = _one_chain(
        "job.slow_lambdas={share: 100 %, factor: 3}", "job.times.apply=130 ms",
        "job.dying_lambdas={share: 30 %, timeout: 200 ms}", "job.epochs=12",
    )  # fmt: skip
    section: Any = found.scenario.job
    tasks = found.problem.job.tasks
    first = [
        task
        for task in tasks
        if task.kind.startswith("apply") and task.settings.get("attempt", 1) == 1
    ]
    work = np.full((12, 1, 1, len(first)), 0.39)
    for tensor, task in enumerate(first):
        for epoch, end in enumerate(task.settings.get("ends", ())):
            if end != ANSWERS:
                work[epoch, 0, 0, tensor] = 0.13
    waits = timeouts(section.dying_lambdas, work)

    assert (work == 0.13).any()
    for seconds, task in zip(found.realization.times, tasks, strict=True):
        if task.kind == "recall":
            is_launched = np.array(task.settings["ends"]) != IDLE
            expected = np.where(is_launched, waits[:, 0, task.settings["tensor"]], 0.0)
            np.testing.assert_allclose(seconds, expected)


FROZEN = {
    (0, 0): [
        (ANSWERS, DIES, DIES),
        (IDLE, DIES, ANSWERS),
        (IDLE, DIES, IDLE),
        (IDLE, ANSWERS, IDLE),
    ],
    (0, 1): [
        (DIES, ANSWERS, ANSWERS),
        (ANSWERS, IDLE, IDLE),
    ],
    (1, 0): [
        (ANSWERS, DIES, ANSWERS),
        (IDLE, DIES, IDLE),
        (IDLE, ANSWERS, IDLE),
    ],
}


def test_who_is_drawn_by_a_seed_is_frozen() -> None:
    """Two intervals have two tensor tasks each, in three epochs."""
    found = draw_attempts(dying_of(0.3, attempts=40), 3, (3, 2, 2))
    ends = {key: [one.ends for one in attempts] for key, attempts in found.items()}
    assert ends == FROZEN


def test_an_edge_carries_what_its_lambda_sends_by_how_it_ends() -> None:
    """One that dies takes its input, and sends nothing; a late one its gradient."""
    dying = {"share": 0.5, "late": 0.5, "attempts": 60}
    section = shape_of(2, epochs=6, fuse=False, dying_lambdas=dying)
    job = built(section)
    seen = set()
    for number, edge in enumerate(job.edges):
        if edge.credit:
            continue  # an order has no bytes
        source, to = job.tasks[edge.source], job.tasks[edge.destination]
        carries = epochs_of_edge(job, number).tolist()
        pair = (source.kind, to.kind)
        works = {"apply", "apply_back"}
        stated = source.settings.get("ends", [])
        if source.kind in {"call", "recall", "stash"} and to.kind in works:
            if "ends" not in to.settings:
                expected = [True] * 6
            else:
                expected = [end != IDLE for end in to.settings["ends"]]
        elif not stated or to.kind == "stash":
            expected = [True] * 6
        elif source.kind in works and to.kind == "answer":
            expected = [end == ANSWERS for end in stated]
        elif source.kind in works and to.kind == "weight_update":
            expected = [end in {ANSWERS, LATE} for end in stated]
        elif pair == ("held", "late"):
            expected = [end == LATE for end in stated]
        else:
            continue
        assert carries == expected, job.edge_names[number]
        seen.add((*pair, all(expected)))
    sometimes = {
        *(("apply", "answer"), ("apply_back", "answer"), ("held", "late")),
        *(("apply_back", "weight_update"), ("recall", "apply"), ("stash", "apply")),
    }
    assert {(*pair, False) for pair in sometimes} <= seen
    assert ("apply", "stash", True) in seen


def test_a_lambda_is_paid_up_to_its_answer_its_death_or_its_replacement() -> None:
    """Each step of the one chain takes 0.13 s, and what it sends takes no time."""
    dying = "job.dying_lambdas={share: 30 %, late: 0.5, timeout: 200 ms}"
    found = _one_chain("job.times.apply=130 ms", "job.epochs=12", dying)
    answers, others = function_times(found.simulate())
    works = [
        task
        for task in found.problem.job.tasks
        if task.kind.startswith("apply") and task.settings.get("attempt", 1) == 1
    ]
    assert len(answers) == 12 * len(works)
    ends = [
        (end, done)
        for task in found.problem.job.tasks
        if task.kind.startswith("apply")
        for end, done in zip(
            task.settings.get("ends", ()), task.settings.get("done", ()), strict=True
        )
    ]
    failed = [(end, done) for end, done in ends if end in {DIES, LATE}]
    assert len(others) == len(failed) > 0
    assert answers.min() > 0.129
    dead = sorted(0.13 * done for end, done in failed if end == DIES)
    assert sorted(others)[: len(dead)] == pytest.approx(dead, abs=0.002)


@settings(deadline=None, max_examples=12)
@given(share=st.floats(0.01, 0.4), late=st.floats(0, 1), seed=st.integers(0, 999))
def test_schedules_keep_the_constraints(share: float, late: float, seed: int) -> None:
    found = _prepared(
        f"job.dying_lambdas={{share: {share}, late: {late}, attempts: 50}}",
        f"seed={seed}", "job.epochs=4", "job.lambdas=1",
    )  # fmt: skip
    schedule = simulate(found.problem, found.realization, "oes")
    assert audit(schedule).passed
    for j, task in enumerate(found.problem.job.tasks):
        if task.kind == "recall":
            took = schedule.task_end[j] - schedule.task_start[j]
            idle = np.array(task.settings["ends"]) == IDLE
            assert (took[idle] == 0).all()
            assert (took[~idle] >= 0.5 - 1e-9).all()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("job.dying_lambdas.share=-1 %", r"dying_lambdas\.share"),
        ("job.dying_lambdas.share=101 %", r"dying_lambdas\.share"),
        ("job.dying_lambdas.late=2", r"dying_lambdas\.late"),
        ("job.dying_lambdas.attempts=0", r"dying_lambdas\.attempts"),
        ("job.dying_lambdas.timeout=-1 s", r"dying_lambdas\.timeout"),
        ("job.dying_lambdas.ratio=0", r"dying_lambdas\.ratio"),
        ("job.dying_lambdas.share=1 %; job.stream=2", "have one part: write 1"),
        ("job.dying_lambdas.share=1 %; job.backend=cpu", "has no lambdas, remove"),
        (
            "job.dying_lambdas.share=1 %; emulation.compute=real",
            r"emulation\.compute: a lambda that dies takes a stated time",
        ),
    ],
)
def test_bad_input(change: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        _prepared(*change.split("; "))
