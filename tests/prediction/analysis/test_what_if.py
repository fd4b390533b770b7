"""What would help: every line is confirmed by the slow simulator of the tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.prediction.analysis import what_if
from emu.prediction.analysis.critical_path import (
    Cause,
    ChainLink,
    CriticalPath,
    critical_path,
)
from emu.prediction.analysis.what_if import (
    Change,
    Improvement,
    _seconds,
    changes_of,
    rank,
    rank_pairs,
    span,
)
from emu.prediction.simulation import makespan, simulate
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Link,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
    Tuner,
)
from emu.problem.changes import SpeedChange
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

    # A pair of two kinds has the edits of both: none is asked for.
    (pair,) = rank_pairs(base, with_edits, lambda change: replace(change, edit={}))

    assert (pair.makespan, pair.gain) == (5.0, 5.0)
    assert pair.change.what == "every w and NICs twice as fast"
    known = None not in edits
    assert pair.change.edit == ({"a": 1, "b": 2} if known else None)


def test_of_two_tasks_at_once_the_edit_is_asked_for() -> None:
    """Tasks w and v of 10 s end together; then d takes 4 s beside e, of 3 s.

    A faster d alone saves a second of 14, so that it is in no pair with e.
    """
    tasks = tuple(Task(name, name) for name in "wvde")
    edges = tuple(Edge(first, then) for first in (0, 1) for then in (2, 3))
    cluster = Cluster((Machine("m", 3.0, 4.0),))
    problem = Problem(cluster, Job(tasks, edges, 1), Placement((0,) * 4))
    run = Realization(np.array([[10.0], [10.0], [4.0], [3.0]]), np.zeros((4, 1)))
    base = Change("", "as it is", problem, run, "oes")
    chain = critical_path(simulate(problem, run))
    alone = rank(base, changes_of(base, chain))

    (pair,) = rank_pairs(base, alone, lambda change: replace(change, edit={"a": 1}))
    assert pair.change.what == "every w and every v twice as fast"
    assert pair.change.rows == (0, 1)
    assert pair.change.to_json()["edit"] == {"a": 1}
    assert (pair.makespan, pair.gain) == (9.0, 5.0)


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


@pytest.mark.parametrize(
    ("beside", "gains", "is_listed"),
    [
        # Both at once bring 0.2 s of 10: more than either and a hundredth of the run.
        (9.8, (0.0, 0.0), True),
        (9.8, (0.09, 0.0), True),
        (9.8, (0.09, 0.09), False),
        # What one of them costs is not what both bring.
        (9.85, (0.09, -0.09), False),
        (9.85, (-0.09, 0.04), True),
    ],
)
def test_a_pair_brings_more_than_the_sum_of_what_each_brings(
    beside: float, gains: tuple[float, float], *, is_listed: bool
) -> None:
    machines = tuple(Machine(name, 10.0, 10.0) for name in "abcd")
    tasks = Task("s", "s"), Task("r", "r"), Task("w", "w"), Task("v", "v")
    job = Job(tasks, (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 2, 3)))
    times = np.array([[0.0], [0.0], [10.0], [beside]])
    run = Realization(times, np.array([[100.0]]))
    base = Change("", "as it is", problem, run, "oes")
    chain = critical_path(simulate(problem, run))
    (faster,) = (
        change
        for change in changes_of(base, chain)
        if change.what == "every w twice as fast"
    )
    nics = _both_nics(base)
    alone = [
        Improvement(faster, 10.0 - gains[0], gains[0]),
        replace(nics, makespan=10.0 - gains[1], gain=gains[1]),
    ]

    found = rank_pairs(base, alone, lambda change: change)

    assert bool(found) == is_listed
    assert [pair.gain for pair in found] == pytest.approx([10.0 - beside] * is_listed)
    # Of tasks that were built anew rows are others: none is paired.
    changed = nics.change.problem
    anew = replace(changed, job=replace(changed.job))
    other = replace(nics, change=replace(nics.change, problem=anew))
    assert not rank_pairs(base, [alone[0], other], lambda change: change)


def words_of(base: Change) -> set[str]:
    """Return all that is proposed, in words."""
    schedule = simulate(base.problem, base.realization, base.policy)
    return {change.what for change in changes_of(base, critical_path(schedule))}


def test_the_nics_that_are_tried_are_those_of_the_busiest_direction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Out of a go 70 B, into c 70 B, both ways of b 50 B each."""
    machines = tuple(Machine(name, 10.0, 10.0) for name in "bac")
    tasks = tuple(Task(name, name) for name in "bac")
    job = Job(tasks, (Edge(1, 0), Edge(0, 2), Edge(1, 2)), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 2)))
    run = Realization(np.zeros((3, 1)), np.array([[50.0], [50.0], [20.0]]))
    base = Change("", "as it is", problem, run, "oes")

    monkeypatch.setattr(what_if, "NICS", 2)
    found = {words for words in words_of(base) if words.startswith("NIC of")}

    assert found == {
        f"NIC of {name} {word}"
        for name in "ac"
        for word in ("twice as fast", "endless")
    }


