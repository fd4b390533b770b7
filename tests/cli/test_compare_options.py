"""Options of ``emu compare`` that are of what it does not compare."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from emu.cli import app
from emu.cli.compare_options import KINDS_OF, NEEDED_BY, Compared, check_options
from emu.errors import ScenarioError


@pytest.mark.parametrize(
    ("compared", "stated", "said"),
    [
        (Compared.SYSTEMS, ["--policies"], "--policies: is of placements and rules"),
        (Compared.VARIANTS, ["--confirm"], "--confirm: is of systems: write --systems"),
        (Compared.VARIANTS, ["--out"], "--out: is of systems or runs"),
        (Compared.RUNS, ["--json", "--set"], "--set: is of placements and rules or"),
        (Compared.SYSTEMS, ["--within"], "--within: changes nothing without --to"),
        (Compared.SYSTEMS, ["--open"], "--open: changes nothing without --as or"),
    ],
)
def test_an_option_that_changes_nothing_is_refused(
    compared: Compared, stated: list[str], said: str
) -> None:
    with pytest.raises(ScenarioError) as refused:
        check_options(compared, stated)
    assert said in str(refused.value)


def test_options_of_what_is_compared_are_taken() -> None:
    check_options(Compared.VARIANTS, ["--policies", "--set", "--json", "--write"])
    check_options(Compared.SYSTEMS, ["--to", "--within", "--out", "--open"])
    check_options(Compared.RUNS, ["--out", "--unit"])


def test_options_that_are_of_some_kinds_are_those_of_the_command() -> None:
    """A name that the command does not have would never be refused."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    names = {name for option in commands["compare"].params for name in option.opts}
    companions = {name for names in NEEDED_BY.values() for name in names}
    assert {*KINDS_OF, *NEEDED_BY, *companions} <= names


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["compare", "golden", "--confirm", "2"],
            "--confirm: is of systems: write --systems",
        ),
        (["compare", "demo", "--systems", "p3", "--swap", "a,b"], "--swap: is of"),
        (["simulate", "golden", "--sharing", "tcp"], "add --network ns3"),
    ],
)
def test_a_command_refuses_what_it_would_leave_out(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_what_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No scenario is placed, and no row of systems begun."""

    def work(*_: object, **__: object) -> None:
        pytest.fail("the work was begun")

    monkeypatch.setattr("emu.place", work)
    monkeypatch.setattr("emu.cli.compare_command.compare_rows", work)
    file = tmp_path / "file"
    file.touch()
    systems = ["--systems", "p3", "--out"]
    for words, said in (
        (["--write", str(file)], f"{file}: cannot be written into: this is no folder"),
        (["--write", str(file / "deep" / "er")], f"{file}: cannot be written into"),
        ([*systems, str(tmp_path / "none" / "rows.csv")], "cannot be written"),
        ([*systems, str(file / "rows.csv")], "cannot be written"),
    ):
        result = CliRunner().invoke(app, ["compare", "golden", *words])
        assert result.exit_code == 3, result.output
        assert said in result.stderr


def test_a_table_of_defaults_states_no_option(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    result = CliRunner().invoke(app, ["compare", "golden", "--json", str(out)])
    assert result.exit_code == 0, result.output


def test_a_file_in_the_folder_that_is_written_is_no_file_without_a_folder(
    tmp_path: Path,
) -> None:
    """``--json`` is checked before the folder of ``--write`` is made, in any order."""
    row = ["compare", "golden", "--policies", "oes", "--write", str(tmp_path / "a/b")]
    for place in ("a/b/found.json", "a/found.json"):
        target = ["--json", str(tmp_path / place)]
        assert CliRunner().invoke(app, [*row[:2], *target, *row[2:]]).exit_code == 0
        assert (tmp_path / place).is_file()
        shutil.rmtree(tmp_path / "a")

    for place in ("a/b/c/found.json", "c/found.json"):
        refused = CliRunner().invoke(app, [*row, "--json", str(tmp_path / place)])
        assert refused.exit_code == 3
        assert not (tmp_path / "a").exists()


def test_a_picture_of_runs_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path,
) -> None:
    runs = [tmp_path / name for name in ("a", "b")]
    for run in runs:
        run.mkdir()
    picture = str(tmp_path / "none/x.svg")
    refused = CliRunner().invoke(app, ["compare", *map(str, runs), "--out", picture])

    assert refused.exit_code == 3
    assert f"{picture}: cannot be written" in refused.stderr


@pytest.mark.parametrize("command", ["run", "lab", "virtual"])
def test_a_file_among_the_runs_is_written_where_the_first_run_makes_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for options, place in (([], "runs"), (["--runs", "own/runs"], "own/runs")):
        words = [command, "none.yaml", "--json", f"{place}/x.json", *options]
        assert "none.yaml: " in CliRunner().invoke(app, words).stderr

    nowhere = CliRunner().invoke(app, [command, "none.yaml", "--json", "else/x.json"])
    assert "else/x.json: cannot be written" in nowhere.stderr
