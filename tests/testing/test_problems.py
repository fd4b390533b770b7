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
