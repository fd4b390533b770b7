"""Version of the emu that runs on this computer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

import emu
from emu.host.this_host import host_cpu, seconds_without_core

PACKAGE = Path(emu.__file__).parent
ASK = "from emu.host.this_host import version_of_emu; print(version_of_emu())"
ROOMS = ("__init__.py", "errors.py", "names.py", "units.py", "host")


def git(tree: Path, *words: str) -> str:
    name = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", "-C", tree, *name, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def version_in(tree: Path) -> str:
    done = subprocess.run(
        [
            sys.executable,
            "-B",
            "-P",
            "-c",
            f"import sys; sys.path.insert(0, '.'); {ASK}",
        ],
        cwd=tree,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_waits_for_a_core_are_counted_in_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Linux tells nanoseconds on a core, those of waiting for one, and turns."""
    monkeypatch.setattr(Path, "read_text", lambda _: "7000000000 2500000000 12\n")
    assert seconds_without_core() == 2.5
    monkeypatch.setattr(Path, "read_text", lambda _: "")
    assert seconds_without_core() == 0.0


def test_the_version_has_the_commit_of_the_tree_that_runs(tmp_path: Path) -> None:
    """In a copy of its own: installed, in a tree of git, and with a change in it."""
    (tmp_path / "emu").mkdir()
    for room in ROOMS:
        source = PACKAGE / room
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, tmp_path / "emu" / room)
    assert version_in(tmp_path) == emu.__version__

    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    commit = git(tmp_path, "rev-parse", "--short", "HEAD")
    assert version_in(tmp_path).startswith(f"{emu.__version__}+{commit[:7]}")
    assert not version_in(tmp_path).endswith("-dirty")

    with (tmp_path / "emu" / "errors.py").open("a") as file:
        file.write("# changed\n")
    assert version_in(tmp_path).endswith("-dirty")


class Times(NamedTuple):
    """Seconds of a host's cores, as psutil has them on Linux."""

    user: float
    nice: float
    system: float
    idle: float
    iowait: float
    steal: float
    guest: float
    guest_nice: float


def test_cores_are_busy_with_all_but_idle_and_stolen_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system counts seconds of guests among those of users: they count once."""
    times = Times(100.0, 20.0, 3.0, 400.0, 50.0, 6.0, 30.0, 7.0)
    monkeypatch.setattr(psutil, "cpu_times", lambda: times)

    assert host_cpu() == {"busy": 123.0, "idle": 450.0, "steal": 6.0}

    def fail() -> None:
        raise OSError("no /proc")

    monkeypatch.setattr(psutil, "cpu_times", fail)
    assert host_cpu() == {"busy": 0.0, "idle": 0.0, "steal": 0.0}
