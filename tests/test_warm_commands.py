"""Copies that are commands do what commands do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm_commands import WarmCommands


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("simulate golden", 0),
        ("simulate golden --set job.iterations=x", 2),
        ("simulates", 2),
        ("--version", 0),
    ],
)
def test_it_ends_and_prints_as_its_command(
    line: str, code: int, tmp_path: Path, warm_commands: WarmCommands
) -> None:
    command = [sys.executable, "-P", "-m", "emu", *line.split()]
    expected = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    found = warm_commands.run(*line.split(), cwd=tmp_path)

    assert found.returncode == expected.returncode == code
    assert found.stdout == expected.stdout
    assert found.stderr == expected.stderr


def test_a_signal_interrupts_it(tmp_path: Path, warm_commands: WarmCommands) -> None:
    with (tmp_path / "said").open("w+") as said:
        listens = ["agent", "127.0.0.1:1", "--patience", "60"]
        process = warm_commands.start(*listens, cwd=tmp_path, stderr=said)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGTERM)

        assert process.wait_here() == 130
        said.seek(0)
        assert said.read() == "emu: interrupted by SIGTERM\n"
        assert process.poll() == 130
