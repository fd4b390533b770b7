"""Directories of arrays that are complete and unchanged, or refused.

A directory is built under another name, synced, and renamed into place with its
manifest: what stands under the final name was once whole. Every array is compared with
the manifest's size and CRC-32 before it is mapped, so that a later change is found
when it is opened (1 GB/s; a store reads its own partition only). A process does so once
for as long as a file stays what it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypedDict

import numpy as np
from isal import isal_zlib

from emu.array_types import Array, Rows
from emu.errors import DataError
from emu.host.input_file import map_array, open_input, read_json

#: What is known of arrays beside themselves, JSON values by name.
Facts: TypeAlias = dict[str, Any]


class _FileKeys(TypedDict):
    """Keys of a file in the manifest."""

    bytes: int
    crc32: int


_MANIFEST = "manifest.json"
_MOST_MANIFEST = 1 << 24  # bytes; those of papers100M have 20 kB
#: Arrays that stay mapped, each with a descriptor.
_MOST_MAPPED = 128
#: Manifests that stay parsed.
_MOST_MANIFESTS = 128
#: Ends the name of what is being built.
_PARTIAL = ".partial"


# CRC-32 finds damage, not forgery, and costs little beside the reading.
def _file_checksum(path: Path) -> int:
    checksum = 0
    with open_input(path) as file:
        # Features have gigabytes.
        while True:
            piece = file.read(1 << 20)
            if not piece:
                return checksum
            checksum = isal_zlib.crc32(piece, checksum)


@lru_cache(maxsize=_MOST_MAPPED)
def _map_whole(
    path: Path,
    checksum: int,
    *,
    inode: int,
    changed: int,
    size: int,
) -> Array | None:
    """Map an array of this checksum, None where a file has another.

    ``inode``, ``changed`` (ns) and ``size`` (bytes) say which file that is: another one
    is read again. To read all small arrays of a graph again for every row of a
    comparison took an eighth of it.
    """
    del inode, changed, size  # only to tell one file from the next
    # Read once for the checksum; mapped after, its pages are mostly in memory.
    if _file_checksum(path) != checksum:
        return None
    return map_array(path)


@dataclass(frozen=True)
class _Manifest:
    """Content of a manifest whose checksum is right."""

    facts: Facts
    files: dict[str, _FileKeys]
    checksum: int
    sizes: dict[str, int]
    """Bytes of every file."""


@lru_cache(maxsize=_MOST_MANIFESTS)
def _read_manifest(
    path: Path, *, inode: int, changed: int, size: int
) -> _Manifest | None:
    """Read a manifest, None where its content has another checksum than it states.

    ``inode``, ``changed``, ``size``: as of `_map_whole`. A search opens the data set of
    its job ten times per simulation; to read and parse the manifest each time was half
    of what an opening takes.
    """
    del inode, changed, size  # only to tell one file from the next
    content = read_json(path, _MOST_MANIFEST)
    body = content["body"]
    files: dict[str, _FileKeys] = body["files"]
    manifest = _Manifest(
        facts=body["facts"],
        files=files,
        checksum=content["crc32"],
        sizes={name: fields["bytes"] for name, fields in files.items()},
    )
    is_sound = manifest.checksum == _body_checksum(body)
    return manifest if is_sound else None


def _identity(path: Path) -> tuple[int, int, int]:
    """Return inode, time of change (ns) and bytes of a file; zeros where none is found.

    Which file it is, and whether it is still as it was. Who reads it says why it is not
    to be had.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - a third of what Path.stat takes
    except OSError:
        return 0, 0, 0
    is_file = stat.S_ISREG(status.st_mode)
    size = status.st_size if is_file else 0
    return status.st_ino, status.st_ctime_ns, size


class PreparedArrays:
    """A finished directory of `prepare_arrays`, opened for reading.

    ``remedy`` is a clause on how it is made again once it is deleted. Raises DataError
    when the manifest is missing or damaged, or a file has the wrong size.
    """

    def __init__(self, folder: Path, remedy: str = "it will be made again") -> None:
        self.folder = folder
        self._remedy = remedy
        path = folder / _MANIFEST
        inode, changed, size = _identity(path)
        try:
            manifest = _read_manifest(path, inode=inode, changed=changed, size=size)
        # JSON may be whole and hold something else: a list, or other keys.
        except (DataError, KeyError, TypeError, AttributeError) as error:
            raise self._damage(path, _problem_of(error)) from error

        if manifest is None:
            raise self._damage(path, "its content changed")
        self.facts: Facts = manifest.facts
        self._files = manifest.files
        self.checksum: int = manifest.checksum
        # Sizes now, contents when an array is asked for: a store reads its own part.
        for name, manifest_size in manifest.sizes.items():
            array_path = folder / name
            _, _, size = _identity(array_path)
            if size != manifest_size:
                raise self._damage(array_path, f"{size} bytes, not {manifest_size}")

    def _damage(self, path: Path, problem: str) -> DataError:
        remedy = f"delete {self.folder} and {self._remedy}"
        text = f"prepared data is damaged ({problem}); {remedy}"
        return DataError(text, path=path)

    def holds(self, name: str) -> bool:
        """Return True where there is an array of that name."""
        return f"{name}.npy" in self._files

    def checksum_of(self, name: str) -> int:
        """Return the checksum of an array, as it was written."""
        file = self._files.get(f"{name}.npy")
        if file is None:
            return 0
        return file.get("crc32", 0)

    @property
    def size(self) -> int:
        """Bytes of all arrays."""
        return sum(file["bytes"] for file in self._files.values())

    def array(self, name: str) -> Array:
        """Map an array read-only; DataError when its content changed or is lost."""
        path = self.folder / f"{name}.npy"
        try:
            file = self._files[path.name]
            checksum = file["crc32"]
            inode, changed, size = _identity(path)
            mapped = _map_whole(path, checksum, inode=inode, changed=changed, size=size)
        # A header that numpy evaluates may be no mapping at all: TypeError.
        except (OSError, KeyError, ValueError, TypeError, DataError) as error:
            raise self._damage(path, _problem_of(error)) from error

        if mapped is None:
            raise self._damage(path, "its content changed")
        return mapped

    def map_unchecked(self, name: str) -> Array:
        """Map an array without reading all of it; DataError when it cannot be."""
        path = self.folder / f"{name}.npy"
        try:
            return map_array(path)
        # A header that numpy evaluates may be no mapping at all: TypeError.
        except (OSError, ValueError, TypeError, DataError) as error:
            raise self._damage(path, _problem_of(error)) from error


