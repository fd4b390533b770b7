"""The process that holds a machine of a lab is named while the lab runs."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from emu.errors import DataError
from emu.experiment.run_result import evaluate_run
from emu.runs.audit_inputs import read_to_audit
from emu.runs.lab_file import holder_of, running_lab
from emu.runs.recorded_run import load_run, read_manifest

HOLDERS = {"a": 70, "b": 30, "c": 50}


def test_a_machine_is_held_as_long_as_its_lab_runs(tmp_path: Path) -> None:
    with running_lab(tmp_path, HOLDERS):
        assert [holder_of(tmp_path, name) for name in HOLDERS] == [70, 30, 50]
        with pytest.raises(
            DataError, match="d is no machine of this lab; there are a, b"
        ):
            holder_of(tmp_path, "d")
    with pytest.raises(DataError, match="no lab runs here"):
        holder_of(tmp_path, "a")
    with pytest.raises(DataError, match="no such run directory"):
        holder_of(tmp_path / "none", "a")


def test_what_a_killed_lab_has_left_tells_nothing_whoever_reads_it(
    tmp_path: Path,
) -> None:
    """Its lock went with it; another reader's is no lab's."""
    with running_lab(tmp_path, HOLDERS):
        (file,) = tmp_path.iterdir()
        content = file.read_text()
    file.write_text(content)
    with file.open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        with pytest.raises(DataError, match="no lab runs here"):
            holder_of(tmp_path, "a")


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("lab.json", r"is of a lab: its report\.html shows it"),
        ("machines.json", "is of a lab that has not ended$"),
        # That is left where one was interrupted.
        ("lines.npz", "is of a lab that has not ended$"),
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        load_run,
        read_to_audit,
        evaluate_run,
        lambda run: read_manifest(run / "manifest.json"),
    ],
)
def test_commands_of_runs_say_that_a_directory_is_of_a_lab(
    read: Callable[[Path], object], file: str, problem: str, tmp_path: Path
) -> None:
    """`emu report LAB` said that problem.json is missing."""
    (tmp_path / file).write_text("{}")
    with pytest.raises(DataError, match=problem):
        read(tmp_path)
