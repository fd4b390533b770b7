"""Machines, jobs, placements and profiles refuse what cannot be, and say why."""

from __future__ import annotations

import numpy as np
import pytest

from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Profile,
    Realization,
    Task,
)


def machine(name: str = "m0", **resources: float) -> Machine:
    return Machine(name, 10.0, 20.0, resources)


def tasks(*names: str) -> tuple[Task, ...]:
    return tuple(Task(name, "worker") for name in names)


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan"), float("inf")])
def test_a_machine_needs_a_bandwidth(bandwidth: float) -> None:
    with pytest.raises(ValueError, match="m0: bandwidth in"):
        Machine("m0", bandwidth, 1.0)


def test_a_capacity_is_not_negative_nor_nan() -> None:
    with pytest.raises(ValueError, match="capacity of gpu"):
        machine(gpu=float("nan"))


def test_machine_names_are_unique() -> None:
    with pytest.raises(ValueError, match="m0 occurs twice"):
        Cluster((machine(), machine()))


def test_an_unknown_machine_is_named_beside_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no machine is called m9; there are m0"):
        Cluster((machine(),)).index("m9")


@pytest.mark.parametrize(
    ("edges", "story"),
    [
        ((Edge(0, 5),), "task number 5"),
        ((Edge(0, 1, -1),), "a->b: lag -1"),
        ((Edge(0, 1), Edge(1, 0)), "cycle through a, b"),
        ((Edge(0, 0),), "cycle through a"),
    ],
)
def test_edges_that_cannot_be(edges: tuple[Edge, ...], story: str) -> None:
    with pytest.raises(ValueError, match=story):
        Job(tasks("a", "b"), edges, iterations=1)


def test_a_cycle_with_a_lag_is_a_pipeline() -> None:
    Job(tasks("a", "b"), (Edge(0, 1), Edge(1, 0, 1), Edge(0, 0, 2)), iterations=1)


@pytest.mark.parametrize(
    ("names", "iterations", "story"),
    [((), 1, "at least one"), (("a",), 0, "0 iterations"), (("a", "a"), 1, "2 times")],
)
def test_jobs_that_cannot_be(
    names: tuple[str, ...], iterations: int, story: str
) -> None:
    with pytest.raises(ValueError, match=story):
        Job(tasks(*names), (), iterations)


def test_a_process_stands_in_one_place() -> None:
    pinned = [
        Task(n, "x", pinned=m, process="p") for n, m in (("a", "m0"), ("b", "m1"))
    ]

    with pytest.raises(ValueError, match="process p is pinned to several"):
        Job(tuple(pinned), (), 1)


def test_what_nobody_receives_is_not_sent() -> None:
    job = Job(tasks("a", "b"), (Edge(0, 1, lag=2),), iterations=3)

    assert [job.sends(0, n) for n in range(3)] == [True, False, False]


def test_violations_name_machine_resource_and_amount() -> None:
    cluster = Cluster((machine(gpu=1.0), machine("m1")))
    job = Job(
        (
            Task("a", "worker", {"gpu": 1.0}),
            Task("b", "worker", {"gpu": 1.0}, pinned="m1"),
            Task("c", "x", process="b"),
        ),
        (),
        1,
    )

    assert Placement((0, 1, 1)).violations(job, cluster) == []
    assert Placement((0, 0, 1)).violations(job, cluster) == [
        "machine m0 has 1 gpu, its tasks need 2",
        "process b must stand on m1, not m0",
        "process b stands on several machines",
    ]


def test_a_process_of_many_tasks_on_a_wrong_machine_is_one_violation() -> None:
    cluster = Cluster((machine(), machine("m1")))
    parts = [Task(f"d0.{n}", "x", pinned="m0", process="d0") for n in range(30)]

    assert Placement((1,) * 30).violations(Job((*parts,), (), 1), cluster) == [
        "process d0 must stand on m0, not m1"
    ]


def test_ports_and_hops() -> None:
    cluster = Cluster((machine(), Machine("m1", 30.0, 40.0)))
    edges = (Edge(0, 1), Edge(0, 2), Edge(1, 0, 1, credit=True))
    problem = Problem(
        cluster, Job(tasks("a", "b", "c"), edges, 1), Placement((0, 1, 0))
    )

    assert problem.capacities.tolist() == [20.0, 10.0, 40.0, 30.0]
    assert problem.hops == ((0, 3), (), ())
    assert problem.links[3].name == "m1 in"


