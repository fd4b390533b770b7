"""The DistDGL baseline against brute force and against the paper's own count."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest

from emu.errors import InfeasiblePlacement, PlacementError
from emu.prediction.placement.distdgl import (
    colocate,
    place_distdgl,
    sampler_groups,
    sampler_pairs,
)
from emu.prediction.placement.space import Space
from emu.problem import Cluster, Edge, Job, Machine, Task
from tests.prediction.placement.placement_cases import (
    colocated_pairs,
    dgtp_job,
    feasible_placements,
    paper_testbed,
    random_setting,
)


def test_testbed_separates_two_of_twelve_pairs() -> None:
    """As the paper reports, with 8 cores per machine and stores of 14 GB."""
    job, cluster = paper_testbed()

    placement = place_distdgl(job, cluster)

    assert colocated_pairs(job, placement) == (10, 12)
    assert placement.violations(job, cluster) == []


def test_testbed_with_16_cores_separates_nothing() -> None:
    job, cluster = paper_testbed(cpu=16)

    assert colocated_pairs(job, place_distdgl(job, cluster)) == (12, 12)


def test_testbed_placement_is_pinned_down() -> None:
    """Ties: the first machines are filled first, the server comes last."""
    job, cluster = paper_testbed()

    machine_of = place_distdgl(job, cluster).machine_of
    by_name = {t.name: m for t, m in zip(job.tasks, machine_of, strict=True)}

    assert [by_name[f"w{i}"] for i in range(6)] == [0, 0, 1, 1, 2, 3]
    assert [machine_of[4:16].count(m) for m in range(4)] == [3, 3, 3, 3]
    assert by_name["ps0"] in {2, 3}, "the 50 G machines have no core left"


def test_an_equal_job_is_placed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other machines or tasks are placed anew, and so are jobs of many edges."""
    module = importlib.import_module("emu.prediction.placement.distdgl")
    placed = []

    def list_pairs(job: Job) -> list[tuple[int, int]]:
        placed.append(job)
        return sampler_pairs(job)

    monkeypatch.setattr(module, "sampler_pairs", list_pairs)
    job, cluster = paper_testbed()
    # As no other test has it.
    job = replace(job, settings={"name": "placed once"})
    placement = place_distdgl(job, cluster)
    # Equal, and not the same: as two commands load them.
    assert place_distdgl(replace(job), replace(cluster)) is placement
    assert len(placed) == 1

    _, roomy_cluster = paper_testbed(cpu=16)
    roomy = place_distdgl(job, roomy_cluster)
    *tasks, server = job.tasks
    pinned_server = replace(server, pinned="m1")
    pinned = replace(job, tasks=(*tasks, pinned_server))
    assert place_distdgl(pinned, roomy_cluster) != roomy
    assert colocated_pairs(job, roomy) == (12, 12)
    assert len(placed) == 3

    large = replace(job, edges=100 * job.edges)
    assert place_distdgl(large, cluster) == place_distdgl(large, cluster)
    assert len(placed) == 5


def test_as_many_pairs_as_brute_force() -> None:
    rng = np.random.default_rng(5)
    compared = 0
    while compared < 30:
        job, cluster = random_setting(rng)
        movable = sum(task.pinned is None for task in job.tasks)
        if len(cluster.machines) ** movable > 3000:
            continue
        pairs = [
            colocated_pairs(job, placement)[0]
            for placement in feasible_placements(job, cluster)
        ]
        if not pairs:
            with pytest.raises(InfeasiblePlacement):
                place_distdgl(job, cluster)
            continue
        placement = place_distdgl(job, cluster)
        assert placement.violations(job, cluster) == []
        assert colocated_pairs(job, placement)[0] == max(pairs)
        compared += 1


