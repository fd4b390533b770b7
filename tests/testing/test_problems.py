"""What tests of others are built on."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from emu.testing import two_machine_example
from emu.testing.strategies import random_problem


def test_the_example_is_the_one_described() -> None:
    problem, realization = two_machine_example(3, second_nic=5.0, credit=2)

    names = [*problem.job.edge_names]
    assert names[-4:] == ["w0->p0", "p0->w0", "w0->g0", "w0->g1"]
    assert problem.capacities.tolist() == [10.0, 10.0, 5.0, 5.0]
    assert problem.hops[1] == (0, 3)  # g0 on m0 to s1 on m1
    assert problem.hops[0] == problem.hops[-1] == ()
    assert realization.times.shape == (6, 3)
    assert realization.volumes[:, 0].tolist() == [40.0] * 4 + [60.0] * 2 + [
        10.0,
        10.0,
        0.0,
        0.0,
    ]


@given(seed=st.integers(0, 2**32 - 1), ties=st.booleans())
def test_random_problems_repeat_and_fit(seed: int, ties: bool) -> None:  # noqa: FBT001
    one = random_problem(np.random.default_rng(seed), ties=ties)
    other = random_problem(np.random.default_rng(seed), ties=ties)

    assert one[0] == other[0]
    np.testing.assert_array_equal(one[1].volumes, other[1].volumes)
    one[1].check_shapes(one[0].job)
    if ties:
        assert set(one[1].times.ravel()) <= {0.0, 0.5, 1.0, 2.0, 3.0}


#: All that `random_problem` can be asked for.
EVERYTHING = dict.fromkeys(
    [
        *("links", "own", "slots", "channels", "latest", "jobs", "changes", "cuts"),
        *("speeds", "latencies", "coflows"),
    ],
    True,
)


def test_random_problems_have_all_that_they_are_said_to_have() -> None:
    """Draw ranges to their ends, and ends that differ: properties see nothing else."""
    generator = np.random.default_rng(61)
    drawn = [random_problem(generator, **EVERYTHING)[0] for _ in range(150)]
    jobs = [problem.job for problem in drawn]
    edges = [edge for job in jobs for edge in job.edges]
    machines = [row for problem in drawn for row in problem.cluster.machines]
    links = [link for problem in drawn for link in problem.cluster.shared_links]
    routes = [route for problem in drawn for route in problem.cluster.routes]

    assert {len(problem.cluster.machines) for problem in drawn} == {*range(1, 5)}
    assert {len(job.tasks) for job in jobs} == {*range(1, 9)}
    assert {job.iterations for job in jobs} == {*range(1, 7)}
    assert {task.iterations for job in jobs for task in job.tasks} == {*range(1, 7)}
    assert {task.takes for job in jobs for task in job.tasks} == {"", "gpu", "cpu"}
    assert {row.slots["gpu"] for row in machines} == {1, 2}

    forward = {edge.lag for edge in edges if edge.source < edge.destination}
    back = {edge.lag for edge in edges if edge.source >= edge.destination}
    assert (forward, back) == ({0, 1, 2, 3}, {1, 2, 3})
    for name in ("credit", "latest"):
        assert {getattr(edge, name) for edge in edges} == {False, True}
    assert not any(edge.credit and edge.latest for edge in edges)
    assert {edge.channel for edge in edges} == {"", "a", "b"}
    assert {edge.coflow for edge in edges} == {"", "a", "b"}

    # Each of two directions is the larger one somewhere, and the only one with any.
    for name in ("bandwidth", "latency"):
        ways = [(getattr(m, f"{name}_in"), getattr(m, f"{name}_out")) for m in machines]
        assert {np.sign(there - back) for there, back in ways} == {-1.0, 0.0, 1.0}
    assert {row.has_nic for row in machines} == {False, True}
    assert {link.name for link in links} == {"l0", "l1", "l2"}
    assert {link.latency for link in links} == {0.0, 1e-13, 0.3, 1.0, 7.0}
    for end in ("out", "in"):
        assert {end in route.through for route in routes} == {False, True}
    assert {len(route.through) for route in routes} == {*range(1, 6)}


def test_random_quotas_are_of_few_machines_and_looked_at_in_three_periods() -> None:
    """Each tuner looks at its own pool or at the other one, and has room to grow."""
    generator = np.random.default_rng(61)
    drawn = [random_problem(generator, slots=True, tuned=True)[0] for _ in range(200)]
    tuners = [tuner for problem in drawn for tuner in problem.cluster.tuners]

    assert {len(problem.cluster.machines) for problem in drawn} == {1, 2}
    assert {len(problem.cluster.tuners) for problem in drawn} == {0, 1, 2}
    assert {tuner.period for tuner in tuners} == {0.125, 0.25, 0.3}
    assert {tuner.most for tuner in tuners} == {*range(2, 7)}
    assert {tuner.pool for tuner in tuners} == {"gpu", "cpu"}
    assert {tuner.pool == tuner.watched for tuner in tuners} == {False, True}
    slots = [
        tuple(sorted(row.slots.values()))
        for problem in drawn
        for row in problem.cluster.machines
    ]
    assert {*slots} == {(1, 1), (1, 2), (1, 3)}
