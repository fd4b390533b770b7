"""Workloads are read from where the environment says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.benches.workloads import bench_directory, load_workload


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
