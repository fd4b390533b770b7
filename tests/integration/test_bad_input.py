"""Bad data and full disks, as a user of the command line meets them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.problem.job import Cut
from emu.runs.run_directory import newest_cut, write_cut
from tests.integration.scenarios import GOLDEN, emu, tiny_training, written

VERTICES = 40


def npz(folder: Path, **changes: Any) -> Path:
    """Write a graph of 40 vertices in a ring; arrays may be replaced by keyword."""
    arrays: dict[str, Any] = {
        "adj_indptr": np.arange(VERTICES + 1),
        "adj_indices": np.roll(np.arange(VERTICES), -1),
        "adj_shape": [VERTICES, VERTICES],
        "attr_indptr": np.arange(VERTICES + 1),
        "attr_indices": np.arange(VERTICES) % 4,
        "attr_data": np.ones(VERTICES, np.float32),
        "attr_shape": [VERTICES, 4],
        "labels": np.arange(VERTICES) % 2,
        **changes,
    }
    (folder / "ring").mkdir()
    np.savez(folder / "ring" / "ring.npz", **arrays)
    return folder / "ring" / "ring.npz"


@pytest.mark.parametrize("command", ["run", "profile"])
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"attr_data": np.where(np.arange(VERTICES) == 11, np.nan, 1.0)},
            "feature 3 of vertex 11 is nan",
        ),
        (
            {"adj_indices": np.where(np.arange(VERTICES) == 5, 40, 0)},
            "edge 5 names vertex 40",
        ),
    ],
    ids=["NaN", "vertex out of range"],
)
def test_a_wrong_graph_is_named_before_anything_starts(
    command: str, changes: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    graph = npz(tmp_path, **changes)
    dataset = {"name": "ring", "directory": str(tmp_path)}
    file = written(tiny_training(1, dataset=dataset), tmp_path)
    more = ["profile.json"] if command == "profile" else []
    done = emu(command, file, *more, cwd=tmp_path)

    assert done.returncode == 3, done.stderr
    assert str(graph) in done.stderr
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "profile.json").exists()


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Mount a file system of so many KiB, where that is allowed."""
    disk = tmp_path / "disk"
    disk.mkdir()
    size = f"size={getattr(request, 'param', 256)}k"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("a file system can only be mounted by root")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path, left: int) -> None:
    """Fill a disk to all but ``left`` bytes."""
    with contextlib.suppress(OSError), (disk / "ballast").open("wb", 0) as file:
        while True:
            file.write(bytes(4096))
    os.truncate(disk / "ballast", (disk / "ballast").stat().st_size - left)


@pytest.mark.parametrize("small_disk", [256, 1024], indirect=True)
def test_a_full_disk_under_the_dataset_cache(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too small for the edges (0.5 MB), then for 2,449 rows of 100 features (1 MB)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_disk))
    file = written(tiny_training(1), tmp_path)
    done = emu("simulate", file, cwd=tmp_path)

    assert done.returncode == 3, done
    assert "prepared data cannot be written: No space left on device" in done.stderr
    prepared = small_disk / "emu" / "prepared"
    assert [path.suffix for path in prepared.iterdir()] == [".lock"]


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.parametrize("left", [0, 4096, 32768])
def test_a_full_disk_under_the_run_directory(
    left: int, small_disk: Path, tmp_path: Path
) -> None:
    """Full from the start, before the run, and only when results are written."""
    fill(small_disk, left)
    quick = ["emulation.time_scale=0.01", "emulation.byte_scale=2000", "expect=null"]
    options = [word for override in quick for word in ("--set", override)]
    done = emu("run", GOLDEN, *options, "--runs", small_disk, cwd=tmp_path)

    assert done.returncode == 3, done
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(small_disk.glob("*/result.json"))
    assert not list(small_disk.glob("*/*.partial*"))


def test_a_checkpoint_on_a_full_disk_is_whole_or_not_there(small_disk: Path) -> None:
    """With any room from nothing on: the state takes three pages, the record one."""
    states = {"ps0": {"parameters": np.zeros(800)}, "w0": {"moments": np.ones(300)}}
    owners, run = states.keys(), small_disk / "run"
    write_cut(run, "job", Cut(2, states))
    ended = []
    for pages in range(7):
        fill(small_disk, 4096 * pages)
        said = ""
        try:
            write_cut(run, "job", Cut(4, states))
        except DataError as error:
            said = str(error)
        ended.append(2 if said else 4)
        assert ("written: No space left on device" in said) is (ended[-1] == 2)
        assert (str(run / "checkpoints/00000004") in said) is (ended[-1] == 2)
        assert newest_cut(run, "job", owners, pytest.fail).iteration == ended[-1]
        assert not list(run.rglob("*.partial*"))
        shutil.rmtree(run / "checkpoints/00000004", ignore_errors=True)
    assert ended == sorted(ended)
    assert {*ended} == {2, 4}
