"""Commands on the directory of a virtual run: most of them take its job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.cli import app

JOB = {
    "cluster": {"machines": [{"name": "m", "count": 2, "nic": "1 Gbit/s"}]},
    "job": {
        "system": "custom",
        "iterations": 1,
        "tasks": [{"name": "r0.0", "time": "3 ms"}, {"name": "r1.0", "time": "1 ms"}],
        "flows": [{"from": "r0.0", "to": "r1.0", "volume": "250 kB"}],
    },
    "placement": {"tasks": {"r0.0": "m0", "r1.0": "m1"}},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run directory with a job of 3 + 2 + 1 ms."""
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    (tmp_path / "virtual.json").write_text("{}")
    return tmp_path


def test_the_directory_stands_for_its_job(run: Path) -> None:
    out = run / "out.json"
    fast = ["--set", "cluster.machines[0].nic=2 Gbit/s"]
    for options, makespan in (([], 0.006), (fast, 0.005)):
        words = ["simulate", str(run), *options, "--json", str(out)]
        CliRunner().invoke(app, words, catch_exceptions=False)
        assert json.loads(out.read_text())["makespan"] == pytest.approx(makespan)

    explained = CliRunner().invoke(app, ["explain", str(run)])
    assert "Why this long" in explained.stdout
    assert CliRunner().invoke(app, ["validate", str(run)]).exit_code == 0


@pytest.mark.parametrize("words", ["report", "report --as trace", "audit", "compare"])
def test_what_needs_an_emulation_names_the_job(run: Path, words: str) -> None:
    runs = [str(run)] * (2 if words == "compare" else 1)

    done = CliRunner().invoke(app, [*words.split(), *runs])

    assert done.exit_code != 0
    told = f"{done.stderr} {done.exception}"
    assert "is of a virtual run: emu simulate and emu explain take" in told
    assert {file.name for file in run.iterdir()} == {"job.json", "virtual.json"}
