"""``emu run --repeat``: a directory for every run, and one verdict on a further one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from emu.cli import app
from emu.experiment.run_experiment import emulation_settings, obstacle_to_staying
from emu.runs.array_files import read_weights
from emu.scenario import prepare
from tests.integration.edits import leaves
from tests.integration.scenarios import read, tiny_training, written

SCENARIO = """
name: pair
cluster: {machines: [{name: a, nic: 80 Mbit/s}, {name: b, nic: 80 Mbit/s}]}
job:
  system: custom
  iterations: 4
  tasks: [{name: s, time: 20 ms, pin: a}, {name: w, time: 20 ms, pin: b}]
  flows: [{from: s, to: w, volume: 200 kB}]
emulation: {processes: machine}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pair.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.mark.emulation
def test_every_run_is_kept_and_counted(file: Path) -> None:
    out = file.parent / "found.json"
    words = ["run", str(file), "--repeat", "2", "--json", str(out)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output

    found = json.loads(out.read_text())
    assert len(found["runs"]) == 2
    makespans = []
    for run in found["runs"]:
        content = json.loads((Path(run["path"]) / "result.json").read_text())
        makespans.append(content["makespan"])
        assert run["makespan"] == content["makespan"]
        assert run["error"] == content["makespan_error"]
        assert sum(run["iterations"]) == pytest.approx(content["makespan"])
    assert found["makespan"] == pytest.approx(sum(makespans) / 2)
    span = found["further_makespan"]
    assert span["low"] <= min(makespans) <= max(makespans) <= span["high"]
    assert len(found["iterations"]) == 4
    assert "run 2 of 2: " in result.stderr
    assert "started anew" not in result.stderr
    assert "a further run" in result.stdout


def _records(run: Path) -> dict[str, object]:
    """Return the files of a run, with keys and shapes in them."""
    records: dict[str, object] = {}
    for path in run.iterdir():
        records[path.name] = None
        if path.suffix == ".json":
            content = json.loads(path.read_text())
            records[path.name] = [*content]
            if path.name == "processes.json":
                records["counts"] = {str(at) for at in leaves(content["statistics"])}
        elif path.suffix == ".npz":
            with np.load(path) as arrays:
                records[path.name] = {
                    # Rates change, the coordinator works and bytes wait as the host
                    # lets them.
                    name: (array.dtype, array.shape)
                    for name, array in arrays.items()
                    if path.name != "rates.npz"
                    and name not in ("turns", "waits", "board")
                }
    records.pop("report.html", None)  # drawn for one of several
    return records


@pytest.mark.emulation
@pytest.mark.untimed
def test_a_later_run_leaves_what_a_run_alone_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = written(tiny_training(3, sync="ring"), tmp_path)
    change = ["--set", "emulation.compute=padded"]
    for words in (["--runs", "alone"], ["--runs", "several", "--repeat", "3"]):
        result = CliRunner().invoke(app, ["run", str(file), *change, *words])
        assert result.exit_code == 0, result.output
    (alone,) = Path("alone").iterdir()
    *_, third = sorted(Path("several").iterdir())
    assert _records(third) == _records(alone)

    of_alone, of_third = (
        json.loads((run / "result.json").read_text()) for run in (alone, third)
    )
    assert of_third["payloads"] == of_alone["payloads"]
    assert of_third["accuracy"] == of_alone["accuracy"]
    losses = [
        [step["loss"] for step in result["training"]] for result in (of_alone, of_third)
    ]
    assert losses[0] == losses[1]
    for one, other in zip(*map(read_weights, (alone, third)), strict=True):
        assert one == other
    for name, array in read_weights(alone).items():
        np.testing.assert_array_equal(read_weights(third)[name], array)
    assert (third / "agent.log").read_text().count("a further run") == 1
    assert "further" not in (alone / "agent.log").read_text()


@pytest.mark.parametrize(
    ("change", "allow", "said"),
    [
        ({}, (), ""),
        ({"emulation": {"network": "kernel"}}, (), "kernel NICs"),
        ({"events": [{"at": "30 ms", "kill": "a"}]}, (), "its deaths"),
        ({}, ("own:Program",), "own:Program may keep"),
    ],
)
def test_what_may_leave_something_starts_anew(
    change: dict[str, Any], allow: tuple[str, ...], said: str
) -> None:
    document = {**YAML(typ="safe").load(SCENARIO), **change}
    experiment = prepare(read(document))
    settings = emulation_settings(experiment.scenario, allow=allow)
    obstacle = obstacle_to_staying(experiment, settings)
    assert (obstacle == "") == (said == "")
    assert said in obstacle


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--repeat", "0"], "--repeat 0: write a number of runs, or auto"),
        (["--repeat", "twice"], "write a number of runs, or auto"),
        (["--repeat", "2", "--dry-run"], "--dry-run: is of one run"),
        (["--repeat", "auto", "--dashboard"], "--dashboard: is of one run"),
        (["--repeat", "auto", "--within", "long"], "--within"),
        (["--repeat", "2", "--within", "9 s"], "--within 9 s: limits --repeat auto"),
        (["--within", "9 s"], "--within 9 s: limits --repeat auto"),
    ],
)
def test_what_several_runs_have_no_use_for_is_refused(
    file: Path, words: list[str], said: str
) -> None:
    result = CliRunner().invoke(app, ["run", str(file), *words])
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert not (file.parent / "runs").exists()
