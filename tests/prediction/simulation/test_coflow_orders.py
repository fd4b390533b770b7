"""Orders of coflows by Sincronia and Aalo, worked out by hand or by trying all."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)

MB = 1e6


def ends(
    policy: str, flows: list[tuple[str, int, int, float, float]], nic: float
) -> dict[str, float]:
    """Return when coflows end of (coflow, from, to, bytes, when it begins) flows."""
    count = 1 + max(max(source, to) for _, source, to, *_ in flows)
    tasks, edges, machines, times, volumes = [], [], [], [], []
    for number, (coflow, source, to, size, begins) in enumerate(flows):
        gate, sender, receiver = range(3 * number, 3 * number + 3)
        tasks += [Task(f"g{number}", "task", gate=True)]
        tasks += [Task(f"s{number}", "task"), Task(f"r{number}", "task")]
        machines += [source, source, to]
        times += [begins, 0.0, 0.0]
        edges += [Edge(gate, sender), Edge(sender, receiver, coflow=coflow)]
        volumes += [0.0, size]
    cluster = Cluster(tuple(Machine(f"m{m}", nic, nic) for m in range(count)))
    job = Job(tuple(tasks), tuple(edges), 1)
    problem = Problem(cluster, job, Placement(tuple(machines)))
    columns = np.array(times)[:, None], np.array(volumes)[:, None]
    schedule = simulate(problem, Realization(*columns), policy)
    found: dict[str, float] = {}
    for (coflow, *_), end in zip(
        flows, schedule.flow_end[1::2, 0].tolist(), strict=True
    ):
        found[coflow] = max(found.get(coflow, 0.0), end)
    return found


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_sincronia_is_best_of_all_orders_at_one_port(sizes: list[int]) -> None:
    flows = [(f"c{n}", 0, 1, float(size), 0.0) for n, size in enumerate(sizes)]
    mean = np.mean([*ends("sincronia", flows, 1.0).values()])
    best = min(np.mean(np.cumsum(order)) for order in permutations(sizes))
    assert mean == pytest.approx(best, rel=1e-9)


def test_sincronia_scales_the_others_at_the_fullest_port() -> None:
    """Algorithm 1 by hand: b goes last at m0, then c weighs 1 - 3 / 5 = 0.4 there.

    At m0 (out) a has 1, b 5, c 3; at m1 (out) c has 4 more and d 5. First m0 and m1
    have 9 each: of equal ports m0. Then m1 has 9: c weighs 0.4 / 4, d 1 / 5, so c goes
    last but one; SEBF would have a, c, b, d by bottlenecks of 1, 4, 5, 5.
    """
    flows = [("a", 0, 2, 1.0, 0.0), ("b", 0, 3, 5.0, 0.0), ("c", 0, 4, 3.0, 0.0)]
    flows += [("c", 1, 5, 4.0, 0.0), ("d", 1, 6, 5.0, 0.0)]
    assert ends("sincronia", flows, 1.0) == {"a": 1.0, "c": 9.0, "b": 9.0, "d": 5.0}
    assert ends("sebf_madd", flows, 1.0)["c"] == pytest.approx(5.0)


def test_aalo_lets_a_newcomer_pass_what_has_sent_more_than_10_mb() -> None:
    """At 1 MB/s: at 5 s b waits, at 10 s a has sent 10 MB; c need not wait at 15 s."""
    flows = [("a", 0, 1, 30 * MB, 0.0), ("b", 0, 2, 2 * MB, 5.0)]
    assert ends("aalo", flows, MB) == {"a": 32.0, "b": 12.0}
    c = ("c", 0, 3, 2 * MB, 15.0)
    expected = {"a": 34.0, "b": 12.0, "c": 17.0}
    assert ends("aalo", [flows[0], c, flows[1]], MB) == expected


def test_aalo_goes_on_from_queue_to_queue() -> None:
    """A leaves its first queue at 10 s, b at 20, a its second, of 100 MB, at 110.

    From then on b, which has sent 10 MB, is alone in the second queue until it has sent
    100 as well, at 200 s; then both are in the third, and a came first.
    """
    flows = [("a", 0, 1, 150 * MB, 0.0), ("b", 0, 2, 120 * MB, 0.0)]
    found = ends("aalo", flows, MB)
    assert found == pytest.approx({"a": 250.0, "b": 270.0}, rel=1e-12)


def test_a_coflow_leaves_its_queue_by_all_that_its_flows_send() -> None:
    """Two flows of a at 1 MB/s each: 10 MB at 5 s; c shares one port with it."""
    flows = [("a", 0, 2, 8 * MB, 0.0), ("a", 1, 3, 8 * MB, 0.0), ("c", 1, 4, MB, 1.0)]
    assert ends("aalo", flows, MB) == pytest.approx({"a": 9.0, "c": 6.0}, rel=1e-12)


def test_what_has_ended_of_a_coflow_counts_for_its_queue() -> None:
    """By 10 s a has sent 10 MB, of which a flow of 5 MB has ended."""
    flows = [("a", 0, 1, 5 * MB, 0.0), ("a", 0, 2, 20 * MB, 0.0), ("b", 0, 3, MB, 11.0)]
    assert ends("aalo", flows, MB) == {"a": 26.0, "b": 12.0}


def test_a_coflow_leaves_its_queue_when_it_has_sent_10_mb_and_no_sooner() -> None:
    """An event at 10 / 3 s, when a has sent a third of 10 MB, moves its end by nothing.

    What it has sent was rounded to 32 bits there, and with it the moment.
    """
    flows = [("a", 0, 1, 30 * MB, 0.0), ("b", 0, 2, MB, 10 / 3)]
    assert ends("aalo", flows, MB) == pytest.approx({"a": 31.0, "b": 11.0}, rel=1e-14)


def test_flows_of_a_coflow_share_equally_under_aalo() -> None:
    """Two of a at 0.5 each; b takes at m1 what they leave: nothing of m0."""
    flows = [("a", 0, 2, 1.0, 0.0), ("a", 0, 3, 2.0, 0.0), ("b", 1, 2, 1.0, 0.0)]
    assert ends("aalo", flows, 1.0) == {"a": 3.0, "b": 2.0}
