"""A system of a package of its own goes through every command (docs/systems.md)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.several_commands import Elsewhere, carry_out

if TYPE_CHECKING:
    from collections.abc import Callable

    Emu = Callable[..., str]
    Environment = dict[str, str]

TOY = Path(__file__).parent / "toy"
FILE = """\
cluster:
  machines: [{nic: 20 MB/s, count: 2}]
job: {system: echo, iterations: 4, pairs: 2, question: 400 kB, echo: 100 kB, time: 5 ms}
placement: {policy: explicit, tasks: {a0: m0, e0: m1, a1: m1, e1: m0}}
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """Return a folder with the toy package, to be changed."""
    return Path(shutil.copytree(TOY, tmp_path / "toy"))


@pytest.fixture
def installed(tmp_path: Path, toy: Path) -> Environment:
    """Return the environment of processes that have the toy system installed."""
    info = tmp_path / "site" / "emu_echo-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: emu_echo\nVersion: 1\n"
    )
    (info / "entry_points.txt").write_text("[emu.systems]\necho = emu_echo:ECHO\n")
    (tmp_path / "echo.yaml").write_text(FILE)
    return {**os.environ, "PYTHONPATH": f"{info.parent}{os.pathsep}{toy}"}


@pytest.fixture
def emu(tmp_path: Path, installed: Environment) -> Emu:
    """Return a function that runs a command with the toy system installed."""

    def run(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "emu", *words],
            cwd=tmp_path,
            env=installed,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_every_command_takes_a_system_of_ones_own(
    installed: Environment, tmp_path: Path
) -> None:
    """Each question lasts 5 + 20 ms, each echo 5 + 5: four, less the last way back."""

    def print_several(*commands: list[str]) -> list[str]:
        ended = carry_out(*commands, folder=tmp_path, environment=installed)
        assert [command.code for command in ended] == [0] * len(commands), ended
        return [command.stdout for command in ended]

    _, schema, simulated, *_ = print_several(
        ["validate", "echo.yaml"],
        ["schema"],
        ["simulate", "echo.yaml", "--json", "-"],
        ["place", "echo.yaml", "--set", "placement={policy: best}"],
        ["run", "echo.yaml", "--runs", "runs"],
        ["explain", "echo.yaml"],
        ["compare", "echo.yaml"],
    )
    assert "EchoJobSection" in json.loads(schema)["$defs"]
    makespan = json.loads(simulated)["makespan"]
    assert makespan == pytest.approx(4 * 0.035 - 0.005)
    # In another process, which knows of the run what its directory says.
    (run,) = (tmp_path / "runs").iterdir()
    print_several(["audit", str(run)], ["report", str(run)])


def test_its_guard_finds_what_its_program_does_wrong(
    installed: Environment, tmp_path: Path
) -> None:
    with Elsewhere(tmp_path, installed) as elsewhere:
        short = ["--set", "job.echo=500 kB", "--runs", "runs"]
        assert elsewhere.carry_out(["run", "echo.yaml", *short]).code == 0
        (run,) = (tmp_path / "runs").iterdir()
        audited = elsewhere.carry_out(["audit", str(run)])
    verdict = json.loads((run / "result.json").read_text())["verdict"]
    assert "short echoes" in {finding["guard"] for finding in verdict["guards"]}
    assert audited.code == 6
    assert "short echoes" in audited.output


def test_a_wrong_key_names_what_the_system_knows(emu: Emu) -> None:
    found = emu("validate", "echo.yaml", "--set", "job.qestion=4 kB", code=2)
    assert "did you mean 'question'?" in found


def test_a_broken_package_is_one_clear_error(emu: Emu, tmp_path: Path) -> None:
    points = next((tmp_path / "site").glob("*/entry_points.txt"))
    points.write_text("[emu.systems]\necho = emu_echo:NOTHING\n")
    found = emu("simulate", "echo.yaml", code=1)
    assert "entry point echo = emu_echo:NOTHING" in found
    assert "Traceback" not in found


def change(toy: Path, old: str, new: str) -> None:
    section = toy / "emu_echo" / "section.py"
    text = section.read_text()
    assert old in text
    section.write_text(text.replace(old, new))


def test_a_section_that_fails_to_import_names_its_package(
    installed: Environment, toy: Path, tmp_path: Path
) -> None:
    change(toy, "import numpy as np", "import numpy_that_is_not_there as np")
    commands = ["simulate", "golden"], ["simulate", "echo.yaml"]
    golden, echo = carry_out(*commands, folder=tmp_path, environment=installed)
    assert golden.code == 0  # it imports no section but its own
    assert echo.code == 1
    (line,) = echo.output.splitlines()
    assert "echo = emu_echo:ECHO" in line
    assert "which emu_echo brings" in line
    assert "numpy_that_is_not_there" in line


def test_a_realization_of_wrong_shape_says_which(emu: Emu, toy: Path) -> None:
    change(toy, "np.full((len(job.tasks), job", "np.full((len(job.tasks) - 1, job")
    (line,) = emu("simulate", "echo.yaml", code=1).splitlines()
    assert "system echo realizes times of shape (3, 4), not (4, 4)" in line


def test_what_a_section_is_typed_with_is_there_at_run_time() -> None:
    from emu.systems import Edit, Problems, Times

    assert {Edit, Problems, Times}
