"""Refusals of a run over sockets before it starts a process."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import ScenarioError
from emu.experiment.dry_run import check_messages
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.experiment.run_files import _training_lines
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, prepare
from emu.scenario.scenario_file import loads

LARGE = """
name: large
cluster: {machines: [{name: m, count: 3, nic: 10 Gbit/s}]}
job:
  system: custom
  iterations: 2
  tasks: [{name: a, time: 0 s}, {name: b, time: 0 s}, {name: c, time: 0 s}]
  flows: [{from: a, to: b, volume: 1 GB}, {from: b, to: c, volume: 3 GB}]
placement: {policy: explicit, tasks: {a: m0, b: m1, c: m2}}
"""


@pytest.mark.parametrize(("byte_scale", "sent"), [(1, "3 GB"), (0.4, r"1\.2 GB")])
def test_a_flow_that_is_larger_than_a_message_is_named(
    byte_scale: float, sent: str, tmp_path: Path
) -> None:
    """A message is of 2^30 bytes: 3 GB are 2.8 times as many."""
    changes = {"emulation": {"byte_scale": byte_scale}}
    scenario = load(loads(LARGE), changes)
    directory = RunDirectory.create(scenario.name, tmp_path)
    words = rf"byte_scale: flow b->c sends {sent} .* 1\.074 GB: write 0\.32 or less"

    with pytest.raises(ScenarioError, match=words):
        carry_out(prepare(scenario), emulation_settings(scenario), directory)

    assert not [*directory.path.iterdir()]


def test_a_dry_run_names_it_as_the_run_would(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_text(LARGE)

    shown = CliRunner().invoke(app, ["run", str(file), "--dry-run"])

    assert shown.exit_code != 0
    assert "byte_scale: flow b->c sends 3 GB" in shown.stderr


def test_a_tensor_that_is_larger_keeps_its_size() -> None:
    """Its scale makes emulated bytes of it, and no fewer real ones."""
    scenario = load("demo", ["job.model.hidden=3000000"])
    words = "job: flow .* sends 3.54 GB in .*, and a message takes .* at any byte_scale"

    with pytest.raises(ScenarioError, match=words):
        check_messages(prepare(scenario))


def test_a_setup_that_is_larger_is_named_by_its_machines() -> None:
    """Its tensors are no smaller at another byte scale, and no flow of the file."""
    machines = {"count": 2, "cpu": 4, "gpu": 1, "memory": "32 GB", "nic": "1 Gbit/s"}
    changes = {
        "cluster.machines": [machines | {"slots": {"gpu": 1}}],
        "emulation.setup": True,
        "emulation.byte_scale": 0.1,
        # Vectors of 40 kB: half of them come to a machine from the other.
        "job.dataset.feature_length": 10_000,
        "job.dataset.scale": 0.05,
    }
    words = r"emulation.setup: m\d sends 1.\d* GB to m\d before time 0, and a message "

    with pytest.raises(ScenarioError, match=words):
        check_messages(prepare(load("p3_products", changes)))


def test_a_loss_that_is_no_number_is_infinite_and_other_figures_are_left_out() -> None:
    reports = [
        (0.5, "w0", 3, {"loss": math.nan, "rows": math.nan, "edges": 4}),
        (0.75, "w1", 4, {"loss": math.inf, "rows": math.inf}),
        (1.0, "w1", 5, {"loss": 0.25}),
    ]
    run: Any = SimpleNamespace(reports=reports)
    assert _training_lines(run) == [
        "time,task,iteration,figure,value",
        "0.5,w0,3,loss,inf",
        "0.5,w0,3,edges,4.0",
        "0.75,w1,4,loss,inf",
        "1.0,w1,5,loss,0.25",
    ]
