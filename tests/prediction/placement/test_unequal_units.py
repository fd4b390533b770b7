"""Units, packings and bounds where no two of a kind are equal, by hand."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.prediction.placement.bound import placement_bound
from emu.prediction.placement.candidates import (
    NORM,
    Candidates,
    JobsCost,
    _job_costs,
    estimate,
    lower_bound,
    placement_cost,
)
from emu.prediction.placement.machine_sets import machine_sets
from emu.prediction.placement.packing import Packing, infeasibility, sum_edge_bytes
from emu.prediction.placement.space import Space
from emu.prediction.placement.symmetry import hub_followers
from emu.problem import CapacityChange, Cluster, Edge, Job, Machine, Realization, Task
from emu.problem.workloads import RELEASE
from emu.scenario.own_rules import register_program

#: The module: its package has a function of this name.
place = import_module("emu.prediction.placement.place")
MACHINES = (
    Machine("m0", 10.0, 10.0, resources={"gpu": 4.0}),
    Machine("m1", 10.0, 10.0, resources={"gpu": 4.0}),
)


DELAYED = (
    Machine("m0", 9.0, 5.0, latency_out=0.5, latency_in=4.0),
    Machine("m1", 8.0, 7.0, latency_out=2.0, latency_in=0.25),
)


def space_of(*tasks: Task) -> Space:
    return Space(Job(tasks, (), 1), Cluster(MACHINES), apart=True)


def test_who_gives_slots_back_is_like_nobody_else() -> None:
    """Ties between takers and givers of slots go by their places in the job."""
    space = space_of(
        Task("a", "t", takes="lam", frees=""),
        Task("b", "t", takes="lam", frees=""),
        Task("c", "t", frees="lam"),
        Task("d", "t", frees="lam"),
        Task("e", "t"),
        Task("f", "t"),
    )
    assert space.groups == ((0,), (1,), (2,), (3,), (4, 5))


def test_units_that_are_slow_by_other_factors_are_not_alike() -> None:
    space = space_of(
        Task("a", "t", slowness={"m0": 2.0}),
        Task("b", "t", slowness={"m0": 3.0}),
        Task("c", "t", slowness={"m0": 2.0}),
    )
    assert space.groups == ((0, 2), (1,))


@pytest.mark.parametrize("taker", [0, 1])
def test_units_with_slots_are_alike_to_packing_whichever_task_takes_one(
    taker: int,
) -> None:
    """Two processes of two tasks, one of which takes a slot."""
    tasks = []
    for process in "pq":
        for number in (0, 1):
            takes = "lam" if number == taker else ""
            demands = {"gpu": 1.0}
            name = f"{process}{number}"
            tasks.append(Task(name, "t", demands=demands, process=process, takes=takes))
    space = space_of(*tasks)

    assert space.groups == ((0,), (1,))
    assert space.packed == ((0, 1),)


def test_of_a_lone_pair_one_is_the_hub() -> None:
    """Task b has the follower a; d has c and e, of which none has another partner."""
    edges = (Edge(0, 1), Edge(2, 3), Edge(4, 3))
    job = Job(tuple(Task(name, "t") for name in "abcde"), edges, 1)

    assert hub_followers(Space(job, Cluster(MACHINES))) == ((1, (0,)), (3, (2, 4)))


def test_first_fit_begins_with_what_is_large_in_any_resource() -> None:
    """By its share of the roomiest bin, 0.9 for 0.5: only so both find room."""
    packing = Packing(
        demand=np.array([[5.0, 4.0], [9.0, 1.0]]),
        sizes=(1, 1),
        free=np.array([[10.0, 10.0], [5.0, 4.0]]),
    )
    assert packing.first_fit([0, 1]) == [(0, (0, 1)), (1, (1, 0))]


def test_what_all_tasks_need_includes_those_that_are_pinned() -> None:
    demands = {"gpu": 3.0}
    space = space_of(
        Task("a", "t", demands=demands, pinned="m0"),
        Task("b", "t", demands=demands),
        Task("c", "t", demands=demands),
    )
    assert str(infeasibility(space)).startswith(
        "the tasks need 9 gpu in total, all machines together have 8 (1 short)"
    )


def test_memory_that_is_missing_is_said_with_its_unit() -> None:
    """An error said "has 1000 memory", and that a job needed 1.63e+11."""
    demands = {"memory": 14e9}
    cluster = Cluster((Machine("m0", 1.0, 1.0, {"memory": 1e10}),))
    job = Job((Task("a", "t", demands=demands), Task("b", "t")), (), 1)

    problem = str(infeasibility(Space(job, cluster)))
    assert problem == (
        "the tasks need 14 GB of memory in total, all machines together have 10 GB "
        "(4 GB short)"
    )


@pytest.mark.parametrize(
    ("demands", "problem"),
    [
        (
            [9.0, 1.0, 2.0],
            "t0 needs 9 cpu, the roomiest machine, m1, has 8 left (1 short)",
        ),
        (
            [3.0, 6.0, 3.0],
            (
                "of 12 cpu that the movable tasks need, the machines can hold 9 at "
                "best, in pieces of 3, 6 (3 short)"
            ),
        ),
    ],
)
def test_what_is_too_large_or_in_pieces_is_said(
    demands: list[float], problem: str
) -> None:
    """A further task needs none of it."""
    rooms = {"m0": 5.0, "m1": 8.0}
    machines = [Machine(name, 1.0, 1.0, {"cpu": cpu}) for name, cpu in rooms.items()]
    tasks = [Task(f"t{n}", "t", {"cpu": need}) for n, need in enumerate(demands)]
    job = Job((*tasks, Task("free", "t", {"gpu": 1.0})), (), 1)

    assert str(infeasibility(Space(job, Cluster(tuple(machines))))) == problem


#: Tasks a and b run once, c twice; a sends to b, and c to no task.
ONCE = Job(
    (Task("a", "t", iterations=1), Task("b", "t", iterations=1), Task("c", "t")),
    (Edge(0, 1),),
    2,
)
#: Seconds and bytes; what stands in the second iteration of a and b never comes.
RUN = Realization(
    np.array([[2.0, 50.0], [5.0, 60.0], [1.0, 1.0]]), np.array([[30.0, 70.0]])
)


def test_heads_tails_and_bytes_are_of_what_is_sent() -> None:
    candidates = Candidates(Space(ONCE, Cluster(MACHINES)), RUN, "oes")

    assert sum_edge_bytes(ONCE, RUN).tolist() == [30.0]
    assert candidates.head.tolist() == [2.0]
    assert candidates.tail.tolist() == [5.0]
    assert candidates.least == 7.0


def test_a_port_asks_for_what_lies_before_and_behind_its_bytes() -> None:
    """2 s of a, 30 B out of m0 in 6 s, 0.75 s on the way, 5 s of b; or all at once."""
    candidates = Candidates(Space(ONCE, Cluster(DELAYED)), RUN, "oes")

    assert lower_bound(candidates, np.array([0, 1, 0])) == 2 + 6 + 0.75 + 5
    assert lower_bound(candidates, np.array([1, 0, 0])) == pytest.approx(
        2 + 30 / 7 + 6 + 5
    )
    assert lower_bound(candidates, np.array([1, 1, 0])) == 7.0


def test_an_estimate_has_latencies_as_ports_and_flows_have_them() -> None:
    """Ports ask for 13.75 and 11.5 s; a flow that met all others takes 13.75 + 0.75."""
    job = Job((Task("a", "t"), Task("b", "t")), (Edge(0, 1),), 1)
    run = Realization(np.array([[2.0], [5.0]]), np.array([[30.0]]))
    candidates = Candidates(Space(job, Cluster(DELAYED)), run, "oes")
    parts = np.array([13.75, 11.5, 2.0, 5.0]) / 13.75
    norm = 13.75 * np.sum(parts**NORM) ** (1 / NORM)

    found = estimate(candidates, np.array([0, 1]))

    assert found == pytest.approx((norm + 2.0 + 14.5 + 5.0) / 2)


@pytest.mark.parametrize(
    ("total", "cost"), [(False, 2.5 * 9.0), (True, 10.0 + 2.5 * 9.0 + 0.5 * 3.0)]
)
def test_jobs_cost_the_most_or_the_sum_of_what_each_does(
    *, total: bool, cost: float
) -> None:
    """From its release on a takes 10 s, b, which weighs most, 9 s, and c 3 s."""
    tasks = (
        Task("a/w", "t"),
        Task("b/release", RELEASE, gate=True),
        Task("b/w", "t"),
        Task("c/release", RELEASE, gate=True),
        Task("c/w", "t"),
    )
    edges = (Edge(1, 2, credit=True), Edge(3, 4, credit=True))
    job = Job(tasks, edges, 1, settings={"jobs": {"a": {}, "b": {}, "c": {}}})
    run = Realization(np.array([[10.0], [4.0], [9.0], [7.0], [3.0]]), np.zeros((2, 1)))
    costs = JobsCost(total=total, weights={"b": 2.5, "c": 0.5})
    candidates = Candidates(Space(job, Cluster(MACHINES)), run, "oes", costs)
    machine_of = np.zeros(5, np.int64)

    assert placement_cost(candidates, machine_of, np.inf) == cost
    # No schedule is cheaper than the lightest job would be that came last.
    assert lower_bound(candidates, machine_of) == 0.5 * (13.0 - 7.0)


def test_no_limited_pool_gets_more_back_than_is_taken_of_it() -> None:
    """Task c takes a slot once, and r gives one back three times."""
    tasks = (
        Task("c", "t", takes="lam", frees="", iterations=1),
        Task("r", "t", frees="lam"),
    )
    machines = (Machine("m0", 9.0, 9.0, slots={"lam": 5}), Machine("m1", 9.0, 9.0))
    job = Job(tasks, (), 3)
    run = Realization(np.array([[2.0] * 3, [1.0] * 3]), np.zeros((0, 3)))
    candidates = Candidates(Space(job, Cluster(machines), apart=True), run, "oes")

    costs = [
        placement_cost(candidates, np.array(machine_of), np.inf)
        for machine_of in ((0, 0), (1, 1), (0, 1), (1, 0))
    ]
    assert costs == [np.inf, 3.0, 3.0, np.inf]


def test_who_is_pinned_to_a_slow_machine_is_slow_in_any_placement() -> None:
    for slow, fast in (("m0", "m1"), ("m1", "m0")):
        factors = {fast: 1.0, slow: 3.0}
        for pinned, least in ((slow, 6.0), (fast, 2.0), (None, 2.0)):
            job = Job((Task("a", "t", pinned=pinned, slowness=factors),), (), 1)
            run = Realization(np.array([[2.0]]), np.empty((0, 1)))
            candidates = Candidates(Space(job, Cluster(MACHINES)), run, "oes")
            assert candidates.least == least


def test_a_task_keeps_its_machine_busy_as_long_as_it_is_slow_there() -> None:
    """It takes 2 and 3 s, on m1 four times as long; there is no third machine."""
    job = Job((Task("a", "t", slowness={"m0": 1.0, "m1": 4.0}),), (), 2)
    run = Realization(np.array([[2.0, 3.0]]), np.empty((0, 2)))
    candidates = Candidates(Space(job, Cluster(MACHINES)), run, "oes")

    for machine, seconds in ((0, 5.0), (1, 20.0)):
        assert estimate(candidates, np.array([machine])) == pytest.approx(seconds)
    for wrong in (-1, 2):
        with pytest.raises(ValueError, match="machine"):
            lower_bound(candidates, np.array([wrong]))


def test_what_a_rule_raises_ends_a_search() -> None:
    text = "class Mine:\n def rates(self, flows, capacity):\n  raise ValueError('no')\n"
    rule = register_program("refuses.py:Mine", text)
    job = Job((Task("a", "t"), Task("b", "t")), (Edge(0, 1),), 1)
    run = Realization(np.ones((2, 1)), np.ones((1, 1)))
    candidates = Candidates(Space(job, Cluster(MACHINES)), run, rule)

    with pytest.raises(DataError, match="no"):
        placement_cost(candidates, np.array([0, 1]), np.inf)


def test_a_bound_over_placements_is_of_ports_or_of_tasks() -> None:
    """Tasks take 7 s; 30 B over a NIC of 10 B/s need not cross it."""
    bound = placement_bound(ONCE, Cluster(MACHINES), RUN)

    assert bound == pytest.approx(7.0)


def test_a_job_is_released_once() -> None:
    tasks = (
        Task("a/release", RELEASE, iterations=1),
        Task("a/w", "t"),
        Task("b/w", "t"),
    )
    job = Job(tasks, (), 3, settings={"jobs": {"a": {}, "b": {}}})
    times = np.array([[4.0] * 3, [1.0] * 3, [2.0] * 3])

    costs = _job_costs(job, times, JobsCost(weights={"b": 2.5}))

    assert costs["release"].tolist() == [4.0, 0.0]
    assert costs["weight"].tolist() == [1.0, 2.5]


def test_a_machine_is_as_slow_as_it_is_for_all_tasks_on_average() -> None:
    """NICs are equal: m2, of 1.5 and 2, before m0, of 1 and 4, before m1, of 2.6."""
    tasks = (
        Task("a", "t", slowness={"m0": 1.0, "m1": 2.6, "m2": 1.5}),
        Task("b", "t", slowness={"m0": 4.0, "m1": 2.6, "m2": 2.0}),
    )
    machines = tuple(Machine(f"m{n}", 10.0, 10.0) for n in range(3))
    kinds = tuple(
        Machine(f"k{n}", 1.0 + n / 8, 1.0 + n / 8) for n in range(6)
    )  # more kinds than all of whose mixtures are tried
    job = Job(tasks, (), 1)

    found = machine_sets(job, Cluster((*machines, *kinds)), most=999, size=2)
    assert ("m0", "m2") in found
    assert ("m1", "m2") not in found


def test_of_many_sets_those_that_are_tried_are_of_all_sizes() -> None:
    """All machines first, then from single ones to all but one of them."""
    machines = tuple(Machine(f"m{n}", 10.0 + n, 10.0 + n) for n in range(4))
    found = machine_sets(Job((Task("a", "t"),), (), 1), Cluster(machines), most=6)

    sizes = [len(names) for names in found]
    assert sizes[0] == 4
    assert sizes[1:] == sorted(sizes[1:])
    assert {*sizes[1:]} == {1, 2, 3}


@pytest.mark.parametrize(
    "unlike",
    [
        {},
        {"bandwidth_in": 11.0},
        {"bandwidth_out": 11.0},
        {"latency_in": 0.5},
        {"latency_out": 0.5},
        {"resources": {"gpu": 2.0}},
        {"slots": {"gpu": 2}},
        {"speed": 2.0},
    ],
)
def test_machines_are_of_one_kind_where_a_job_notices_no_difference(
    unlike: dict[str, Any],
) -> None:
    first = Machine("m0", 10.0, 10.0)
    cluster = Cluster((first, replace(first, name="m1", **unlike)))
    job = Job((Task("a", "t"),), (), 1)

    kinds = {("m0",), ("m1",)} if unlike else {("m0",)}
    assert {*machine_sets(job, cluster, most=9, size=1)} == kinds
    # Nor are they where a task is slower on one of them.
    slow = Job((Task("a", "t", slowness={"m0": 1.0, "m1": 2.0}),), (), 1)
    assert len(machine_sets(slow, cluster, most=9, size=1)) == 2


def test_machines_that_are_held_are_in_every_set() -> None:
    machines = tuple(Machine(f"m{n}", 10.0 + n, 10.0 + n) for n in range(3))
    job = Job((Task("a", "t"),), (), 1)

    found = machine_sets(job, Cluster(machines), most=99, held=["m1"])
    assert {*found} == {("m0", "m1", "m2"), ("m0", "m1"), ("m1", "m2"), ("m1",)}


def test_of_too_many_kinds_the_fastest_machines_are_tried_first() -> None:
    """By the slower way of their NICs, and by how slow they are for a task."""
    slow = {f"m{n}": 1.0 + n for n in range(17)} | {"m16": 0.5}
    machines = [Machine(f"m{n}", 10.0 + n, 50.0 - n) for n in range(16)]
    machines.append(Machine("m16", 5.0, 99.0))
    job = Job((Task("a", "t", slowness=slow),), (), 1)

    found = machine_sets(job, Cluster(tuple(machines)), most=999, size=1)

    # m15 has 25 and 35; of m16 the device is the fastest, and not its NIC.
    assert ("m15",) in found
    assert ("m16",) in found
    assert len(found) == 2


def test_a_machine_whose_nic_changes_is_like_no_other() -> None:
    machines = tuple(Machine(f"m{n}", 10.0, 10.0) for n in range(3))
    job = Job((Task("a", "t"),), (), 1)
    steady = machine_sets(job, Cluster(machines), most=999, size=1)
    changes = (CapacityChange(3.0, "m1 in", 5.0),)
    changing = machine_sets(job, Cluster(machines, changes=changes), most=999, size=1)

    assert steady == [("m0",)]
    assert changing == [("m0",), ("m1",)]


def test_rules_that_look_at_every_flow_afford_a_tenth() -> None:
    job = Job((Task("a", "t"), Task("b", "t")), (Edge(0, 1),), 5)

    assert place.affordable(job, "oes", flows=1_000) == 200
    assert place.affordable(job, "mrtf", flows=1_000) == 20
    assert place.affordable(job, "oes", flows=1_000, most=30) == 30
    assert place.affordable(job, "mrtf", flows=1) == 1


def test_rules_of_ones_own_afford_a_thousandth() -> None:
    job = Job((Task("a", "t"), Task("b", "t")), (Edge(0, 1),), 5)
    text = (
        "class Mine:\n def rates(self, flows, capacity):\n  return [1] * len(flows)\n"
    )
    own = register_program("afford.py:Mine", text)

    assert place.affordable(job, own, flows=20_000) == 4


def test_a_job_that_waits_for_slots_is_simulated_to_its_end() -> None:
    """An endless wait shows at the end."""
    tasks = (Task("a", "t", takes="p", frees=""), Task("b", "t", frees="p"))
    job = Job(tasks, (Edge(0, 1),), 9)

    assert place._count_iterations(job, "oes", 2, fits=True) == 9


def test_a_candidate_has_three_iterations_at_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where 16 candidates of one would have all flows that may be simulated."""
    job = Job((Task("a", "t"), Task("b", "t")), (Edge(0, 1),), 9)
    for weight, asked, count in ((10**5, 6, 3), (12_000, 20, 7), (12_000, 6, 6)):
        monkeypatch.setattr(place, "_BY_FLOW", weight)
        assert place._count_iterations(job, "mrtf", asked, fits=True) == count
    monkeypatch.setattr(place, "_BY_FLOW", 10**5)
    assert place._count_iterations(job, "mrtf", 6, fits=False) == 6
    assert place._count_iterations(job, "mrtf", 20, fits=False) == 9
