"""The order of a ring after placement, against all orders of small rings."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu.errors import ScenarioError
from emu.prediction.placement.ring_order import (
    RingCost,
    _round_cost,
    _Search,
    ring_cost,
    ring_order,
    with_placed_ring,
)
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Link,
    Links,
    Machine,
    Placement,
    Problem,
    Route,
    Task,
)
from emu.problem.fields.cluster_section import RackSection, rack_links, rack_routes
from emu.runs.result import read_result, result_of
from emu.scenario import prepare
from tests.integration.scenarios import read, tiny_training

RATES = st.sampled_from([1.0, 2.0, 5.0, 50.0])


@st.composite
def networks(draw: st.DrawFn) -> Links:
    """Draw machines in two racks, or some of which have links of their own."""
    machines = [Machine(f"m{i}", draw(RATES), draw(RATES)) for i in range(4)]
    names = [machine.name for machine in machines]
    if draw(st.booleans()):
        racks = [
            RackSection.model_validate(
                {"name": f"r{r}", "machines": names[r::2], "uplink": f"{rate} B/s"}
            )
            for r, rate in enumerate((draw(RATES), draw(RATES)))
        ]
        return Links(machines, rack_links(racks), rack_routes(racks, names))
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    direct = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=8))
    own = [Link(f"{a}>{b}", draw(RATES)) for a, b in direct]
    routes = [
        Route((a,), (b,), (link.name,))
        for (a, b), link in zip(direct, own, strict=True)
    ]
    return Links(machines, own, routes)


@given(networks(), st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_no_order_is_cheaper(links: Links, machines: list[int]) -> None:
    order = ring_order(links, machines)
    orders = ((0, *rest) for rest in permutations(range(1, len(machines))))
    least = min(ring_cost(links, [machines[rank] for rank in one]) for one in orders)

    assert sorted(order) == [*range(len(machines))]
    assert order[0] == 0
    found = ring_cost(links, [machines[rank] for rank in order])
    assert found == pytest.approx(least, rel=1e-9)


def test_a_link_that_carries_two_flows_takes_twice_as_long() -> None:
    """Both ways go over one link of 2 B/s; a third machine has NICs of 8 and 4 B/s."""
    machines = [Machine("a", 9.0, 9.0), Machine("b", 9.0, 9.0), Machine("c", 8.0, 4.0)]
    routes = [Route((0,), (1,), ("x",)), Route((1,), (0,), ("x",))]
    links = Links(machines, [Link("x", 2.0)], routes)

    assert ring_cost(links, [0, 1]) == RingCost(crossings=0, slowest=1.0, links=1.0)
    # From b on to c and back to a: into c and out of it, and out of b and into a.
    expected = _round_cost(1 / 2 + 1 / 9 + 1 / 8 + 1 / 4 + 1 / 9)
    assert ring_cost(links, [0, 1, 2]) == RingCost(2, 0.5, expected)

    # Of the NICs on the way there is only the first, out of a.
    routes = [Route((0,), (1,), ("out",)), Route((1,), (0,), ("x",))]
    links = Links(machines, [Link("x", 2.0)], routes)
    assert ring_cost(links, [0, 1]).crossings == 1


def test_the_slowest_link_counts_before_the_sum_of_all() -> None:
    """One way round they take 5, 1 and 1 s per byte, the other way 3 s each."""
    machines = [Machine(f"m{number}", 9.0, 9.0) for number in range(3)]
    seconds = {(0, 1): 5, (1, 2): 1, (2, 0): 1, (0, 2): 3, (2, 1): 3, (1, 0): 3}
    own = [Link(f"{a}>{b}", 1 / taken) for (a, b), taken in seconds.items()]
    routes = [
        Route((a,), (b,), (link.name,))
        for (a, b), link in zip(seconds, own, strict=True)
    ]

    assert ring_order(Links(machines, own, routes), [0, 1, 2]) == (0, 2, 1)


def connect(nics: str, direct: str) -> Links:
    """Return machines by the rates into and out of each, and links between pairs.

    ``nics``: ``1/5 2/2``; ``direct``: ``0>2:5`` for 5 B/s from machine 0 to 2.
    """
    machines = []
    for number, rates in enumerate(nics.split()):
        rate_in, rate_out = map(float, rates.split("/"))
        machines.append(Machine(f"m{number}", rate_in, rate_out))
    own = []
    routes = []
    for stated in direct.split():
        name, rate = stated.split(":")
        source, destination = map(int, name.split(">"))
        own.append(Link(name, float(rate)))
        routes.append(Route((source,), (destination,), (name,)))
    return Links(machines, own, routes)


@pytest.mark.parametrize(
    ("nics", "direct", "machines"),
    [
        (
            "50/5 50/2 50/1 5/1",
            "3>0:1 2>0:50 0>2:5 1>3:5 3>2:2 2>3:2 1>0:2 0>1:5 2>1:5 0>3:1 1>2:1",
            [3, 0, 1, 2],
        ),
        ("1/1 5/5 50/5 5/5", "1>3:1 2>3:2 3>1:5 0>1:5", [0, 3, 2, 3]),
        ("1/1 5/1 2/5 1/1", "1>0:2", [0, 2, 3, 2, 1]),
        (
            "50/2 5/1 2/2 50/5",
            "3>1:1 2>0:50 3>2:2 1>2:50 2>1:5 0>1:2 1>3:1 0>2:1 2>3:1 0>3:50 3>0:50",
            [1, 3, 2],
        ),
        (
            "1/50 2/5 1/5 1/2",
            "3>1:50 0>2:1 2>0:50 0>3:1 0>1:50 2>3:1 3>2:50 1>3:1 3>0:2 2>1:50",
            [1, 3, 3, 2, 3],
        ),
        ("2/2 1/1 2/5 1/5", "2>0:5 0>1:5 2>3:5", [3, 3, 2, 0, 1]),
        (
            "50/1 2/2 2/5 2/1",
            "1>0:5 2>0:50 0>1:1 2>3:2 1>3:50 3>1:2 1>2:5 0>3:5 2>1:1 3>2:50 0>2:50",
            [0, 3, 3, 1],
        ),
    ],
)
def test_no_order_is_cheaper_where_ways_in_and_out_differ(
    nics: str, direct: str, machines: list[int]
) -> None:
    """Every case fails with a bound that is above the true cost."""
    links = connect(nics, direct)
    costs = []
    for rest in permutations(range(1, len(machines))):
        ring = [machines[rank] for rank in (0, *rest)]
        costs.append(ring_cost(links, ring))
    order = ring_order(links, machines)

    found = ring_cost(links, [machines[rank] for rank in order])
    assert found == min(costs)


@pytest.mark.parametrize(
    ("nics", "direct", "machines", "looked_at"),
    [
        (
            "1/5 2/2 1/2 1/5",
            "0>2:2 1>2:2 1>3:50 3>1:1 2>3:5 0>3:50 3>0:2",
            [1, 0, 2, 0, 2, 1],
            8,
        ),
        (
            "2/2 2/50 2/5 5/1",
            "0>3:50 3>0:2 1>2:1 0>2:50 2>0:50 3>1:5 2>1:1",
            [3, 1, 3, 3, 1, 2],
            12,
        ),
    ],
)
def test_bounds_leave_few_rings_to_look_at(
    nics: str,
    direct: str,
    machines: list[int],
    looked_at: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So many partial rings are continued: a looser bound would need more."""
    continued: list[tuple[int, ...]] = []
    longer_by_one = _Search._longer_by_one

    def note(search: _Search, ring: tuple[int, ...]) -> Any:
        continued.append(ring)
        return longer_by_one(search, ring)

    monkeypatch.setattr(_Search, "_longer_by_one", note)
    ring_order(connect(nics, direct), machines)

    assert len(continued) == looked_at


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(20, (0, 3, 2, 1, 4)), (40, (0, 1, 4, 2, 3)), (1_000_000, (0, 3, 1, 4, 2))],
)
def test_a_search_that_takes_too_long_ends_with_nearest_neighbours(
    steps: int, expected: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step for each of five ranks and four machines: 20 continue one ring freely."""
    links = connect("9/5 9/5 9/9 1/9", "0>3:3 1>0:1 0>1:9 2>1:5 2>0:5 1>2:3")
    monkeypatch.setattr("emu.prediction.placement.ring_order.STEPS", steps)

    assert ring_order(links, [0, 1, 2, 3, 1]) == expected


def two_rings(*, settings: bool) -> Problem:
    """Return rings of jobs a and b, each rank of two steps, on machines by turns."""
    tasks: list[Task] = []
    machines: list[int] = []
    edges = []
    for name, ranks in (("a", 4), ("b", 4)):
        first = len(tasks)
        for rank in range(ranks):
            machines += [rank % 2] * 2
            for step in (0, 1):
                task = Task(
                    f"{name}/w{rank}.ring{step}",
                    "all_reduce",
                    process=f"{name}/w{rank}",
                    settings={"rank": rank, "step": step} if settings else {},
                )
                tasks.append(task)
        for rank in range(ranks):
            successor = (rank + 1) % ranks
            edges.append(Edge(first + 2 * rank, first + 2 * successor + 1))
            # The next round begins when the step before it has been taken.
            edges.append(
                Edge(first + 2 * rank + 1, first + 2 * rank, lag=1, credit=True)
            )
    cluster = Cluster((Machine("m0", 4.0, 6.0), Machine("m1", 9.0, 5.0)))
    job = Job(tuple(tasks), tuple(edges), 2, settings={"jobs": {"a": {}, "b": {}}})
    return Problem(cluster, job, Placement(tuple(machines)))


@pytest.mark.parametrize("settings", [True, False])
@pytest.mark.parametrize("name", ["a", "b"])
def test_the_ring_of_one_job_is_placed_and_that_of_another_stays(
    name: str, *, settings: bool
) -> None:
    """Ranks 0 and 2 stand on one machine, 1 and 3 on the other: 0, 2, 1, 3 go round."""
    problem = two_rings(settings=settings)
    job = problem.job
    placed = with_placed_ring(problem, name).job
    mine = [task.job_name == name for task in job.tasks]
    first = mine.index(True)

    for task, old, is_mine in zip(placed.tasks, job.tasks, mine, strict=True):
        assert task.name == old.name
        if not is_mine:
            assert task == old
    if settings:
        ranks = [task.settings["rank"] for task in placed.tasks[first : first + 8]]
        assert ranks == [0, 0, 2, 2, 1, 1, 3, 3]
    sent = []
    for edge, stated in zip(placed.edges, job.edges, strict=True):
        if not mine[stated.source]:
            assert edge == stated
        elif not edge.credit:
            assert (edge.source - first) % 2 == 0
            assert (edge.destination - first) % 2 == 1
            source = (edge.source - first) // 2
            destination = (edge.destination - first) // 2
            sent.append((source, destination))
    # Each edge keeps its place: it is of the worker that has its old rank now.
    assert sent == [(0, 2), (2, 1), (1, 3), (3, 0)]


def test_a_large_ring_enters_every_machine_and_every_rack_once() -> None:
    machines = [Machine(f"m{i}", 10.0, 10.0) for i in range(40)]
    names = [machine.name for machine in machines]
    racks = [
        RackSection.model_validate(
            {"name": f"r{r}", "machines": names[r::4], "uplink": "10 B/s"}
        )
        for r in range(4)
    ]
    links = Links(machines, rack_links(racks), rack_routes(racks, names))
    machine_of = [i % 40 for i in range(120)]
    order = ring_order(links, machine_of)
    cost = ring_cost(links, [machine_of[rank] for rank in order])

    assert cost.crossings == 40
    assert cost.slowest == 1 / 10


def ringed(**job: Any) -> Problem:
    document = tiny_training(3, **{"workers": 5, "sync": "ring", **job})
    document["placement"] = {"policy": "round_robin"}
    return prepare(read(document)).problem


def carried(problem: Problem) -> dict[str, float]:
    """Return seconds of flow per port in one step of the ring, all ranks at once."""
    steps = Counter[str]()
    for edge, hops in zip(problem.job.edges, problem.hops, strict=True):
        if problem.job.tasks[edge.source].name.endswith(".ring0"):
            steps.update(problem.links[port].name for port in hops)
    return dict(steps)


def test_a_placed_ring_enters_each_machine_once() -> None:
    by_rank, placed = ringed(), ringed(ring="placed")

    assert carried(by_rank) == {
        "fast out": 2, "slow in": 2, "slow out": 2, "fast in": 2,
    }  # fmt: skip
    assert carried(placed) == dict.fromkeys(carried(by_rank), 1)
    names = [task.name for task in by_rank.job.tasks]
    assert [task.name for task in placed.job.tasks] == names
    ranks = {
        task.process_name: task.settings["rank"]
        for task in placed.job.tasks
        if task.kind == "all_reduce"
    }
    assert ranks == {"w0": 0, "w2": 1, "w4": 2, "w1": 3, "w3": 4}
    again = with_placed_ring(placed)
    assert again.job.edges == placed.job.edges


@pytest.mark.parametrize("workers", [2, 3, 5, 6])
def test_a_ring_without_settings_is_placed_alike(workers: int) -> None:
    """That of a recorded run: which machines send to which, whoever is first."""
    problem = ringed(workers=workers)
    bare = tuple(replace(task, settings={}) for task in problem.job.tasks)
    recorded = replace(problem, job=replace(problem.job, tasks=bare))

    assert carried(with_placed_ring(recorded)) == carried(with_placed_ring(problem))
    torn = replace(recorded.job, edges=())
    assert with_placed_ring(replace(problem, job=torn)).job.edges == ()


def sent_by_rank(ring: str) -> Counter[int]:
    document = tiny_training(2, workers=5, sync="ring", ring=ring)
    document["placement"] = {"policy": "round_robin"}
    experiment = prepare(read(document))
    job, sent = experiment.problem.job, Counter[int]()
    for edge, bytes_ in zip(job.edges, experiment.realization.volumes, strict=True):
        source, end = job.tasks[edge.source], job.tasks[edge.destination]
        if source.kind == end.kind == "all_reduce" and bytes_.any():
            rank = source.settings["rank"]
            assert end.settings["rank"] == (rank + 1) % 5
            assert end.settings["step"] == source.settings["step"]
            sent[rank] += int(bytes_[0])
    return sent


def test_volumes_of_a_placed_ring_are_those_of_its_ranks() -> None:
    placed = sent_by_rank("placed")

    assert placed == sent_by_rank("rank")
    assert np.ptp([*placed.values()]) > 0  # not divisible by five


@pytest.mark.parametrize("sync", ["parameter_server", "halving_doubling"])
def test_only_a_ring_is_placed(sync: str) -> None:
    document = tiny_training(sync=sync, ring="placed")
    with pytest.raises(ScenarioError, match=f"sync is {sync}, which has no ring"):
        read(document)


def test_a_result_file_knows_the_ring(tmp_path: Path) -> None:
    document = tiny_training(2, workers=3, sync="ring", ring="placed")
    document["placement"] = {"policy": "round_robin"}
    scenario = read(document)
    schedule = emu.simulate(scenario)
    file = tmp_path / "result.json"
    file.write_text(json.dumps(result_of(scenario, schedule)))
    _, found = read_result(file)

    np.testing.assert_allclose(found.flow_end, schedule.flow_end)