def test_nics_are_alike_that_are_so_in_both_directions() -> None:
    problem, realization = two_machine_example(1)
    kinds = ((10.0, 5.0), (10.0, 9.0), (10.0, 5.0), (7.0, 5.0))
    machines = [Machine(f"m{n}", *kind) for n, kind in enumerate(kinds)]
    for count, expected in ((4, {"NICs of m0, m2"}), (1, set[str]())):
        # All that are alike are called so already.
        chosen = (
            machines if count == 4 else [machines[0], replace(machines[0], name="m1")]
        )
        case = Problem(Cluster(tuple(chosen)), problem.job, problem.placement)
        base = Change("", "as it is", case, realization, "oes")
        found = {
            words.removesuffix(" endless")
            for words in words_of(base)
            if words.startswith("NICs of") and words.endswith("endless")
        }
        assert found == expected


def test_a_recorded_run_keeps_what_deaths_have_added() -> None:
    base = Change("", "as it is", *two_machine_example(3), "oes", added=5.5)

    assert span(base) == 38.0 + 5.5


def test_without_events_nothing_dies() -> None:
    def deadly(problem: Problem, realization: Realization, policy: str) -> float:
        return 100.0 + makespan(problem, realization, policy)

    problem, realization = two_machine_example(3)
    base = Change("", "as it is", problem, realization, "oes", with_deaths=deadly)
    chain = critical_path(simulate(problem, realization))
    found = {change.what: span(change) for change in changes_of(base, chain)}

    assert span(base) == 138.0
    assert found["no events and failures"] == 38.0
    assert found["rates by maxmin"] == 138.0


def steady_words(cluster: Cluster) -> set[str]:
    """Return the changes of events of the example on a cluster."""
    problem, realization = two_machine_example(1)
    base = Change("", "", replace(problem, cluster=cluster), realization, "oes")
    return {change.what for change in what_if._no_events(base)}


def test_events_are_changes_of_links_or_of_speeds() -> None:
    cluster = two_machine_example(1)[0].cluster
    link = CapacityChange(1.0, "m1 in", 3.0)
    speed = SpeedChange(1.0, "m1", 0.5)

    assert steady_words(cluster) == set()
    for changed in ({"changes": (link,)}, {"speed_changes": (speed,)}):
        words = steady_words(replace(cluster, **changed))
        assert words == {"no events and failures"}


