"""The scheduler driven event by event."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import SchedulingError
from emu.prediction.scheduling import (
    RATE_POLICIES,
    Decisions,
    End,
    Scheduler,
    compiled_problem,
    policy_named,
)
from emu.prediction.scheduling.state import expectation, longest_paths
from emu.prediction.simulation import simulate
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Profile,
    Realization,
    Task,
    Tuner,
)
from emu.scenario.own_rules import register_program
from emu.testing import two_machine_example
from emu.testing.strategies import problems
from tests.prediction.scheduling.virtual_coordinator import (
    Reporting,
    VirtualCoordinator,
)

RULES = [name for name in RATE_POLICIES if name != "portfolio"]


@pytest.mark.parametrize("policy", RULES)
@settings.get_profile("each_rule")
@given(drawn=problems(latest=True))
def test_driven_by_events_equals_simulated(
    policy: str, drawn: tuple[Problem, Realization]
) -> None:
    assert_equal(*drawn, policy)


@pytest.mark.parametrize("policy", RULES)
@settings.get_profile("each_rule")
@given(
    drawn=problems(links=True, jobs=True, cuts=True, speeds=True),
    seed=st.integers(0, 2**32 - 1),
)
def test_changes_of_capacities_settled_at_any_time_equal_simulated_ones(
    policy: str, drawn: tuple[Problem, Realization], seed: int
) -> None:
    assert_equal(*drawn, policy, np.random.default_rng(seed))


@pytest.mark.parametrize("policy", RULES)
@settings.get_profile("each_rule")
@given(
    drawn=problems(links=True, own=True, slots=True, latest=True, latencies=True),
    seed=st.integers(0, 2**32 - 1),
)
def test_flows_that_land_after_a_latency_equal_simulated_ones(
    policy: str, drawn: tuple[Problem, Realization], seed: int
) -> None:
    assert_equal(*drawn, policy, np.random.default_rng(seed))


@given(
    drawn=problems(own=True, slots=True, latest=True, tuned=True),
    seed=st.integers(0, 2**32 - 1),
)
def test_quotas_tuned_at_any_time_equal_simulated_ones(
    drawn: tuple[Problem, Realization], seed: int
) -> None:
    assert_equal(*drawn, "maxmin", np.random.default_rng(seed))


@given(
    drawn=problems(links=True, own=True, jobs=True),
    largest=st.sampled_from([2e7, 3e8]),
    seed=st.integers(0, 2**32 - 1),
)
def test_coflows_change_their_queues_of_aalo_as_simulated(
    drawn: tuple[Problem, Realization], largest: float, seed: int
) -> None:
    problem, realization = drawn
    factor = largest / float(realization.volumes.max(initial=1.0))
    scaled = replace(realization, volumes=realization.volumes * factor)
    assert_equal(problem, scaled, "aalo", np.random.default_rng(seed))


def served_of(scheduler: Scheduler, edge: int, time: float) -> float:
    """Return what the flow of an edge has been served, beside those of all others."""
    edges = np.arange(len(scheduler.volumes))
    return float(scheduler.services_of(edges, time)[edge])


def tuned(period: float) -> Reporting:
    """One task of 8 s, and a pool whose quota nobody waits for."""
    machine = Machine("m0", 1.0, 1.0, slots={"gpu": 3})
    cluster = Cluster((machine,), tuners=(Tuner(0, "gpu", "gpu", 4, period),))
    problem = Problem(cluster, Job((Task("a", "a"),), (), 1), Placement((0,)))
    reporting = Reporting(problem, "oes")
    reporting.scheduler.begin()
    return reporting


def test_no_quota_is_looked_at_once_all_has_ended() -> None:
    reporting = tuned(period=3.0)
    reporting.task_ended(0, 0, {}, 8.0)
    assert reporting.scheduler.next_end == 3.0
    decisions = reporting.settle(100.0)

    assert [decided.time for decided in decisions] == [3.0, 6.0, 8.0]
    assert reporting.scheduler.next_end == math.inf
    assert reporting.scheduler.quotas is not None
    assert reporting.scheduler.quotas.tolist() == [[3], [3]]


def test_quotas_of_a_long_run_are_kept() -> None:
    reporting = tuned(period=1 / 64)
    for time in np.arange(0.0, 8.0, 0.7):
        reporting.settle(float(time))
    reporting.end_task(0, 0, {}, 8.0)

    assert reporting.scheduler.quotas is not None
    assert reporting.scheduler.quotas.tolist() == [[3]] * 512


def assert_equal(
    problem: Problem,
    realization: Realization,
    policy: str,
    rng: np.random.Generator | None = None,
) -> None:
    if not (realization.times > 0).all():
        realization = type(realization)(realization.times + 0.25, realization.volumes)
    schedule = simulate(problem, realization, policy)
    coordinator = VirtualCoordinator(problem, realization, policy, rng)
    coordinator.run()
    np.testing.assert_allclose(
        coordinator.task_start, schedule.task_start, rtol=1e-9, atol=1e-9
    )
    if schedule.reads is not None:
        np.testing.assert_array_equal(coordinator.scheduler.log.reads, schedule.reads)
    quotas = coordinator.scheduler.quotas
    assert (quotas is None) == (schedule.quotas is None)
    if quotas is not None and schedule.quotas is not None:
        np.testing.assert_array_equal(quotas, schedule.quotas)
    flows = ~np.isnan(coordinator.flow_end)
    np.testing.assert_allclose(
        coordinator.flow_end[flows], schedule.flow_end[flows], rtol=1e-9, atol=1e-9
    )
    assert flows.sum() == (schedule.flow_bytes[tuple(schedule.flows().T)] > 0).sum()


@pytest.mark.parametrize("policy", RULES)
@settings.get_profile("each_rule")
@given(drawn=problems(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_events_of_one_instant_does_not_matter(
    policy: str, drawn: tuple[Problem, Realization], seed: int
) -> None:
    told = VirtualCoordinator(*drawn, policy)
    told.run()
    shuffled = VirtualCoordinator(*drawn, policy, np.random.default_rng(seed))
    shuffled.run()
    np.testing.assert_allclose(
        told.task_start, shuffled.task_start, rtol=1e-12, atol=1e-12
    )


def at_first_flows(*changes: CapacityChange) -> tuple[Reporting, Decisions]:
    """Return a scheduler at 1 s, when both stores have ended iteration 0."""
    problem, _ = two_machine_example(2)
    problem = replace(problem, cluster=replace(problem.cluster, changes=changes))
    scheduler = Reporting(problem, "oes")
    scheduler.scheduler.begin()
    scheduler.task_ended(0, 0, {0: 40.0, 1: 40.0}, 1.0)
    scheduler.task_ended(1, 0, {2: 40.0, 3: 40.0}, 1.0)
    (decisions,) = scheduler.settle()
    return scheduler, decisions


def test_decisions() -> None:
    scheduler, decisions = at_first_flows()
    assert decisions.time == 1.0
    assert decisions.tasks == [(0, 1), (1, 1)]
    assert sorted(decisions.flows) == [(1, 0), (2, 0)]
    assert sorted(decisions.lines.edge) == [1, 2]
    assert decisions.lines.rate.tolist() == [10.0, 10.0]
    assert decisions.lines.served.tolist() == [0.0, 0.0]
    assert served_of(scheduler.scheduler, 1, 3.0) == 20.0
    assert served_of(scheduler.scheduler, 1, 99.0) == 40.0
    assert not scheduler.scheduler.finished


def test_a_change_of_a_capacity_happens_without_being_told() -> None:
    scheduler, _ = at_first_flows(CapacityChange(2.0, "m1 in", 5.0))  # of g0->s1
    assert scheduler.scheduler.next_end == 2.0

    (changed,) = scheduler.settle(2.0)

    assert changed.time == 2.0
    assert (changed.lines.edge.tolist(), changed.lines.rate.tolist()) == ([1], [5.0])
    assert scheduler.scheduler.next_end == 5.0


def test_a_flow_ends_when_its_fluid_has_and_its_last_byte_is_there() -> None:
    """Both fluids end at 5 s; one flow has arrived at 4 s, the other does at 5.2 s."""
    scheduler, _ = at_first_flows()
    assert scheduler.scheduler.next_end == 5.0
    scheduler.flow_arrived(1, 0, 4.0)  # g0->s1: s1 has all its inputs, at 5 s
    assert scheduler.settle() == []
    assert scheduler.settle(4.9) == []

    (served,) = scheduler.settle(5.0)

    assert (served.time, served.served, served.tasks) == (5.0, 2, [(3, 0)])
    assert sorted(served.lines.edge.tolist()) == [1, 2]
    assert served.lines.served.tolist() == [40.0, 40.0]
    assert served.lines.rate.tolist() == [0.0, 0.0]
    assert len(served.news) == 0
    assert served_of(scheduler.scheduler, 2, 5.1) == 40.0
    scheduler.flow_arrived(2, 0, 5.2)
    (arrived,) = scheduler.settle()
    assert (arrived.time, arrived.served, arrived.tasks) == (5.2, 0, [(2, 0)])


def test_a_fluid_that_ends_makes_room_before_what_comes_later() -> None:
    """s1->w0 of 5.5 s finds m1's out port empty, though g1->s0 has not arrived."""
    scheduler, _ = at_first_flows()
    scheduler.flow_arrived(1, 0, 4.0)
    scheduler.settle(5.0)
    scheduler.task_ended(3, 0, {5: 60.0}, 5.5)

    (begun,) = scheduler.settle()

    assert (begun.time, begun.served) == (5.5, 0)
    assert begun.news.edge.tolist() == [5]
    assert begun.news.rate.tolist() == [10.0]


