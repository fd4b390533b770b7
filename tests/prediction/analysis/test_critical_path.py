"""The chain of Theorem 1, and the drifts of a run along it."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu.prediction.analysis.critical_path import (
    ELSEWHERE,
    SAME,
    Cause,
    ChainLink,
    critical_path,
    divergences,
)
from emu.prediction.analysis.link_load import LinkContention, peak_rate
from emu.prediction.scheduling import RATE_POLICIES
from emu.prediction.simulation import simulate
from emu.problem import (
    CapacityChange,
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
from emu.testing.strategies import problems, random_problem
from tests.integration.scenarios import custom, flow, read
from tests.prediction.analysis.chains import cases, distorted

CASES = cases()


def check_link(schedule: Schedule, link: ChainLink) -> None:
    """Check that a link lies within the execution or the flow that it names."""
    if link.edge >= 0:
        at = link.edge, link.iteration
        start, end = schedule.flow_start[at], schedule.flow_end[at]
    else:
        at = link.task, link.iteration
        start, end = schedule.task_start[at], schedule.task_end[at]
    if link.cause is Cause.GAP:
        assert link.end <= start + 1e-9
    else:
        assert start - 1e-9 <= link.start < link.end <= end + 1e-9


def check_chain(schedule: Schedule) -> None:
    links = critical_path(schedule).links

    for link in links:
        check_link(schedule, link)
    for before, after in pairwise(links):
        assert before.end == after.start
    if links:
        assert links[0].start == 0.0
        assert links[-1].end == schedule.makespan


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("policy", ["oes", "maxmin"])
def test_simulated_chain_closes(case: tuple[Problem, Realization], policy: str) -> None:
    schedule = simulate(*case, policy)
    chain = critical_path(schedule)

    check_chain(schedule)
    assert chain.seconds == pytest.approx(schedule.makespan, rel=1e-9, abs=1e-12)
    assert Cause.GAP not in {link.cause for link in chain.links}
    by_cause = chain.sums(lambda link: link.cause)
    assert sum(by_cause.values()) == pytest.approx(schedule.makespan, rel=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_emulated_chain_closes_with_its_gaps(
    case: tuple[Problem, Realization],
) -> None:
    schedule = distorted(simulate(*case))

    check_chain(schedule)
    assert critical_path(schedule).seconds == pytest.approx(schedule.makespan)


@given(problems())
def test_any_chain_closes(case: tuple[Problem, Realization]) -> None:
    schedule = simulate(*case)

    check_chain(schedule)


_FEATURES = ("links", "own", "slots", "channels", "latest", "jobs", "changes")


@given(
    st.integers(0, 2**32 - 1),
    st.sets(st.sampled_from(_FEATURES)),
    st.sampled_from([name for name in RATE_POLICIES if name != "portfolio"]),
    st.booleans(),
)
def test_no_simulated_schedule_has_a_gap(
    seed: int,
    features: set[str],
    policy: str,
    ties: bool,  # noqa: FBT001
) -> None:
    rng = np.random.default_rng(seed)
    case = random_problem(rng, ties=ties, **dict.fromkeys(features, True))
    schedule = simulate(*case, policy)
    chain = critical_path(schedule)

    assert Cause.GAP not in {link.cause for link in chain.links}
    assert chain.seconds == pytest.approx(schedule.makespan, rel=1e-9, abs=1e-12)


def test_a_flow_waits_for_the_other_of_its_channel_alone() -> None:
    """Over 10 B/s: 40 B until 5 s, then 20 B of the channel, 70 B beside at 99 B/s."""
    tasks = tuple(Task(name, name) for name in "abcdef")
    edges = (
        Edge(0, 1, channel="x"),
        Edge(2, 3, channel="x"),
        Edge(4, 5, channel="y"),
        Edge(2, 0, lag=1, channel="x"),  # within m0: it takes no turn
    )
    machines = (
        Machine("m0", 80.0, 10.0),
        Machine("m1", 90.0, 85.0),
        Machine("m2", 70.0, 99.0),
    )
    job = Job(tasks, edges, 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 0, 1, 2, 1)))
    times = np.array([[1.0], [0.5], [1.5], [3.0], [1.0], [0.25]])
    run = Realization(times, np.array([[40.0], [20.0], [70.0], [1.0]]))

    links = critical_path(simulate(problem, run)).links
    assert [(str(one.cause), one.edge, one.task, one.end) for one in links] == [
        ("compute", -1, 0, 1.0),
        ("transfer", 0, -1, 1.5),
        ("channel", 0, -1, 5.0),
        ("transfer", 1, -1, 7.0),
        ("compute", -1, 3, 10.0),
    ]
    names = [problem.links[one.port].name if one.port >= 0 else "" for one in links]
    assert names == ["", "m0 out", "m0 out", "m0 out", ""]


def test_a_wait_for_a_slot_names_its_pool() -> None:
    """Both take the one slot of a pool: b waits for a, and c for b alone."""
    tasks = (
        Task("a", "a", takes="gpu"),
        Task("b", "b", takes="gpu"),
        Task("c", "c", takes="cpu"),
    )
    machine = Machine("m", 3.0, 4.0, slots={"cpu": 2, "gpu": 1})
    job = Job(tasks, (Edge(1, 2),), 1)
    problem = Problem(Cluster((machine,)), job, Placement((0, 0, 0)))
    run = Realization(np.array([[3.0], [2.0], [0.5]]), np.zeros((1, 1)))

    links = critical_path(simulate(problem, run)).links
    assert [(str(one.cause), one.task, one.pool, one.end) for one in links] == [
        ("slot", 0, "gpu", 3.0),
        ("compute", 1, "", 5.0),
        ("compute", 2, "", 5.5),
    ]


@pytest.mark.parametrize(
    ("first_flow", "next_start", "last_flow", "before", "causes"),
    [
        (5.0 + 4e-12, 5.0, 8.0, 5.5, "compute transfer in order transfer compute"),
        (3.0 + 4e-12, 3.0 + 4e-12, 8.0, 5.5, "compute compute transfer compute"),
        (5.0, 5.0, 8.0 - 4e-12, 8.0, "compute transfer in order transfer compute"),
    ],
)
def test_what_differs_by_rounding_is_of_one_instant(
    first_flow: float, next_start: float, last_flow: float, before: float, causes: str
) -> None:
    """Task a ends at 1 and 3 s; its second flow, from 5 s on, may wait for the first.

    The last run of b begins at 8 s, with that flow and behind the run before it.
    """
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 2)
    cluster = Cluster((Machine("m0", 90.0, 10.0), Machine("m1", 80.0, 70.0)))
    problem = Problem(cluster, job, Placement((0, 1)))
    run = Realization(np.array([[1.0, 2.0], [0.5, 0.5]]), np.array([[40.0, 30.0]]))
    schedule = simulate(problem, run)
    assert schedule.flow_end.tolist() == [[5.0, 8.0]]
    schedule.flow_end[0] = first_flow, last_flow
    schedule.flow_start[0, 1] = next_start
    schedule.task_end[1, 0] = before

    assert SAME * schedule.length > 4e-12
    links = critical_path(schedule).links
    assert " ".join(str(link.cause) for link in links) == causes


def test_what_the_simulation_waits_for_in_the_end_is_of_the_last_part() -> None:
    """Task a takes 2 and 2.5 s in the run for 1 and 1; there b, of 3 s, is last."""
    tasks = Task("a", "a"), Task("b", "b", iterations=1)
    cluster = Cluster((Machine("m", 3.0, 4.0),))
    problem = Problem(cluster, Job(tasks, (), 2), Placement((0, 0)))
    none = np.zeros((0, 2))
    ran = simulate(problem, Realization(np.array([[2.0, 2.5], [3.0, 0.0]]), none))
    expected = simulate(problem, Realization(np.array([[1.0, 1.0], [3.0, 0.0]]), none))

    drifts = divergences(ran, expected)
    assert [(drift.cause, drift.link.iteration, drift.seconds) for drift in drifts] == [
        ("compute", 0, 1.0),
        ("compute", 1, 1.5),
        (ELSEWHERE, 1, -1.0),
    ]


def test_a_channel_is_busy_with_its_other_flow() -> None:
    """Two flows of 4 s by turns on one channel: each waits for the one before."""
    stated = custom(
        [{"name": name, "time": f"{int(name in 'ac')} s"} for name in "abcd"],
        [flow(a, b, "40 B", channel="x") for a, b in ("ab", "cd")],
        {"a": "m0", "c": "m0", "b": "m1", "d": "m1"},
        iterations=2,
    )
    schedule = emu.simulate(read(stated))
    links = critical_path(schedule).links

    assert [(str(one.cause), one.start, one.end) for one in links] == [
        ("compute", 0.0, 1.0),
        ("channel", 1.0, 5.0),
        ("channel", 5.0, 9.0),
        ("channel", 9.0, 13.0),
        ("transfer", 13.0, 17.0),
    ]


def test_worked_example() -> None:
    """Store 0 to sampler 1, whose link to the worker then carries all three batches."""
    schedule = simulate(*two_machine_example(3))
    job = schedule.problem.job
    named = [
        (
            str(link.cause),
            job.edge_names[link.edge] if link.edge >= 0 else job.tasks[link.task].name,
            link.iteration,
            link.seconds,
        )
        for link in critical_path(schedule).links
    ]

    assert named == [
        ("compute", "g0", 0, 1.0),
        ("transfer", "g0->s1", 0, 4.0),
        ("compute", "s1", 0, 1.0),
        ("transfer", "s1->w0", 0, 4.0),
        ("in order", "s1->w0", 0, 8.0),
        ("in order", "s1->w0", 1, 8.0),
        ("transfer", "s1->w0", 2, 7.0),
        ("compute", "w0", 2, 3.0),
        ("transfer", "w0->p0", 2, 1.0),
        ("compute", "p0", 2, 1.0),
    ]


def test_credit_is_named() -> None:
    """With a window of 1 every store waits for the worker, 3 s in each iteration."""
    schedule = simulate(*two_machine_example(3, credit=1))
    sums = critical_path(schedule).sums(lambda link: link.cause)

    assert sums == {Cause.TRANSFER: 31.0, Cause.COMPUTE: 10.0, Cause.CREDIT: 6.0}


def test_bottleneck_is_the_port_with_the_smaller_share() -> None:
    """Into m1 at 5 B/s: the in port of m1 holds g0 -> s1 back, not the out port."""
    schedule = simulate(*two_machine_example(1, second_nic=5.0))
    contention = LinkContention(schedule)
    edge = 1  # g0 -> s1
    start, end = schedule.flow_start[edge, 0], schedule.flow_end[edge, 0]

    assert (
        schedule.problem.links[contention.bottleneck(edge, start, end)].name == "m1 in"
    )
    assert contention.bottleneck(0, 0.0, 1.0) == -1


def test_the_bottleneck_is_what_holds_a_flow_back_for_most_of_its_time() -> None:
    """Out of m0 go 10 B/s all the time; into m1 12, from 1 s on 4, from 5 s on 50."""
    changes = (CapacityChange(1.0, "m1 in", 4.0), CapacityChange(5.0, "m1 in", 50.0))
    machines = (Machine("m0", 10.0, 10.0), Machine("m1", 12.0, 10.0))
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines, changes=changes), job, Placement((0, 1)))
    run = Realization(np.zeros((2, 1)), np.array([[46.0]]))
    schedule = simulate(problem, run, record_rates=True)
    contention = LinkContention(schedule)
    names = [link.name for link in problem.links]

    assert schedule.makespan == 7.0
    assert names[contention.bottleneck(0, 0.0, 7.0)] == "m1 in"
    assert names[contention.bottleneck(0, 0.0, 1.5)] == "m0 out"


def test_what_ends_as_another_begins_leaves_it_its_rate() -> None:
    """First a sends at 10 B/s, then b, at 7 B/s, at once."""
    machines = (Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 7.0))
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1), Edge(1, 0, lag=1)), 2)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    run = Realization(np.zeros((2, 2)), np.full((2, 2), 70.0))
    schedule = simulate(problem, run, record_rates=True)

    assert schedule.makespan == 7.0 + 10.0 + 7.0
    assert peak_rate(schedule) == 10.0


def test_of_inputs_that_end_together_the_flow_comes_first() -> None:
    """At 4 s: a's flow, c's handoff, the task's own first iteration, d's credit."""
    tasks = tuple(Task(name, name) for name in "abcd")
    edges = (Edge(0, 1), Edge(2, 1), Edge(3, 1, credit=True))
    machines = (Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0))
    problem = Problem(Cluster(machines), Job(tasks, edges, 1), Placement((0, 1, 1, 1)))
    times = np.array([[1.0], [2.0], [4.0], [4.0]])
    volumes = np.array([[30.0], [0.0], [0.0]])
    path = critical_path(simulate(problem, Realization(times, volumes)))

    assert [link.cause for link in path.links] == [
        Cause.COMPUTE,
        Cause.TRANSFER,
        Cause.COMPUTE,
    ]


def test_degree_counts_flows_with_bytes() -> None:
    schedule = simulate(*two_machine_example(1))

    assert LinkContention(schedule).degree(
        0, np.array([0.5, 1.0, 4.9, 5.0])
    ).tolist() == [
        0,
        1,
        1,
        0,
    ]


@pytest.mark.parametrize("case", cases())
def test_drifts_close(case: tuple[Problem, Realization]) -> None:
    simulated = simulate(*case)
    emulated = distorted(simulated)
    total = math.fsum(drift.seconds for drift in divergences(emulated, simulated))

    assert total == pytest.approx(emulated.makespan - simulated.makespan, abs=1e-9)


@pytest.mark.parametrize("case", cases())
def test_drifts_close_when_the_order_of_events_differs(
    case: tuple[Problem, Realization],
) -> None:
    """Another policy stands for an emulation whose flows end in another order."""
    other, simulated = simulate(*case, "mrtf"), simulate(*case)
    total = math.fsum(drift.seconds for drift in divergences(other, simulated))

    assert total == pytest.approx(other.makespan - simulated.makespan, abs=1e-9)


def test_no_drift_from_itself() -> None:
    schedule = simulate(*two_machine_example(3))

    assert divergences(schedule, schedule) == ()


def test_a_run_of_no_length_does_not_drift() -> None:
    problem, realization = two_machine_example(2)
    nothing = Realization(0.0 * realization.times, 0.0 * realization.volumes)
    schedule = simulate(problem, nothing)
    assert schedule.makespan == 0
    assert divergences(schedule, schedule) == ()


def test_late_task_is_blamed() -> None:
    """The worker computes 2 s longer than replayed: that is all of the difference."""
    problem, realization = two_machine_example(1)
    emulated = simulate(problem, realization)
    emulated.task_end[4:6, 0] += 2.0
    emulated.task_start[5, 0] += 2.0
    emulated.flow_ready[6, 0] += 2.0
    emulated.flow_start[6, 0] += 2.0
    emulated.flow_end[6, 0] += 2.0

    (drift,) = divergences(emulated, simulate(problem, realization))

    assert (drift.cause, drift.link.task, drift.seconds) == (Cause.COMPUTE, 4, 2.0)


def test_waits_of_the_simulation_count_against() -> None:
    """Waits of the simulation elsewhere shorten the difference."""
    case = two_machine_example(3)
    fast, slow = simulate(*case), distorted(simulate(*case))
    causes = {drift.cause for drift in divergences(fast, slow)}

    assert ELSEWHERE in causes


def test_other_job_is_refused() -> None:
    with pytest.raises(ValueError, match="same job"):
        divergences(
            simulate(*two_machine_example(1)), simulate(*two_machine_example(2))
        )
