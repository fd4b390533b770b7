"""``emu virtual`` refuses, or says, what its options change nothing of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from emu.cli import app, virtual_command
from emu.virtual.calls import Mismatch
from emu.virtual.control import RankLost
from emu.virtual.virtual_time import Deadlock

CLUSTER = "cluster: {machines: [{name: m, count: 2, nic: 1 Gbit/s, cpu: 1}]}"


def answer(*words: str) -> Any:
    Path("cluster.yaml").write_text(CLUSTER)
    Path("program.py").touch()
    program = ["--", "python", "program.py"]
    return CliRunner().invoke(app, ["virtual", "cluster.yaml", *words, *program])


def test_what_is_refused_leaves_no_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = answer("--charge", "1 ms", "--free-messages")
    assert refused.exit_code == 2
    assert "--free-messages: changes nothing beside --charge" in refused.stderr
    pytest.importorskip("torch", reason="ranks need torch")
    refused = answer("--threads", "99")
    assert refused.exit_code == 2
    assert "state a core for each" in refused.stderr
    assert not [*tmp_path.glob("runs/*")]


@pytest.mark.parametrize("count", [0, 1])
def test_a_mark_that_nothing_printed_is_said(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = dict.fromkeys(("median", "least", "most", "first"), 1.0)
    result = {"steps": {"count": count, **steps}}
    monkeypatch.setattr(virtual_command, "run_virtual", lambda *_: result)
    said = answer("--mark", "step", "--json", "-").stderr
    assert ("no two lines with 'step', which --mark" in said) == (not count)
    assert "no two lines" not in answer("--json", "-").stderr


def test_ranks_that_fail_are_a_failed_run() -> None:
    """Exit code 1 is that of a pipe that was closed."""
    assert {RankLost.exit_code, Deadlock.exit_code, Mismatch.exit_code} == {5}
