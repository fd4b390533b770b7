"""What a shell offers, asked as bash asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.scenario import load


def offered(line: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the words for the last one of a line."""
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    monkeypatch.setenv("_EMU_COMPLETE", "complete_bash")
    return CliRunner().invoke(app, prog_name="emu").stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("emu simulate de", ["demo"]),
        ("emu validate al", ["all_reduce"]),
        ("emu init pap", ["papers100m"]),
        ("emu docs sy", ["systems"]),
        ("emu run m", ["mpi", "mine.yaml", "more/"]),
        ("emu run more/", ["more/net.json"]),
        ("emu compare demo --policies oes,sebf", ["oes,sebf_madd"]),
        ("emu compare demo --placements dist", ["distdgl"]),
        ("emu run demo --set job.ite", ["job.iterations"]),
        ("emu run demo --set cluster.machines[7].ni", ["cluster.machines[7].nic"]),
        ("emu run demo --set jobs[1].job.fano", ["jobs[1].job.fanouts"]),
        ("emu run demo --set schedule.share=", ["schedule.share=flow",
                                               "schedule.share=job"]),
        ("emu sweep demo --vary emulation.tim", ["emulation.time_scale"]),
        ("emu crossover demo --key job.model.hid", ["job.model.hidden"]),
        ("emu run demo --set no_such.key", []),
    ],
)  # fmt: skip
def test_words(
    line: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more").mkdir()
    for name in ("mine.yaml", "mine.txt", "more/net.json"):
        (tmp_path / name).touch()

    assert offered(line, monkeypatch) == words


def test_a_copied_scenario_names_a_schema_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner").mkdir()
    done = CliRunner().invoke(app, ["init", "golden", "--out", "inner/my.yaml"])
    assert done.exit_code == 0, done.output
    file = tmp_path / "inner" / "my.yaml"
    first = file.read_text().split("\n", 1)[0]
    schema = file.parent / first.removeprefix("# yaml-language-server: $schema=")

    assert json.loads(schema.read_text())["$defs"]["Scenario"]
    assert load(file, {"name": "golden"}).to_json() == load("golden").to_json()
