"""A command writes over no file that it reads, or writes by another option."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from emu.cli import app
from emu.cli.written_files import WRITTEN

#: Parameters of commands that are paths, and are read or hold folders of runs.
READ = {"against", "features", "file", "files", "hosts", "labels", "near", "result"}
READ |= {"resume", "run", "runs", "scenario", "sign", "splits", "trace", "what"}


def test_a_path_of_a_command_is_known_as_one_that_is_read_or_written() -> None:
    """A path of a new name would be written over what the command reads."""
    group = get_command(app)
    found = {"json_target"}
    for command in group.list_commands(None):  # type: ignore[attr-defined]
        callback = group.get_command(None, command).callback  # type: ignore[attr-defined]
        parameters = inspect.signature(inspect.unwrap(callback)).parameters
        kinds = {name: str(each.annotation) for name, each in parameters.items()}
        found |= {name for name, kind in kinds.items() if "Path" in kind}
    assert found == READ | WRITTEN


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("simulate job.yaml --json job.yaml", "--json job.yaml: is that of FILE too"),
        ("what a job.yaml --json ./job.yaml", "--json job.yaml: is that of FILE... to"),
        ("advise job.yaml --write job.yaml", "--write job.yaml: is that of FILE too"),
        ("advise job.yaml --write b --json b", "--json b: is that of --write too"),
        ("fit . -o fit.yaml --json fit.yaml", "--json fit.yaml: is that of --out too"),
        ("share . key.zip --sign key.zip", "OUT.zip key.zip: is that of --sign too"),
        ("profile job.yaml job.yaml", "OUT job.yaml: is that of FILE too"),
    ],
)
def test_a_file_that_is_read_is_not_replaced(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("job.yaml", "key.zip"):
        (tmp_path / name).write_text("name: kept")
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 2
    assert said in result.stderr
    assert {path.read_text() for path in tmp_path.iterdir()} == {"name: kept"}
    assert len([*tmp_path.iterdir()]) == 2


@pytest.mark.parametrize(
    ("words", "is_refused"),
    [
        ("fit run -o run/lab.json", True),
        ("audit run --json run/setup/result.json", True),
        ("compare job.yaml run --json ./run/result.json", True),
        ("fit . -o run/lab.json", True),
        # Of no run, of another, not there, or made again by whoever asks for it.
        ("fit run -o run/fit.yaml", False),
        ("audit run --json other/result.json", False),
        ("audit other --json other/lab.json", False),
        ("lab job.yaml --runs run --json run/result.json", False),
        ("report run --out run/result.json", True),
    ],
)
def test_no_record_of_a_run_that_is_read_is_replaced(
    words: str,
    is_refused: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["run/lab.json", "run/result.json", "run/setup/result.json"]
    for name in (*names, "run/fit.yaml", "other/result.json", "job.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("name: kept")
    refused = CliRunner().invoke(app, words.split())
    assert ("is a record of " in refused.stderr) == is_refused
    assert all((tmp_path / name).read_text() == "name: kept" for name in names)


def test_devices_and_names_of_no_files_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # The scenario is a shipped one, and the file of results beside it is new.
    for words in ("validate golden --json golden", "what /dev/null --json /dev/null"):
        assert "is that of" not in CliRunner().invoke(app, words.split()).stderr


def test_a_fit_that_cannot_be_written_is_refused_before_it_is_made() -> None:
    refused = CliRunner().invoke(app, ["fit", ".", "-o", "no_folder/fit.yaml"])
    assert refused.exit_code == 3
    assert "no_folder/fit.yaml: cannot be written" in refused.stderr


def test_what_is_no_run_directory_is_evaluated_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").touch()
    for name in ("job.yaml", "none"):
        refused = CliRunner().invoke(app, ["evaluate", name])
        assert refused.exit_code == 3
        assert refused.stderr == f"emu: {name}: is not a run directory\n"
