"""``emu advise`` refuses options that would change nothing of what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.cli import app

TASKS = "tasks: [{name: w, time: 1 s}]"
SEVERAL = f"""
cluster: {{machines: [{{nic: 1 Gbit/s}}]}}
jobs:
  - {{name: a, job: {{system: custom, iterations: 2, {TASKS}}}}}
  - {{name: b, job: {{system: custom, iterations: 2, {TASKS}}}}}
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["several.yaml", "--seeds", "3"], "--seeds: is of one job"),
        (["several.yaml", "--budget", "1 $"], "--budget: is of one job"),
        (["several.yaml", "--within", "9"], "--within: is of an accuracy"),
        (["demo", "--per-epoch", "--within", "9"], "--within: is of an accuracy"),
        (["demo", "--sum"], "--sum: is of several jobs"),
        (["demo", "--per-epoch", "--deadline", "0 s"], "--deadline: found '0 s'"),
        (["demo", "--per-epoch", "--budget", "0 $"], "--budget: found '0 $', which"),
        (["demo", "--write", "none/best.yaml"], "none/best.yaml: cannot be written"),
    ],
)
def test_an_option_that_changes_nothing_is_refused(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "several.yaml").write_text(SEVERAL)
    result = CliRunner().invoke(app, ["advise", *words])
    assert result.exit_code in (2, 3)
    assert said in result.stderr
