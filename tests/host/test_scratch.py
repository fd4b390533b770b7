"""What killed processes leave is found and removed, and nothing else."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from emu.errors import DataError
from emu.host.files import (
    check_writable,
    find_remains,
    remove,
    scratch_folder,
    write_atomic,
)

MAKES = """
import os, signal, sys
from pathlib import Path
from emu.host.files import whole_file
from emu.host.files import scratch_folder
with scratch_folder("trial") as folder, whole_file(Path(sys.argv[1])) as partial:
    (folder / "agent.log").write_text("x")
    partial.write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a temporary directory of this test's own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_what_a_killed_process_left_is_found_and_removed(
    temporary: Path, tmp_path: Path
) -> None:
    run = tmp_path / "runs/golden"
    run.mkdir(parents=True)
    killed = subprocess.run(
        [sys.executable, "-c", MAKES, str(run / "result.json")], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    found = find_remains(tmp_path / "runs")

    assert {path.parent for path in found} == {temporary, run}
    for path in found:
        remove(path)
    assert [*temporary.iterdir(), *run.iterdir()] == []


def test_what_lives_or_is_of_others_stays(temporary: Path, tmp_path: Path) -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (temporary / f"emu-trial-{gone}-link").symlink_to(elsewhere)
    (temporary / f"emu-thesis-{gone}-abc").mkdir()
    (temporary / f"emu-trial-{gone}-file").write_text("no folder")
    (tmp_path / ".notes.partial").write_text("no number")
    (tmp_path / f".mine.{os.getpid()}.partial").write_text("is being written")
    if os.getuid() == 0:
        (temporary / f"emu-metis-{gone}-other").mkdir()
        os.chown(temporary / f"emu-metis-{gone}-other", 12345, -1)

    with scratch_folder("metis"):
        assert find_remains(tmp_path) == []


def test_devices_and_links_are_not_replaced(tmp_path: Path) -> None:
    """As root, emu simulate --json /dev/null made a file of /dev/null."""
    device, link, full = (tmp_path / name for name in ("null", "link", "full"))
    for target in (tmp_path / "file", tmp_path / "missing", tmp_path):
        link.unlink(missing_ok=True)
        (tmp_path / "file").write_text("as it was")
        link.symlink_to(target)
        with pytest.raises(DataError, match="this is a link; name the file"):
            write_atomic(link, "x")
        assert link.is_symlink()
        assert (tmp_path / "file").read_text() == "as it was"
    (tmp_path / "file").unlink()
    if os.geteuid() == 0:
        for path, minor in ((device, 3), (full, 7)):
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, minor))
        check_writable(device)
        write_atomic(device, "x")
        with pytest.raises(DataError, match="No space left on device"):
            write_atomic(full, "x")
        assert device.is_char_device()
        assert full.is_char_device()
    assert {path.name for path in tmp_path.iterdir()} <= {"null", "link", "full"}


@pytest.mark.parametrize("links", [0, 1, 2])
def test_links_to_what_is_no_regular_file_are_followed(
    tmp_path: Path, links: int
) -> None:
    """``--json /dev/stdout`` is one, and ``--json >(jq)``: to a pipe or a terminal."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reads = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    for number in range(links):
        (link := tmp_path / f"link{number}").symlink_to(path)
        path = link
    check_writable(path)
    write_atomic(path, "x")
    assert os.read(reads, 10) == b"x"
    os.close(reads)
    assert (tmp_path / "pipe").is_fifo()
    assert path.is_symlink() == bool(links)


@pytest.mark.parametrize("write", [check_writable, lambda path: write_atomic(path, "")])
def test_a_name_that_no_file_can_have_is_one_error(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    with pytest.raises(DataError, match="cannot be written: File name too long"):
        write(tmp_path / ("a" * 300))
    assert list(tmp_path.iterdir()) == []
