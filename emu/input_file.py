"""Files that somebody else wrote, read within bounds.

A file may be anything: a pipe that never ends, ten bytes that unpack to gigabytes, a
shape that asks for more memory than there is. So sizes are checked before memory is
taken for them, and whatever a library raises at damage is one error of ours.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import stat
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from emu.errors import DataError, EmulatorError
from emu.names import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from io import BufferedReader
    from pathlib import Path

    from numpy.typing import NDArray

#: Bytes that text files of runs, profiles and scenarios may have.
MOST_TEXT = 1 << 28
#: An archive may unpack to so many times its size; graphs do to 20 times.
_MOST_INFLATION = 100
_ALWAYS_ALLOWED = 1 << 24


@contextlib.contextmanager
def one_error(
    path: Path | str, kind: Callable[[str], EmulatorError] | None = None
) -> Iterator[None]:
    """Turn whatever reading a damaged file raises into one error of ours.

    Parameters
    ----------
    kind
        Makes the error; a DataError of ``path`` by default.

    Raises
    ------
    DataError
        For anything that is no error of ours already.
    """
    try:
        yield
    except EmulatorError:
        raise
    except Exception as error:
        said = printable(str(error)) or type(error).__name__
        if kind is not None:
            raise kind(f"is damaged: {said}") from error
        raise DataError(f"is damaged: {said}", path=str(path)) from error


@contextlib.contextmanager
def open_input(path: Path, most: int | None = None) -> Iterator[BufferedReader]:
    """Open a regular file of at most ``most`` bytes; a pipe or device is refused.

    Raises
    ------
    OSError
        When it cannot be opened.
    DataError
        When it is something else than a file, or longer.
    """
    # Without waiting: opening a pipe would do so until somebody writes.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(21, "Is a directory", str(path))
        if not stat.S_ISREG(status.st_mode):
            raise DataError("is no regular file", path=str(path))
        if most is not None and status.st_size > most:
            problem = f"has {status.st_size} bytes, at most {most} are read"
            raise DataError(problem, path=str(path))
        yield file


def read_text(path: Path, most: int = MOST_TEXT) -> str:
    """Return the text of a file.

    Raises
    ------
    OSError, UnicodeDecodeError
        When it cannot be read, or is not UTF-8.
    DataError
        As `open_input`.
    """
    with open_input(path, most) as file:
        return file.read(most).decode("utf-8")


class _BoundedGzip(gzip.GzipFile):
    """A gzip file that ends in an error where it inflates beyond reason."""

    def __init__(self, file: BufferedReader, path: Path) -> None:
        super().__init__(fileobj=file)
        size = os.fstat(file.fileno()).st_size
        self._left = max(_MOST_INFLATION * size, _ALWAYS_ALLOWED)
        self._path, self._packed = path, size

    @override
    def read1(self, size: int = -1) -> bytes:
        data = super().read1(size)
        self._left -= len(data)
        if self._left < 0:
            problem = f"has {self._packed} bytes and unpacks to a hundred times that"
            raise DataError(problem, path=str(self._path))
        return data


@contextlib.contextmanager
def open_gzip(path: Path) -> Iterator[gzip.GzipFile]:
    """Open a gzip file to be read as text; it may unpack to as much as archives may.

    Raises
    ------
    OSError
        When it cannot be opened.
    DataError
        When it is no regular file; while it is read, when it unpacks to too much.
    """
    with open_input(path) as file, _BoundedGzip(file, path) as packed:
        yield packed


def read_arrays(
    path: Path, names: Collection[str], *, optional: bool = False
) -> dict[str, NDArray[Any]]:
    """Return arrays of an npz file; nothing pickled is read.

    Parameters
    ----------
    optional
        Whether arrays may be missing.

    Raises
    ------
    DataError
        When it is missing or damaged, lacks an array, or claims to unpack to more than
        a hundred times its size (16 MB at the least).
    """
    with one_error(path):
        try:
            with open_input(path) as file, zipfile.ZipFile(file) as archive:
                if optional:
                    there = {name.removesuffix(".npy") for name in archive.namelist()}
                    names = [name for name in names if name in there]
                return _members(archive, names, os.fstat(file.fileno()).st_size, path)
        except FileNotFoundError as error:
            raise DataError("is missing", path=str(path)) from error


def _members(
    archive: zipfile.ZipFile, names: Collection[str], size: int, path: Path
) -> dict[str, NDArray[Any]]:
    stated = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    missing = [name for name in names if name not in stated]
    if missing:
        raise DataError(f"holds no {', '.join(missing)}", path=str(path))
    unpacked = sum(stated[name].file_size for name in names)
    if unpacked > max(_MOST_INFLATION * size, _ALWAYS_ALLOWED):
        problem = f"has {size} bytes and claims to unpack to {unpacked}"
        raise DataError(problem, path=str(path))
    arrays = {}
    for name in names:
        with archive.open(stated[name]) as member:
            claimed = _claimed_bytes(member)
        if claimed != stated[name].file_size:
            problem = f"{name} claims {claimed} bytes of {stated[name].file_size}"
            raise DataError(problem, path=str(path))
        with archive.open(stated[name]) as member:
            arrays[name] = np.asarray(
                np.lib.format.read_array(member, allow_pickle=False)
            )
    return arrays


def _claimed_bytes(member: Any) -> int:
    """Return how long an npy file is, by its header."""
    version = np.lib.format.read_magic(member)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, _, dtype = read_header(member)
    if dtype.hasobject:
        raise ValueError("it holds objects, which are never unpickled")
    count = 1
    for extent in shape:
        count *= int(extent)
    return int(member.tell()) + count * dtype.itemsize
