"""``emu exec``: a command beside the programs of a lab, over a real one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import RunError
from emu.lab.machines.cpu_groups import (
    CpuGroups,
    Hierarchy,
    plan_cpu,
    remove_left_behind,
)

pytestmark = [pytest.mark.netns, pytest.mark.usefixtures("_a_lab_can_be_had")]

EMU = [sys.executable, "-m", "emu"]
CLUSTER = """
cluster: {machines: [{name: fast, nic: 100 Mbit/s}, {name: slow, nic: 20 Mbit/s}]}
"""


@contextmanager
def lab(folder: Path, scale: int = 1) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run a lab whose programs never end; yield its process and its run."""
    (folder / "lab.yaml").write_text(f"{CLUSTER}lab: {{time_scale: {scale}}}\n")
    command = [*EMU, "lab", f"{folder}/lab.yaml", "--runs", f"{folder}/runs"]
    process = subprocess.Popen(
        [*command, "--", "sleep", "600"], stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            while not (found := [*folder.glob("runs/*/machines.json")]):
                assert process.poll() is None
                time.sleep(0.02)
            yield process, found[0].parent
        finally:
            process.kill()


def refused(*arguments: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["exec", *map(str, arguments)])
    return found.exit_code, found.output


@pytest.mark.untimed
def test_a_command_runs_beside_a_lab_until_it_ends(tmp_path: Path) -> None:
    with lab(tmp_path) as (process, run):
        beside = [*EMU, "exec", str(run), "slow", "--", "sh", "-c"]
        told = subprocess.run(
            [*beside, "hostname; pwd; echo $EMU_MACHINE; ps -A | wc -l; exit 7"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert told.stdout.split()[:3] == ["slow", str(tmp_path), "slow"], told.stderr
        assert int(told.stdout.split()[3]) < 10  # it sees the machine's processes
        assert told.returncode == 7
        lasting = subprocess.Popen(
            [*beside, "echo up; exec sleep 600"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with lasting:
            assert lasting.stdout is not None
            assert lasting.stdout.readline() == "up\n"
            assert refused(run, "slow") == (
                2,
                "emu: there is no command: emu exec RUN MACHINE -- COMMAND\n",
            )
            code, said = refused(run, "big", "--", "true")
            assert (code, said.split(": ", 2)[2]) == (
                3,
                "big is no machine of this lab; there are fast, slow\n",
            )
            process.send_signal(signal.SIGINT)
            _, said = lasting.communicate(timeout=30)
        assert lasting.returncode == 128 + signal.SIGKILL
        assert said == "emu: the lab has ended, and the command with it\n"
        assert process.wait(timeout=30) == 130
    code, said = refused(run, "slow", "--", "true")
    assert (code, "no lab runs here: it has ended" in said) == (3, True)


def test_a_lab_that_was_killed_has_ended(tmp_path: Path) -> None:
    (tmp_path / "machines.json").write_text(f'{{"slow": {os.getpid()}}}')

    code, said = refused(tmp_path, "slow", "--", "true")

    assert (code, "no lab runs here: it has ended" in said) == (3, True)
    assert "there is no such run directory" in refused(tmp_path / "x", "a", "b")[1]


@pytest.mark.untimed
def test_a_command_takes_of_its_machine_s_quota_and_kill_leaves_no_group(
    tmp_path: Path,
) -> None:
    try:
        CpuGroups({"m": plan_cpu(1.0, 4.0)}).close()
    except RunError as error:
        pytest.skip(f"no groups here: {error}")
    at = Hierarchy.find()
    with lab(tmp_path, scale=4) as (process, run):
        (top,) = at.folder.glob(f"emu-lab-{process.pid}-*")
        joined = subprocess.run(
            [*EMU, "exec", str(run), "slow", "--", "cat", "/proc/self/cgroup"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"/{top.name}/1\n" in joined.stdout
        process.kill()
        process.wait()
    remove_left_behind(at)

    assert not top.exists()
