"""DGCL over sockets and in virtual time: weights, bytes, a device that is killed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from emu.emulation.coordinator import emulate
from emu.errors import NodeLost
from emu.experiment.run_experiment import emulation_settings
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.systems.system import systems
from emu.testing.trials import Case, run_trial
from emu.training import reference_training
from tests.emulation.coordinator.emulated import Acts, named
from tests.integration.scenarios import carried_out, check_training
from tests.leftovers import Leftovers

EPOCHS = 4
TEXT = f"""\
name: dgcl
cluster:
  topology: dgx1
job:
  system: dgcl
  machines: [d0, d1, d2, d5]
  dataset: {{name: products-like, scale: 0.0005}}
  model: {{kind: gcn, hidden: 8, layers: 2}}
  epochs: {EPOCHS}
  cache_features: false
  precision: float64
  times: {{forward: 10 ms, backward: 20 ms}}
emulation: {{compute: padded, deadline: 60 s, time_scale: 1}}
seed: 7
"""


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.parametrize(
    "changes",
    [
        ("job.coordination=central", "job.cache_features=true"),
        ("job.plan=dgcl_r", "job.partitioner=hierarchical", "job.boxes=[3, 1]"),
    ],
    ids=["central", "dgcl_r"],
)
def test_weights_over_sockets_are_those_of_one_process(
    tmp_path: Path, changes: tuple[str, ...]
) -> None:
    file = tmp_path / "dgcl.yaml"
    file.write_text(TEXT)
    run = carried_out(file, tmp_path, *changes)
    expected = check_training(run, EPOCHS)
    for rank in range(4):
        own = run.outcome.run.results[f"d{rank}.layer1"]["parameters"]
        np.testing.assert_allclose(own, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("job.plan=peer_to_peer", "job.backward=atomic", "job.model.kind=sage"),
        ("job.plan=swap",),
        ("job.plan=replication", "job.cache_features=true"),
    ],
    ids=["planned", "peer to peer", "swap", "replication"],
)
def test_weights_in_virtual_time_are_those_of_one_process(
    changes: tuple[str, ...],
) -> None:
    experiment = prepare(loads(TEXT, changes))
    trial = run_trial(Case.of(experiment))
    assert trial.complaints == []
    assert trial.run is not None
    job, results = experiment.problem.job, trial.run.results
    expected, _ = reference_training(job.settings, EPOCHS)

    found = systems()["dgcl"].trained(job, results)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    for rank in range(4):
        own = results[f"d{rank}.layer1"]["parameters"]
        np.testing.assert_allclose(own, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(
        experiment.simulate().flow_bytes, trial.run.schedule.flow_bytes
    )


@pytest.mark.emulation
@pytest.mark.untimed
def test_a_device_killed_in_a_stage(tmp_path: Path, leftovers: Leftovers) -> None:
    experiment = prepare(loads(TEXT, ["emulation.compute=timed"]))
    problem, settings = experiment.problem, emulation_settings(experiment.scenario)

    def kill() -> None:
        named(leftovers.note(), "d1").kill()

    observer = Acts("start d1.f1 2", kill, problem)
    with pytest.raises(NodeLost) as caught:
        emulate(
            problem, "oes", settings, experiment.realization,
            log=tmp_path / "agent.log", observer=observer,
        )  # fmt: skip

    # The task takes no time: it may have ended by the time that the kill is seen.
    before = (
        r"task d1.f1 in iteration 2, awaited by f1.1to0 for its iteration 2, "
        r"f1.1to2 for its"
    )
    after = r".*sending d1.f1->f1.1to\d of iteration 2"
    killed = r"process d1 was killed by SIGKILL \(tasks d1.layer1,.*: "
    expected = f"{killed}({before}|{after})"
    assert re.search(expected, str(caught.value))
