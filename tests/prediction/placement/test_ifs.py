"""IFS: feasible whenever anything is, and a clear word when nothing is."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import InfeasiblePlacement
from emu.prediction.placement import packing as packing_room
from emu.prediction.placement import place
from emu.prediction.placement.baselines import place_ifs
from emu.prediction.placement.packing import Counts, Packing
from emu.problem import Cluster, Edge, Job, Machine, Profile, Task
from tests.prediction.placement.placement_cases import (
    dgtp_job,
    feasible_exists,
    paper_testbed,
    random_setting,
)


def small(*cpus: float, **more: float) -> Cluster:
    """Return machines m0, m1, ... with these cpus."""
    machines = [
        Machine(f"m{i}", 1.0, 1.0, {"cpu": cpu, **more}) for i, cpu in enumerate(cpus)
    ]
    return Cluster(tuple(machines))


def loose(*cpus: float, kind: str = "worker") -> Job:
    """Return unconnected tasks with these demands."""
    tasks = [Task(f"t{i}", kind, {"cpu": cpu}) for i, cpu in enumerate(cpus)]
    return Job(tuple(tasks), (), 1)


def test_feasible_exactly_when_brute_force_finds_one() -> None:
    rng = np.random.default_rng(1)
    verdicts = []
    for _ in range(300):
        job, cluster = random_setting(rng)
        exists = feasible_exists(job, cluster)
        verdicts.append(exists)
        if exists:
            placement = place_ifs(job, cluster, rng)
            assert placement.violations(job, cluster) == []
        else:
            with pytest.raises(InfeasiblePlacement) as caught:
                place_ifs(job, cluster, rng)
            assert caught.value.resource == "" or caught.value.shortfall > 0

    assert 60 < sum(verdicts) < 240, "the draw must contain both kinds"


def test_one_machine_takes_everything() -> None:
    """The first machine may be the last one (A10)."""
    placement = place_ifs(loose(1, 1, 2), small(4), np.random.default_rng(0))

    assert placement.machine_of == (0, 0, 0)


def test_machine_order_is_drawn_from_the_generator() -> None:
    found = {
        place_ifs(loose(1), small(4, 4, 4), np.random.default_rng(seed)).machine_of
        for seed in range(20)
    }

    assert found == {(0,), (1,), (2,)}


def test_same_seed_same_placement() -> None:
    job, cluster = paper_testbed()

    first = place_ifs(job, cluster, np.random.default_rng(3))

    assert place_ifs(job, cluster, np.random.default_rng(3)) == first


def test_tasks_of_one_process_move_together() -> None:
    demands = {"cpu": 3.0}
    tasks = (
        Task("a", "hop", demands, process="p"),
        Task("b", "store", process="p"),
        Task("c", "hop", demands, process="q"),
        Task("d", "store", process="q"),
    )
    job = Job(tasks, (Edge(0, 1), Edge(2, 3)), 1)

    machine_of = place_ifs(job, small(3, 3), np.random.default_rng(0)).machine_of

    assert machine_of[0] == machine_of[1] != machine_of[2] == machine_of[3]


def test_a_pin_of_one_task_holds_its_whole_process() -> None:
    tasks = (
        Task("a", "hop", {"cpu": 1.0}, process="p"),
        Task("b", "store", process="p", pinned="m1"),
    )

    placement = place_ifs(Job(tasks, (), 1), small(3, 3), np.random.default_rng(0))

    assert placement.machine_of == (1, 1)


def test_a_resource_that_no_machine_limits_does_not_matter() -> None:
    job = Job((Task("a", "x", {"licences": 1e9}),), (), 1)

    assert place_ifs(job, small(1), np.random.default_rng(0)).machine_of == (0,)


def test_resources_may_have_any_name() -> None:
    job = Job(tuple(Task(f"a{i}", "x", {"fpga": 1}) for i in range(2)), (), 1)
    cluster = Cluster(tuple(Machine(f"m{i}", 1, 1, {"fpga": 1}) for i in range(2)))

    machine_of = place_ifs(job, cluster, np.random.default_rng(0)).machine_of

    assert sorted(machine_of) == [0, 1]


def test_many_tasks_without_demands_of_different_kinds() -> None:
    """A custom job of 60 kinds must not blow up the states: 2^60 of them."""
    tasks = [Task(f"t{i}", f"kind{i}") for i in range(60)]
    tasks += [Task(f"u{i}", "worker", {"cpu": 1}) for i in range(4)]

    placement = place_ifs(
        Job(tuple(tasks), (), 1), small(2, 2), np.random.default_rng(0)
    )

    assert sorted(placement.machine_of[60:]) == [0, 0, 1, 1]


def test_papers100m_setting_is_placed() -> None:
    """The program of the largest setting in the paper: 101 tasks on 16 machines."""
    demands = {"sampler": {"cpu": 2.0}, "worker": {"cpu": 1.0, "gpu": 1.0}}
    job = dgtp_job(stores=16, workers=20, per_worker=4, demands=demands)
    cluster = small(*[12.0] * 8, *[11.0] * 8, gpu=2)

    placement = place_ifs(job, cluster, np.random.default_rng(0))

    assert placement.violations(job, cluster) == []


@pytest.mark.parametrize(
    ("cpus", "capacities", "shortfall", "words"),
    [
        ((2, 2, 2), (2, 3), 1, "in total"),
        ((4, 1), (3, 3), 1, "t0 needs 4 cpu"),
        ((2, 2, 2), (3, 3), 2, "can hold 4 at best"),
    ],
)
def test_infeasible_names_the_resource_and_the_shortfall(
    cpus: tuple[float, ...], capacities: tuple[float, ...], shortfall: float, words: str
) -> None:
    with pytest.raises(InfeasiblePlacement, match=words) as caught:
        place_ifs(loose(*cpus), small(*capacities), np.random.default_rng(0))

    assert caught.value.resource == "cpu"
    assert caught.value.shortfall == pytest.approx(shortfall)


def test_infeasible_pins_are_named() -> None:
    job = Job((Task("g", "graph_store", {"cpu": 5}, pinned="m0"),), (), 1)

    with pytest.raises(InfeasiblePlacement, match="machine m0 has 4 cpu") as caught:
        place_ifs(job, small(4, 9), np.random.default_rng(0))

    assert (caught.value.resource, caught.value.shortfall) == ("cpu", 1)


def test_infeasible_by_several_resources_blames_none() -> None:
    """Each resource alone can be packed, both together cannot."""
    tasks = (Task("a", "x", {"cpu": 2}), Task("b", "y", {"cpu": 1, "gpu": 2}))
    cluster = Cluster(
        (Machine("m0", 1, 1, {"cpu": 2, "gpu": 2}), Machine("m1", 1, 1, {"cpu": 1}))
    )

    place_ifs(Job(tasks, (), 1), cluster, np.random.default_rng(0))
    starved = Cluster(
        (
            Machine("m0", 1, 1, {"cpu": 2, "gpu": 2}),
            Machine("m1", 1, 1, {"cpu": 1, "gpu": 0}),
        )
    )
    with pytest.raises(InfeasiblePlacement, match="bind together") as caught:
        place_ifs(Job(tasks, (), 1), starved, np.random.default_rng(0))

    assert caught.value.resource == ""


def test_packing_visits_states_in_the_order_of_the_paper() -> None:
    """Hand case: counts from 0 up, first way wins, so m0 holds as little as it can."""
    packing = Packing(np.array([[1.0]]), (3,), np.array([[2.0], [2.0]]))

    assert packing.solve([0, 1]) == [(0, (1,)), (1, (2,))]
    assert packing.solve([1, 0]) == [(1, (1,)), (0, (2,))]
    assert packing.options(0).tolist() == [[0], [1], [2]]


def solve_plainly(
    packing: Packing, order: list[int]
) -> list[tuple[int, Counts]] | None:
    """Return what Algorithm 2 finds, by lists of counts and the ways to them."""
    sizes = packing.sizes
    ways: dict[Counts, tuple[tuple[int, Counts], ...]] = {(0,) * len(sizes): ()}
    for where in order:
        options = [tuple(one) for one in packing.options(where).tolist()]
        for state, way in ways.items():
            rest = tuple(np.subtract(sizes, state).tolist())
            if rest in options:
                return [*way, (where, rest)]
        longer: dict[Counts, tuple[tuple[int, Counts], ...]] = {}
        for state, way in ways.items():
            for option in options:
                total = tuple(np.add(state, option).tolist())
                if all(np.less_equal(total, sizes)):
                    longer.setdefault(total, (*way, (where, option)))
        ways = longer
    return None


@given(st.integers(0, 2**32))
@pytest.mark.parametrize("most_steps", [packing_room.MAX_STEPS, 0])
def test_packing_finds_what_a_plain_program_finds(most_steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, bins = rng.integers(1, 4, 2)
    packing = Packing(
        rng.integers(1, 4, (groups, 2)).astype(float),
        tuple(rng.integers(0, 6, groups).tolist()),
        rng.choice([2, 3, 5, 8, np.inf], (bins, 2)),
    )
    order = rng.permutation(bins).tolist()

    with mock.patch.object(packing_room, "MAX_STEPS", most_steps):
        solution = packing.solve(order)
    plain = solve_plainly(packing, order)

    if most_steps:
        assert solution == plain
    assert (solution is None) == (plain is None)
    use = np.zeros(groups)
    for where, counts in solution or ():
        assert (np.array(counts) @ packing.demand <= packing.free[where]).all()
        use += counts
    assert solution is None or use.tolist() == list(packing.sizes)


def test_many_machines_are_filled_without_the_program() -> None:
    """The program has 9 million states on each of 256 machines."""
    demand = np.array([[2.0, 0.0, 7.0], [1.0, 1.0, 3.0], [1.0, 0.0, 5.0]])
    packing = Packing(demand, (768, 384, 16), np.tile([8.0, 2.0, 34.0], (256, 1)))

    solution = packing.solve(range(256))

    assert solution is not None
    assert np.sum([counts for _, counts in solution], 0).tolist() == [768, 384, 16]


def test_what_only_pinned_tasks_demand_is_not_to_blame() -> None:
    """Stores fill memory, samplers want none: cpu and gpu bind together."""
    machines = tuple(
        Machine(f"m{i}", 1.0, 1.0, {"cpu": cpu, "gpu": gpu, "memory": 4.0})
        for i, (cpu, gpu) in enumerate([(2, 0), (0, 2), (1, 1), (1, 1), (1, 1)])
    )
    stores = [Task(f"g{i}", "graph_store", {"memory": 4.0}, f"m{i}") for i in range(5)]
    samplers = [Task(f"s{i}", "sampler", {"cpu": 1, "gpu": 1}) for i in range(4)]
    job = Job((*stores, *samplers), (), 1)

    with pytest.raises(InfeasiblePlacement, match="cluster: cpu, gpu bind") as caught:
        place_ifs(job, Cluster(machines), np.random.default_rng(0))

    assert caught.value.resource == ""


@pytest.mark.filterwarnings("error")
def test_a_resource_that_one_machine_does_not_limit() -> None:
    machines = (Machine("m0", 1.0, 1.0, {"memory": 4.0}), Machine("m1", 1.0, 1.0))
    stores = (
        Task("g", "graph_store", {"memory": 3}, "m0"),
        Task("h", "graph_store", {"memory": 9}, "m1"),
    )
    workers = [Task(f"w{i}", "worker", {"memory": 2}) for i in range(3)]
    job, cluster = Job((*stores, *workers), (), 1), Cluster(machines)
    profile = Profile(np.ones((5, 1)), np.ones((0, 1)))

    for policy in ("ifs", "etp", "best"):
        found = place(policy, job, cluster, profile=profile).placement
        assert found.machine_of == (0, 1, 1, 1, 1)
