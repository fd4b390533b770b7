"""Max-min rates: what makes them fair, whatever computes them."""

from __future__ import annotations

from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from emu.errors import ScenarioError
from emu.prediction.scheduling import compiled_problem
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
    Realization,
    Route,
    Schedule,
    Task,
)
from emu.scenario import load

#: Seconds by which every flow that is not meant to stay has ended.
LATE = 1e6


class Flows(NamedTuple):
    """Machines that flows leave and enter, when each begins, and its bytes."""

    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    begin: NDArray[np.float64]
    volume: NDArray[np.float64]

    def first(self, count: int) -> Flows:
        """Return the first flows alone."""
        source, destination = self.source[:count], self.destination[:count]
        return Flows(source, destination, self.begin[:count], self.volume[:count])


def drawn_flows(rng: np.random.Generator, machines: int, count: int) -> Flows:
    source = rng.integers(0, machines, count)
    other = (source + rng.integers(1, machines, count)) % machines
    if rng.random() < 0.5:  # many events at once
        begin = rng.integers(0, 4, count).astype(np.float64)
        return Flows(source, other, begin, np.full(count, 8.0))
    return Flows(source, other, rng.uniform(0, 8, count), rng.uniform(1, 40, count))


def drawn_cluster(rng: np.random.Generator, machines: int, *, steps: int) -> Cluster:
    """Return machines with equal, nearly equal or unequal NICs, some in two racks."""
    near = 1.0 + 1e-15 * rng.integers(-9, 10, 2 * machines)
    nics = [np.full(2 * machines, 6.0), 6.0 * near, rng.uniform(1, 10, 2 * machines)]
    nic = nics[rng.integers(3)]
    names = [f"m{m}" for m in range(machines)]
    at = tuple(Machine(n, nic[2 * m], nic[2 * m + 1]) for m, n in enumerate(names))
    changed = [f"{name} {way}" for name in names for way in ("in", "out")]
    changes = tuple(
        CapacityChange(time, str(rng.choice(changed)), float(rng.uniform(1, 10)))
        for time in sorted(rng.uniform(1, 12, steps).tolist())
    )
    if rng.random() < 0.5:
        return Cluster(at, changes=changes)
    links = tuple(Link(name, float(rng.uniform(4, 20))) for name in ("up", "down"))
    half = range(machines // 2), range(machines // 2, machines)
    routes = Route(tuple(half[0]), tuple(half[1]), ("out", "up", "down", "in"))
    return Cluster(at, links, (routes,), changes=changes)


def simulated(cluster: Cluster, flows: Flows) -> Schedule:
    """Return the schedule of flows that each have two tasks of their own."""
    count = len(flows.source)
    tasks = tuple(Task(f"t{j}", "task") for j in range(2 * count))
    edges = tuple(Edge(2 * e, 2 * e + 1) for e in range(count))
    at = np.stack([flows.source, flows.destination], axis=1).ravel().tolist()
    times = np.stack([flows.begin, np.zeros(count)], axis=1).ravel()
    return simulate(
        Problem(cluster, Job(tasks, edges, 1), Placement(tuple(at))),
        Realization(times[:, None], flows.volume[:, None]),
        "maxmin",
        record_rates=True,
    )


def rates_at(schedule: Schedule, time: float) -> NDArray[np.float64]:
    """Return the newest rate of every edge's flow."""
    assert schedule.rates is not None
    rate = np.full(len(schedule.flow_start), np.nan)
    so_far = schedule.rates.time <= time
    rate[schedule.rates.edge[so_far]] = schedule.rates.rate[so_far]
    return rate


@given(seed=st.integers(0, 2**32 - 1), least=st.sampled_from([0, 1_000]))
@example(seed=1, least=0)
@example(seed=17, least=0)
def test_every_flow_has_a_bottleneck(seed: int, least: int) -> None:
    """At every event: a full port where no flow has more. No port has too much."""
    rng = np.random.default_rng(seed)
    machines = int(rng.integers(2, 9))
    cluster = drawn_cluster(rng, machines, steps=int(rng.integers(0, 4)))
    flows = drawn_flows(rng, machines, int(rng.integers(1, 40)))
    with mock.patch.object(compiled_problem, "PORT_CLOCKS_FROM", least):
        schedule = simulated(cluster, flows)
    links, hops = schedule.problem.links, schedule.problem.hops
    start, end = schedule.flow_start[:, 0], schedule.flow_end[:, 0]
    events = {*start.tolist(), *end.tolist(), *(c.time for c in cluster.changes)}

    for time in sorted(events):
        rate, at = rates_at(schedule, time), np.array([time])
        capacity = [links.steps.at(port, at)[0] for port in range(len(links))]
        active = np.flatnonzero((start <= time) & (end > time)).tolist()
        over = {p: [f for f in active if p in hops[f]] for f in active for p in hops[f]}
        full = {p: rate[over[p]].sum() / capacity[p] for p in over}
        assert max(full.values(), default=0.0) <= 1 + 1e-12
        for f in active:
            most = [rate[over[p]].max() for p in hops[f] if full[p] >= 1 - 1e-12]
            assert min(most, default=np.inf) <= rate[f] * (1 + 1e-12), (time, f)


@given(seed=st.integers(0, 2**32 - 1))
@example(seed=0)
def test_what_came_and_went_leaves_no_trace(seed: int) -> None:
    """Rates are the same to the last bit as those of the flows that stay alone."""
    rng = np.random.default_rng(seed)
    cluster = drawn_cluster(rng, 6, steps=0)
    flows, stay = drawn_flows(rng, 6, 40), int(rng.integers(1, 20))
    flows.begin[:stay], flows.volume[:stay] = 0.0, 1e3 * LATE
    schedule = simulated(cluster, flows)

    assert schedule.flow_end[stay:].max() < LATE < schedule.flow_end[:stay].min()
    np.testing.assert_array_equal(
        rates_at(schedule, LATE)[:stay],
        rates_at(simulated(cluster, flows.first(stay)), 0.0),
    )


@pytest.mark.parametrize("later", [1.0, 3.0])
def test_a_port_that_was_far_from_full(later: float) -> None:
    """5 B/s cross a port of 100 B/s until it has 1 or 3; then more again."""
    machines = (Machine("m0", 100.0, 5.0), Machine("m1", 100.0, 100.0))
    changes = (CapacityChange(1.0, "m1 in", later), CapacityChange(2.0, "m1 in", 4.0))
    flows = Flows(np.array([0]), np.array([1]), np.array([0.0]), np.array([50.0]))
    schedule = simulated(Cluster(machines, changes=changes), flows)

    assert schedule.rates is not None
    assert schedule.rates.rate.tolist() == [5.0, later, 4.0]


@pytest.mark.parametrize(
    ("policy", "rates"),
    [
        ("oes", [1.0, 4.0, 4.0]),
        ("oes_by_job", [1.0, 3.0, 6.0]),
        ("maxmin", [1.0, 5.5, 5.5]),
        ("maxmin_by_job", [1.0, 5.0, 6.0]),
    ],
)
def test_what_one_flow_cannot_use_goes_to_others_of_its_job_first(
    policy: str, rates: list[float]
) -> None:
    """Out of a port of 12 B/s: two flows of a, the first of which takes 1 B/s."""
    names = ("a/s", "b/s", "a/slow", "a/w", "b/w")
    job = Job(
        tuple(Task(name, "task") for name in names),
        (Edge(0, 2), Edge(0, 3), Edge(1, 4)),
        1,
    )
    machines = (
        Machine("m0", 12.0, 12.0),
        Machine("m1", 1.0, 12.0),
        Machine("m2", 12.0, 12.0),
        Machine("m3", 12.0, 12.0),
    )
    problem = Problem(Cluster(machines), job, Placement((0, 0, 1, 2, 3)))
    realization = Realization(np.zeros((5, 1)), np.full((3, 1), 60.0))

    schedule = simulate(problem, realization, policy, record_rates=True)

    assert schedule.rates is not None
    np.testing.assert_allclose(schedule.rates.rate[:3], rates)
    assert schedule.rates.edge[:3].tolist() == [0, 1, 2]


def test_other_rules_know_no_jobs() -> None:
    with pytest.raises(ScenarioError, match="by job there are oes and maxmin") as found:
        load("golden", {"schedule.policy": "fifo", "schedule.share": "job"})
    assert found.value.key == "schedule.share"
    assert load("golden", {"schedule.share": "job"}).schedule.rule == "oes_by_job"
