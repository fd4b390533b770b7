"""What a run leaves behind, by system and compute mode."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.experiment.run_result import evaluate_run
from emu.runs.recorded_run import load_run
from emu.trust.audit import audit
from tests.integration.scenarios import (
    GOLDEN,
    Carried,
    carried_out,
    tiny_training,
    written,
)

pytestmark = [pytest.mark.emulation, pytest.mark.untimed]

FILES = {
    "agent.log",
    "manifest.json",
    "problem.json",
    "processes.json",
    "rates.npz",
    "frames.npz",
    "realization.npz",
    "reports.npz",
    "result.json",
    "scenario.txt",
    "simulated.json",
    "training.csv",
}
KEYS = {
    "version", "scenario", "policy", "placement", "iterations", "processes",
    "makespan", "replayed_makespan", "replay_error", "predicted_makespan",
    "makespan_error", "wall_seconds", "startup", "flow_end_apart", "kinds", "edges",
    "ports", "memory", "transport", "training", "tasks", "flows",
    "verdict", "prediction", "records",
}  # fmt: skip


def whole(run: Carried) -> dict[str, Any]:
    """Return result.json of a directory in which nothing is missing."""
    content: dict[str, Any] = json.loads((run.path / "result.json").read_text())
    learnt = {"weights.npz"} if "accuracy" in content else set()
    assert {path.name for path in run.path.iterdir()} == FILES | learnt
    assert content.keys() >= KEYS
    job = run.outcome.experiment.problem.job
    assert len(content["tasks"]) == len(job.tasks) * job.iterations
    assert {frozenset(task) for task in content["tasks"]} == {
        frozenset({"task", "iteration", "start", "end"})
    }
    assert {frozenset(flow) for flow in content["flows"]} == {
        frozenset({"edge", "from", "to", "iteration", "ready", "start", "end", "bytes"})
    }
    assert content["makespan"] == max(task["end"] for task in content["tasks"])
    recorded = load_run(run.path)
    assert recorded.missing == ()
    assert recorded.simulated is not None
    assert audit(recorded.simulated).violations == []
    return content


def figures_of(run: Carried) -> list[dict[str, str]]:
    with (run.path / "training.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_custom_job(tmp_path: Path) -> None:
    changes = ("expect=null", "emulation.time_scale=0.02", "job.iterations=2")
    run = carried_out(GOLDEN, tmp_path, *changes, "emulation.byte_scale=5000")
    content = whole(run)

    assert content["scenario"] == "golden"
    assert content["processes"] == 6
    assert content["training"] == []
    assert content["transport"]["payload_bytes"] == 5000 * (2 * 300 - 10)
    assert figures_of(run) == []


@pytest.mark.parametrize(
    ("compute", "sampling"),
    [("timed", "oneshot"), ("real", "multiround")],
)
def test_a_training_job(compute: str, sampling: str, tmp_path: Path) -> None:
    document = tiny_training(3, sampling=sampling)
    changes = (f"emulation.compute={compute}", "emulation.time_scale=2")
    run = carried_out(written(document, tmp_path), tmp_path, *changes)
    content = whole(run)

    assert content["processes"] == 7
    learns = compute != "timed"
    rows = figures_of(run)
    assert {row["figure"] for row in rows} >= ({"loss"} if learns else set())
    losses = [float(row["value"]) for row in rows if row["figure"] == "loss"]
    assert len(losses) == (2 * 3 if learns else 0)
    assert len(content["training"]) == (3 if learns else 0)
    assert ("accuracy" in content) is learns
    if learns:
        assert evaluate_run(run.path) == {"": content["accuracy"]}
    else:
        with pytest.raises(DataError, match="has no weights: only compute: real and"):
            evaluate_run(run.path)
    predicted = run.outcome.experiment.realization
    measured, at = run.outcome.run.realization, tuple(run.outcome.replayed.flows().T)
    # Sampling is a function of the seed: the prediction knows every byte.
    np.testing.assert_array_equal(measured.volumes[at], predicted.volumes[at])
    times = measured.times
    if compute == "real":
        assert (times > 0).all()  # what was done before run time 0 counts as well
        # Measured, not stated: of fifty, kept to some 10 ns, two may be the same.
        assert len(np.unique(times)) >= times.size - 1
    else:  # nothing ends before its time; on a busy host a task may end later
        assert (times >= predicted.times - 1e-9).all()
