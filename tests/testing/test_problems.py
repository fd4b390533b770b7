"""What tests of others are built on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.testing import bench_directory, load_workload, two_machine_example
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


def test_a_workload_is_read_from_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = {
        "n_iterations": 2,
        "machines": [[1.0, 2.0], [3.0, 4.0]],
        "tasks": ["g0", "w0"],
        "placement": {"g0": 0, "w0": 1},
        "exec_times": {"g0": 0.5, "w0": 0.25},
        "edges": [["g0", "w0", 0]],
        "volumes": [[7.0, 8.0]],
        "expected_makespan_s": {"oes": 1.5},
    }
    (tmp_path / "tiny.json").write_text(json.dumps(text))
    monkeypatch.setenv("EMU_BENCH", str(tmp_path))

    problem, realization, expected = load_workload("tiny")

    assert [task.kind for task in problem.job.tasks] == ["graph_store", "worker"]
    assert problem.capacities.tolist() == [2.0, 1.0, 4.0, 3.0]  # (in, out) in the file
    assert realization.times.tolist() == [[0.5, 0.5], [0.25, 0.25]]
    assert realization.volumes.tolist() == [[7.0, 8.0]]
    assert expected == {"oes": 1.5}


@pytest.mark.parametrize("named", ["", "/nowhere/at/all"])
def test_without_a_directory_there_are_no_workloads(
    monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("EMU_BENCH", named)

    assert bench_directory() is None
    with pytest.raises(FileNotFoundError, match="EMU_BENCH"):
        load_workload("workload_a")
