"""Lower bounds hold for every policy; gaps to them, as numbers and in words."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from emu.prediction.analysis.bounds import (
    Optimality,
    bounds,
    optimality,
    optimality_line,
    placement_gap,
    placement_line,
)
from emu.prediction.scheduling import RATE_POLICIES, rate_policy
from emu.prediction.scheduling.compiled_problem import placed_layout
from emu.prediction.scheduling.state import earliest
from emu.prediction.simulation import makespan, simulate
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Machine,
    Outages,
    Placement,
    Problem,
    Realization,
    Task,
    Tuner,
)
from emu.problem.changes import SpeedChange
from emu.report.run_tables import headline
from emu.report.terminal import terminal
from emu.scenario import Experiment, prepare
from emu.scenario.scenario_file import loads
from emu.testing import two_machine_example
from emu.testing.strategies import problems
from emu.trust.guards.earliest_ends import earliest_ends
from tests.report.drawn_run import write_run

SLACK = 1 + 1e-9


@given(drawn=problems())
def test_no_policy_beats_the_bounds(drawn: tuple[Problem, Realization]) -> None:
    found = bounds(*drawn)
    assert found.nic_load <= found.combined * SLACK
    assert found.critical_path <= found.combined
    for policy, rule in RATE_POLICIES.items():
        span = makespan(*drawn, policy)
        assert span * SLACK >= found.combined, policy
        assert found.combined <= span * SLACK
        if rule.keeps_theorem:
            assert span <= found.certificate * SLACK, policy


@given(drawn=problems(links=True, own=True, latencies=True))
def test_the_earliest_ends_are_those_that_guards_hold_a_run_to(
    drawn: tuple[Problem, Realization],
) -> None:
    """Worked out beside each other: of the core, and of links as they are stated."""
    problem, run = drawn
    layout = placed_layout(problem, rate_policy("oes"))
    _, ends = earliest(layout, run.times, run.volumes)

    stated = earliest_ends(problem, run.times, run.volumes)
    ran = np.arange(problem.job.iterations) < np.array(problem.job.rounds)[:, None]
    assert ends[ran] == pytest.approx(stated[ran], rel=1e-12)


def test_bounds_of_the_example() -> None:
    found = bounds(*two_machine_example(10))
    # g1->s0 and s1->w0 ten times, p0->w0 nine times: 1000 + 90 bytes.
    assert found.nic_load == 109.0
    assert found.degree == 3  # g1->s0, s1->w0, p0->w0 leave m1
    assert found.combined == pytest.approx(115.0)
    assert found.binding == "m0 in"
    assert found.combined == pytest.approx(115.0)


def test_two_flows_through_one_port_in_context() -> None:
    cluster = Cluster((Machine("a", 1.0, 1.0), Machine("b", 9.0, 9.0)))
    job = Job(
        tuple(Task(name, "t") for name in ("u", "v", "w")), (Edge(0, 1), Edge(0, 2)), 1
    )
    problem = Problem(cluster, job, Placement((0, 1, 1)))
    realization = Realization(np.array([[2.0], [3.0], [4.0]]), np.full((2, 1), 5.0))
    found = bounds(problem, realization)
    assert found.nic_load == 10.0
    assert found.critical_path == 2 + 5 + 4
    assert found.binding in {"a out", "b in"}
    assert found.combined == 2 + 10 + 3  # u, both flows, the shorter of v and w


def test_a_flow_without_bytes_is_no_part_of_a_port() -> None:
    """One comes 6 s later than the others, and nothing follows it."""
    cluster = Cluster((Machine("a", 3.0, 1.0), Machine("b", 9.0, 8.0)))
    tasks = tuple(Task(name, "t") for name in "uvwxy")
    edges = (Edge(0, 1), Edge(0, 2), Edge(3, 4))
    problem = Problem(cluster, Job(tasks, edges, 1), Placement((0, 1, 1, 0, 1)))
    times = np.array([[2.0], [3.0], [4.0], [2.5], [0.0]])
    found = bounds(problem, Realization(times, np.array([[5.0], [5.0], [0.0]])))

    assert found.combined == 2 + 10 + 3
    assert found.binding == "a out"


@pytest.mark.parametrize("capacity", [20.0, 2.0])
def test_a_bound_knows_the_largest_capacity_and_ports_without_flows(
    capacity: float,
) -> None:
    """The link into m1 grows at 2 s, or shrinks; that of m1 that nothing uses grows."""
    machines = Machine("m0", 30.0, 40.0), Machine("m1", 10.0, 20.0)
    changes = (
        CapacityChange(2.0, "m1 in", capacity),
        CapacityChange(1.0, "m1 out", 60.0),
    )
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 1)
    cluster = Cluster(machines, changes=changes)
    problem = Problem(cluster, job, Placement((0, 1)))
    run = Realization(np.array([[1.0], [3.0]]), np.array([[90.0]]))

    found = bounds(problem, run)
    assert found.combined <= simulate(problem, run).makespan
    assert found.critical_path == pytest.approx(1 + 90 / max(capacity, 10.0) + 3)
    assert bounds(problem, run) is found  # asked again, it is not worked out anew


def test_flows_of_an_edge_follow_one_another_in_context() -> None:
    """The third flow of a->b begins at 11 s, as that of c->b does: 5.5 s over b in."""
    cluster = Cluster(
        (Machine("a", 1.0, 1.0), Machine("b", 10.0, 10.0), Machine("c", 99.0, 99.0))
    )
    tasks = (Task("a", "t"), Task("b", "t"), Task("c", "t", iterations=1))
    job = Job(tasks, (Edge(0, 1), Edge(2, 1, lag=2)), 3)
    realization = Realization(
        np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [11.0, 0.0, 0.0]]),
        np.array([[5.0, 5.0, 5.0], [50.0, 0.0, 0.0]]),
    )

    found = bounds(Problem(cluster, job, Placement((0, 1, 2))), realization)

    assert found.combined == pytest.approx(11 + 5.5 + 1)
    assert found.binding == "b in"


def lent(intervals: int, slots: int, rng: np.random.Generator | None) -> Experiment:
    """Return a job whose intervals take a slot, send two parts, and free it later."""
    tasks: list[dict[str, object]] = []
    flows: list[dict[str, object]] = []

    def some(unit: str) -> str:
        return f"{rng.integers(1, 9) if rng else 1} {unit}"

    for i in range(intervals):
        tasks += [
            {"name": f"c{i}", "time": some("s"), "pin": "m0", "takes": "lam"},
            {"name": f"r{i}", "time": some("s"), "pin": "m0", "frees": "lam"},
        ]
        tasks[-2]["frees"] = "none"
        for part in "xy":
            tasks.append({"name": f"{part}{i}", "time": some("s"), "pin": "m1"})
            flows += [
                {"from": f"c{i}", "to": f"{part}{i}", "volume": some("B")},
                {"from": f"{part}{i}", "to": f"r{i}", "volume": some("B")},
            ]
    machine = {"nic": "2 B/s", "slots": {"lam": slots}}
    job = {"system": "custom", "iterations": 3, "tasks": tasks, "flows": flows}
    cluster = {"machines": [machine, {"nic": "4 B/s"}]}
    return prepare(loads(json.dumps({"cluster": cluster, "job": job})))


def test_a_slot_is_held_until_another_task_frees_it() -> None:
    """One after the other: 1 s of c, both parts 1 s there, 1 and 1 s back, 1 s of r."""
    ready = lent(intervals=2, slots=1, rng=None)
    found = bounds(ready.problem, ready.realization)

    # A part that is alone on its way would take 1/2 s: the bound has 4 s of the 5.
    assert (found.combined, found.binding) == (2 * 3 * 4.0, "lam of m0")
    assert ready.simulate().makespan == 2 * 3 * 5.0


@pytest.mark.parametrize(
    ("most", "least"), [(6, (9.5, "m0 out")), (2, (12.0, "lam of m0"))]
)
def test_a_pool_that_may_grow_bounds_by_its_most_slots(
    most: int, least: tuple[float, str]
) -> None:
    """24 s of the one slot there is at first, 4 of six, 12 of two; 9.5 s of a port."""
    ready = lent(intervals=2, slots=1, rng=None)
    tuner = Tuner(0, "lam", "lam", most=most, period=1.0)
    cluster = replace(ready.problem.cluster, tuners=(tuner,))
    found = bounds(replace(ready.problem, cluster=cluster), ready.realization)

    assert (found.combined, found.binding) == least


@pytest.mark.parametrize("seed", range(20))
def test_no_schedule_of_lent_slots_beats_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ready = lent(int(rng.integers(1, 6)), int(rng.integers(1, 4)), rng)
    found = bounds(ready.problem, ready.realization)

    assert found.combined <= ready.simulate().makespan * (1 + 1e-12)


#: Seconds of c, which takes a slot, of x and y elsewhere, and of r, which frees it.
HELD = {"c": 1.0, "x": 2.0, "y": 5.0, "r": 3.0}


def held(*more: Edge, iterations: int | None = None) -> tuple[Problem, Realization]:
    """Return c -> x -> r and c -> y -> r, of two iterations of the last if stated."""
    tasks = (
        Task("c", "t", takes="lam", frees=""),
        Task("x", "t"),
        Task("y", "t"),
        Task("r", "t", frees="lam", iterations=iterations),
    )
    machines = (
        Machine("m0", 2.0, 2.0, slots={"lam": 1}, latency_out=1.0, latency_in=0.25),
        Machine("m1", 4.0, 4.0, latency_out=0.25, latency_in=0.5),
    )
    edges = (Edge(0, 1), Edge(0, 2), Edge(1, 3), Edge(2, 3), *more)
    problem = Problem(Cluster(machines), Job(tasks, edges, 3), Placement((0, 1, 1, 0)))
    times = np.array([[seconds] * 3 for seconds in HELD.values()])
    volumes = np.array([[2.0] * 3, [4.0] * 3, [6.0] * 3, [8.0] * 3, [200.0] * 3])
    return problem, Realization(times, volumes[: len(edges)])


def test_a_slot_is_held_for_the_longer_of_two_ways_with_its_latencies() -> None:
    """By y: 1 s of c, 2 and 1.5 s there, 5 s, 4 and 0.5 s back, 3 s of r."""
    found = bounds(*held())

    assert found.combined == pytest.approx(3 * 17.0)
    assert found.binding == "lam of m0"


def test_a_slot_is_held_for_the_longer_way_whichever_is_first() -> None:
    problem, run = held()
    times = run.times[[0, 2, 1, 3]]
    volumes = run.volumes[[1, 0, 3, 2]]

    assert bounds(problem, Realization(times, volumes)).combined == pytest.approx(51.0)


def test_what_an_iteration_before_sends_holds_no_slot() -> None:
    """From c to y, one iteration later, 200 B at 2 B/s: not to its first."""
    problem, realization = held(Edge(0, 2, lag=1))

    found = bounds(problem, realization)
    assert found.combined <= makespan(problem, realization) * SLACK


def test_a_slot_that_is_kept_in_the_end_is_held_by_who_took_it() -> None:
    """The third slot of c is not given back: r, of 99 s then, runs twice."""
    problem, realization = held(iterations=2)
    times = realization.times.copy()
    times[3, 2] = 99.0
    run = Realization(times, realization.volumes)

    assert bounds(problem, run).combined <= makespan(problem, run) * SLACK


def test_of_two_slots_that_meet_none_is_known_to_end() -> None:
    """Both c and x take one, and r and y give them back, whichever they are."""
    tasks = (
        Task("c", "t", takes="lam", frees=""),
        Task("x", "t", takes="lam", frees=""),
        Task("y", "t", frees="lam"),
        Task("r", "t", frees="lam"),
    )
    edges = (Edge(0, 2), Edge(1, 2), Edge(0, 3), Edge(1, 3))
    machine = Machine("m0", 2.0, 2.0, slots={"lam": 2})
    problem = Problem(Cluster((machine,)), Job(tasks, edges, 2), Placement((0,) * 4))
    times = np.array([[seconds] * 2 for seconds in HELD.values()])
    run = Realization(times, np.zeros((4, 2)))

    found = bounds(problem, run).combined
    assert 0 < found <= makespan(problem, run) * SLACK


def test_behind_all_bytes_of_a_link_that_changes_comes_the_shortest_rest() -> None:
    """40 B by 6 s, over 10 and then 5 B/s; then b takes 3 s."""
    job = Job((Task("a", "t"), Task("b", "t")), (Edge(0, 1),), 1)
    machines = Machine("m0", 20.0, 20.0), Machine("m1", 10.0, 20.0)
    cluster = Cluster(machines, changes=(CapacityChange(2.0, "m1 in", 5.0),))
    problem = Problem(cluster, job, Placement((0, 1)))
    run = Realization(np.array([[0.0], [3.0]]), np.array([[40.0]]))

    assert simulate(problem, run).makespan == 9.0
    assert bounds(problem, run).combined == 9.0
    theorem = optimality(simulate(problem, run), run, "oes")["theorem1"]
    assert theorem["delta_seen"] == 1
    assert theorem["certificate_seen"] == 4.0 + 3.0


def test_theorem_1_promises_nothing_of_turns_on_a_channel() -> None:
    problem, realization = two_machine_example(3)
    edges = tuple(replace(edge, channel="c") for edge in problem.job.edges)
    turns = replace(problem, job=replace(problem.job, edges=edges))
    schedule = simulate(turns, realization)

    assert optimality(schedule, realization, "oes")["theorem1"]["kept"] is False


def test_theorem_1_promises_nothing_of_slots_and_of_links_that_change() -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization)
    link = problem.links[1].name
    change = CapacityChange(500.0, link, 77.0)
    changing = replace(problem.cluster, changes=(change,))
    first, *others = problem.cluster.machines
    slots = replace(first, slots={"cpu": 9})
    tasks = (replace(problem.job.tasks[0], takes="cpu"), *problem.job.tasks[1:])
    with_slots = replace(
        problem,
        cluster=replace(problem.cluster, machines=(slots, *others)),
        job=replace(problem.job, tasks=tasks),
    )

    for case in (problem, replace(problem, cluster=changing), with_slots):
        found = optimality(replace(schedule, problem=case), realization, "oes")
        assert found["theorem1"]["kept"] is (case is problem)


def test_of_a_job_that_died_nothing_is_bounded() -> None:
    problem, realization = two_machine_example(3)
    died = replace(simulate(problem, realization), outages=Outages(7.0, 2.0))

    assert optimality(died, realization, "oes") == {}


def test_after_the_last_of_many_flows_comes_the_shortest_rest() -> None:
    """80 B over a NIC of 10, then 5 B/s, by 13 s; b takes 10 s after its 40, d 1 s."""
    kinds = {"a": 1.0, "b": 10.0, "c": 5.0, "d": 1.0}
    job = Job(tuple(Task(k, k) for k in kinds), (Edge(0, 1), Edge(2, 3)), 1)
    machines = Machine("m0", 100.0, 10.0), Machine("m1", 100.0, 100.0)
    cluster = Cluster(machines, changes=(CapacityChange(3.0, "m0 out", 5.0),))
    problem = Problem(cluster, job, Placement((0, 1, 0, 1)))
    run = Realization(np.array([[*kinds.values()]]).T, np.full((2, 1), 40.0))

    assert simulate(problem, run).makespan == pytest.approx(19.0)
    assert bounds(problem, run).combined == pytest.approx(15.0)


def test_without_flows_the_critical_path_is_the_makespan() -> None:
    problem, realization = two_machine_example(3)
    alone = Problem(problem.cluster, problem.job, Placement((0,) * 6))
    found = bounds(alone, realization)
    assert found.degree == 0
    assert found.certificate == makespan(alone, realization)


def test_the_bound_is_not_above_the_makespan() -> None:
    problem, realization = two_machine_example(2)
    length = makespan(problem, realization)
    gap = placement_gap(problem, realization, length, seconds=5.0)

    assert 0 < gap["placement_bound"] <= length
    assert gap["placement_gap"] == pytest.approx(1 - gap["placement_bound"] / length)


def test_where_nothing_can_move_the_bound_is_that_of_the_schedule() -> None:
    problem, realization = two_machine_example(4)
    machines = problem.cluster.machines
    pinned = [
        replace(task, pinned=machines[position].name)
        for task, position in zip(
            problem.job.tasks, problem.placement.machine_of, strict=True
        )
    ]
    fixed = replace(problem, job=replace(problem.job, tasks=tuple(pinned)))
    length = 2 * makespan(fixed, realization)

    as_placed = bounds(fixed, realization).combined
    gap = placement_gap(fixed, realization, length, seconds=0.0)
    assert gap["placement_bound"] == as_placed
    free = placement_gap(problem, realization, length, seconds=0.0)
    assert free["placement_bound"] < as_placed


@pytest.mark.parametrize("above", [0.5e-9, 0.0])
def test_a_bound_that_is_above_by_rounding_is_the_makespan(
    monkeypatch: pytest.MonkeyPatch, above: float
) -> None:
    problem, realization = two_machine_example(2)
    length = makespan(problem, realization)
    monkeypatch.setattr(
        "emu.prediction.analysis.bounds.placement_bound",
        lambda *_, **__: length * (1 + above),
    )

    gap = placement_gap(problem, realization, length, seconds=0.0)
    assert gap == {"placement_bound": length, "placement_gap": 0.0}


def test_a_bound_that_the_run_disproves_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cut to the makespan, a false bound would look right."""
    problem, realization = two_machine_example(2)
    length = makespan(problem, realization)
    monkeypatch.setattr(
        "emu.prediction.analysis.bounds.placement_bound",
        lambda *_, **__: 1.01 * length,
    )

    with pytest.raises(ArithmeticError, match="is above"):
        placement_gap(problem, realization, length, seconds=0.0)


