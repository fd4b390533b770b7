"""Losses of a run against those of one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from emu.errors import DataError
from emu.problem import Job, Task
from emu.runs.array_files import write_weights
from emu.runs.retraining import (
    list_training,
    progress_of,
    step_ends,
    training_audit,
    trains,
)
from emu.scenario import build_job
from emu.scenario.scenario_file import loads
from emu.training import reference_training

LEARNS = """\
  system: dgtp
  dataset: {name: products-like, scale: 0.001}
  partitioner: hash
  model: {hidden: 4, layers: 1}
  fanouts: [3]
  batch_size: 8
  workers: 2
  samplers_per_worker: 1
  iterations: 3
  times: {graph_store: 1 s, sampler: 1 s, worker: 1 s, parameter_server: 1 s}
"""
CLUSTER = "cluster: {machines: [{count: 2, nic: 1 Gbit/s}]}\n"


def job_of(compute: str = "real") -> Job:
    text = f"{CLUSTER}emulation: {{compute: {compute}}}\njob:\n{LEARNS}"
    return build_job(loads(text, []))


def write_losses(run: Path, losses: dict[str, list[float]]) -> None:
    """Write two workers whose mean loss it is, each with half of the jobs' rows."""
    lines = ["time,task,iteration,figure,value"]
    for prefix, values in losses.items():
        for iteration, loss in enumerate(values):
            lines.append(f"0,{prefix}w0,{iteration},loss,{loss - 0.25:.8g}")
            lines.append(f"0,{prefix}w1,{iteration},loss,{loss + 0.25:.8g}")
            lines.append(f"0,{prefix}g0,{iteration},rows,17")
    (run / "training.csv").write_text("\n".join(lines) + "\n")


def losses_of(job: Job, run: Path, off: float = 0.0) -> list[float]:
    """Return the losses of one process; the run has its weights, or others."""
    weights, losses = reference_training(job.settings, 3)
    write_weights(run, {"": (1 + off) * weights})
    return losses


def test_losses_of_one_process_are_right(tmp_path: Path) -> None:
    job = job_of()
    write_losses(tmp_path, {"": losses_of(job, tmp_path)})

    assert training_audit(tmp_path, job) == (4, [])


def test_what_the_last_step_made_is_compared(tmp_path: Path) -> None:
    job = job_of()
    write_losses(tmp_path, {"": losses_of(job, tmp_path, off=0.001)})

    _, violations = training_audit(tmp_path, job)

    assert [v.subject for v in violations] == ["weights"]
    write_weights(tmp_path, {"": np.ones(3)})
    assert "are 3 numbers" in str(training_audit(tmp_path, job)[1][0])


def test_the_first_wrong_loss_is_named(tmp_path: Path) -> None:
    job = job_of()
    losses = losses_of(job, tmp_path)
    write_losses(tmp_path, {"": [losses[0], losses[1] * 1.001, losses[2] * 1.1]})

    checked, violations = training_audit(tmp_path, job)

    assert checked == 4
    assert [v.subject for v in violations] == ["loss[1]"]
    assert violations[0].amount == pytest.approx(losses[1] * 0.001, rel=1e-3)


