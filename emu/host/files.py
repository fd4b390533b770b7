"""Files that are written whole or not at all, and folders for a moment.

A run leaves nothing however it is killed: its memory has no name, and its processes end
with their parents. Only files do not go by themselves: a folder of a trial or of METIS,
and a file that was being written. Their names hold the process that made them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from emu.errors import DataError

#: Files that are being written.
_begun: set[Path] = set()


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a file to be written in the place of ``path``; it moves there at the end.

    A reader sees the old file or the whole new one. Whatever goes wrong, a signal
    included, nothing is left behind. What is no regular file, as a device or a pipe, is
    given itself, and stays that: root would rename a file to /dev/null.

    Raises DataError when it cannot be written, or is a link to a regular file: to
    follow those of a run directory would write anywhere.
    """
    # Beside the target: a rename is atomic within one file system only.
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    _begun.add(partial)
    try:
        is_plain = path.is_file() or path.is_dir()
        special = path.exists() and not is_plain
        if path.is_symlink() and not special:
            link = "this is a link; name the file that it leads to"
            raise DataError(f"cannot be written: {link}", path=path)

        yield path if special else partial
        if not special:
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(path)
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}"
        raise DataError(problem, path=path) from error
    finally:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            partial.unlink(missing_ok=True)
        _begun.discard(partial)


class _GivenUp(Exception):
    """Leaves `whole_file` without a file."""


def check_writable(path: Path, made: Path | None = None) -> None:
    """Begin a file and give it up, before long work for it; raises as `whole_file`.

    A folder that is ``made`` before the file, with those above it, may still be absent.
    """
    folder = path.absolute().parent
    if made is not None and made.absolute().is_relative_to(folder):
        is_there = os.path.lexists(folder)
        if not is_there:
            return
    if os.path.isdir(path):  # noqa: PTH112 - False of a name too long
        raise DataError("cannot be written: this is a folder", path=path)
    with contextlib.suppress(_GivenUp), whole_file(path) as partial:
        partial.touch()
        raise _GivenUp


def check_folder(path: Path) -> None:
    """Raise DataError where no folder is or can be made, before long work for it."""
    ancestors = (path, *path.absolute().parents)
    present = next(folder for folder in ancestors if os.path.lexists(folder))
    if not present.is_dir():
        raise DataError("cannot be written into: this is no folder", path=present)
    if not os.access(present, os.W_OK | os.X_OK):
        raise DataError("cannot be written into: Permission denied", path=present)


def discard_begun_files() -> None:
    """Remove every file that is being written: the process ends now."""
    for partial in _begun:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def write_atomic(path: str | Path, text: str) -> None:
    """Write a text to a file as `whole_file` does; raises DataError as that does."""
    with whole_file(Path(path)) as partial:
        partial.write_text(text, encoding="utf-8")


#: Names of folders and files hold the process that made them.
_FOLDER = re.compile(r"emu-(?:trial|metis|virtual)-(\d+)-\w+")
#: Where files lie in memory.
_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder is made there, with a drawn name
_PARTIAL = re.compile(r"\..+\.(\d+)\.partial")  # as `whole_file` names them


def cache_home() -> Path:
    """Return emu's folder in the user's cache directory (XDG)."""
    folder = os.environ.get("XDG_CACHE_HOME")
    home = Path(folder) if folder else Path.home() / ".cache"
    return home / "emu"


@contextlib.contextmanager
def scratch_folder(purpose: Literal["trial", "metis", "virtual"]) -> Iterator[Path]:
    """Give a folder that is removed afterwards."""
    import tempfile  # noqa: PLC0415 - emu --help does without

    prefix = f"emu-{purpose}-{os.getpid()}-"
    parent = None
    # What ranks of a virtual cluster hand on is as large as their tensors.
    if purpose == "virtual" and _MEMORY.is_dir():
        parent = _MEMORY
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder:
        yield Path(folder)


def find_remains(runs: Path) -> list[Path]:
    """Return files and folders left by processes of this user that have ended.

    Of ``runs``, a directory of run directories, files that were being written.
    """
    import tempfile  # noqa: PLC0415 - emu --help does without

    places = {Path(tempfile.gettempdir()), _MEMORY}
    folders = (
        path for place in places for path in place.glob("emu-*") if path.is_dir()
    )
    remains = [path for path in folders if _is_orphan(path, _FOLDER)]
    files = (path for path in runs.glob("**/.*.partial") if path.is_file())
    remains += [path for path in files if _is_orphan(path, _PARTIAL)]
    return sorted(remains)


def remove(path: Path) -> None:
    """Remove what was left behind; raises DataError when it cannot be removed."""
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        problem = f"cannot be removed: {error.strerror}"
        raise DataError(problem, path=path) from error


def _is_orphan(path: Path, pattern: re.Pattern[str]) -> bool:
    import psutil  # noqa: PLC0415 - emu --help does without

    match = pattern.fullmatch(path.name)
    if match is None or path.is_symlink():
        return False
    is_own = path.stat().st_uid == os.getuid()
    process = int(match[1])
    return is_own and not psutil.pid_exists(process)
