"""One error for each thing that a run lacks, before it starts; warnings of load."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from emu.cli import run_commands
from emu.cli.app import app
from emu.errors import DataError, RunUntrusted
from emu.experiment import profiling
from emu.experiment.dry_run import check_ready
from emu.experiment.profiling import HostLoad, check_load, host_load
from emu.host.foreign_code import import_library, is_installed
from emu.scenario import load


class Blocks:
    """A finder that refuses torch."""

    def find_spec(self, name: str, *_: Any) -> None:
        """Find nothing."""
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name=name)


def broken(folder: Path, kind: str) -> None:
    """Write something called torch that is none."""
    if kind == "module":
        (folder / "torch.py").write_text("raise ImportError")
    else:
        (folder / "torch").mkdir()
        (folder / "torch" / "__init__.py").write_text("raise ImportError")


@pytest.mark.parametrize("kind", ["module", "package", "blocked"])
def test_torch_that_cannot_be_imported(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "blocked":
        monkeypatch.setattr("sys.meta_path", [Blocks(), *sys.meta_path])
    else:
        broken(tmp_path, kind)
        monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "torch", raising=False)

    assert not is_installed("torch")
    with pytest.raises(DataError, match=r"torch is not installed .*emulator\[train\]"):
        check_ready(load("demo"), tmp_path)
    check_ready(load("demo"), tmp_path, here=False)
    check_ready(load("golden"), tmp_path)  # trains nothing


@pytest.mark.parametrize("raised", ["OSError('no libc10')", "RuntimeError", "KeyError"])
def test_torch_that_is_installed_but_fails_is_one_error(
    raised: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(f"raise {raised}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "torch", raising=False)

    with pytest.raises(DataError, match="which is installed but does not import: "):
        import_library("torch", "net.py:Net", "install it")


@pytest.mark.parametrize("name", ["demo", "testbed_reddit"])
def test_a_run_without_torch_ends_before_what_it_would_need_is_imported(
    name: str, tmp_path: Path
) -> None:
    """Most of the CPU time goes into reading the scenario."""
    broken(tmp_path, "module")
    asked = (
        "import atexit, sys; from emu.cli.app import main; sys.argv[:] = ['emu', "
        f"'run', {name!r}]; atexit.register(lambda: print(*sys.modules)); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", asked],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == DataError.exit_code
    assert done.stderr.startswith("emu: this job trains, and torch is not installed")
    assert done.stderr.count("\n") == 1
    needed = {"dgl", "matplotlib", "networkx", "pandas", "pymetis", "scipy.sparse"}
    assert not needed & {*done.stdout.split()}
    assert [path.name for path in tmp_path.iterdir()] == ["torch.py"]


def test_a_data_set_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMU_DATA", str(tmp_path))
    with pytest.raises(DataError, match="amazon_computers is not there"):
        check_ready(load("amazon_computers"), tmp_path)


@pytest.mark.parametrize("inner", [[], ["x"], ["x", "y"]])
def test_a_file_where_runs_should_go(inner: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    runs = Path(tmp_path, "file", *inner)
    with pytest.raises(DataError, match="Not a directory; choose another with --runs"):
        check_ready(load("golden"), runs)


def test_proc_takes_no_runs() -> None:
    with pytest.raises(DataError, match="cannot make a run directory here"):
        check_ready(load("golden"), Path("/proc/runs"))


def test_nothing_is_left_where_there_is_room(tmp_path: Path) -> None:
    check_ready(load("golden"), tmp_path / "runs" / "inner")

    assert list(tmp_path.iterdir()) == []


QUIET = HostLoad(0.01, 0.0, 0.0, 0.04)


def test_a_quiet_host_is_not_mentioned() -> None:
    said: list[str] = []
    check_load(QUIET, said.append, force=False)
    assert said == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("others", "other programs had 10% of the cores"),
        ("waits", "work waited for a core 10% of the time"),
        ("steal", "the hypervisor kept 10%"),
        ("clock", "the same work took 10% longer"),
    ],
)
def test_load_is_told_with_its_cause_or_refused(name: str, words: str) -> None:
    said: list[str] = []
    some = HostLoad(**{**vars(QUIET), name: 0.1})
    check_load(some, said.append, force=False)
    assert words in said[0]
    much = HostLoad(**{**vars(QUIET), name: 0.3})
    with pytest.raises(RunUntrusted, match="--force"):
        check_load(much, said.append, force=False)
    check_load(much, said.append, force=True)
    assert "too long" in said[-1]


@pytest.mark.untimed
def test_programs_on_every_core_are_measured() -> None:
    """However busy the host was before, these take their share of it."""
    command = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(command) for _ in os.sched_getaffinity(0)]
    try:
        found = host_load(2.0)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert found.worst > 0.2
    assert found.causes()


def test_a_profile_that_is_refused_leaves_no_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_commands, "host_load", lambda: HostLoad(0.9, 0, 0, 0))
    monkeypatch.setattr(profiling, "prepare_profile", lambda _: None)
    monkeypatch.delenv("EMU_FORCE")
    out, runs = str(tmp_path / "out.yaml"), str(tmp_path)

    done = CliRunner().invoke(app, ["profile", "demo", out, "--runs", runs])

    assert done.exit_code == RunUntrusted.exit_code
    assert list(tmp_path.iterdir()) == []


def test_load_up_to_a_limit_is_no_warning_and_no_refusal() -> None:
    said: list[str] = []
    at_limits = HostLoad(0.05, 0.02, 0.03, 0.01)
    check_load(at_limits, said.append, force=False)
    assert said == []
    assert at_limits.causes() == []
    much = HostLoad(others=0.07, waits=0.2, steal=0.1, clock=0.05)
    check_load(much, said.append, force=False)
    # The worst first, and nothing at the limit.
    assert [cause.split()[0] for cause in much.causes()] == ["work", "the", "other"]
    assert len(said) == 1
    assert (much.worst, at_limits.worst) == (0.2, 0.05)


def test_load_is_what_cores_did_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four cores for 10 s: 24 idle, 4 stolen, 9 busy, of which 5 this loop.

    A loop takes 0.2 s of CPU at best, and 0.25 s at the median of three.
    """
    counters = iter(
        [
            {"busy": 7.0, "idle": 100.0, "steal": 3.0},
            {"busy": 16.0, "idle": 124.0, "steal": 7.0},
        ]
    )
    # At the start, twice per loop, and at the end.
    threads = iter([0.0, 1.0, 1.25, 2.0, 2.2, 3.0, 3.3, 6.0])
    # Start, before each of four looks, and the end.
    walls = iter([50.0, 50.1, 50.2, 50.3, 60.0, 60.0])
    processes = iter([1.0, 6.0])
    clock = SimpleNamespace(
        monotonic=lambda: next(walls),
        thread_time=lambda: next(threads),
        process_time=lambda: next(processes),
    )
    monkeypatch.setattr(profiling, "time", clock)
    monkeypatch.setattr(profiling, "host_cpu", lambda: next(counters))
    monkeypatch.setattr(profiling, "usable_cores", lambda: 4)
    monkeypatch.setattr(profiling, "_STEPS", 1)
    found = host_load(10.0)
    assert found.others == pytest.approx(4.0 / 40.0)
    assert found.waits == pytest.approx(0.4)
    assert found.steal == pytest.approx(0.1)
    assert found.clock == pytest.approx(0.25)
