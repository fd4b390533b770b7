"""P3 over sockets, with real training."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emu.experiment.trained import trained_parameters
from emu.training import reference_training
from tests.integration.scenarios import carried_out

if TYPE_CHECKING:
    from pathlib import Path

BATCHES = 4
TEXT = f"""\
name: p3
cluster:
  machines: [{{count: 3, nic: 400 Mbit/s}}]
job:
  system: p3
  dataset: {{name: products-like, scale: 0.001}}
  model: {{hidden: 8, layers: 2}}
  fanouts: [3, 4]
  batch_size: 8
  iterations: {BATCHES}
  optimizer: {{name: sgd, lr: 0.1}}
  times:
    {{sampler: 10 ms, model_forward: 30 ms, data_forward: 20 ms, data_backward: 20 ms,
     model_backward: 30 ms}}
emulation: {{compute: padded, deadline: 60 s}}
seed: 7
"""


@pytest.mark.emulation
def test_pipelined_weights_are_those_of_delayed_descent(tmp_path: Path) -> None:
    file = tmp_path / "p3.yaml"
    file.write_text(TEXT)
    run = carried_out(file, tmp_path)
    left, job = run.outcome.run, run.outcome.run.schedule.problem.job
    expected, losses = reference_training(job.settings, BATCHES, missed=2)

    found = trained_parameters(job, left.results)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert [point["loss"] for point in run.result["training"]] == pytest.approx(
        losses, rel=1e-5
    )
    assert run.result["accuracy"].keys() >= {"train", "test"}
    stated = json.loads((run.path / "manifest.json").read_text())
    assert stated["pipeline"]["updates_missed"] == 2
    np.testing.assert_array_equal(  # every flow carried what the formulas say
        run.outcome.predicted.flow_bytes, left.schedule.flow_bytes
    )
