"""``emu run --repeat``: a directory for every run, and one verdict on a further one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.cli import app

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
    assert "a further run" in result.stdout


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