def test_ends_told_together_are_settled_each_at_its_time() -> None:
    one_by_one, _ = at_first_flows()
    together, _ = at_first_flows()
    expected = []
    for task, edge, volumes, time in (
        (-1, 1, {}, 5.0),
        (-1, 2, {}, 5.2),
        (3, -1, {5: 60.0}, 6.0),
        (2, -1, {4: 60.0}, 6.2),
    ):
        for scheduler in (one_by_one, together):
            if task < 0:
                scheduler.flow_arrived(edge, 0, time)
            else:
                scheduler.task_ended(task, 0, volumes, time)
        expected += one_by_one.settle()

    found = together.settle()

    assert [d.time for d in found] == [d.time for d in expected]
    assert [(d.time, d.served) for d in found] == [
        (5.0, 2),
        (5.2, 0),
        (6.0, 0),
        (6.2, 0),
    ]
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.tasks, mine.flows) == (theirs.tasks, theirs.flows)
        for column in ("edge", "iteration", "served", "rate", "since"):
            np.testing.assert_array_equal(
                getattr(mine.lines, column), getattr(theirs.lines, column)
            )


def test_more_than_there_is_room_for_is_settled_all_the_same() -> None:
    """300 tasks on two machines end one after the other, and send one flow each."""
    count = 300
    tasks = tuple(Task(f"t{i}", "t") for i in range(2 * count))
    job = Job(tasks, tuple(Edge(i, count + i) for i in range(count)), 1)
    cluster = Cluster((Machine("a", 10.0, 10.0), Machine("b", 10.0, 10.0)))
    problem = Problem(cluster, job, Placement((0,) * count + (1,) * count))
    scheduler = Reporting(problem, "mrtf")
    begun = scheduler.scheduler.begin()
    for i in range(count):
        scheduler.task_ended(i, 0, {i: 1e6}, 1.0 + i)

    found = scheduler.settle()

    assert len(begun.tasks) == count
    assert [d.time for d in found] == [1.0 + i for i in range(count)]
    assert [d.flows for d in found] == [[(i, 0)] for i in range(count)]
    assert all(i in d.lines.edge for i, d in enumerate(found))


