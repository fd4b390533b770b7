"""Folders for what is needed for a moment, and what a killed process left of them.

A run leaves nothing however it is killed: its memory has no name, and its processes end
with their parents. Only files do not go by themselves: a folder of a trial or of METIS,
and a file that was being written. Their names hold the process that made them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from emu.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = re.compile(r"emu-(?:trial|metis)-(\d+)-\w+")
_PARTIAL = re.compile(r"\..+\.(\d+)\.partial")  # as `emu.atomic_file` names them


def cache_home() -> Path:
    """Return emu's folder in the user's cache directory (XDG)."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "emu"


@contextlib.contextmanager
def scratch_folder(purpose: Literal["trial", "metis"]) -> Iterator[Path]:
    """Give a folder that is removed afterwards."""
    prefix = f"emu-{purpose}-{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        yield Path(folder)


def left_behind(runs: Path) -> list[Path]:
    """Return files and folders left by processes of this user that have ended.

    Parameters
    ----------
    runs
        Directory of run directories; in it, files that were being written.
    """
    folders = [
        path
        for path in Path(tempfile.gettempdir()).glob("emu-*")
        if path.is_dir() and _orphaned(path, _FOLDER)
    ]
    files = [
        path
        for path in runs.glob("**/.*.partial")
        if path.is_file() and _orphaned(path, _PARTIAL)
    ]
    return sorted(folders + files)


def remove(path: Path) -> None:
    """Remove what was left behind.

    Raises
    ------
    DataError
        When it cannot be removed.
    """
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        raise DataError(
            f"cannot be removed: {error.strerror}", path=str(path)
        ) from error


def _orphaned(path: Path, pattern: re.Pattern[str]) -> bool:
    named = pattern.fullmatch(path.name)
    return (
        named is not None
        and not path.is_symlink()
        and path.stat().st_uid == os.getuid()
        and not _lives(int(named[1]))
    )


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # of another user
    return True