def test_a_placement_names_a_machine_for_every_task() -> None:
    cluster, job = Cluster((machine(),)), Job(tasks("a", "b"), (), 1)

    with pytest.raises(ValueError, match="1 machines for 2 tasks"):
        Problem(cluster, job, Placement((0,)))
    with pytest.raises(ValueError, match="b is on machine number 1"):
        Problem(cluster, job, Placement((0, 1)))


def test_a_server_is_a_pool_of_one_slot_or_of_those_that_its_machine_states() -> None:
    """Two servers and a pool of no server, each on two machines that state some."""
    kinds = {"s": "s", "t": "t", "gpu": ""}
    served = [
        Task(f"{pool}{machine}{number}", "x", takes=pool, process=process)
        for pool, process in kinds.items()
        for machine in range(2)
        for number in range(2)
        if pool == "gpu" or machine == (pool == "t")
    ]
    slots = ({"t": 5, "gpu": 3}, {"t": 4})
    machines = tuple(
        Machine(f"m{number}", 1.0, 1.0, slots=slots[number]) for number in range(2)
    )
    placement = Placement(tuple(int(task.name[-2]) for task in served))

    problem = Problem(Cluster(machines), Job(tuple(served), (), 1), placement)

    found = {(pool.name, pool.machine): pool.slots for pool in problem.pools}
    assert found == {("s", 0): 1, ("t", 1): 4, ("gpu", 0): 3}


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_times_and_volumes_are_numbers_that_can_be(value: float) -> None:
    with pytest.raises(ValueError, match=r"volumes \[0, 1\]"):
        Realization(np.zeros((1, 2)), np.array([[0.0, value]]))


