"""``machines.json`` of a lab while it runs: which process holds each machine.

The command of the lab keeps a lock on it. The kernel takes the lock away with the
process, so it is free once the lab has ended, and numbers of processes that
ended are never used.
"""

from __future__ import annotations

import contextlib
import fcntl
from typing import TYPE_CHECKING

from emu.errors import DataError
from emu.input_file import check_shape, open_input, read_json
from emu.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_FILE = "machines.json"


@contextlib.contextmanager
def running_lab(run: Path, holders: Mapping[str, int]) -> Iterator[None]:
    """Say for the time of the block which process holds each machine.

    Raises
    ------
    DataError
        When the disk refuses.
    """
    RunDirectory(run).write_json(_FILE, holders)
    path = run / _FILE
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            path.unlink()


def holder_of(run: Path, machine: str) -> int:
    """Return the process that holds a machine of a lab that runs.

    Raises
    ------
    DataError
        When no lab runs in this directory, or it has no such machine.
    """
    if not run.is_dir():
        raise DataError("there is no such run directory", path=str(run))
    if not _is_locked(run / _FILE):
        raise DataError(
            "no lab runs here: it has ended, or none began; `emu lab` prints where "
            "its own goes",
            path=str(run),
        )
    holders: dict[str, int] = read_json(run / _FILE)
    check_shape(holders, dict[str, int], run / _FILE)
    if machine not in holders:
        raise DataError(
            f"{machine} is no machine of this lab; there are {', '.join(holders)}",
            path=str(run),
        )
    return holders[machine]


def _is_locked(path: Path) -> bool:
    try:
        with open_input(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # it is not there, or another user's
        return False
    return False
