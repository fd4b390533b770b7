"""Load of this host: a warning with its cause, or a refusal."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from emu.cli import run_commands
from emu.cli.app import app
from emu.errors import RunUntrusted
from emu.experiment.host_load import HostLoad, check_load, host_load

if TYPE_CHECKING:
    from pathlib import Path

QUIET = HostLoad(0.01, 0.0, 0.0, 0.04)


def test_a_quiet_host_is_not_mentioned() -> None:
    said: list[str] = []
    check_load(QUIET, said.append, force=False)
    assert said == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("others", "other programs had 10% of the cores"),
        ("waits", "work waited for a core 10% of the time"),
        ("steal", "the hypervisor kept 10%"),
        ("clock", "the same work took 10% longer"),
    ],
)
def test_load_is_told_with_its_cause_or_refused(name: str, words: str) -> None:
    said: list[str] = []
    some = HostLoad(**{**vars(QUIET), name: 0.1})
    check_load(some, said.append, force=False)
    assert words in said[0]
    much = HostLoad(**{**vars(QUIET), name: 0.3})
    with pytest.raises(RunUntrusted, match="--force"):
        check_load(much, said.append, force=False)
    check_load(much, said.append, force=True)
    assert "too long" in said[-1]


@pytest.mark.untimed
def test_programs_on_every_core_are_measured() -> None:
    """However busy the host was before, these take their share of it."""
    command = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(command) for _ in os.sched_getaffinity(0)]
    try:
        found = host_load(2.0)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert found.worst > 0.2
    assert found.causes()


def test_a_profile_that_is_refused_leaves_no_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_commands, "host_load", lambda: HostLoad(0.9, 0, 0, 0))
    monkeypatch.setattr(run_commands, "prepare_profile", lambda _: None)
    monkeypatch.delenv("EMU_FORCE")
    out, runs = str(tmp_path / "out.yaml"), str(tmp_path)

    done = CliRunner().invoke(app, ["profile", "demo", out, "--runs", runs])

    assert done.exit_code == RunUntrusted.exit_code
    assert list(tmp_path.iterdir()) == []
