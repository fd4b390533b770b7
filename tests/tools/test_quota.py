"""``tools/quota`` runs a command in a group of its own, and leaves none behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

QUOTA = Path(__file__).parents[2] / "tools" / "quota"


def test_a_command_runs_in_a_group_and_its_status_is_passed_on() -> None:
    command = [sys.executable, str(QUOTA), "0.5", "sh", "-c"]
    done = subprocess.run(
        [*command, "cat /proc/self/cgroup; exit 7"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.stderr.startswith("quota: "):
        pytest.skip(done.stderr.strip())

    assert done.returncode == 7
    (line,) = [line for line in done.stdout.splitlines() if "/emu-lab-" in line]
    group = line.rpartition("/emu-lab-")[2].partition("/")[0]
    assert not [*Path("/sys/fs/cgroup").glob(f"**/emu-lab-{group}")]


def test_a_command_must_be_there() -> None:
    done = subprocess.run(
        [sys.executable, str(QUOTA), "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "CORES COMMAND" in done.stderr
