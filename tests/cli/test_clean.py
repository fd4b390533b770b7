"""Tests of `emu clean` as a command."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.cli import app


def test_a_stated_directory_has_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistyped one was answered by "nothing was left behind"."""
    monkeypatch.chdir(tmp_path)
    for name in ("rusn", "runs"):
        absent = CliRunner().invoke(app, ["clean", "--runs", name])
        assert absent.exit_code == 3

    # Where no run was started yet there is no directory, and nothing to remove.
    assert CliRunner().invoke(app, ["clean"]).exit_code == 0
