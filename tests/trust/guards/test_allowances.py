"""Allowances of guards to the last digit: rounding, unknown times, and no more."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.prediction.analysis.critical_path import Cause, ChainLink, CriticalPath
from emu.prediction.simulation import simulate
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
)
from emu.testing import two_machine_example
from emu.trust.audit import audit
from emu.trust.guards.credit_windows import window
from emu.trust.guards.evidence import Evidence
from emu.trust.guards.schedule import (
    _alike,
    headline_faults,
    lower_bounds,
    task_times,
)
from emu.trust.guards.traffic import FEW, PACKET, all_rates, enough_carried
from emu.trust.lateness import clock_uncertainty
from tests.trust.guards.reported import frames, reported


def golden() -> tuple[Schedule, Realization]:
    problem, realization = two_machine_example(3)
    return simulate(problem, realization), realization


def chain_of(seconds: tuple[float, ...], iterations: int = 1) -> Evidence:
    """Return what is reported of a task per time, one after the other, on a machine."""
    count = len(seconds)
    tasks = tuple(Task(f"t{position}", "t") for position in range(count))
    edges = tuple(Edge(position, position + 1) for position in range(count - 1))
    problem = Problem(
        Cluster((Machine("m0", 1.0, 1.0),)),
        Job(tasks, edges, iterations),
        Placement((0,) * count),
    )
    times = np.repeat(np.array(seconds)[:, None], iterations, axis=1)
    realization = Realization(times, np.zeros((len(edges), iterations)))
    return reported(simulate(problem, realization), realization)


@pytest.mark.parametrize(
    ("name", "fires"), [("stale", False), ("stall", False), ("lead", False), ("", True)]
)
def test_each_thing_that_was_not_known_allows_an_earlier_end(
    name: str, *, fires: bool
) -> None:
    """The last task ends 0.2 emulated seconds early, of 0.04 wall seconds."""
    schedule, realization = golden()
    ended = schedule.task_end.copy()
    ended[:, -1] -= 0.2
    early = replace(schedule, task_end=ended)
    unknown = {name: 0.05} if name else {}
    found = [*lower_bounds(reported(early, realization, **unknown))]
    assert bool(found) == fires


def test_what_is_stated_bounds_an_end_whatever_a_run_counted() -> None:
    """It sent half of the bytes that are stated, and ended sooner for it."""
    problem, realization = two_machine_example(3)
    halved = replace(realization, volumes=realization.volumes / 2)
    run = simulate(problem, halved)

    (found,) = lower_bounds(reported(run, realization))
    assert "which is the least whatever the schedule" in found.sentence
    assert not [*lower_bounds(reported(run, realization, volumes=None))]


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("share", "fires"), [(0.5e-6, False), (2e-6, True)])
def test_a_task_may_be_off_by_rounding_both_ways(
    sign: int, share: float, *, fires: bool
) -> None:
    sound = chain_of((2.0, 8.0))
    ended = sound.schedule.task_end.copy()
    ended[1, 0] += sign * share * 8.0
    off = replace(sound, schedule=replace(sound.schedule, task_end=ended), late=0.0)
    assert bool([*task_times(off)]) == fires


@pytest.mark.parametrize(("late_task", "fires"), [(0, True), (1, False)])
def test_a_task_may_take_longer_by_its_own_lateness_alone(
    late_task: int, *, fires: bool
) -> None:
    """The second of two takes 1 s more; one of them says that it was late by that."""
    sound = chain_of((2.0, 8.0))
    ended = sound.schedule.task_end.copy()
    ended[1, 0] += 1.0
    late = np.zeros((2, 1))
    late[late_task] = 1.0
    schedule = replace(sound.schedule, task_end=ended)
    assert bool([*task_times(replace(sound, schedule=schedule, late=late))]) == fires


@given(st.lists(st.sampled_from([0.0, 1e-6, 1.0, 3.0]), min_size=1, max_size=4))
def test_tasks_that_took_what_is_stated_are_right_without_any_time_too(
    seconds: list[float],
) -> None:
    """Also at time 0, where nothing is allowed for rounding."""
    assert not [*task_times(replace(chain_of((*seconds,)), late=0.0))]


@pytest.mark.parametrize(("early", "fires"), [(0.5e-6, False), (2e-6, True)])
def test_a_short_task_may_be_off_by_the_rounding_of_a_long_run(
    early: float, *, fires: bool
) -> None:
    """4 us after 1,000,000 s, whose own rounding is 1 us."""
    sound = chain_of((1e6, 4e-6))
    ended = sound.schedule.task_end.copy()
    ended[1, 0] -= early
    shorter = replace(sound.schedule, task_end=ended)
    assert bool([*task_times(replace(sound, schedule=shorter))]) == fires


@pytest.mark.parametrize(("early", "fires"), [(0.5e-3, False), (2e-3, True)])
def test_a_window_allows_a_millionth_of_the_time(early: float, *, fires: bool) -> None:
    """The second iteration may begin 1 ms before the first has ended at 1,000 s."""
    sound = chain_of((400.0, 600.0), iterations=2)
    began = sound.schedule.task_start.copy()
    began[0, 1] = 1000.0 - early
    schedule = replace(sound.schedule, task_start=began)
    found = [*window(replace(sound, schedule=schedule, windows=(("", 1),)))]
    assert bool(found) == fires


def test_a_window_waits_for_the_last_task_of_a_job_without_workers() -> None:
    """Not for its first, nor for one between."""
    sound = chain_of((1.0, 2.0, 4.0), iterations=2)
    found = [*window(replace(sound, windows=(("", 1),)))]
    assert "before t2[0] ended at 7 s" in found[0].sentence


def test_a_number_that_should_not_be_there_is_wrong() -> None:
    """A bound of 0 leaves no gap to state."""
    schedule, realization = golden()
    makespan = float(schedule.task_end.max())
    right = {
        "makespan": makespan,
        "predicted_makespan": makespan,
        "makespan_error": 0.0,
        "replayed_makespan": makespan,
        "replay_error": 0.0,
        "bound": 0.0,
    }
    for gap, fires in ((None, False), (3.0, True)):
        result = {**right, "gap": gap}
        _, faults = headline_faults(result, schedule, schedule, schedule, realization)
        named = {fault.subject for fault in faults}
        assert ("gap" in named) == fires


@pytest.mark.parametrize(
    ("bound", "fires"),
    [(1.0, False), (True, True), (1 - 5e-10, False), (1 + 5e-10, False)],
)
def test_a_bound_is_a_number_and_not_true(bound: object, *, fires: bool) -> None:
    """Python counts True as 1, and the only task takes 1 s."""
    sound = chain_of((1.0,))
    run = sound.schedule
    measured = Realization(np.ones((1, 1)), np.zeros((0, 1)))
    result = {
        "makespan": 1.0,
        "predicted_makespan": 1.0,
        "makespan_error": 0.0,
        "replayed_makespan": 1.0,
        "replay_error": 0.0,
        "bound": bound,
        "gap": 0.0,
    }

    _, faults = headline_faults(result, run, run, run, measured)

    assert bool(faults) == fires


@pytest.mark.parametrize(("size", "fires"), [(FEW, False), (FEW - 0.01, True)])
def test_flows_of_four_packets_are_enough(size: float, *, fires: bool) -> None:
    schedule, _ = golden()
    rows = frames(schedule)
    rows["bytes"] = int(size * PACKET)
    found = [*enough_carried(reported(schedule, sent=rows, received=rows))]
    assert bool(found) == fires


@pytest.mark.parametrize(
    ("byte_scale", "enough"), [(0.25, 1), (20.0, 100), (300.0, 10_000)]
)
def test_a_byte_scale_is_raised_from_what_it_is(byte_scale: float, enough: int) -> None:
    """Flows had a packet each: four times as many are enough."""
    schedule, _ = golden()
    rows = frames(schedule)
    rows["bytes"] = PACKET
    few = reported(schedule, sent=rows, received=rows, byte_scale=byte_scale)

    (found,) = enough_carried(few)

    assert found.remedy == f"raise byte_scale to {enough}"


def test_the_clock_of_the_last_task_counts_whichever_its_number_is() -> None:
    schedule, _ = golden()
    problem = schedule.problem
    hosts = [
        {"machines": [machine.name], "clock": {"uncertainty": 1e-4 * (place + 1)}}
        for place, machine in enumerate(problem.cluster.machines)
    ]
    for task, machine in enumerate(problem.placement.machine_of):
        last = ChainLink(Cause.COMPUTE, 0.0, 1.0, task=task)
        unknown = clock_uncertainty(CriticalPath((last,)), problem, hosts)
        assert unknown == pytest.approx(1e-4 * (machine + 1))


def test_an_audit_takes_times_that_were_measured_as_exact() -> None:
    schedule, realization = golden()
    assert not audit(schedule, times=realization.times).violations
    longer = realization.times.copy()
    longer[0, 0] += 0.5
    found = audit(schedule, times=longer).violations
    assert [violation.constraint for violation in found] == ["(6)"]


@pytest.mark.parametrize(
    ("said", "number", "is_alike"),
    [
        (None, None, True),
        (None, 1.0, False),
        (1.0, None, False),
        (1, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (1.0, 1.001, False),
        # JSON may hold what is no number at all.
        (True, 1.0, False),
        ("1.0", 1.0, False),
        ([1.0], 1.0, False),
    ],
)
def test_what_a_result_says_is_the_number_or_nothing_like_it(
    said: object, number: float | None, *, is_alike: bool
) -> None:
    assert _alike(said, number) == is_alike


@pytest.mark.parametrize(
    ("missed", "words"),
    [
        ([None, None], ""),
        ([0, None], ""),
        ([None, 3], "3 rates .* the first of edge s0->w0"),
        ([4, 3], "7 rates .* the first of edge g0->s0"),
    ],
)
def test_rates_that_never_came_are_summed_and_the_first_edge_is_named(
    missed: list[int | None], words: str
) -> None:
    """Senders that count none are those of runs in which none is counted."""
    schedule, realization = golden()
    names = schedule.problem.job.edge_names
    rows = [
        {"edge": names.index(name)} | ({} if count is None else {"missed": count})
        for name, count in zip(("g0->s0", "s0->w0"), missed, strict=True)
    ]
    # Processes tell of theirs in any order.
    senders = {f"{place}": {"sent": [row]} for place, row in enumerate(rows[::-1])}
    evidence = reported(schedule, realization, statistics=senders)

    found = [finding.sentence for finding in all_rates(evidence)]

    assert len(found) == bool(words)
    assert re.search(words, "".join(found))