def test_a_late_event_counts_as_now() -> None:
    scheduler, _ = at_first_flows()
    scheduler.flow_arrived(1, 0, 5.0)
    scheduler.settle()
    scheduler.flow_arrived(2, 0, 4.5)
    (decisions,) = scheduler.settle()
    assert decisions.time == 5.0
    scheduler.task_ended(2, 0, {4: 60.0}, 6.0)
    (decisions,) = scheduler.settle()
    assert (decisions.time, decisions.tasks) == (6.0, [])
    local = served_of(scheduler.scheduler, 4, 6.0)  # handed over, never active
    assert math.isnan(local)


def test_impossible_events_tell_their_story() -> None:
    scheduler, _ = at_first_flows()
    cases = {
        "g0 sent over edge 2, not one of its": (0, 1, {2: 1.0}, 2.0),
        "g0->s1 of 1 has -1.0 bytes": (0, 1, {1: -1.0}, 2.0),
        "g0->s0 of 1 has nan bytes": (0, 1, {0: math.nan}, 2.0),
        "an event at time nan": (0, 1, {}, math.nan),
        "task number 6 ended": (6, 0, {}, 2.0),
        "g0 ended iteration 7": (0, 7, {}, 2.0),
        "g0 ended iteration -1": (0, -1, {}, 2.0),
        f"g0 ended iteration {1 << 70}": (0, 1 << 70, {}, 2.0),
    }
    for story, event in cases.items():
        scheduler.ends.clear()
        with pytest.raises(SchedulingError, match=story):
            scheduler.end_task(*event)
    early = {
        "w0 ended iteration 0, but it has started 0": (4, 0),
        "g0 ended iteration 0, but it has started 2 and ended 1": (0, 0),
    }
    for story, (task, iteration) in early.items():
        scheduler.task_ended(task, iteration, {}, 2.0)
        with pytest.raises(SchedulingError, match=story):
            scheduler.settle()
    for edge, iteration, story in ((1, 1, "g0->s1 of 1"), (6, 0, "w0->p0 of 0")):
        scheduler.flow_arrived(edge, iteration, 2.0)
        with pytest.raises(
            SchedulingError, match=f"{story} arrived, .* not on its way"
        ):
            scheduler.settle()
    scheduler.flow_arrived(99, 0, 2.0)
    with pytest.raises(SchedulingError, match="edge 99"):
        scheduler.settle()
    with pytest.raises(SchedulingError, match="begun already"):
        scheduler.scheduler.begin()


