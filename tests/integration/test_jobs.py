"""Two jobs on one cluster at once, over sockets: each trains to what it does alone.

Tasks of both share a process per machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.experiment.run_result import evaluate_run
from emu.runs.array_files import read_weights
from emu.training import reference_training
from tests.integration.scenarios import carried_out, tiny_training, written

ITERATIONS = {"a": 4, "b": 3}


@pytest.mark.emulation
def test_every_job_trains_to_the_weights_that_it_has_alone(tmp_path: Path) -> None:
    document: dict[str, Any] = tiny_training()
    own = {
        "a": tiny_training(ITERATIONS["a"])["job"],
        "b": tiny_training(ITERATIONS["b"], batch_size=6, sync="ring")["job"],
    }
    del document["job"], document["placement"]
    document["jobs"] = [
        {"name": "a", "job": own["a"], "placement": {"policy": "round_robin"}},
        {"name": "b", "job": own["b"], "release": "100 ms"},
    ]
    document["emulation"] |= {"compute": "padded", "processes": "machine"}
    run = carried_out(written(document, tmp_path), tmp_path)
    problem, results = run.outcome.run.schedule.problem, run.outcome.run.results

    for name, holder in (("a", "a/ps0"), ("b", "b/w0")):
        settings = problem.job.settings_of(name)
        expected, losses = reference_training(settings, ITERATIONS[name])
        weights = results[holder]["parameters"]
        np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-5)
        (told,) = (job for job in run.result["jobs"] if job["job"] == name)
        found = [point["loss"] for point in told["training"]]
        assert found == pytest.approx(losses, rel=1e-5)
        assert told["seconds"] == pytest.approx(told["end"] - told["release"])
        assert told["accuracy"].keys() >= {"train", "test"}
        assert evaluate_run(run.path)[name] == told["accuracy"]
        kept = read_weights(run.path).items()
        own_parts = [p.ravel() for part, p in kept if part.startswith(f"{name}/")]
        np.testing.assert_array_equal(np.concatenate(own_parts), weights)
    first = problem.job.index("b/g0")
    assert run.outcome.run.schedule.task_start[first, 0] == pytest.approx(0.1, abs=0.05)
