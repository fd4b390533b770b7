"""What is recorded of a model's program is compared without running it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from emu.runs.audit_inputs import read_to_audit
from emu.runs.problem_json import problem_from_json, problem_to_json
from emu.runs.result import result_of
from emu.scenario import load, prepare
from tests.training.programs import TORCH

TEXT = """\
cluster: {machines: [{count: 2, nic: 10 Gbit/s}]}
job:
  system: dgtp
  dataset: {name: products-like, scale: 0.001}
  partitioner: hash
  model: {program: net.py:Net, args: {hid_size: 8}}
  fanouts: [3, 4]
  batch_size: 8
  iterations: 3
  times: {graph_store: 1 s, sampler: 1 s, parameter_server: 1 s}
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield  # noqa: PT022 - the tests' own cache


@pytest.mark.parametrize("measured", [True, False])
def test_an_audit_runs_no_program(
    *, measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what was noted it compares; a file that notes nothing, it does not run."""
    (tmp_path / "net.py").write_text(TORCH)
    (tmp_path / "own.yaml").write_text(TEXT)
    experiment = prepare(load(tmp_path / "own.yaml"))
    told = result_of(experiment.scenario, experiment.simulate())
    if not measured:
        del told["scenario"]["job"]["model"]["measured"]
    file = tmp_path / "simulated.json"
    file.write_text(json.dumps(told))
    monkeypatch.setattr("emu.training.own_model._known", {})
    monkeypatch.setattr("emu.training.own_model._check", lambda *_: pytest.fail("ran"))
    subject = read_to_audit(file)

    assert (subject.times is not None) is measured
    assert bool(subject.silent) is not measured
    assert subject.audit(subject.tolerance, 1e-6).passed


def test_a_problem_with_pinned_tasks_is_read_again(tmp_path: Path) -> None:
    """Stores are pinned to machines by name."""
    (tmp_path / "net.py").write_text(TORCH)
    (tmp_path / "own.yaml").write_text(TEXT)
    problem = prepare(load(tmp_path / "own.yaml")).problem
    content = problem_to_json(problem)

    assert [task["pinned"] for task in content["tasks"]][:2] == ["m0", "m1"]
    again = problem_from_json(json.loads(json.dumps(content)), "problem.json")
    assert [task.pinned for task in again.job.tasks] == [
        task.pinned for task in problem.job.tasks
    ]