ONE_TASK = Problem(
    Cluster((Machine("m", 1.0, 1.0),)), Job((Task("t", "t"),), (), 2), Placement((0,))
)


def example(iterations: int, policy: str = "oes") -> Optimality:
    problem, realization = two_machine_example(iterations)
    schedule = simulate(problem, realization, policy)
    return optimality(schedule, realization, policy)


def test_the_example_is_as_short_as_can_be() -> None:
    found = example(10)
    assert found["bound"] == pytest.approx(115.0)
    assert found["gap"] == pytest.approx(0.0)
    assert found["theorem1"]["delta"] == 3
    assert found["theorem1"]["delta_seen"] == 3
    assert found["theorem1"]["kept"] is True
    bound, theorem = optimality_line(found | {"gap": 0.123}).splitlines()
    assert (
        bound == "at least 115 s as placed, whatever the schedule (m0 in): within 12 %"
    )
    assert theorem == (
        "at most 213 s by Theorem 1 (Delta 3), "
        "213 s by the 3 flows that shared a link at a time"
    )


def test_nothing_is_promised_where_a_machine_gets_slow() -> None:
    """A run of 1 s takes 9.1 s on the slow machine, and the certificate says 1 s."""
    slow = SpeedChange(0.1, "m", 0.1)
    cluster = Cluster((Machine("m", 1.0, 1.0),), speed_changes=(slow,))
    problem = Problem(cluster, Job((Task("a", "x"),), (), 1), Placement((0,)))
    realization = Realization(np.array([[1.0]]), np.zeros((0, 1)))
    schedule = simulate(problem, realization, "oes")

    found = optimality(schedule, realization, "oes")
    assert schedule.makespan == pytest.approx(9.1)
    assert found["theorem1"]["certificate"] == 1.0
    assert found["theorem1"]["kept"] is False


