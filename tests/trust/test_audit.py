"""The audit passes what the simulator makes and finds every constraint broken once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from emu.prediction.scheduling import RATE_POLICIES
from emu.prediction.simulation import simulate
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Link,
    Machine,
    Placement,
    Problem,
    RateHistory,
    Realization,
    Route,
    Schedule,
    Task,
)
from emu.testing import two_machine_example
from emu.testing.strategies import problems
from emu.trust.audit import audit
from emu.trust.violation import agreement, differences


@pytest.mark.parametrize("policy", RATE_POLICIES)
@settings.get_profile("each_rule")
@given(drawn=problems())
def test_simulated_schedules_pass(
    policy: str, drawn: tuple[Problem, Realization]
) -> None:
    problem, realization = drawn
    for record in (False, True):
        schedule = simulate(problem, realization, policy, record_rates=record)
        report = audit(schedule, volumes=realization.volumes)
        assert not report.violations


def changed(
    schedule: Schedule, name: str, place: tuple[int, int], value: float
) -> Schedule:
    array: NDArray[np.float64] = getattr(schedule, name).copy()
    array[place] = value
    change: dict[str, Any] = {name: array}
    return replace(schedule, **change)


# The example's edges: 1 = g0->s1, 0 = g0->s0 (local), 6 = w0->p0. Tasks: 4 = w0.
MUTATIONS: dict[str, tuple[str, Callable[[Schedule], Schedule]]] = {
    "a store starts before time 0": (
        "(5) g0[0] started before the run began: 1 s",
        lambda s: changed(s, "task_start", (0, 0), -1.0),
    ),
    "a store begins after the run": (
        "(5) g0[0] started after the run began: 0.5 s",
        lambda s: changed(s, "task_start", (0, 0), 0.5),
    ),
    "an iteration never runs": (
        "(6) w0[2] did not run: 1 iteration",
        lambda s: changed(s, "task_end", (4, 2), np.nan),
    ),
    "a flow starts before its source ended": (
        "(7) g0->s1[0] started before g0[0] ended: 0.5 s",
        lambda s: changed(s, "flow_start", (1, 0), 0.5),
    ),
    "a flow is lost": (
        "(7) w0->p0[1] was not sent: 1 iteration",
        lambda s: changed(s, "flow_end", (6, 1), np.nan),
    ),
    "a task starts before its flow arrived": (
        "(8) p0[0] started before w0->p0[0] ended: 2 s",
        lambda s: changed(s, "task_start", (5, 0), 20.0),
    ),
    "a task starts before its neighbour on the machine ended": (
        "(9) w0[0] started before s0->w0[0] ended: 2 s",
        lambda s: changed(s, "task_start", (4, 0), s.flow_end[4, 0] - 2),
    ),
    "two iterations overlap": (
        "(10) g0[1] started before the iteration before it ended: 0.25 s",
        lambda s: changed(s, "task_start", (0, 1), 0.75),
    ),
    "two flows of an edge overlap": (
        "(11) g0->s1[1] started before the flow before it on its edge ended: 1 s",
        lambda s: changed(s, "flow_start", (1, 1), 4.0),
    ),
    "the last two flows of an edge overlap": (
        "(11) g0->s1[2] started before the flow before it on its edge ended: 0.5 s",
        lambda s: changed(s, "flow_start", (1, 2), s.flow_end[1, 1] - 0.5),
    ),
    "bytes are lost": (
        "(12) g0->s1[0] carried 39 of 40 bytes: 1 B",
        lambda s: changed(s, "flow_bytes", (1, 0), 39.0),
    ),
    "a flow is faster than its NIC": (
        "(13) port m0 out of 10 B/s carries too much from 1 to 2 s: 30 B",
        lambda s: changed(s, "flow_end", (1, 0), 2.0),
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_constraint_broken_once_is_found(mutation: str) -> None:
    expected, mutate = MUTATIONS[mutation]
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization)
    report = audit(mutate(schedule), volumes=realization.volumes, tolerance=0)
    assert expected in [str(violation) for violation in report.violations]


def test_rates_over_capacity_are_found_at_their_instant() -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization, record_rates=True)
    rates = schedule.rates
    assert rates is not None
    faster = np.where(rates.time == 1.0, rates.rate * 1.5, rates.rate)
    broken = RateHistory(rates.time, rates.edge, rates.iteration, faster)
    report = audit(replace(schedule, rates=broken))
    found = [str(violation) for violation in report.violations]
    assert "(13) port m0 out is over its capacity of 10 B/s at 1 s: 5 B/s" in found
    assert "(14) port m0 in is over its capacity of 10 B/s at 1 s: 5 B/s" in found
    assert "(12) g0->s1[0] was given rates for 60 of 40 bytes: 20 B" in found


def test_nothing_is_left_out_after_the_first() -> None:
    schedule = simulate(*two_machine_example(3))
    early = replace(schedule, task_start=schedule.task_start - 100.0)
    constraints = {v.constraint for v in audit(early).violations}
    assert {"(5)", "(8)", "(9)", "(10)"} <= constraints


def test_a_tolerance_forgives_what_it_says() -> None:
    schedule = simulate(*two_machine_example(3))
    late = changed(schedule, "flow_end", (6, 0), schedule.flow_end[6, 0] + 0.01)
    assert not audit(late).passed
    assert audit(late, tolerance=0.02).passed


def test_a_share_forgives_bytes_and_a_tolerance_what_rates_bring_in_it() -> None:
    """Counts of bytes are exact: only a share is allowed of them."""
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization, record_rates=True)
    stated = schedule.flow_bytes * 1.05

    assert not audit(schedule, volumes=stated, relative=0.04, tolerance=9.0).passed
    assert audit(schedule, volumes=stated, relative=0.06).passed
    # Of links that have no rates, too: 40 B in 3.8 s are 5 % over 10 B/s.
    sooner = changed(schedule, "flow_end", (1, 0), schedule.flow_end[1, 0] - 0.2)
    sooner = replace(sooner, rates=None)
    for relative, is_over in ((0.04, True), (0.06, False)):
        found = audit(sooner, relative=relative).violations
        assert any(v.constraint in {"(13)", "(14)"} for v in found) is is_over
    # The narrowest link of g0->s1 has 10 B/s: 2 B are 0.2 s of it.
    more = changed(schedule, "flow_bytes", (1, 0), schedule.flow_bytes[1, 0] + 2.0)
    assert not audit(more, tolerance=0.19).passed
    assert audit(more, tolerance=0.21).passed


def test_within_a_machine_flows_are_asked_for_no_order() -> None:
    """The second handoff of g0->s0 begins and ends a second before the first."""
    schedule = simulate(*two_machine_example(3))
    assert not schedule.problem.hops[0]
    first = changed(schedule, "flow_start", (0, 0), schedule.flow_start[0, 1] + 1.0)
    turned = changed(first, "flow_end", (0, 0), schedule.flow_end[0, 1] + 1.0)

    constraints = {violation.constraint for violation in audit(turned).violations}
    assert "(11)" not in constraints


def test_bytes_may_be_ahead_of_a_port_by_the_tolerance_at_least() -> None:
    """The first flow, of 40 B at 10 B/s, comes 0.25 s early; no rates say when."""
    schedule = simulate(*two_machine_example(1))
    e, n = schedule.flows()[0].tolist()
    early = changed(schedule, "flow_end", (e, n), schedule.flow_end[e, n] - 0.25)

    def is_over(tolerance: float, unpaced: float = 0.0) -> bool:
        report = audit(early, tolerance=tolerance, unpaced=unpaced)
        return any(v.constraint in {"(13)", "(14)"} for v in report.violations)

    assert is_over(0.1)
    assert not is_over(0.3)
    assert not is_over(0.1, unpaced=0.3)


def test_a_store_with_a_credit_window_begins_with_the_run() -> None:
    """Credits come from the iterations before: none from before the first."""
    schedule = simulate(*two_machine_example(3, credit=1))
    assert audit(schedule).passed
    late = replace(
        schedule,
        task_start=schedule.task_start.copy(),
        task_end=schedule.task_end.copy(),
    )
    late.task_start[0, 0] += 0.5

    found = [str(v) for v in audit(late).violations if v.constraint == "(5)"]
    assert found == ["(5) g0[0] started after the run began: 0.5 s"]
    within = audit(late, tolerance=0.6).violations
    assert not [violation for violation in within if violation.constraint == "(5)"]


def test_a_link_between_racks_is_held_against_what_it_has_then() -> None:
    """It has 10 B/s until 2 s, then 5 B/s; the flow is said to go on at 10."""
    machines = Machine("m0", 40.0, 30.0), Machine("m1", 50.0, 60.0)
    cluster = Cluster(
        machines,
        (Link("wan", 10.0),),
        (Route((0,), (1,), ("out", "wan", "in")),),
        changes=(CapacityChange(2.0, "wan", 5.0),),
    )
    job = Job((Task("a{0}", "a"), Task("b", "b")), (Edge(0, 1),), 1)
    problem = Problem(cluster, job, Placement((0, 1)))
    run = Realization(np.ones((2, 1)), np.array([[20.0]]))
    schedule = simulate(problem, run, record_rates=True)
    assert audit(schedule).passed
    flow = np.zeros(1, np.int64)
    rates = RateHistory(np.array([1.0]), flow, flow, np.array([10.0]))

    found = [str(v) for v in audit(replace(schedule, rates=rates)).violations]
    over = "port wan is over its capacity of 5 B/s at 2 s: 5 B/s"
    assert found[1:] == [f"(13),(14) {over}"]
    # A name may have braces of its own.
    early = changed(schedule, "flow_start", (0, 0), 0.5)
    assert "(7) a{0}->b[0] started before a{0}[0] ended: 0.5 s" in [
        str(violation) for violation in audit(early).violations
    ]


def test_a_tolerance_lets_the_narrowest_link_of_a_way_bring_more() -> None:
    """In 0.1 s that brings 1 B at 10 B/s; another on the way has 50."""
    machines = Machine("m0", 40.0, 10.0), Machine("m1", 50.0, 60.0)
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    run = Realization(np.ones((2, 1)), np.array([[20.0]]))
    schedule = simulate(problem, run, record_rates=True)

    for size, constraints in ((20.9, set()), (21.1, {"(12)"})):
        more = changed(schedule, "flow_bytes", (0, 0), size)
        found = {v.constraint for v in audit(more, tolerance=0.1).violations}
        assert found == constraints


def test_without_a_tolerance_links_within_a_machine_have_no_slack() -> None:
    """They are infinitely wide, and carry nothing at a rate."""
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization, record_rates=True)
    assert "(12)" in audit(schedule, tolerance=0.0).checked


def test_a_report_shows_its_comparisons_and_the_first_violation() -> None:
    schedule = simulate(*two_machine_example(3))
    sound = audit(schedule)
    broken = audit(changed(schedule, "task_end", (4, 2), np.nan))

    count = sum(sound.checked.values())
    assert repr(sound) == f"<AuditReport: {count} comparisons, no violation>"
    first = "(6) w0[2] did not run: 1 iteration"
    assert f"1 violation, first: {first}" in repr(broken)


def test_wrong_shapes_and_tolerances_are_refused() -> None:
    schedule = simulate(*two_machine_example(3))
    with pytest.raises(ValueError, match="volumes has shape"):
        audit(schedule, volumes=np.zeros((1, 1)))
    for tolerance, relative in ((-1.0, 0.0), (0.0, -0.5)):
        with pytest.raises(ValueError, match="must not be negative"):
            audit(schedule, tolerance=tolerance, relative=relative)


def test_a_link_may_let_go_at_once_what_its_bucket_holds() -> None:
    """The first flow of 40 B, alone on a link of 10 B/s, comes 1.6 s early."""
    problem, realization = two_machine_example(1)
    schedule = simulate(problem, realization)
    e, n = schedule.flows()[0]
    ends = schedule.flow_end.copy()
    ends[e, n] = schedule.flow_start[e, n] + 2.4
    early = replace(schedule, flow_end=ends)

    def broken(size: float) -> list[str]:
        report = audit(early, at_once=lambda _: size)
        return [
            v.subject for v in report.violations if v.constraint in {"(13)", "(14)"}
        ]

    assert broken(15.9) == ["m0 out", "m1 in"]
    assert broken(16.1) == []


STATED: dict[str, Any] = {"a": [1, 2.0, {"b": None}], "c": "x", "d": True, "e": 0.0}


def test_whole_numbers_beyond_a_float_are_compared() -> None:
    """An edited result may hold any number of digits."""
    huge = 10**400
    assert not [*differences({"bytes": huge}, {"bytes": huge}, "it")]
    for wanted in (5, 1.5, huge + 1):
        (line,) = differences({"bytes": huge}, {"bytes": wanted}, "it")
        assert line.startswith("bytes is ")


def test_what_is_alike_has_no_differences() -> None:
    said = {"a": (1.0, 2, {"b": None}), "c": "x", "d": True, "e": 0}
    assert not [*differences(said, STATED, "it")]
    endless = {"a": [math.inf, -math.inf]}
    assert not [*differences(endless, endless, "it")]
    # Sums in another order differ by rounding.
    for share, count in ((1e-10, 0), (1e-8, 1)):
        near = {**STATED, "a": [1, 2.0 * (1 + share), {"b": None}]}
        assert len([*differences(near, STATED, "it")]) == count
    assert agreement("file", STATED, STATED, "it") == (6, [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": [1, 2.0001, {"b": None}]}, "a[1] is 2.0001, 2.0 by it"),
        ({"a": [1, float("nan"), {"b": None}]}, "a[1] is nan, 2.0 by it"),
        ({"a": [1, 2.0]}, "a has 2 items, 3 by it"),
        ({"a": [1, 2.0, {}]}, "a[2].b is missing, None by it"),
        ({"c": 1}, "c is 1, 'x' by it"),
        ({"c": "y"}, "c is 'y', 'x' by it"),
        ({"c": {"x": 1}}, "c is {'x': 1}, 'x' by it"),
        ({"c": ["x"]}, "c is ['x'], 'x' by it"),
        ({"a": 7}, "a is 7, [1, 2.0, {'b': None}] by it"),
        ({"a": [1, 2.0, 5]}, "a[2] is 5, {'b': None} by it"),
        ({"d": False}, "d is False, True by it"),
        ({"d": 1}, "d is 1, True by it"),
        ({"e": 1e-300}, "e is 1e-300, 0.0 by it"),
        ({"f": 1}, "f is 1, and no key by it"),
    ],
)
def test_every_difference_is_named(change: dict[str, Any], words: str) -> None:
    assert [*differences({**STATED, **change}, STATED, "it")] == [words]


def test_differences_stand_in_the_order_of_what_is_wanted() -> None:
    """It lists at most fifty, however many values were compared."""
    found = {"z": 0, "c": 1, "a": 2, "b": 3}
    wanted = {"b": 0, "a": 1, "y": 2, "c": 3}
    names = [line.split(" ")[0] for line in differences(found, wanted, "it")]
    assert names == ["b", "a", "y", "c", "z"]

    count, violations = agreement("file", [1] * 60, [2] * 60, "it")
    assert (count, len(violations)) == (60, 50)


@pytest.mark.parametrize(("size", "is_cut"), [(58, False), (59, True)])
def test_what_is_longer_than_sixty_characters_is_cut(
    size: int, *, is_cut: bool
) -> None:
    """Quotes are two of them."""
    (line,) = differences({"c": size * "x"}, {"c": 1}, "it")
    shown = repr(size * "x")[:60] + ("..." if is_cut else "")
    assert line == f"c is {shown}, 1 by it"
