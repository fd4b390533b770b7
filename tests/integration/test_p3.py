"""P3 over sockets, with real training."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emu.coordinator import emulate
from emu.errors import NodeLost
from emu.experiment.run_experiment import emulation_settings
from emu.experiment.trained import trained_parameters
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.training import reference_training
from tests.coordinator.emulated import Acts, named
from tests.integration.scenarios import carried_out

if TYPE_CHECKING:
    from pathlib import Path

    from tests.leftovers import Leftovers

pytestmark = pytest.mark.emulation

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
    assert run.result["payloads"].keys() == {"structure", "activations", "gradients"}
    assert sum(run.result["payloads"].values()) == np.nansum(left.schedule.flow_bytes)
    np.testing.assert_array_equal(  # every flow carried what the formulas say
        run.outcome.predicted.flow_bytes, left.schedule.flow_bytes
    )


def test_a_machine_killed_in_the_mf_of_anothers_mini_batch(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    experiment = prepare(loads(TEXT, ["emulation.compute=timed"]))
    problem, settings = experiment.problem, emulation_settings(experiment.scenario)

    def kill() -> None:
        named(leftovers.note(), "w1").kill()

    observer = Acts("start Mf1 2", kill, problem)
    with pytest.raises(NodeLost) as caught:
        emulate(
            problem, "oes", settings, experiment.realization,
            log=tmp_path / "agent.log", observer=observer,
        )  # fmt: skip

    expected = (
        r"process w1 was killed by SIGKILL \(tasks s1, Mf1,.*task Mf1 in iteration 2, "
        r"awaited by Df0 for its iteration 3, Df2 for its iteration 3"
    )
    assert re.search(expected, str(caught.value))