def test_a_realization_is_not_changed_behind_its_back() -> None:
    times = np.ones((1, 1))
    realization = Realization(times, np.ones((1, 1)))
    times[0, 0] = 5.0

    assert realization.times[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        realization.times[0, 0] = 5.0


def test_draws_keep_an_iteration_together() -> None:
    """Volumes of one batch rise and fall together; drawing must not mix them."""
    columns = np.arange(1.0, 6.0)
    profile = Profile(np.array([columns, columns]), np.array([10 * columns]))
    drawn = profile.draw(np.random.default_rng(1), 50)

    assert drawn.times.shape == (2, 50)
    assert set(drawn.times[0]) == set(columns)
    np.testing.assert_array_equal(drawn.times[0], drawn.times[1])
    np.testing.assert_array_equal(drawn.volumes[0], 10 * drawn.times[0])


def test_edges_between_the_same_tasks_have_names_of_their_own() -> None:
    job = Job(tasks("a", "b"), (Edge(0, 1), Edge(1, 0, 1), Edge(0, 1, 2)), 3)

    assert job.edge_names == ("a->b", "b->a", "a->b#2")
    assert job.edge_positions["a->b#2"] == 2


def test_ranks_follow_the_names_with_numbers_as_numbers() -> None:
    """By destination, then source, then lag; w2 is before w10."""
    tasks = tuple(Task(name, "any") for name in ("w10", "w2", "g1", "w2b", "g1.x"))
    edges = (Edge(2, 0), Edge(2, 1, 1), Edge(2, 1), Edge(4, 1), Edge(2, 3))

    assert Job(tasks, edges, 1).edge_ranks == (4, 1, 0, 2, 3)


def test_ranks_do_not_depend_on_the_order_of_tasks_and_edges() -> None:
    one = Job((Task("a", "x"), Task("b", "x")), (Edge(0, 1), Edge(1, 0, 1)), 1)
    other = Job((Task("b", "x"), Task("a", "x")), (Edge(0, 1, 1), Edge(1, 0)), 1)

    assert one.edge_ranks == (1, 0)
    assert other.edge_ranks == (0, 1)


def test_after_a_cut_tasks_that_are_behind_have_no_mini_batch_at_first() -> None:
    both = Task("a", "first"), Task("b", "second", behind=2)
    job = Job(both, (Edge(0, 1, lag=2), Edge(1, 0, lag=1)), 5)
    numbers = np.arange(10.0).reshape(2, 5)
    whole = Realization(numbers + 1, numbers)
    left = whole.beginning_at(2, job)
    np.testing.assert_array_equal(left.times, [[3, 4, 5], [0, 0, 10]])
    np.testing.assert_array_equal(left.volumes, [[2, 3, 4], [0, 0, 9]])
    assert whole.beginning_at(0, job) is whole


@pytest.mark.parametrize(
    ("task", "story"),
    [
        (Task("a", "x", iterations=0), "task a has 0 iterations"),
        (Task("a", "x", slowness={"m0": 0.0}), "slowness must be positive"),
        (Task("a", "x", slowness={"m0": 2.0, "m1": float("inf")}), "finite"),
        (Task("b", "x"), "task b occurs 2 times"),
        (Task("a", "x", process="b"), "process b is called as a task of process c"),
    ],
)
def test_tasks_that_cannot_be(task: Task, story: str) -> None:
    other = Task("b", "x", process="c" if task.process else "")
    with pytest.raises(ValueError, match=story):
        Job((task, other), (), 2)


def test_tasks_may_be_fast_or_slow_and_run_once() -> None:
    task = Task("a", "x", iterations=1, slowness={"m0": 0.5, "m1": 2.0})

    assert Job((task,), (), 2).rounds == (1,)
    with pytest.raises(ValueError, match="a job of 0 iterations has nothing to do"):
        Job((task,), (), 0)
    with pytest.raises(ValueError, match="one task that is no gate"):
        Job((Task("g", "x", gate=True),), (), 1)


@pytest.mark.parametrize(
    ("edge", "story"),
    [
        (Edge(2, 0), "names task number 2,"),
        (Edge(-1, 0), "names task number -1,"),
        (Edge(0, 2), "names task number 2,"),
        (Edge(0, 1, credit=True, latest=True), "a->b#4 is a credit: there is nothing"),
        (Edge(1, 0, lag=-1), "b->a: lag -1 is negative"),
    ],
)
def test_edges_of_two_tasks_that_cannot_be(edge: Edge, story: str) -> None:
    """Beside others that can, among them a credit and one that reads the newest."""
    good = (Edge(0, 1), Edge(0, 1, lag=1, credit=True), Edge(0, 1, latest=True))
    assert len(Job(tasks("a", "b"), good, 3).edges) == 3
    with pytest.raises(ValueError, match=story):
        Job(tasks("a", "b"), (*good, edge), 3)


def test_a_process_has_one_pin_and_a_name_of_its_own() -> None:
    pinned = (
        Task("a", "x", process="p", pinned="m0"),
        Task("b", "x", process="p"),
        Task("c", "x", process="q", pinned="m1"),
        Task("g", "x", gate=True),
    )

    job = Job(pinned, (), 1)
    assert job.units == {"p": (0, 1), "q": (2,), "g": (3,)}
    assert job.pins == {"p": "m0", "q": "m1"}
    assert not job.fixed
    assert Job((pinned[0], *pinned[2:]), (), 1).fixed
    elsewhere = Task("b", "x", process="p", pinned="m1")
    with pytest.raises(ValueError, match="process p is pinned to several machines"):
        Job((pinned[0], elsewhere), (), 1)


def test_a_job_that_begins_later_has_fewer_iterations_of_each_task() -> None:
    own = Job((Task("a", "x", iterations=5), Task("b", "x")), (), 7).beginning_at(3)

    assert (own.iterations, own.rounds) == (4, (2, 4))


@pytest.mark.parametrize("count", [32, 33])
def test_a_process_of_many_tasks_is_drawn_in_one_lane(count: int) -> None:
    many = [Task(f"p{n}", "x", process="rank") for n in range(count)]
    job = Job((Task("a", "x"), *many), (), 1)

    is_one = count > 32
    assert job.lanes == ((0, *[1] * count) if is_one else (*range(count + 1),))
    assert job.lane_name(0) == "a"
    assert job.lane_name(2) == ("rank" if is_one else "p1")


def test_a_slot_goes_back_to_the_pool_that_is_named() -> None:
    freed = [Task("a", "x", takes="gpu", frees=frees) for frees in (None, "", "cpu")]
    assert [task.gives_back for task in freed] == ["gpu", "", "cpu"]


def test_a_long_cycle_is_named_by_its_first_eight_tasks() -> None:
    names = [f"t{n}" for n in range(9)]
    edges = tuple(Edge(n, (n + 1) % 9) for n in range(9))
    with pytest.raises(ValueError, match=rf"through {', '.join(names[:8])};"):
        Job(tasks(*names), edges, 1)


def test_a_later_part_of_a_pipeline_fills_anew() -> None:
    """Task a works at once, b two cycles behind, c one: nothing is sent meanwhile."""
    job = Job(
        (Task("a", "x"), Task("b", "x", behind=2), Task("c", "x", behind=1)),
        (Edge(0, 1), Edge(1, 2), Edge(2, 0, lag=1), Edge(0, 1, lag=1)),
        6,
    )
    times = np.arange(18.0).reshape(3, 6) + 1
    volumes = np.arange(24.0).reshape(4, 6) + 1
    later = Realization(times, volumes).beginning_at(3, job)

    assert later.times.tolist() == [[4, 5, 6], [0, 0, 12], [0, 17, 18]]
    # Read by b two cycles later, or one of which the lag makes up.
    assert later.volumes.tolist() == [
        [0, 0, 6],
        [0, 0, 12],
        [0, 17, 18],
        [0, 23, 24],
    ]


def test_edges_rank_by_the_numbers_in_names_of_both_ends() -> None:
    """Names that are read alike, w1 and w01, have one place: then lags decide."""
    job = Job(
        tasks("w10", "w2", "w01", "w1"),
        (
            Edge(0, 1),
            Edge(3, 1, lag=5),
            Edge(2, 1, lag=7),
            Edge(3, 0, lag=1),
            Edge(2, 1),
        ),
        9,
    )
    assert job.edge_ranks == (3, 1, 2, 4, 0)


def test_a_link_of_one_byte_per_second_is_a_nic() -> None:
    assert Machine("m0", 1.0, 1.0).has_nic
    assert not Machine("m0", 0.0, 0.0).has_nic


def test_a_job_of_gates_alone_is_none() -> None:
    gate = Task("a.gate", "gate", gate=True, process="a")
    with pytest.raises(ValueError, match="at least one task that is no gate"):
        Job((gate,), (), 1)


def test_volumes_are_of_the_edges_of_a_job() -> None:
    """Times alone that fit are not enough."""
    job = Job(tasks("a", "b"), (Edge(0, 1),), 2)
    Realization(np.ones((2, 2)), np.ones((1, 2))).check_shapes(job)
    with pytest.raises(ValueError, match=r"volumes \(2, 2\) do not fit a job of"):
        Realization(np.ones((2, 2)), np.ones((2, 2))).check_shapes(job)


def test_reads_are_told_for_the_iterations_of_the_reader() -> None:
    """The source has one more than the reader."""
    sender, reader = Task("a", "a", iterations=3), Task("b", "b", iterations=2)
    job = Job((sender, reader), (Edge(0, 1, latest=True),), 3)
    cluster = Cluster((machine(),))
    problem = Problem(cluster, job, Placement((0, 0)))
    run = Realization(np.ones((2, 3)), np.zeros((1, 3)))

    content = simulate(problem, run).to_json()
    assert content["reads"] == {"a->b": [0, 1]}


def test_a_profile_of_no_iteration_is_refused() -> None:
    """Nor is one whose times and volumes are of other numbers of them."""
    for times, volumes in ((0, 0), (2, 3), (1, 0)):
        with pytest.raises(ValueError, match="the same iterations of times and vol"):
            Profile(np.zeros((1, times)), np.zeros((1, volumes)))


@pytest.mark.parametrize(
    "shapes", [((1, 2), (1, 2)), ((2, 3), (1, 2)), ((2, 2), (2, 2))]
)
def test_times_and_volumes_are_each_of_the_shape_of_their_job(
    shapes: tuple[tuple[int, int], tuple[int, int]],
) -> None:
    """The job has two tasks, one edge and two iterations."""
    job = Job((Task("a", "t"), Task("b", "t")), (Edge(0, 1),), 2)
    Realization(np.ones((2, 2)), np.ones((1, 2))).check_shapes(job)
    times, volumes = shapes
    with pytest.raises(ValueError, match="do not fit a job of"):
        Realization(np.ones(times), np.ones(volumes)).check_shapes(job)


def test_the_first_thing_that_is_wrong_is_named() -> None:
    tasks = (Task("a", "t"), Task("b", "t"))
    with pytest.raises(ValueError, match="names task number 5, which"):
        Job(tasks, (Edge(0, 1), Edge(5, 0), Edge(7, 1)), 2)
    times = np.array([[1.0, -2.0], [-3.0, 4.0]])
    with pytest.raises(ValueError, match=r"times \[0, 1\] is -2.0"):
        Realization(times, np.ones((1, 2)))
