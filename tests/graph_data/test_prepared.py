"""The cache: whole or refused, made once, whatever is killed or flipped."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.graph_data import open_columns
from emu.graph_data.dataset import open_dataset
from emu.graph_data.prepared import (
    forget_oldest,
    list_finished,
    lock_of,
    prepare_arrays,
)

FORK = multiprocessing.get_context("fork")


def build(partial: Path) -> dict[str, Any]:
    np.save(partial / "numbers.npy", np.arange(100))
    with (partial.parent / "builds").open("a") as file:
        file.write("x")
    return {"answer": 42}


def test_what_was_built_is_read_back(tmp_path: Path) -> None:
    for _ in range(2):
        prepared = prepare_arrays(tmp_path / "set", build)

        assert prepared.facts == {"answer": 42}
        np.testing.assert_array_equal(prepared.array("numbers"), np.arange(100))
    assert (tmp_path / "builds").read_text() == "x"


def test_arrays_are_mapped_read_only(tmp_path: Path) -> None:
    array = prepare_arrays(tmp_path / "set", build).array("numbers")

    assert not array.flags.writeable
    assert isinstance(array.base, np.memmap)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("file", ["numbers.npy", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip first", "flip last", "truncate", "remove"])
def test_damage_is_named_and_never_used(tmp_path: Path, file: str, damage: str) -> None:
    folder = tmp_path / "set"
    prepare_arrays(folder, build)
    path = folder / file
    if damage.startswith("flip"):
        flip(path, 0 if damage == "flip first" else path.stat().st_size - 5)
    elif damage == "truncate":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()

    with pytest.raises(DataError, match=r"damaged.*delete") as caught:
        prepare_arrays(folder, build).array("numbers")
    assert caught.value.path == str(path)


def test_damage_of_what_was_mapped_before_is_named(tmp_path: Path) -> None:
    """An array is checked once, for as long as its file stays what it was."""
    path = tmp_path / "set" / "numbers.npy"
    prepared = prepare_arrays(path.parent, build)
    array = prepared.array("numbers")
    assert prepared.array("numbers") is array

    damaged = bytearray(path.read_bytes())
    damaged[-5] ^= 1
    before = path.stat().st_ctime_ns
    # Clocks of file systems go on every 4 ms.
    while path.stat().st_ctime_ns == before:
        path.write_bytes(damaged)
    with pytest.raises(DataError, match="its content changed"):
        prepared.array("numbers")


def test_a_header_that_numpy_cannot_evaluate_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "set" / "numbers.npy"
    prepared = prepare_arrays(path.parent, build)
    path.write_bytes(path.read_bytes().replace(b"{'descr'", b"{[]     "))
    with pytest.raises(DataError, match="damaged"):
        prepared.map_unchecked("numbers")


def test_every_flipped_byte_of_the_manifest_is_noticed(tmp_path: Path) -> None:
    manifest = tmp_path / "set" / "manifest.json"
    prepare_arrays(manifest.parent, build)
    whole = manifest.read_bytes()
    for position in range(len(whole)):
        flip(manifest, position)
        try:
            prepared = prepare_arrays(manifest.parent, build)
        except DataError:
            pass
        else:  # white space between values may differ, the values may not
            assert prepared.facts == {"answer": 42}
            np.testing.assert_array_equal(prepared.array("numbers"), np.arange(100))
        manifest.write_bytes(whole)


@pytest.mark.parametrize("name", ["manifest.json", "numbers.npy"])
def test_a_link_that_leads_nowhere_is_damage(tmp_path: Path, name: str) -> None:
    """No file is found then, for another reason than that there is none."""
    folder = tmp_path / "set"
    prepare_arrays(folder, build)
    file = folder / name
    file.unlink()
    file.symlink_to(file)
    with pytest.raises(DataError, match=r"prepared data is damaged .*; delete"):
        prepare_arrays(folder, build)


def test_an_array_that_is_not_in_the_manifest_is_refused(tmp_path: Path) -> None:
    prepared = prepare_arrays(tmp_path / "set", build)
    np.save(tmp_path / "set" / "stranger.npy", np.arange(3))

    with pytest.raises(DataError, match="damaged"):
        prepared.array("stranger")


def killed_half_way(partial: Path) -> dict[str, Any]:
    np.save(partial / "numbers.npy", np.arange(7))
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def test_a_build_killed_half_way_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    process = FORK.Process(target=prepare_arrays, args=(folder, killed_half_way))
    process.start()
    process.join()

    assert process.exitcode == -signal.SIGKILL
    assert not folder.exists()
    assert folder.with_suffix(".partial").exists()
    np.testing.assert_array_equal(
        prepare_arrays(folder, build).array("numbers"), range(100)
    )
    assert not folder.with_suffix(".partial").exists()


def test_the_last_used_are_kept_whatever_dots_are_in_their_names(
    tmp_path: Path,
) -> None:
    """A target of 0.6 is a dot in the name of what was trained to it."""
    home = tmp_path / "home"
    forget_oldest(home, "*-accuracy", 1)
    used = {"g.txt-0.6-accuracy": 30, "g-accuracy": 10, "g-0.5-accuracy": 20, "g": 5}
    for name, seconds in used.items():
        prepare_arrays(home / name, build)
        os.utime(home / name, (seconds, seconds))
    being_built = home / "g-0.7-accuracy.partial"
    being_built.mkdir()

    def kept() -> set[str]:
        return {path.name for path in home.iterdir() if path.is_dir()}

    forget_oldest(home, "*-accuracy*", 3)
    assert kept() == {*used, being_built.name}
    forget_oldest(home, "*-accuracy*", 2)
    assert kept() == {*used, being_built.name} - {"g-accuracy"}
    assert not lock_of(home / "g-accuracy").exists()
    assert lock_of(home / "g-0.5-accuracy").exists()
    forget_oldest(home, "*-accuracy*", 1)
    assert kept() == {"g.txt-0.6-accuracy", "g", being_built.name}


def test_a_home_that_is_a_file_has_no_directories(tmp_path: Path) -> None:
    """Whoever builds one there names the file; looking for one is no error."""
    home = tmp_path / "home"
    assert list_finished(home, "*") == []
    home.touch()
    assert list_finished(home, "*") == []
    with pytest.raises(DataError, match="prepared data cannot be written"):
        prepare_arrays(home / "set", build)


def failing(_partial: Path) -> dict[str, Any]:
    raise DataError("feature 3 of vertex 2 is nan", path="here")


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="feature 3"):
        prepare_arrays(tmp_path / "set", failing)

    assert [path.name for path in tmp_path.iterdir()] == ["set.lock"]


def full_disk(_partial: Path) -> dict[str, Any]:
    raise OSError(28, "No space left on device")


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written: No space left"):
        prepare_arrays(tmp_path / "set", full_disk)


def test_an_unwritable_cache_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(DataError, match="cannot be written"):
        prepare_arrays(tmp_path / "file" / "set", build)


def test_processes_that_prepare_at_once_build_once(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    barrier = FORK.Barrier(4)

    def race() -> None:
        barrier.wait()
        prepared = prepare_arrays(folder, build)
        assert prepared.array("numbers").sum() == 4950

    processes = [FORK.Process(target=race) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0] * 4
    assert (tmp_path / "builds").read_text() == "x"


def test_a_damaged_block_of_columns_is_refused_by_who_reads_it() -> None:
    dataset = open_dataset("products-like", scale=0.001)
    columns = open_columns(dataset, [60, 40])
    rows = dataset.gather(np.arange(3))
    np.testing.assert_array_equal(columns.array("columns_1")[:3], rows[:, 60:])
    (file,) = dataset.folder.parent.glob(f"{dataset.folder.name}-columns-*/columns_0*")
    with file.open("r+b") as content:
        content.seek(-4, 2)
        content.write(b"\xff\xff\xff\xff")

    np.testing.assert_array_equal(columns.array("columns_1")[:3], rows[:, 60:])
    with pytest.raises(DataError, match="its content changed"):
        columns.array("columns_0")