def test_a_chain_without_flows_names_no_port_and_gaps_are_no_tasks() -> None:
    """A gap of 9 s before x1, 4 s of a flow, and 2 s of x0; some links have latency."""
    tasks = tuple(Task(f"x{n}", "x") for n in range(4))
    machines = (
        Machine("m0", 90.0, 10.0),
        Machine("m1", 80.0, 70.0, latency_in=0.5),
        Machine("m2", 60.0, 50.0),
    )
    cluster = Cluster(machines, (Link("wire", 40.0),))
    job = Job(tasks, (Edge(0, 1), Edge(2, 3)), 1)
    problem = Problem(cluster, job, Placement((0, 1, 1, 0)))
    run = Realization(np.array([[2.0], [1.0], [1.0], [1.0]]), np.full((2, 1), 40.0))
    base = Change("", "", problem, run, "oes")
    parts = (
        ChainLink(Cause.GAP, 0.0, 9.0, task=1),
        ChainLink(Cause.COMPUTE, 9.0, 11.0, task=0),
        ChainLink(Cause.TRANSFER, 11.0, 15.0, edge=0),
    )

    words = {change.what for change in changes_of(base, CriticalPath(parts))}
    fast = {what.removesuffix(" endless") for what in words if "endless" in what}
    assert fast == {"NIC of m0", "NIC of m1", "all NICs and links"}
    fast = {what.removesuffix(" in no time") for what in words if "in no time" in what}
    assert fast == {"every x", "x0"}
    assert "no latency" in words


def test_a_credit_without_lag_is_no_window() -> None:
    """It orders two tasks of one iteration; only the other edge is a window, of 2."""
    tasks = Task("g", "graph_store"), Task("w", "worker")
    orders = (Edge(0, 1, credit=True), Edge(1, 0, lag=2, credit=True))
    job = Job(tasks, orders, 4, settings={"credit": 2})
    problem = Problem(Cluster((Machine("m", 1.0, 1.0),)), job, Placement((0, 0)))
    run = Realization(np.ones((2, 4)), np.zeros((2, 4)))
    base = Change("", "as it is", problem, run, "oes")

    windows = list(what_if._window(base))

    assert [change.problem.job.edges for change in windows] == [
        (orders[0], replace(orders[1], lag=4)),
        (orders[0],),
    ]


def test_slots_that_a_rule_tunes_are_not_doubled() -> None:
    """Two tasks wait for the one slot of each pool; that of a is tuned."""
    tasks = tuple(Task(f"{pool}{n}", "t", takes=pool) for pool in "ab" for n in (0, 1))
    machine = Machine("m", 1.0, 1.0, slots={"a": 1, "b": 1})
    cluster = Cluster((machine,), tuners=(Tuner(0, "a", "a", most=1, period=9.0),))
    job = Job((*tasks, Task("end", "t")), (Edge(1, 4), Edge(2, 0)), 1)
    problem = Problem(cluster, job, Placement((0,) * 5))
    run = Realization(np.ones((5, 1)), np.zeros((2, 1)))
    schedule = simulate(problem, run)
    chain = critical_path(schedule)
    links = tuple(replace(chain.links[0], pool=pool) for pool in ("a", "b", ""))
    base = Change("", "as it is", problem, run, "oes")

    found = [*what_if._slots(base, replace(chain, links=links))]

    assert [change.what for change in found] == ["b twice as many"]
    assert found[0].problem.cluster.machines[0].slots == {"a": 1, "b": 2}


def test_single_tasks_are_those_with_most_of_the_chain() -> None:
    """Seven of one kind after each other: the two shortest are left out."""
    tasks = tuple(Task(f"t{n}", "t") for n in range(1, 8))
    edges = tuple(Edge(n, n + 1) for n in range(6))
    machine = Machine("m", 1.0, 1.0)
    problem = Problem(Cluster((machine,)), Job(tasks, edges, 1), Placement((0,) * 7))
    times = np.array([[3.0], [1.0], [7.0], [2.0], [6.0], [4.0], [5.0]])
    base = Change("", "as it is", problem, Realization(times, np.zeros((6, 1))), "oes")

    found = {words for words in words_of(base) if words.endswith("in no time")}

    assert found == {"every t in no time"} | {
        f"t{n} in no time" for n in (1, 3, 5, 6, 7)
    }


def test_of_flows_without_bytes_none_are_taken_away() -> None:
    """Nothing but its latency is on the chain."""
    machines = Machine("m0", 1.0, 1.0, latency_out=2.0), Machine("m1", 1.0, 1.0)
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    run = Realization(np.ones((2, 1)), np.zeros((1, 1)))
    found = words_of(Change("", "as it is", problem, run, "oes"))

    assert "no latency" in found
    assert not [words for words in found if words.endswith("bytes")]