def _problem_of(error: Exception) -> str:
    """Return the problem of an error of ours, of another its text."""
    return getattr(error, "problem", str(error))


def _begin_array(
    path: Path,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
) -> BinaryIO:
    """Open an npy file behind its header; what follows is written as any bytes are.

    np.save names a full disk as "123718 requested and 60384 written", and storing into
    a mapped file ends the process with SIGBUS.
    """
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    file = path.open("wb")
    np.lib.format.write_array_header_1_0(file, header)
    return file


def write_arrays(folder: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as npy files."""
    for name, array in arrays.items():
        path = folder / f"{name}.npy"
        with _begin_array(path, array.dtype, array.shape) as file:
            # The header says C order, which a view need not have.
            in_order = np.ascontiguousarray(array)
            file.write(in_order.data)


def write_rows(
    folder: Path,
    shapes: Mapping[str, tuple[int, int]],
    slices: Iterable[Sequence[Rows]],
) -> None:
    """Write matrices as npy files, float32, by name; a slice has next rows of each."""
    dtype = np.dtype(np.float32)
    with contextlib.ExitStack() as open_files:
        files = []
        for name, shape in shapes.items():
            path = folder / f"{name}.npy"
            file = _begin_array(path, dtype, shape)
            open_file = open_files.enter_context(file)
            files.append(open_file)
        for pieces in slices:
            for file, rows in zip(files, pieces, strict=True):
                in_order = np.ascontiguousarray(rows, dtype)
                file.write(in_order.data)


def _body_checksum(body: Mapping[str, Any]) -> int:
    text = json.dumps(body, sort_keys=True)
    return isal_zlib.crc32(text.encode())


def prepare_arrays(folder: Path, build: Callable[[Path], Facts]) -> PreparedArrays:
    """Open ``folder``, made by ``build`` if it is not there yet.

    Any number of processes may ask at once: one builds, the others wait for it, and
    what a killed builder left behind is removed. ``build`` writes ``*.npy`` files into
    the directory that it is given, and returns facts for the manifest, JSON values.
    Raises DataError when what is there is damaged, or nothing can be written.
    """
    try:
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with lock_of(folder).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel frees it with the process
                # Asked again: another process may have built it while this one waited.
                if not folder.exists():
                    _build(folder, build)
    except OSError as error:
        problem = f"prepared data cannot be written: {error.strerror or error}"
        raise DataError(problem, path=folder) from error

    # What is there is checked in any case, also when it was built a moment ago.
    return PreparedArrays(folder)


def lock_of(folder: Path) -> Path:
    """Return the file that whoever builds a directory locks."""
    return folder.with_name(f"{folder.name}.lock")


def list_finished(home: Path, pattern: str) -> list[Path]:
    """Return the directories of a home whose names fit a pattern; none is being built.

    A home holds thousands of entries, whose kind comes with the listing: `Path.glob`
    asks for each again, and took a tenth of an advice.
    """
    fits = re.compile(fnmatch.translate(pattern))
    found = []
    try:
        with os.scandir(home) as entries:
            for entry in entries:
                is_finished = not entry.name.endswith(_PARTIAL)
                if is_finished and fits.match(entry.name) and entry.is_dir():
                    found.append(Path(entry.path))
    except OSError:  # whoever writes there says why it cannot be had
        return []
    return found


def forget_oldest(home: Path, pattern: str, most: int) -> None:
    """Remove all directories whose names fit a pattern but those ``most`` last used."""
    folders = list_finished(home, pattern)
    if len(folders) <= most:
        return
    # `most` is 1 or more: a slice up to -0 would be empty.
    oldest_first = sorted(folders, key=_last_use)
    for folder in oldest_first[:-most]:
        shutil.rmtree(folder, ignore_errors=True)
        lock_of(folder).unlink(missing_ok=True)


def _last_use(folder: Path) -> float:
    """Return the time of change of a directory, which whoever uses it sets anew."""
    with contextlib.suppress(OSError):  # another process may just remove it
        return folder.stat().st_mtime
    return 0.0


def _build(folder: Path, build: Callable[[Path], Facts]) -> None:
    # A builder that was killed left it; the lock says that nobody works on it.
    partial = folder.with_name(f"{folder.name}{_PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        facts = build(partial)
        files: dict[str, _FileKeys] = {}
        for path in sorted(partial.glob("*.npy")):
            size = path.stat().st_size
            checksum = _file_checksum(path)
            files[path.name] = {"bytes": size, "crc32": checksum}

        body = {"facts": facts, "files": files}
        manifest = {"body": body, "crc32": _body_checksum(body)}
        text = json.dumps(manifest, indent=1)
        # Last of all: its checksums are those of finished files.
        manifest_path = partial / _MANIFEST
        manifest_path.write_text(text, encoding="utf-8")
        # After a crash the name must not be there without the content.
        for path in (*partial.iterdir(), partial):
            _sync(path)
        partial.rename(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
