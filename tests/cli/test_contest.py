"""``emu contest``: the instance that it writes is the one that it tells of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from emu.cli import app, contest_command
from emu.experiment.draw import Confirmation

SCENARIO = """
cluster: {machines: [{name: a, nic: 10 Mbit/s}, {name: b, nic: 40 Mbit/s}]}
job:
  system: custom
  iterations: 2
  tasks: [{name: s, time: 0 s, pin: a}, {name: w, time: 20 ms, pin: b}]
  flows: [{from: s, to: w, volume: 100 kB}]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pair.yaml").write_text(SCENARIO)
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(app, [*words])


def makespan(*words: str) -> float:
    result = call("simulate", *words, "--json", "-")
    assert result.exit_code == 0, result.output
    return float(json.loads(result.stdout)["makespan"])


def test_both_sides_are_found_again_in_the_file(folder: Path) -> None:
    out = folder / "found.json"
    result = call("contest", "oes", "maxmin", "--tries", "800", "--json", str(out))
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())

    file = found["file"]
    assert file == "contest_oes_maxmin.yaml"
    slow = makespan(file)
    fast = makespan(file, "--set", "schedule.policy=maxmin")
    assert slow == found["loser"]["makespan"]
    assert fast == found["winner"]["makespan"]
    assert slow / fast - 1 == pytest.approx(found["loss"])
    assert "oes takes" in result.stdout
    assert f"emu simulate {file} --set schedule.policy=maxmin" in result.stdout

    again = call("contest", "oes", "maxmin")
    assert again.exit_code == 2
    assert "is there already; choose another --out" in again.stderr


def test_one_flow_at_a_time_leaves_nothing_to_lose(folder: Path) -> None:
    words = ("contest", "oes", "maxmin", "--near", "pair.yaml", "--tries", "20")
    result = call(*words)
    assert result.exit_code == 0, result.output
    assert (
        "no instance was found on which oes loses to maxmin (--tries 20)"
        in result.stdout
    )
    assert json.loads(call(*words, "--json", "-").stdout)["loss"] is None
    assert not (folder / "contest_oes_maxmin.yaml").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dgtp", "one_machine"], "two systems: train a graph: write --near FILE"),
        (["dgtp", "p3"], "two systems: train a graph: write --near FILE"),
        (["oes", "mrtf", "--out", "."], ".: is there already"),
        (["oes", "mrtf", "--set", "seed=1"], "--set seed=1: is of a scenario"),
        (["oes", "mrtf", "--near", "pair.yaml", "--within", "1"], "a factor above 1"),
        (["oes", "mrtf", "--within", "3"], "--within 3: is of a scenario"),
        (["dgtp", "one_machine", "--near", "pair.yaml"], "every instance was refused"),
    ],
)
def test_what_does_not_fit_is_refused(words: list[str], said: str) -> None:
    result = call("contest", *words, "--tries", "5")
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert result.stderr.count("\n") <= 3


def test_several_jobs_are_no_systems_before_any_instance_is_tried(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indented = SCENARIO.replace("\n  ", "\n      ")
    text = indented.replace("job:", "jobs:\n  - name: one\n    job:")
    (folder / "jobs.yaml").write_text(text)
    monkeypatch.setattr(contest_command, "find_worst", None)
    refused = call("contest", "dgtp", "p3", "--near", "jobs.yaml")
    assert refused.exit_code == 2
    assert "several jobs cannot be compared as systems, write one" in refused.stderr


def test_a_file_that_cannot_be_written_is_refused_before_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contest_command, "find_worst", None)
    for option in ("--out", "--json"):
        refused = call("contest", "oes", "maxmin", option, "none/found")
        assert refused.exit_code == 3
        assert "none/found: cannot be written" in refused.stderr

    refused = call("contest", "oes", "maxmin", "--tries", "-5")
    assert refused.exit_code == 2


def test_the_commands_that_are_printed_can_be_copied() -> None:
    result = call("contest", "fifo", "oes", "--tries", "50", "--out", "worst case.yaml")
    assert "written: emu simulate 'worst case.yaml', of which fifo is" in result.stdout


def test_repeats_are_of_runs_over_sockets_and_of_both_sides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = call("contest", "oes", "maxmin", "--repeat", "3")
    assert refused.exit_code == 2
    assert "write --confirm as well" in refused.stderr

    asked = list[tuple[str, object]]()

    def confirm(row: Any, name: str, plan: Any) -> Any:
        asked.append((name, plan.count))
        run = Confirmation("runs/x", 2.0, 0.01, "trusted", "agrees", 3, (1.9, 2.1))
        return replace(row, run=run)

    monkeypatch.setattr(contest_command, "confirm_row", confirm)
    words = ["--tries", "200", "--confirm", "--repeat", "3"]
    result = call("contest", "oes", "maxmin", *words)

    assert asked == [("oes", 3), ("maxmin", 3)]
    assert result.exit_code == 0, result.output
    assert "3 runs" in result.stdout