def test_a_policy_that_may_starve_a_flow_promises_nothing() -> None:
    found = example(10, "fifo")
    assert found["theorem1"]["kept"] is False
    assert "Theorem 1" not in optimality_line(found)


@given(drawn=problems(links=True))
def test_both_certificates_hold(drawn: tuple[Problem, Realization]) -> None:
    """Theorem 1 with the flows of one iteration, and with those that really met."""
    for policy in ("oes", "maxmin"):
        schedule = simulate(*drawn, policy)
        theorem = optimality(schedule, drawn[1], policy)["theorem1"]
        allowed = schedule.makespan * (1 - 1e-9)
        assert theorem["certificate"] >= allowed
        assert theorem["certificate_seen"] >= allowed


def test_without_flows_the_critical_path_is_the_bound() -> None:
    realization = Realization(np.ones((1, 2)), np.zeros((0, 2)))
    schedule = simulate(ONE_TASK, realization)
    schedule.task_end[0, 1] = 2.5
    found = optimality(schedule, realization, "oes")
    assert found["gap"] == 0.25
    assert "(critical path): within 25 %" in optimality_line(found)


def test_a_run_of_no_length_has_no_gap() -> None:
    nothing = Realization(np.zeros((1, 2)), np.zeros((0, 2)))
    found = optimality(simulate(ONE_TASK, nothing), nothing, "oes")
    assert found["bound"] == 0.0
    assert found["gap"] is None
    assert optimality_line(found) == ""


