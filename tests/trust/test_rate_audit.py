"""Slow oracles of rates agree with what the scheduler assigns, and say where not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.prediction.simulation import simulate
from emu.problem import (
    ActiveFlow,
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Profile,
    RateHistory,
    Realization,
    Task,
)
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.testing import two_machine_example
from emu.testing.strategies import problems, random_problem
from emu.trust.rate_audit import rule_audit
from emu.trust.rate_rules import POLICIES, maxmin_by_job
from emu.trust.rated_flows import Flow, round_to_32_bits


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=20)
@given(drawn=problems())
def test_what_the_scheduler_assigns_is_what_the_rule_gives(
    policy: str, drawn: tuple[Problem, Realization]
) -> None:
    problem, realization = drawn
    schedule = simulate(problem, realization, policy, record_rates=True)

    assert rule_audit(schedule, policy, realization)[1] == []


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=20)
@given(
    drawn=problems(
        links=True,
        own=True,
        jobs=True,
        changes=True,
        cuts=True,
        latencies=True,
        coflows=True,
    )
)
def test_rules_know_jobs_coflows_latencies_and_what_links_have_now(
    policy: str, drawn: tuple[Problem, Realization]
) -> None:
    """Paths are looked ahead by what is expected: here by half the bytes."""
    problem, realization = drawn
    expected = replace(realization, volumes=realization.volumes / 2)
    schedule = simulate(
        problem,
        realization,
        policy,
        record_rates=True,
        profile=Profile(expected.times, expected.volumes),
    )

    assert rule_audit(schedule, policy, expected)[1] == []


@pytest.mark.parametrize("policy", POLICIES)
def test_edges_between_the_same_two_tasks_go_by_lag_then_by_their_order(
    policy: str,
) -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        problem, realization = random_problem(rng, ties=True)
        edges = problem.job.edges
        again = [replace(e, lag=e.lag + int(rng.integers(2))) for e in edges[::-1]]
        job = replace(problem.job, edges=(*again, *edges))
        volumes = rng.permutation(np.tile(realization.volumes, (2, 1)))
        run = replace(realization, volumes=volumes)
        schedule = simulate(replace(problem, job=job), run, policy, record_rates=True)

        assert rule_audit(schedule, policy, run)[1] == [], seed


@pytest.mark.parametrize("factor", [0.9, 1 + 1e-4])
def test_a_wrong_rate_is_named_with_its_flow_and_first_instant(factor: float) -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization, record_rates=True)
    assert schedule.rates is not None
    wrong = schedule.rates.rate.copy()
    row = int(np.flatnonzero(schedule.rates.iteration == 1)[0])
    wrong[row] *= factor
    changed = replace(schedule, rates=replace(schedule.rates, rate=wrong))

    checked, found = rule_audit(changed, "oes", realization)

    name = problem.job.edge_names[int(schedule.rates.edge[row])]
    assert checked > 20
    assert found[0].subject == f"{name}[1]"
    assert f"from {schedule.rates.time[row]:.6g} s on, oes gives" in found[0].sentence


def test_a_job_has_of_a_link_what_settled_flows_of_others_leave() -> None:
    """Job a has 2 of 10 B/s, as another link on its way has no more: b has the rest."""
    flows = [
        Flow(0, 0, ("r", "s", 0, 0), ("narrow", "shared"), 9.0, 9.0, job="a"),
        Flow(1, 0, ("r", "t", 0, 1), ("shared",), 7.0, 7.0, job="b"),
        Flow(2, 0, ("r", "u", 0, 2), ("shared",), 5.0, 5.0, job="b"),
    ]

    maxmin_by_job(flows, {"narrow": 2.0, "shared": 10.0})

    assert [flow.rate for flow in flows] == [2.0, 4.0, 4.0]


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(1.5, 1.5), (1 + 2**-34, 1.0), (1 - 2**-34, 1.0), (1 + 3 * 2**-32, 1 + 2**-30)],
)
def test_values_tie_that_are_equal_in_32_bits(value: float, rounded: float) -> None:
    assert round_to_32_bits(value) == rounded


@pytest.mark.parametrize(("seconds", "is_wrong"), [(5e-10, False), (2e-9, True)])
def test_flows_that_got_ready_at_once_may_be_served_in_any_order(
    seconds: float, *, is_wrong: bool
) -> None:
    """The flow to q is served first, though that to r is said to be ready first."""
    machines = tuple(
        Machine(name, 10.0 + place, 20.0 + place) for place, name in enumerate("abc")
    )
    tasks = Task("s", "x"), Task("q", "x"), Task("r", "x")
    job = Job(tasks, (Edge(0, 1), Edge(0, 2)), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 2)))
    run = Realization(np.ones((3, 1)), np.array([[40.0], [60.0]]))
    schedule = simulate(problem, run, "fifo", record_rates=True)
    assert schedule.flow_end[0, 0] < schedule.flow_end[1, 0]
    ready = schedule.flow_ready + np.array([[seconds], [0.0]])

    _, found = rule_audit(replace(schedule, flow_ready=ready), "fifo", run)

    assert bool(found) == is_wrong


def test_what_has_no_rates_or_no_rule_is_refused() -> None:
    problem, realization = two_machine_example(1)
    schedule = simulate(problem, realization, record_rates=True)
    with pytest.raises(ValueError, match="no rule is called oldest: oes"):
        rule_audit(schedule, "oldest", realization)
    with pytest.raises(ValueError, match="holds no rates"):
        rule_audit(replace(schedule, rates=None), "oes", realization)


def test_a_rate_before_its_flow_began_is_no_rate_of_the_rule() -> None:
    """Another check names it: what the flow carries counts from its start."""
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization, record_rates=True)
    rates = schedule.rates
    assert rates is not None
    last = int(np.argmax(schedule.flow_start[rates.edge, rates.iteration]))
    first = {
        name: np.append(getattr(rates, name)[last], getattr(rates, name))
        for name in ("time", "edge", "iteration", "rate")
    }
    first["time"][0] = rates.time[0] / 2
    early = replace(schedule, rates=RateHistory(**first))

    assert rule_audit(early, "oes", realization)[1] == []


def test_another_rule_than_the_stated_one_is_found() -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization, "fifo", record_rates=True)

    assert rule_audit(schedule, "oes", realization)[1]


def test_a_coflow_in_the_last_queue_of_aalo_stays_there() -> None:
    """From 1 PB on there is no next queue: 4 and 5 PB go over one NIC of 1 PB/s."""
    machines = tuple(Machine(name, 1e15, 1e15) for name in "abc")
    tasks = tuple(Task(name, "x") for name in "abxy")
    edges = (Edge(0, 2, coflow="a"), Edge(1, 3, coflow="b"))
    problem = Problem(Cluster(machines), Job(tasks, edges, 1), Placement((0, 0, 1, 2)))
    times = np.array([[0.0], [2.0], [0.0], [0.0]])
    run = Realization(times, np.array([[4e15], [5e15]]))
    schedule = simulate(problem, run, "aalo", record_rates=True)

    # The second comes at 2 s, and is first until it has sent 1 PB as well.
    assert schedule.flow_end[:, 0].tolist() == [5.0, 9.0]
    assert rule_audit(schedule, "aalo", run)[1] == []


def test_a_coflow_that_stays_in_its_queue_of_aalo_is_found() -> None:
    """A has sent 10 MB at 10 s, but keeps the port that b then has to have."""
    file = {
        "name": "queues",
        "cluster": {"machines": [{"name": "m", "count": 3, "nic": "1 MB/s"}]},
        "job": {
            "system": "custom",
            "iterations": 1,
            "tasks": [{"name": name, "time": "0 s"} for name in "abxy"],
            "flows": [
                {"from": "a", "to": "x", "volume": "20 MB", "coflow": "a"},
                {"from": "b", "to": "y", "volume": "15 MB", "coflow": "b"},
            ],
        },
        "placement": {
            "policy": "explicit",
            "tasks": {"a": "m0", "b": "m0", "x": "m1", "y": "m2"},
        },
    }
    ready = prepare(loads(json.dumps(file)))
    problem, realization = ready.problem, ready.realization
    right = simulate(problem, realization, "aalo", record_rates=True)
    in_order = simulate(problem, realization, "fifo", record_rates=True)

    assert rule_audit(right, "aalo", realization)[1] == []
    (first, *_) = rule_audit(in_order, "aalo", realization)[1]
    assert "from 10 s on, aalo gives" in first.sentence


@settings(deadline=None, max_examples=60)
@given(problems(changes=True), st.sampled_from([2e7, 3e8]))
def test_queues_of_aalo_that_change_are_those_of_the_rule(
    drawn: tuple[Problem, Realization], largest: float
) -> None:
    problem, realization = drawn
    factor = largest / float(realization.volumes.max(initial=1.0))
    scaled = replace(realization, volumes=realization.volumes * factor)
    schedule = simulate(problem, scaled, "aalo", record_rates=True)

    assert rule_audit(schedule, "aalo", scaled)[1] == []


CLOSE_ENDS = """
name: three flows of one machine, of which two end within 7e-10 s
cluster:
  machines:
    - {name: a, nic: 3 B/s}
    - {name: b, count: 3, nic: 9 B/s}