def test_what_a_task_cannot_send_is_refused_before_any_of_it_is_noted() -> None:
    """Task p0 is the source of the last edge, which -1 would name, too."""
    problem, _ = two_machine_example(2)
    scheduler = Scheduler(problem, "oes")
    last = len(problem.job.edges) - 1
    task = problem.job.edges[last].source

    for volumes, iteration, story in (
        ({-1: 5.0}, 0, "over edge -1, not one of its"),
        ({last: 5.0, 0: 5.0}, 0, "over edge 0, not one of its"),
        ({last: math.inf}, 0, "has inf bytes"),
        ({last: -1.0}, 0, "has -1.0 bytes"),
        ({last: 5.0}, -1, "ended iteration -1"),
        ({last: 5.0}, 2, "ended iteration 2"),
    ):
        with pytest.raises(SchedulingError, match=story):
            scheduler.announce(task, iteration, volumes)
    assert not scheduler.volumes.any()
    assert scheduler.holds is None
    scheduler.announce(task, 1, {last: 5.0})
    assert np.argwhere(scheduler.volumes).tolist() == [[last, 1]]


@pytest.mark.parametrize("iteration", [-1, 2])
def test_an_end_beyond_the_iterations_is_refused(iteration: int) -> None:
    problem, _ = two_machine_example(2)
    scheduler = Scheduler(problem, "oes")
    scheduler.begin()

    with pytest.raises(SchedulingError, match=f"ended iteration {iteration}"):
        scheduler.settle([End(2.0, 0, -1, iteration)])
    with pytest.raises(SchedulingError, match=f"of {iteration} arrived"):
        scheduler.settle([End(2.0, -1, 3, iteration)])


