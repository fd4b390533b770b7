"""Setups that are sent over sockets before the training, and what an audit sees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.experiment.recompute import audit_whole
from emu.runs.audit_inputs import read_to_audit
from tests.integration.scenarios import Carried, attempts, carried_out, written
from tests.leftovers import Leftovers

pytestmark = pytest.mark.emulation

DGCL: dict[str, Any] = {
    "name": "dgcl",
    "cluster": {
        "machines": [
            {"name": "a", "count": 2, "nic": "1 Gbit/s"},
            {"name": "b", "nic": "400 Mbit/s"},
        ]
    },
    "job": {
        "system": "dgcl",
        "dataset": {"name": "products-like", "scale": 0.002},
        "model": {"kind": "gcn", "hidden": 8, "layers": 2},
        "epochs": 1,
        "times": {"forward": "1 ms", "backward": "1 ms"},
    },
    "emulation": {"setup": True, "time_scale": 40},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Carried:
    folder = tmp_path_factory.mktemp("setup")
    return carried_out(written(DGCL, folder), folder)


@pytest.mark.untimed
def test_all_bytes_arrive_and_stay_out_of_the_makespan(run: Carried) -> None:
    result = run.result
    setup = result["setup"]
    measured, inner = setup["measured"], run.path / "setup"

    ghosts = setup["causes"]["ghost features"]["bytes"]
    assert ghosts > 100 * setup["causes"]["weights"]["bytes"] > 0
    assert measured["bytes"] == setup["bytes"]
    assert sum(result["payloads"].values()) < setup["bytes"]  # of training alone
    frames = json.loads((inner / "result.json").read_text())["flows"]
    sent = {(flow["from"], flow["to"]): flow["bytes"] for flow in frames}
    assert len(sent) == 6  # both ways between three machines; weights beside ghosts
    assert measured["seconds"] > 0
    last = max(row["end"] for row in result["tasks"])
    assert result["makespan"] == pytest.approx(last)
    assert json.loads((run.path / "result.json").read_text())["setup"] == setup


@pytest.mark.untimed
@pytest.mark.parametrize("key", ["makespan", "payloads"])
def test_an_audit_computes_it_again_and_sees_what_was_edited(
    run: Carried, key: str
) -> None:
    def audit() -> Any:
        subject = read_to_audit(run.path)
        return audit_whole(subject, subject.tolerance, 1e-6)[0]

    report = audit()
    assert report.passed
    assert report.checked["setup"] > 300

    file = run.path / "setup" / "result.json"
    text = file.read_text()
    content = json.loads(text)
    if key == "makespan":
        content["makespan"] *= 0.9
    else:
        content["payloads"]["opaque"] -= 1
    file.write_text(json.dumps(content))
    try:
        broken = {one.constraint for one in audit().violations}
    finally:
        file.write_text(text)
    # Its digest in the run, what the run says of it, and its own records.
    assert {"records", "result", "setup"} <= broken


def test_seconds_are_those_simulated(tmp_path: Path, leftovers: Leftovers) -> None:
    def once() -> float:
        run = carried_out(written(DGCL, tmp_path), tmp_path)
        return abs(float(run.result["setup"]["measured"]["error"]))

    apart = attempts(once, 0.02)
    leftovers.note()

    assert apart[-1] < 0.02


@pytest.mark.untimed
def test_one_machine_alone_sends_nothing_over_sockets(tmp_path: Path) -> None:
    document = DGCL | {"job": DGCL["job"] | {"machines": ["a0"]}}
    run = carried_out(written(document, tmp_path), tmp_path, "emulation.time_scale=4")

    assert run.result["setup"]["bytes"] == 0
    assert "measured" not in run.result["setup"]
    assert not (run.path / "setup").exists()


@pytest.mark.untimed
def test_a_run_says_it_and_sends_it_once(tmp_path: Path, leftovers: Leftovers) -> None:
    """A device is killed in the training, which begins again; its setup does not."""
    dies = {
        "events": [{"at": "3 ms", "kill": "b"}],
        "on_failure": "restart",
        "recovery": "1 ms",
    }
    file, runs = written(DGCL | dies, tmp_path), tmp_path / "runs"
    done = CliRunner().invoke(app, ["run", str(file), "--runs", str(runs)])
    leftovers.note()

    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("setup: 3.2") == 1
    assert "before time 0 of the training" in done.stderr
    assert "goes on at iteration 0" in done.stderr
    facts = " ".join(done.stdout.split())
    assert "before time 0: 3.2" in facts
    assert "arrived, " in facts
    (path,) = runs.iterdir()
    audited = CliRunner().invoke(app, ["audit", str(path / "setup")])
    assert audited.exit_code == 0, audited.stdout


@pytest.mark.untimed
def test_hosts_that_others_start_are_refused(tmp_path: Path) -> None:
    file, runs = written(DGCL, tmp_path), tmp_path / "runs"
    words = ["run", str(file), "--agents", "2", "--runs", str(runs)]
    done = CliRunner().invoke(app, words)

    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert "emulation.setup: agents that others start end with the setup" in line
    assert not runs.exists()
