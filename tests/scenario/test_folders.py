"""A folder in place of a file is said to be one, and what in it is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.errors import ScenarioError
from emu.scenario import load


def test_a_folder_is_no_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "first"
    run.mkdir(parents=True)
    for path in ("runs", "runs/first", ".", tmp_path):
        with pytest.raises(ScenarioError, match=r"is a folder without a lab\.yaml"):
            load(path)

    (run / "scenario.txt").touch()
    with pytest.raises(ScenarioError, match=r"scenario is runs/first/scenario\.txt"):
        load("runs/first")

    # A folder of a shipped scenario's name hides it from nobody.
    (tmp_path / "golden").mkdir()
    assert load("golden").name == "golden"
