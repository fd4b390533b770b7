"""``emu lab``: programs that know nothing of emu, to their end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import DataError
from emu.lab.fit_run import fit_run

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
events: [{at: 1 ms, machine: slow, nic: 5 Mbit/s}]
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
    lab = json.loads((runs / "lab.json").read_text())
    ends = {run["program"]: (run["code"], run["stopped"]) for run in lab["programs"]}
    assert ends == {"server": (-15, True), "client": (0, False)}
    assert [event["nic_in"] for event in lab["events"]] == [5e6 / 8]
    page = (runs / "report.html").read_text()
    assert "the picture is" in output
    assert "signal 15, asked to at the end" in page
    with pytest.raises(DataError, match="NICs changed while it ran"):
        fit_run(runs)


def test_what_a_program_prints_fills_a_file_and_nothing_else(tmp_path: Path) -> None:
    script = "yes | head -c 5000000; trap '' TERM; setsid sleep 600 & :"
    code, output, runs = invoke(tmp_path, CLUSTER, "--", "sh", "-c", script)

    assert code == 0, output
    assert (runs / "command-fast.log").stat().st_size == 5_000_000


def test_the_first_failure_is_named_and_passed_on(tmp_path: Path) -> None:
    script = "test $(hostname) = slow && exit 7; exec sleep 600"
    code, output, _ = invoke(tmp_path, CLUSTER, "--", "sh", "-c", script)

    assert code == 7
    assert "command failed first, on slow, with exit code 7" in output


TOOL = """
lab:
  programs:
    - {name: tool, run: "test {rank} = 1 || cp /bin/true /dev/shm/it; /dev/shm/it"}
"""


@pytest.mark.parametrize(
    ("text", "command", "said"),
    [
        (TOOL, [], "tool failed first, on slow, with exit code 127"),
        ("", ["--", "no-such-tool"], "no-such-tool: not found"),
    ],
)
def test_a_command_that_a_machine_lacks_is_named(
    text: str, command: list[str], said: str, tmp_path: Path
) -> None:
    code, output, _ = invoke(tmp_path, CLUSTER + text, *command)

    assert code == 127
    assert said in output
    assert "not found" in output.splitlines()[-1]


STUBBORN = """
lab:
  programs:
    - {name: server, on: [fast], run: "trap '' TERM; sleep 600"}
    - {name: client, on: [slow], run: "sleep 0.2"}
  until: client
"""


def test_a_program_that_ignores_its_end_is_killed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emu.lab.run.GRACE", 0.3)
    code, output, runs = invoke(tmp_path, CLUSTER + STUBBORN)

    assert code == 0, output
    assert "server on fast ran on for 0.3 s after SIGTERM: it is killed" in output
    server, client = json.loads((runs / "lab.json").read_text())["programs"]
    assert (server["code"], server["stopped"]) == (-9, True)
    assert server["end"] >= client["end"] + 0.3