def test_many_tasks_that_all_differ_are_placed() -> None:
    """Each counts by itself: 16,384 states, and options by the thousand per machine."""
    kinds = [("w", "worker", 1.0), ("s", "sampler", 1.0)]
    tasks = [Task(k, kind, demands={"cpu": size}) for k, kind, size in kinds]
    sizes = [2.0 + 0.25 * n for n in range(12)]
    tasks += [
        Task(f"g{n}", "graph_store", demands={"cpu": size})
        for n, size in enumerate(sizes)
    ]
    job = Job(tuple(tasks), (Edge(1, 0),), 1)
    room = {"cpu": (2.0 + sum(sizes)) / 3 + 1.0}
    cluster = Cluster(tuple(Machine(f"m{n}", 1.0, 1.0, room) for n in range(3)))

    placement = place_distdgl(job, cluster)

    assert placement.violations(job, cluster) == []
    assert colocated_pairs(job, placement) == (1, 1)


def test_server_goes_where_a_flow_gets_most() -> None:
    job = dgtp_job(stores=2, workers=1, per_worker=1, demands={"worker": {"gpu": 1}})
    cluster = Cluster(
        (Machine("m0", 1.0, 1.0, {"gpu": 1}), Machine("m1", 9.0, 9.0, {"gpu": 0}))
    )

    placement = place_distdgl(job, cluster)

    assert placement.machine_of == (0, 1, 0, 0, 1)


#: Bytes/s into and out of each machine; the first has the GPUs of a team.
UNEQUAL = (
    Machine("m0", 8.0, 2.0, {"gpu": 2.0}),
    Machine("m1", 3.0, 9.0, {"gpu": 0.0}),
    Machine("m2", 5.0, 4.0, {"gpu": 0.0}),
)


@pytest.mark.parametrize(
    ("senders", "receivers", "expected"),
    [
        # Of 2, 3 and 4 B/s, the slower direction, m2 gives a first flow most.
        (0, 0, 2),
        # Beside an edge that leaves m2 it gives 4 / 2, less than the 3 B/s of m1.
        (1, 0, 1),
        # Into m2 there are 5 / 2, less than these too.
        (0, 1, 1),
        # Beside three into each: 3 / 4 into m1, 5 / 4 into m2, 2 / 7 out of m0.
        (0, 3, 2),
    ],
)
def test_a_task_stands_where_its_slower_direction_has_most_left(
    senders: int, receivers: int, expected: int
) -> None:
    """Beside edges from m2 to m0, and from m0 to m2 and, of three, as many to m1."""
    team = (
        Task("w", "worker", demands={"gpu": 1.0}),
        Task("s", "sampler", demands={"gpu": 1.0}),
        Task("on m2", "t", pinned="m2"),
        Task("on m1", "t", pinned="m1"),
        Task("last", "t"),
    )
    edges = [Edge(1, 0)]
    edges += [Edge(2, 0)] * senders
    edges += [Edge(0, 2)] * receivers
    if receivers == 3:
        edges += [Edge(0, 3)] * receivers

    placement = place_distdgl(Job(team, tuple(edges), 1), Cluster(UNEQUAL))

    assert placement.machine_of[:2] == (0, 0)
    assert placement.machine_of[4] == expected


def test_of_machines_that_serve_as_well_the_first_is_taken() -> None:
    """Two workers of unlike demands: which makes the program one of integers."""
    tasks = (
        Task("w0", "worker", demands={"gpu": 1.0}),
        Task("s0", "sampler", demands={"gpu": 1.0}),
        Task("w1", "worker", demands={"gpu": 0.5}),
        Task("s1", "sampler", demands={"gpu": 1.0}),
    )
    machines = tuple(Machine(f"m{n}", 1.0, 1.0, {"gpu": 4.0}) for n in range(3))
    job = Job(tasks, (Edge(1, 0), Edge(3, 2)), 1)

    assert place_distdgl(job, Cluster(machines)).machine_of == (0, 0, 0, 0)


