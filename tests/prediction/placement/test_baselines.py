"""Explicit, random and round-robin placements, and the load table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from emu.errors import InfeasiblePlacement, PlacementError
from emu.prediction.analysis.bounds import bounds
from emu.prediction.placement import resource_loads
from emu.prediction.placement.baselines import (
    place_explicit,
    place_ifs,
    place_random,
    place_round_robin,
)
from emu.problem import Cluster, Job, Machine, Problem, Task
from tests.prediction.placement.placement_cases import (
    GB,
    feasible_exists,
    paper_testbed,
    random_setting,
    realization,
)

TWO = Cluster(
    (Machine("m0", 10.0, 10.0, {"cpu": 2}), Machine("m1", 10.0, 10.0, {"cpu": 1}))
)
THREE_TASKS = Job(
    (
        Task("a", "x", {"cpu": 1}),
        Task("b", "x", {"cpu": 1}, process="p"),
        Task("c", "y", process="p"),
    ),
    (),
    1,
)


def test_explicit_takes_names_of_tasks_and_processes() -> None:
    by_task = place_explicit(THREE_TASKS, TWO, {"a": "m1", "b": "m0"})
    by_process = place_explicit(THREE_TASKS, TWO, {"a": "m1", "p": "m0"})

    assert by_task == by_process
    assert by_task.machine_of == (1, 0, 0)


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ({"a": "m0"}, "leaves out b, c"),
        ({"a": "m9", "p": "m0"}, "no machine"),
        ({"z": "m0"}, "names z"),
        ({"a": "m0", "b": "m0", "c": "m1"}, "must stand on m0"),
    ],
)
def test_explicit_refuses(tasks: dict[str, str], words: str) -> None:
    with pytest.raises(PlacementError, match=words):
        place_explicit(THREE_TASKS, TWO, tasks)


def test_explicit_refuses_to_move_a_pinned_task() -> None:
    job = Job((Task("g", "graph_store", pinned="m0"),), (), 1)

    with pytest.raises(PlacementError, match="g must stand on m0"):
        place_explicit(job, TWO, {"g": "m1"})


def test_explicit_overload_names_resource_and_amount() -> None:
    with pytest.raises(InfeasiblePlacement, match="m1 has 1 cpu") as caught:
        place_explicit(THREE_TASKS, TWO, {"a": "m1", "p": "m1"})

    assert (caught.value.resource, caught.value.shortfall) == ("cpu", 1)


def test_round_robin_deals_in_order() -> None:
    job, cluster = paper_testbed(cpu=100)

    placement = place_round_robin(job, cluster)

    assert placement.machine_of[4:16] == (0, 1, 2, 3) * 3


def test_random_and_round_robin_are_feasible_whenever_anything_is() -> None:
    rng = np.random.default_rng(2)
    for _ in range(100):
        job, cluster = random_setting(rng)
        if feasible_exists(job, cluster):
            assert not place_random(job, cluster, rng).violations(job, cluster)
            assert not place_round_robin(job, cluster).violations(job, cluster)
        else:
            with pytest.raises(InfeasiblePlacement):
                place_random(job, cluster, rng)
            with pytest.raises(InfeasiblePlacement):
                place_round_robin(job, cluster)


def test_random_placements_differ() -> None:
    job, cluster = paper_testbed()
    rng = np.random.default_rng(0)

    assert len({place_random(job, cluster, rng).machine_of for _ in range(10)}) > 5


def test_loads_of_resources() -> None:
    job, cluster = paper_testbed()
    placement = place_ifs(job, cluster, np.random.default_rng(0))

    loads = resource_loads(job, cluster, placement)

    assert len(loads) == 4 * 3
    assert sum(load.used for load in loads if load.resource == "cpu") == 31
    memory = sum(load.used for load in loads if load.resource == "memory")
    assert memory == pytest.approx((4 * 14 + 12 * 7 + 6 * 3 + 5) * GB)
    assert all(load.fraction <= 1 for load in loads)


def test_loads_of_an_unlimited_and_of_a_missing_resource() -> None:
    cluster = Cluster((Machine("m0", 1, 1), Machine("m1", 1, 1, {"cpu": 0})))
    job = Job((Task("a", "x", {"cpu": 1}), Task("b", "x", {"cpu": 1})), (), 1)
    machine_of = place_explicit(
        job, Cluster((Machine("m0", 1, 1), Machine("m1", 1, 1))), {"a": "m0", "b": "m1"}
    )

    loads = resource_loads(job, cluster, machine_of)

    assert [load.fraction for load in loads] == [0.0, math.inf]


def test_the_nic_load_counts_what_is_sent_between_machines() -> None:
    job, cluster = paper_testbed()
    drawn = realization(job, np.random.default_rng(0))
    placement = place_ifs(job, cluster, np.random.default_rng(0))

    found = bounds(Problem(cluster, job, placement), drawn)

    expected = np.zeros(8)
    for e, edge in enumerate(job.edges):
        source = placement.machine_of[edge.source]
        destination = placement.machine_of[edge.destination]
        for n in range(job.iterations):
            if source != destination and job.sends(e, n):
                expected[2 * source] += drawn.volumes[e, n]
                expected[2 * destination + 1] += drawn.volumes[e, n]
    for port in range(8):
        expected[port] /= cluster.machines[port // 2].bandwidth_in
    assert found.nic_load == pytest.approx(expected.max())


def test_round_robin_passes_a_full_machine_over_to_the_next_one() -> None:
    """The second of three machines has no room; the turn of the third task stays."""
    machines = tuple(
        Machine(f"m{number}", 1.0, 1.0, {"cpu": cores})
        for number, cores in enumerate((9.0, 0.0, 9.0))
    )
    tasks = tuple(Task(name, "t", {"cpu": 1.0}) for name in "abcde")
    placement = place_round_robin(Job(tasks, (), 1), Cluster(machines))
    assert placement.machine_of == (0, 2, 2, 0, 2)