@pytest.mark.parametrize(("wrong", "found"), [(2, []), (1, ["loss[1]"])])
def test_steps_carry_rounding_on(
    wrong: int, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By 0.001 in the third step of one process: by 0.002 there is no fault."""

    def alone(settings: Any, *_: int) -> Any:
        carried = 0.001 if settings["precision"] == "float64" else 0.0
        return np.ones(3), np.array([2.0, 2.0, 2.0 + carried])

    monkeypatch.setattr("emu.runs.retraining._alone", alone)
    losses = [2.0, 2.0, 2.0]
    losses[wrong] += 0.002
    write_losses(tmp_path, {"": losses})
    write_weights(tmp_path, {"": np.ones(3)})

    checked, violations = training_audit(tmp_path, job_of())

    assert checked == 4
    assert [one.subject for one in violations] == found


def test_every_one_of_several_jobs_is_compared(tmp_path: Path) -> None:
    weights, alone = reference_training(job_of().settings, 3)
    write_weights(tmp_path, {"a/all": weights, "b/all": weights})
    part = LEARNS.replace("\n", "\n    ")
    jobs = "".join(f"- name: {n}\n  job:\n    {part.rstrip()}\n" for n in "ab")
    text = f"{CLUSTER}emulation: {{compute: real}}\njobs:\n{jobs}"
    job = build_job(loads(text, []))
    write_losses(tmp_path, {"a/": alone, "b/": [2 * loss for loss in alone]})

    checked, violations = training_audit(tmp_path, job)

    assert checked == 8
    assert [v.subject for v in violations] == ["b/loss[0]"]


@pytest.mark.parametrize(("pipeline", "missed"), [("none", 0), ("A", 2), ("B", 3)])
def test_losses_of_a_pipeline_are_those_of_weights_that_lack_updates(
    pipeline: str, missed: int, tmp_path: Path
) -> None:
    phases = ("sampler", "model_forward", "data_forward", "data_backward")
    times = "".join(f"{phase}: 0 s, " for phase in (*phases, "model_backward"))
    text = f"""{CLUSTER}emulation: {{compute: real}}
job:
  system: p3
  dataset: {{name: products-like, scale: 0.001}}
  model: {{hidden: 4, layers: 2}}
  fanouts: [3, 3]
  batch_size: 8
  iterations: 5
  pipeline: {pipeline}
  times: {{{times}}}
"""
    job = build_job(loads(text, []))
    weights, losses = reference_training(job.settings, 5, missed)
    write_weights(tmp_path, {"all": weights})
    lines = [f"0,Df0,{n},loss,{loss:.8g}" for n, loss in enumerate(losses)]
    head = "time,task,iteration,figure,value"
    (tmp_path / "training.csv").write_text("\n".join([head, *lines]) + "\n")

    assert training_audit(tmp_path, job) == (6, [])


def test_a_job_that_learns_nothing_cannot_be_compared(tmp_path: Path) -> None:
    write_losses(tmp_path, {"": [1.0]})

    with pytest.raises(DataError, match="trained nothing"):
        training_audit(tmp_path, job_of("timed"))


def test_a_run_without_losses_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no losses"):
        training_audit(tmp_path, job_of())


def alone_with(
    monkeypatch: pytest.MonkeyPatch, weights: list[float], losses: list[float]
) -> None:
    """Have one process find these weights and losses."""
    alone = np.array(weights), np.array(losses)
    monkeypatch.setattr("emu.runs.retraining._alone", lambda *_: alone)


@pytest.mark.parametrize(
    ("losses", "weights", "subjects"),
    [
        ([2.0, float("nan")], [1.0, float("inf")], []),
        ([2.0, 1.0], [1.0, float("inf")], ["loss"]),
        ([2.0, float("nan")], [1.0, 1.0], ["weights"]),
    ],
)
def test_runs_that_diverge_are_compared_by_where_they_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    losses: list[float],
    weights: list[float],
    subjects: list[str],
) -> None:
    """Numbers before they run off are no longer the same."""
    alone_with(monkeypatch, [5.0, float("inf")], [9.0, float("inf")])
    monkeypatch.setattr("emu.runs.retraining.training_frame", frame_of(losses))
    write_weights(tmp_path, {"": np.array(weights)})

    checked, violations = training_audit(tmp_path, job_of())

    assert checked == 3
    assert [found.subject for found in violations] == subjects
    for found in violations:
        assert found.amount == 1.0
        assert "diverged in one of the run and one process alone" in found.sentence


def frame_of(losses: list[float]) -> Any:
    """Return a reader of a training.csv with losses that a file would leave out."""
    table = pd.DataFrame(
        {"task": "w0", "iteration": range(len(losses)), "figure": "loss"}
    )
    return lambda _: table.assign(value=losses)


def test_weights_that_are_off_say_by_which_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By 0.3 and 0.4, of 3 and 4: 0.5 of 5."""
    alone_with(monkeypatch, [3.0, 4.0], [2.0, 2.0])
    write_losses(tmp_path, {"": [2.0, 2.0]})
    write_weights(tmp_path, {"": np.array([3.3, 4.4])})

    _, (found,) = training_audit(tmp_path, job_of())

    assert found.sentence == "weights are 0.1 of them off those alone"
    assert found.amount == pytest.approx(0.5)
    assert found.constraint == "training"


def test_parts_that_compute_and_have_a_model_train() -> None:
    model = {"model": {"hidden": 4}}
    jobs = {
        "a": {**model, "compute": "real"},
        "b": {**model, "compute": "timed"},
        "c": {"compute": "real"},
        "d": model,
    }
    several = Job((Task("t", "t"),), (), 1, settings={"jobs": jobs})
    assert [*list_training(several)] == [("a/", jobs["a"]), ("d/", model)]
    single = Job((Task("t", "t"),), (), 1, settings=model)
    assert [*list_training(single)] == [("", model)]


def test_runs_of_no_system_have_no_steps() -> None:
    """As those of custom tasks, and those that go on from another attempt."""
    run: Any = SimpleNamespace(manifest={}, path=Path("run"))
    assert not trains(run)
    with pytest.raises(DataError, match="run: has no training steps"):
        step_ends(run)
    run.manifest = {"scenario": {"job": {"system": "dgtp"}}}
    assert trains(run)
    run.manifest["first_iteration"] = 4
    assert not trains(run)


def test_a_training_that_read_what_was_there_cannot_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of no system lacks no updates."""
    write_losses(tmp_path, {"": losses_of(job_of(), tmp_path)})
    monkeypatch.setattr("emu.runs.retraining.system_of", lambda _: None)
    assert training_audit(tmp_path, job_of()) == (4, [])
    system = SimpleNamespace(asynchronous=lambda _: True)
    monkeypatch.setattr("emu.runs.retraining.system_of", lambda _: system)
    with pytest.raises(DataError, match=r"trained asynchronously: .* mode: pipe"):
        training_audit(tmp_path, job_of())


@pytest.mark.parametrize(("precision", "share", "wrong"), [
    ("float32", 0.9e-4, 0), ("float32", 1.1e-4, 1),
    ("float64", 0.9e-9, 0), ("float64", 1.1e-9, 1),
])  # fmt: skip
def test_numbers_are_held_to_the_last_digits_of_their_kind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    share: float,
    wrong: int,
) -> None:
    alone_with(monkeypatch, [3.0, 4.0], [2.0, 2.0])
    table = frame_of([2.0, 2.0 * (1 + share)])
    monkeypatch.setattr("emu.runs.retraining.training_frame", table)
    write_weights(tmp_path, {"": np.array([3.0, 4.0])})
    job = job_of()
    settings = {**job.settings, "precision": precision}

    _, violations = training_audit(tmp_path, replace(job, settings=settings))

    assert len(violations) == wrong


def test_accuracies_stand_beside_the_steps_that_they_were_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks count steps from 1; what is there already is left as it is."""
    progress = SimpleNamespace(
        loss=np.array([3.0, 2.0, 1.0]),
        looks=np.array([1, 3]),
        accuracy={"valid": np.array([0.5, 0.75])},
    )
    untils: list[Any] = []

    def along(_scenario: Any, _schedule: Any, _watch: Any, until: Any) -> Any:
        untils.append(until)
        return progress

    same = SimpleNamespace(model_validate=lambda content: content)
    monkeypatch.setattr("emu.runs.retraining.Scenario", same)
    monkeypatch.setattr("emu.runs.retraining.UntilSection", same)
    monkeypatch.setattr("emu.runs.retraining.progress_along", along)
    manifest: dict[str, Any] = {"scenario": {"job": {"system": "dgtp"}}}
    run: Any = SimpleNamespace(path=tmp_path, manifest=manifest, best=None)
    assert progress_of([run]) == [progress]

    file = tmp_path / "validation.csv"
    rows = [line.split(",") for line in file.read_text().splitlines()]
    assert rows[0] == ["step", "loss", "accuracy"]
    assert [[float(cell) for cell in row] for row in rows[1:]] == [
        [0.0, 3.0, 0.5],
        [1.0, 2.0, pytest.approx(float("nan"), nan_ok=True)],
        [2.0, 1.0, 0.75],
    ]
    file.write_text("kept")
    manifest["until"] = {"accuracy": 0.5}
    progress_of([run])
    assert file.read_text() == "kept"
    assert untils == [None, {"accuracy": 0.5}]
    manifest["first_iteration"] = 4
    with pytest.raises(DataError, match="has no validation accuracy over time"):
        progress_of([run])
