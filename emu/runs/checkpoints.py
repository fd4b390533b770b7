"""Checkpoints in a run directory: cuts that are whole, or that do not count.

``checkpoints/00000020/`` holds a file of arrays per task whose state is kept before
iteration 20, and ``commit.json``: written last, it names the job and the digest of each
file. What has no commit record was cut off and is passed over.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from emu.errors import DataError
from emu.files import whole_file
from emu.input_file import check_shape, one_error, open_input, read_arrays, read_json
from emu.names import file_part
from emu.runs.run_directory import npz_content

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]

FOLDER, RECORD = "checkpoints", "commit.json"
#: Cuts that are kept: the newest, and one to fall back to.
_KEPT = 2


@dataclass(frozen=True, eq=False)
class Cut:
    """State of all tasks that keep some, before an iteration."""

    iteration: int
    """The first that is not done, counted from the beginning of the whole job."""
    states: Mapping[str, Arrays]
    """Arrays of every task whose state is needed, by its name."""


class _Part(TypedDict):
    file: str
    sha256: str
    arrays: list[str]


class _Record(TypedDict):
    job: str
    iteration: int
    parts: dict[str, _Part]


def digest_of(scenario: Mapping[str, Any]) -> str:
    """Return what tells a job from every other: the digest of its resolved scenario."""
    return hashlib.sha256(json.dumps(scenario, sort_keys=True).encode()).hexdigest()


def write_cut(run: Path, job: str, cut: Cut) -> None:
    """Write a cut, its commit record last, and remove all but the one before it.

    Parameters
    ----------
    job
        As `digest_of` returns it.

    Raises
    ------
    DataError
        When the disk refuses.
    """
    folder = run / FOLDER / f"{cut.iteration:08d}"
    try:
        _remove(folder)
        folder.mkdir(parents=True)
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}"
        raise DataError(problem, path=str(folder)) from error
    parts = {name: _write_part(folder, name, s) for name, s in cut.states.items()}
    record = _Record(job=job, iteration=cut.iteration, parts=parts)
    with whole_file(folder / RECORD) as partial:
        partial.write_text(json.dumps(record, indent=1))
    older = [each for each in _committed(run) if each.name < folder.name]
    for each in older[: 1 - _KEPT]:
        with contextlib.suppress(OSError):  # the next one tries again
            _remove(each)


def _write_part(folder: Path, name: str, arrays: Arrays) -> _Part:
    file, content = f"{file_part(name)}.npz", npz_content(arrays)
    with whole_file(folder / file) as partial:
        partial.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return _Part(file=file, sha256=digest, arrays=[*arrays])


def _remove(folder: Path) -> None:
    """Remove a cut: what is left when that is cut off has no record."""
    (folder / RECORD).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def _committed(run: Path) -> list[Path]:
    """Return the folders with a commit record, the oldest first."""
    return sorted(record.parent for record in (run / FOLDER).glob(f"*/{RECORD}"))


def newest_cut(
    run: Path, job: str, owners: Collection[str], notify: Callable[[str], object]
) -> Cut:
    """Return the last committed cut of a run; that before iteration 0 where none is.

    One that is damaged is passed over if there is an older one.

    Parameters
    ----------
    job
        As `write_cut` took it.
    owners
        Tasks whose state must be there.
    notify
        Called with a sentence on every cut that was passed over.

    Raises
    ------
    DataError
        When no cut that was committed can be used: the first thing that is wrong.
    """
    committed = _committed(run)
    wrong: list[DataError] = []
    for folder in reversed(committed):
        try:
            cut = _read(folder, job, owners)
        except DataError as error:
            wrong.append(error)
            notify(f"passed over a checkpoint: {error}")
        else:
            return cut
    if wrong:
        raise wrong[0]
    return Cut(0, {})


def _read(folder: Path, job: str, owners: Collection[str]) -> Cut:
    path = folder / RECORD
    with one_error(path):
        record: _Record = read_json(path)
        check_shape(record, _Record, path)
    iteration, parts = record["iteration"], record["parts"]
    if record["job"] != job or parts.keys() != {*owners}:
        raise DataError("is of another job than the run", path=str(path))
    if folder.name != f"{iteration:08d}":
        raise DataError(f"is of iteration {iteration}", path=str(path))
    return Cut(iteration, {name: _part(folder, part) for name, part in parts.items()})


def _part(folder: Path, part: _Part) -> Arrays:
    path = folder / file_part(part["file"])
    try:
        with open_input(path) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise DataError(problem, path=str(path)) from error
    if found != part["sha256"]:
        raise DataError("is not what was committed: its digest differs", path=str(path))
    return read_arrays(path, part["arrays"])