def test_an_end_of_a_task_that_is_not_there_is_refused() -> None:
    scheduler = Scheduler(two_machine_example(2)[0], "oes")
    scheduler.begin()

    with pytest.raises(SchedulingError, match="task number 6 ended, which is not"):
        scheduler.settle([End(2.0, 6, -1, 0)])


def two_senders() -> tuple[Problem, Scheduler]:
    """Return a and b on m0, which send to c on m1 and d on m2, and their scheduler."""
    machines = (
        Machine("m0", 70.0, 8.0),
        Machine("m1", 5.0, 60.0),
        Machine("m2", 3.0, 50.0),
    )
    job = Job(tuple(Task(name, "x") for name in "abcd"), (Edge(0, 2), Edge(1, 3)), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 0, 1, 2)))
    scheduler = Scheduler(problem, "oes")
    scheduler.begin()
    return problem, scheduler


def test_assigned_rates_are_of_flows_that_are_not_served() -> None:
    """5 B/s from 1 s on; from 2 s on 4 and 3, until the 6 B of the second are gone."""
    _, scheduler = two_senders()
    assert scheduler.assigned_rate == 0.0
    for time, task, volume, rate in ((1.0, 0, 99.0, 5.0), (2.0, 1, 6.0, 7.0)):
        scheduler.announce(task, 0, {task: volume})
        scheduler.settle([End(time, task, -1, 0)])
        assert scheduler.assigned_rate == rate

    scheduler.settle(until=4.0)  # none says that they have arrived
    assert scheduler.assigned_rate == 5.0
    assert scheduler.next_end == 4.0 + (99 - 5 - 4 * 2) / 5


def test_a_state_that_cannot_be_is_told_by_what_is_false_of_it() -> None:
    _, scheduler = two_senders()
    assert scheduler.broken == ""

    scheduler.state.ended[3] = 1
    assert scheduler.broken.endswith(": 3")


def test_gates_are_told_when_they_end_with_their_start() -> None:
    """They take 2 and 3 s, one after the other, and b follows each."""
    job = Job(
        (Task("g", "x", gate=True, process="b"), Task("b", "x")), (Edge(0, 1),), 2
    )
    cluster = Cluster((Machine("m", 3.0, 4.0),))
    times = np.array([[2.0, 3.0], [0.5, 0.5]])
    scheduler = Scheduler(Problem(cluster, job, Placement((0, 0))), "oes", times=times)
    scheduler.begin()

    found = []
    for decisions in scheduler.settle(until=6.0).decisions:
        found += [(decisions.time, *gate) for gate in decisions.gates]
    assert found == [(2.0, 0, 0, 0.0), (5.0, 0, 1, 2.0)]


def test_the_core_calls_back_for_rules_of_ones_own_and_for_looks() -> None:
    problem, _ = two_senders()
    machines = (*problem.cluster.machines[:2], Machine("m2", 3.0, 50.0, slots={"p": 2}))
    tuner = Tuner(2, "p", "p", most=4)
    text = "class Mine:\n def rates(self, flows, capacity):\n  return []\n"
    own = register_program("calls.py:Mine", text)

    tuned = replace(problem, cluster=Cluster(machines, tuners=(tuner,)))
    for case, policy, calls in (
        (problem, "oes", False),
        (tuned, "oes", True),
        (problem, own, True),
    ):
        assert Scheduler(case, policy).calls_python is calls


@pytest.mark.parametrize(
    ("policy", "after"),
    [("oes", []), ("oes_cp", [[12.0, 6.0]]), ("weighted_maxmin", [[12.0, 6.0]])],
)
def test_rules_that_look_ahead_know_what_is_left_after_a_flow(
    policy: str, after: list[list[float]]
) -> None:
    """After each flow come the runs of b that are left, of 6 s in the mean."""
    job = Job((Task("a", "x"), Task("b", "x")), (Edge(0, 1),), 2)
    machines = Machine("m0", 9.0, 4.0), Machine("m1", 8.0, 7.0)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    layout = compiled_problem.placed_layout(problem, policy_named(policy))
    times = np.array([[1.0, 3.0], [4.0, 8.0]])

    found = expectation(layout, times, np.array([[10.0, 30.0]]))
    assert found.tolist() == after
    with pytest.raises(ValueError, match=r"times of \(1, 2\)"):
        longest_paths(layout, times[:1], np.array([[10.0, 30.0]]))


