"""``emu lab``: programs that know nothing of emu, to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.netns, pytest.mark.usefixtures("_a_lab_can_be_had")]

CLUSTER = """
cluster:
  machines:
    - {name: fast, nic: 100 Mbit/s}
    - {name: slow, nic: 20 Mbit/s}
"""
PROGRAMS = """
lab:
  programs:
    - {name: server, on: [fast], run: "sleep 600"}
    - {name: client, run: "echo $MASTER_ADDR {rank} {address of slow}"}
  until: client
"""


def invoke(folder: Path, text: str, *arguments: str) -> tuple[int, str, Path]:
    """Return exit code, output and run directory of ``emu lab``."""
    (folder / "lab.yaml").write_text(text)
    command = ["lab", str(folder / "lab.yaml"), "--runs", str(folder / "runs")]
    found = CliRunner().invoke(app, [*command, *arguments])
    return found.exit_code, found.output, next((folder / "runs").iterdir())


def test_a_command_runs_on_every_machine(tmp_path: Path) -> None:
    code, output, runs = invoke(tmp_path, CLUSTER, "--", "sh", "-c", "hostname; nproc")

    assert code == 0, output
    assert (runs / "command-slow.log").read_text().startswith("slow\n")
    with np.load(runs / "traffic.npz") as traffic:
        assert (traffic["packets"].size, traffic["messages"].size) == (0, 0)
        assert traffic["machines"].tolist() == ["fast", "slow"]
    assert (runs / "hosts.txt").read_text() == "10.77.0.1\n10.77.0.2\n"


def test_programs_run_until_those_that_decide_have_ended(tmp_path: Path) -> None:
    code, output, runs = invoke(tmp_path, CLUSTER + PROGRAMS)

    assert code == 0, output
    said = (runs / "client-slow.log").read_text()
    assert said == "10.77.0.1 1 10.77.0.2\n"


def test_the_first_failure_is_named_and_passed_on(tmp_path: Path) -> None:
    script = "test $(hostname) = slow && exit 7; exec sleep 600"
    code, output, _ = invoke(tmp_path, CLUSTER, "--", "sh", "-c", script)

    assert code == 7
    assert "command failed first, on slow" in output