def test_the_headline_of_a_run_has_the_line(tmp_path: Path) -> None:
    _, result = write_run(tmp_path)
    result |= {"training": [], "startup": {"memory": 0, "seconds": 1.0}}
    result["verdict"]["remedies"] = []
    found = example(4)
    text = StringIO()
    terminal(text).print(headline(result | found))
    shown = " ".join(text.getvalue().split())
    assert " ".join(optimality_line(found).split()) in shown


def test_a_bound_that_proves_little_says_so() -> None:
    exact, loose = (
        placement_line({"placement_bound": 1.0, "placement_gap": gap})
        for gap in (0.19, 0.21)
    )
    assert "at most 19 % is left to gain" in exact
    assert "tighter" not in exact
    assert "no tighter bound is known" in loose


def test_a_gap_of_rounding_alone_is_none() -> None:
    line = placement_line({"placement_bound": 1.0, "placement_gap": 0.9e-5})
    assert line == "no placement on these machines is better, by a lower bound over all"


@pytest.mark.parametrize(
    ("gap", "percent"),
    [(-1e-12, "0.0"), (0.094, "9.4"), (0.1, "10"), (0.104, "10"), (0.6, "60")],
)
def test_a_gap_is_stated_to_two_digits(gap: float, percent: str) -> None:
    """A line for an older result, which has no flows that met."""
    theorem = {"kept": True, "delta": 3, "certificate": 9.0}
    result = {"gap": gap, "bound": 4.0, "bound_by": "m0 in", "theorem1": theorem}

    assert optimality_line(result) == (
        f"at least 4 s as placed, whatever the schedule (m0 in): within {percent} %"
    )