def test_a_mean_is_of_the_iterations_that_a_task_has() -> None:
    """Task b runs once, for 8 s; the iteration that it lacks does not count as 0 s."""
    tasks = Task("a", "x", iterations=1), Task("b", "x", iterations=1), Task("c", "x")
    job = Job(tasks, (Edge(0, 1),), 2)
    machines = Machine("m0", 9.0, 4.0), Machine("m1", 8.0, 7.0)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 1)))
    layout = compiled_problem.placed_layout(problem, policy_named("oes_cp"))
    times = np.array([[1.0, 0.0], [8.0, 0.0], [1.0, 1.0]])

    found = expectation(layout, times, np.array([[10.0, 0.0]]))
    assert found[0, 0] == 8.0


def test_a_mean_is_of_the_flows_that_an_edge_sends() -> None:
    """Two of three go over the edge of lag 1: 20 and 40 B, in the mean 30 at 5 B/s.

    Behind the first flow to b come a run of b, two such flows and a run of c.
    """
    tasks = Task("a", "x"), Task("b", "x"), Task("c", "x")
    job = Job(tasks, (Edge(0, 1), Edge(1, 2, lag=1)), 3)
    machines = Machine("m0", 9.0, 4.0), Machine("m1", 8.0, 7.0), Machine("m2", 5.0, 6.0)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 2)))
    layout = compiled_problem.placed_layout(problem, policy_named("oes_cp"))
    times = np.ones((3, 3))

    volumes = np.array([[10.0, 10.0, 10.0], [20.0, 40.0, 9000.0]])
    found = expectation(layout, times, volumes)
    run, flow, reader = 1.0, 30.0 / 5.0, 1.0
    assert found[0].tolist() == [
        run + flow + flow + reader,
        run + flow + reader,
        run,
    ]


def test_policies_that_cannot_be_driven_are_refused() -> None:
    problem, realization = two_machine_example(2)
    with pytest.raises(ValueError, match="no policy is called fair; there are oes"):
        Scheduler(problem, "fair")
    with pytest.raises(ValueError, match="resolve it with"):
        Scheduler(problem, "portfolio")
    with pytest.raises(ValueError, match="oes_cp looks ahead"):
        Scheduler(problem, "oes_cp")
    with pytest.raises(ValueError, match="does not fit a job of 6 and 8"):
        Scheduler(problem, "oes_cp", Profile(realization.times, np.zeros((1, 2))))


def test_every_policy_says_what_it_is() -> None:
    for name in RATE_POLICIES:
        policy = policy_named(name)
        assert policy.name == name
        assert 10 < len(policy.summary) < 80
        assert policy.source


def test_four_rules_promise_theorem_1() -> None:
    # Every flow has its oes rate or more (Theorem 1's condition); "none" is max-min.
    kept = {name for name, policy in RATE_POLICIES.items() if policy.keeps_theorem}
    assert kept == {"oes", "maxmin", "none", "oes_cp"}


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ([0, 2, 2, 3], ""),
        ([1, 2, 2, 3], "must begin at 0"),
        ([0, 2, 3], "must begin at 0"),
        ([0, 2, 2, 2], "end with its entries"),
        ([0, 2, 2, 4], "end with its entries"),
        ([0, 3, 2, 3], "must not decrease"),
    ],
)
def test_lists_of_owners_hold_all_entries_one_owner_after_the_other(
    start: list[int], words: str
) -> None:
    """Three owners have three entries in all."""
    entries = np.zeros(3)
    if not words:
        compiled_problem._check_starts("x", np.array(start), 3, entries)
        return
    with pytest.raises(ValueError, match=f"x .*{words}"):
        compiled_problem._check_starts("x", np.array(start), 3, entries)