def test_a_pair_is_worth_more_than_early_machines() -> None:
    """Unlike workers fit m0 and m1, their samplers m2 alone, where all have room."""
    tasks = (
        Task("w0", "worker", demands={"gpu": 1.0}),
        Task("s0", "sampler", demands={"gpu": 3.0}),
        Task("w1", "worker", demands={"gpu": 0.5}),
        Task("s1", "sampler", demands={"gpu": 3.0}),
    )
    rooms = (1.0, 2.0, 8.0)
    machines = tuple(
        Machine(f"m{n}", 3.0 + n, 7.0 - n, {"gpu": gpus})
        for n, gpus in enumerate(rooms)
    )
    job = Job(tasks, (Edge(1, 0), Edge(3, 2)), 1)

    assert place_distdgl(job, Cluster(machines)).machine_of == (2, 2, 2, 2)


def test_a_machine_is_full_but_for_rounding() -> None:
    """A tenth and two tenths are more than three tenths, by the last bit."""
    tasks = (
        Task("w", "worker", demands={"gpu": 0.1}),
        Task("s", "sampler", demands={"gpu": 0.2}),
    )
    cluster = Cluster((Machine("m", 2.0, 3.0, {"gpu": 0.3}),))

    placement = place_distdgl(Job(tasks, (Edge(1, 0),), 1), cluster)
    assert placement.machine_of == (0, 0)


def test_tasks_that_stand_nowhere_yet_have_no_flows() -> None:
    """Both servers wait for a machine: m2 gives the first of them 6 B/s, m1 five."""
    tasks = (
        Task("w", "worker", demands={"gpu": 1.0}),
        Task("s", "sampler", demands={"gpu": 1.0}),
        Task("p0", "parameter_server"),
        Task("p1", "parameter_server"),
    )
    edges = (Edge(1, 0), Edge(0, 2), Edge(0, 3), Edge(2, 0, lag=1))
    machines = (
        Machine("m0", 2.0, 1.0, {"gpu": 2.0}),
        Machine("m1", 5.0, 5.5, {"gpu": 0.0}),
        Machine("m2", 6.5, 6.0, {"gpu": 0.0}),
    )

    placement = place_distdgl(Job(tasks, edges, 1), Cluster(machines))
    assert placement.machine_of == (0, 0, 2, 1)


def test_pairs_are_edges_from_samplers_to_workers_that_carry_no_credit() -> None:
    tasks = (
        Task("w", "worker"),
        Task("s", "sampler"),
        Task("p", "parameter_server"),
        Task("v", "worker"),
    )
    edges = (
        Edge(1, 2),
        Edge(2, 0),
        Edge(3, 0),
        Edge(1, 0),
        Edge(1, 0, lag=1),
        Edge(1, 3, lag=1, credit=True),
        Edge(0, 1, lag=1),
    )

    assert sampler_pairs(Job(tasks, edges, 2)) == [(1, 0)]


@pytest.mark.parametrize("seed", range(25))
def test_unlike_teams_stand_as_the_best_of_all_assignments(seed: int) -> None:
    """Most pairs first, then early machines; some tasks are pinned, sizes unequal."""
    rng = np.random.default_rng(seed)
    names = ["m0", "m1", "m2"]
    pins = [*[None] * 7, *names]
    tasks = []
    edges = []
    for worker in range(3):
        pin = pins[rng.integers(len(pins))]
        size = {"ram": float(rng.choice([800.0, 1500.0, 3100.0]))}
        tasks.append(Task(f"w{worker}", "worker", size, pinned=pin))
    for sampler in range(3):
        pin = pins[rng.integers(len(pins))]
        size = {"ram": float(rng.choice([500.0, 900.0, 1700.0]))}
        tasks.append(Task(f"s{sampler}", "sampler", size, pinned=pin))
        edges.append(Edge(3 + sampler, int(rng.integers(0, 3))))
    rooms = rng.permutation([2400.0, 4000.0, 7300.0])
    machines = tuple(
        Machine(name, 3.0, 4.0, {"ram": room})
        for name, room in zip(names, rooms, strict=True)
    )
    job = Job(tuple(tasks), tuple(edges), 1)
    cluster = Cluster(machines)

    ranks = [
        (colocated_pairs(job, placement)[0], -sum(placement.machine_of))
        for placement in feasible_placements(job, cluster)
    ]
    pairs = [(edge.source, edge.destination) for edge in edges]
    space = Space(job, cluster)
    found = colocate(space, pairs)
    assert (found is None) == (not ranks)
    if found is not None:
        placement = space.placement(found)
        assert placement.violations(job, cluster) == []
        together = colocated_pairs(job, placement)[0]
        assert (together, -sum(placement.machine_of)) == max(ranks)


