"""Options that change nothing of what a command does are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.cli import app

LAB = """
cluster: {machines: [{name: a, nic: 1 Mbit/s}]}
lab: {programs: [{name: p, run: "true"}]}
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("report none --as svg --explain", "--explain: is of the page"),
        ("run golden --dry-run --resume none", "--dry-run: says what a whole job"),
        ("sweep golden --vary seed=1,2 --ray auto --jobs 2", "--jobs: is of this host"),
        ("lab lab.yaml --shell a --pcap", "--pcap: is of a lab that runs"),
        ("lab lab.yaml --shell a --json out", "--json: is of a lab that runs"),
        ("lab lab.yaml --shell a -- ls", "-- COMMAND: is of a lab that runs"),
        ("lab lab.yaml --shell a --repeat 2", "--shell: is of one run"),
    ],
)
def test_an_option_that_changes_nothing_is_refused(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab.yaml").write_text(LAB)
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_forecast_of_other_hosts_leaves_the_memory_of_this_one_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("emu.cli.run_commands.check_memory", refuse)
    monkeypatch.setattr("emu.cli.run_commands.strain", refuse)
    words = ["run", "golden", "--dry-run", "--agents", "2"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    assert result.stdout.startswith("golden, credit window")