job:
  system: custom
  iterations: 1
  tasks:
    - {name: a, time: 0 s, pin: a}
    - {name: x, time: 0 s, pin: b0}
    - {name: y, time: 0 s, pin: b1}
    - {name: z, time: 0 s, pin: b2}
  flows:
    - {from: a, to: x, volume: 2 B}
    - {from: a, to: y, volume: 2.000000001 B}
    - {from: a, to: z, volume: 10 B}
schedule: {policy: maxmin}
"""


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_flows_that_end_close_by_the_one_with_rate_0_has_ended(
    order: tuple[int, int],
) -> None:
    """Only the history tells which: what was left of either is rounding."""
    experiment = prepare(loads(CLOSE_ENDS))
    made = experiment.simulate()
    first, second = order
    close = 2 + 1e-9 / 1.5
    end = 2 + (10 - 2 - 1.5 * (close - 2)) / 3
    rows = [(0.0, edge, 1.0) for edge in range(3)]
    rows += [(2.0, first, 0.0), (2.0, second, 1.5), (2.0, 2, 1.5)]
    rows += [(close, second, 0.0), (close, 2, 3.0), (end, 2, 0.0)]
    time, edge, rate = (np.array(column) for column in zip(*rows, strict=True))
    history = RateHistory(time, edge, np.zeros_like(edge), rate)
    run = replace(made, rates=history)

    checked, found = rule_audit(run, "maxmin", experiment.realization)

    assert checked == 6
    assert found == []


@pytest.mark.parametrize("later", ["a", "b"])
def test_of_two_flows_that_are_ready_close_by_the_earlier_goes_first(
    later: str,
) -> None:
    """And either may where the records of a run have them the other way round."""
    times = {name: "1.00000000003 s" if name == later else "1 s" for name in "ab"}
    senders = [{"name": n, "time": t, "pin": "m0"} for n, t in times.items()]
    readers = [{"name": f"to-{n}", "time": "0 s", "pin": "m1"} for n in times]
    content = {
        "cluster": {"machines": [{"name": "m", "count": 2, "nic": "1 B/s"}]},
        "job": {
            "system": "custom",
            "iterations": 1,
            "tasks": [*senders, *readers],
            "flows": [{"from": n, "to": f"to-{n}", "volume": "9 B"} for n in times],
        },
        "schedule": {"policy": "fifo"},
    }
    experiment = prepare(loads(json.dumps({"name": "close", **content})))
    what = experiment.problem, experiment.realization
    made = simulate(*what, "fifo", record_rates=True)

    ends = {name: float(made.flow_end[n, 0]) for n, name in enumerate("ab")}
    assert ends[later] == pytest.approx(19)
    assert rule_audit(made, "fifo", experiment.realization)[1] == []
    for late, broken in ((4e-10, 0), (1e-6, 2)):
        ready = made.flow_ready.copy()
        ready["ab".index(later) ^ 1, 0] += late  # that of the one that goes first
        other = replace(made, flow_ready=ready)
        assert len(rule_audit(other, "fifo", experiment.realization)[1]) == broken


def test_a_rule_of_ones_own_is_told_what_a_flow_serves() -> None:
    """From p0 to w0 an iteration serves the next one.

    Flows are of the coflow that their edge names, or of what they go to.
    """
    problem, realization = two_machine_example(3)
    edges = list(problem.job.edges)
    named = problem.job.edge_positions["g0->s1"]
    edges[named] = replace(edges[named], coflow="named")
    problem = replace(problem, job=replace(problem.job, edges=tuple(edges)))
    schedule = simulate(problem, realization, record_rates=True)
    asked: list[ActiveFlow] = []

    def rates(flows: list[ActiveFlow], capacity: dict[str, float]) -> list[float]:
        asked.extend(flows)
        return [min(capacity[link] for link in flow.links) for flow in flows]

    checked, _ = rule_audit(schedule, "mine", realization, own=rates)

    assert checked == len(asked)
    lags = {(flow.edge, flow.serves - flow.iteration) for flow in asked}
    job = problem.job
    assert lags == {
        (name, edge.lag)
        for name, edge, hops in zip(
            job.edge_names, job.edges, problem.hops, strict=True
        )
        if hops
    }
    assert {lag for _, lag in lags} == {0, 1}
    coflows = {flow.edge: flow.coflow for flow in asked}
    assert coflows == {
        "g0->s1": "named",
        "g1->s0": "s0",
        "s1->w0": "w0",
        "w0->p0": "p0",
        "p0->w0": "w0",
    }
    assert {flow.iteration for flow in asked} == {0, 1, 2}
    # Edges are named by their ends.
    assert all(flow.edge == f"{flow.source}->{flow.destination}" for flow in asked)