EQUAL_TEAMS = ((2, 0), (4, 1), (3, 0), (5, 1))
"""Positions of samplers, and of the workers that they deliver to."""


@pytest.mark.parametrize(
    ("pairs", "pinned", "larger", "teams"),
    [
        (EQUAL_TEAMS, None, None, {0: [2, 3], 1: [4, 5]}),
        (EQUAL_TEAMS[:2], None, None, {0: [2], 1: [4]}),
        (EQUAL_TEAMS[:3], None, None, None),
        ((*EQUAL_TEAMS, (2, 1)), None, None, None),
        (((2, 0), (2, 1)), None, None, None),
        (EQUAL_TEAMS, 1, None, None),
        (EQUAL_TEAMS, 3, None, None),
        (EQUAL_TEAMS, None, 1, None),
        (EQUAL_TEAMS, None, 4, None),
    ],
)
def test_teams_are_alike_where_any_may_stand_for_any(
    pairs: tuple[tuple[int, int], ...],
    pinned: int | None,
    larger: int | None,
    teams: dict[int, list[int]] | None,
) -> None:
    """Two workers and four samplers; of one that is larger more memory is needed."""
    tasks = [Task(f"w{n}", "worker", {"cpu": 2.0, "memory": 3.0}) for n in range(2)]
    tasks += [Task(f"s{n}", "sampler", {"cpu": 1.0, "memory": 5.0}) for n in range(4)]
    if pinned is not None:
        tasks[pinned] = replace(tasks[pinned], pinned="m1")
    if larger is not None:
        demands = {**tasks[larger].demands, "memory": 9.0}
        tasks[larger] = replace(tasks[larger], demands=demands)
    room = {"cpu": 9.0, "memory": 90.0}
    machines = (Machine("m0", 1.0, 2.0, room), Machine("m1", 3.0, 4.0, room))

    space = Space(Job(tuple(tasks), (), 1), Cluster(machines))
    assert sampler_groups(space, pairs) == teams


def test_what_is_pinned_beyond_the_room_of_a_machine_stands_nowhere() -> None:
    tasks = (
        Task("store", "graph_store", {"memory": 5.0}, pinned="m1"),
        Task("w", "worker", {"cpu": 1.0}),
        Task("s", "sampler", {"cpu": 1.0}),
    )
    rooms = ({"cpu": 3.0, "memory": 9.0}, {"cpu": 2.0, "memory": 4.0})
    machines = tuple(Machine(f"m{n}", 1, 2, room) for n, room in enumerate(rooms))
    with pytest.raises(InfeasiblePlacement):
        place_distdgl(Job(tasks, (Edge(2, 1),), 1), Cluster(machines))


def test_where_nothing_can_move_no_teams_are_needed() -> None:
    job = Job((Task("a", "worker", pinned="m1"),), (), 1)
    machines = Machine("m0", 1.0, 2.0), Machine("m1", 3.0, 4.0)

    assert place_distdgl(job, Cluster(machines)).machine_of == (1,)


def test_refuses_a_job_without_teams() -> None:
    job = Job((Task("a", "worker"),), (), 1)

    with pytest.raises(PlacementError, match="workers with samplers"):
        place_distdgl(job, Cluster((Machine("m0", 1, 1),)))
