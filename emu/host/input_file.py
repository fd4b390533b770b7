"""Files that others wrote, read within bounds.

A file may be anything: a pipe that never ends, ten bytes that unpack to gigabytes, a
shape that asks for more memory than there is. So sizes are checked before memory is
taken for them, and whatever a library raises at damage is one error of ours.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import json
import math
import os
import stat
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from emu.array_types import Array
from emu.errors import DataError, EmulatorError
from emu.host.limits import limit
from emu.names import printable

if TYPE_CHECKING:
    from pydantic import TypeAdapter

#: Bytes that text files of runs, profiles and scenarios may have.
MOST_TEXT = 1 << 28
#: Values of JSON: `[[],[],...` takes 80 bytes of memory for each, 400 MB in all.
_MOST_VALUES = 5_000_000
#: An archive may unpack to so many times its size; graphs do to 20 times.
_MOST_INFLATION = 100
#: Bytes that are unpacked at a time.
_PIECE = 1 << 20
#: Bytes that may be made of any file.
ALWAYS_ALLOWED = 1 << 24
#: First bytes of a file that is packed by gzip.
GZIP = b"\x1f\x8b"
#: Of bytes that are none.
_NO_TEXT = "is not text in UTF-8"
#: Of arrays: truth values, real numbers, texts and rows of them.
_ARRAY_KINDS = "biufUSV"


class RepeatedKeyError(ValueError):
    """A mapping of JSON has a key twice."""


@contextlib.contextmanager
def one_error(
    path: Path | str, kind: Callable[[str], EmulatorError] | None = None
) -> Iterator[None]:
    """Turn whatever reading a damaged file raises into one error of ours.

    ``kind`` makes the error; by default it is a DataError of ``path``.
    """
    try:
        yield
    except EmulatorError:
        raise
    except Exception as error:
        problem = _describe_damage(error, plain=kind is None)
        if kind is not None:
            raise kind(problem) from error
        raise DataError(problem, path=path) from error


def _describe_damage(error: Exception, *, plain: bool) -> str:
    """Return what is wrong with a file; ``plain``: with one that is no scenario."""
    # Where it is none a reader that takes pieces does not know.
    if isinstance(error, UnicodeDecodeError):
        return _NO_TEXT
    problem = "is damaged"
    if isinstance(error, MemoryError) and plain:
        problem = "needs more memory than there is"
    return f"{problem}: {printable(str(error)) or type(error).__name__}"


@contextlib.contextmanager
def open_input(path: Path, most: int | None = None) -> Iterator[BufferedReader]:
    """Open a regular file of at most ``most`` bytes.

    Raises OSError when it cannot be opened, and DataError when it is something else
    than a file, as a pipe or device, or longer.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            raise DataError("is no regular file", path=path)
        if most is not None and size > most:
            problem = f"has {size} bytes, at most {most} are read"
            raise DataError(problem, path=path)
        yield file


def _open_at_once(path: str, flags: int) -> int:
    # Opening a pipe would wait until another process writes.
    return os.open(path, flags | os.O_NONBLOCK)


def _size_of(file: BufferedReader) -> int:
    return os.fstat(file.fileno()).st_size


def read_text(path: Path, most: int = MOST_TEXT) -> str:
    """Return the text of a file, without a mark of its byte order (BOM).

    Raises OSError or UnicodeDecodeError when it cannot be read, or is not UTF-8 nor
    UTF-16 by that mark, and DataError as `open_input`.
    """
    with open_input(path, most) as file:
        content = file.read(_size_of(file))
        return _decode(content)


def _decode(content: bytes) -> str:
    """Return text in UTF-8, or in UTF-16 where a mark says so, as `recognise` does."""
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if is_wide else "utf-8-sig"
    return content.decode(encoding)


def read_packed(
    path: Path,
    most: int | None = MOST_TEXT,
    most_unpacked: float = math.inf,
) -> bytes:
    """Return the bytes of a file, unpacked where they are packed by gzip.

    Raises OSError, EOFError or zlib.error when it cannot be read, or what is packed is
    damaged, and DataError as `open_input`, and where it unpacks to too much, or to more
    bytes than ``most_unpacked``.
    """
    with open_input(path, most) as file:
        content = file.read(_size_of(file))
    # By the content, as `recognise` looks at it: names do not always say it.
    if not content.startswith(GZIP):
        return content

    pieces = []
    size = 0
    with open_gzip(path) as stream:
        # Piece by piece: all at once would be in memory before it is counted.
        while piece := stream.read1(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > most_unpacked:
                problem = f"unpacks to more than {most_unpacked} bytes, which are read"
                raise DataError(problem, path=path)
    return b"".join(pieces)


def read_packed_text(path: Path, most: int = MOST_TEXT) -> str:
    """Return the text of a file as `read_text` does, packed or not.

    Raises as `read_text`, and DataError when what is packed is damaged, or the text is
    longer.
    """
    try:
        content = read_packed(path, most, most_unpacked=most)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"is damaged: {error}", path=path) from error
    return _decode(content)


def read_json(
    path: Path,
    most: int = MOST_TEXT,
    *,
    unique_keys: bool = True,
) -> Any:
    """Return the content of a JSON file, packed by gzip or not.

    Raises DataError when it is missing, cut short, too long, not JSON, or has a key
    twice where keys are to be ``unique_keys``.
    """
    try:
        content = read_packed(path, most)
        return parse_json(_decode(content), unique_keys=unique_keys)
    except FileNotFoundError as error:
        raise DataError("is missing", path=path) from error
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise DataError(problem, path=path) from error
    except RepeatedKeyError as error:
        raise DataError(str(error), path=path) from error
    except UnicodeDecodeError as error:
        raise DataError(_NO_TEXT, path=path) from error
    except (ValueError, EOFError, zlib.error, RecursionError) as error:
        raise DataError(f"is not JSON: {error}", path=path) from error


def parse_json(text: str, *, unique_keys: bool = True) -> Any:
    """Return the value of a JSON text.

    Raises ValueError, RecursionError when it is not JSON or has too many values, and
    RepeatedKeyError when it has a key twice where keys are to be ``unique_keys``: the
    last would count.
    """
    values = sum(map(text.count, ",[{"))
    if values > limit(_MOST_VALUES):
        raise ValueError(f"it has {values} values, at most {_MOST_VALUES} are read")
    hook = unique_mapping if unique_keys else None
    return json.loads(text, object_pairs_hook=hook)


def unique_mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the mapping of pairs; RepeatedKeyError where two have one key."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        ((key, _),) = counts.most_common(1)
        problem = f'"{printable(key)}" is there twice: keep one of them'
        raise RepeatedKeyError(problem)
    return mapping


class _BoundedGzip(gzip.GzipFile):
    """A gzip file that ends in an error where it inflates beyond reason."""

    def __init__(self, file: BufferedReader, path: Path) -> None:
        super().__init__(fileobj=file)
        size = _size_of(file)
        self._left = max(_MOST_INFLATION * size, ALWAYS_ALLOWED)
        self._path = path
        self._packed = size

    @override
    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size >= 0:
            return self._count(super().read(size))
        # Piece by piece: all at once would be in memory before it is counted.
        pieces = []
        while piece := self.read1(_PIECE):
            pieces.append(piece)
        return b"".join(pieces)

    @override
    def read1(self, size: int = -1) -> bytes:
        return self._count(super().read1(size))

    def _count(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            problem = f"has {self._packed} bytes and unpacks to a hundred times that"
            raise DataError(f"{problem}: unpack it first", path=self._path)
        return data


@contextlib.contextmanager
def open_gzip(path: Path) -> Iterator[gzip.GzipFile]:
    """Open a gzip file to be read as text; it may unpack to as much as archives may.

    Raises OSError when it cannot be opened, DataError when it is no regular file, and
    while it is read when it unpacks to too much.
    """
    with open_input(path) as file, _BoundedGzip(file, path) as stream:
        yield stream


def read_arrays(
    path: Path,
    names: Collection[str],
    *,
    inflation: int = _MOST_INFLATION,
) -> dict[str, Array]:
    """Return arrays of an npz file; nothing pickled is read.

    They may have ``inflation`` times the size of the file; 16 MB are always allowed.

    Raises DataError when it is missing or damaged, lacks an array or has it twice, or
    claims to unpack to more.
    """
    with _open_archive(path) as (file, archive):
        infos = {}
        doubles = []
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in infos and name in names:
                doubles.append(name)
            infos[name] = info
        if doubles:
            problem = f"holds two arrays {doubles[0]}: keep one of them"
            raise DataError(problem, path=path)
        missing = [name for name in names if name not in infos]
        if missing:
            absent = ", ".join(missing)
            raise DataError(f"holds no {absent}", path=path)

        check_inflation(
            path,
            size=_size_of(file),
            unpacked=sum(infos[name].file_size for name in names),
            most=inflation,
        )
        return {name: _member(archive, infos[name], path) for name in names}


def array_names(path: Path) -> list[str]:
    """Return the names of arrays of an npz file; DataError when missing or damaged."""
    with _open_archive(path) as (_, archive):
        members = archive.namelist()
    return [name.removesuffix(".npy") for name in members if name.endswith(".npy")]


@contextlib.contextmanager
def _open_archive(path: Path) -> Iterator[tuple[BufferedReader, zipfile.ZipFile]]:
    """Open an archive; whatever reading it raises is a DataError of its path."""
    with one_error(path):
        try:
            with open_input(path) as file, zipfile.ZipFile(file) as archive:
                yield file, archive
        except FileNotFoundError as error:
            raise DataError("is missing", path=path) from error


def check_inflation(
    path: Path,
    size: int,
    unpacked: int,
    most: int = _MOST_INFLATION,
) -> None:
    """Refuse an archive of ``size`` bytes that claims to unpack to far more.

    Raises DataError when it claims more than ``most`` times its size; 16 MB are always
    allowed.
    """
    if unpacked > max(most * size, ALWAYS_ALLOWED):
        problem = f"has {size} bytes and claims to unpack to {unpacked}"
        raise DataError(f"{problem}: save it without compression", path=path)


def map_array(path: Path) -> Array:
    """Return the array of an npy file, mapped and not read.

    Raises OSError or ValueError when it cannot be opened, or is no npy file of numbers,
    and DataError when it is no regular file.
    """
    with open_input(path) as file:
        return map_member(file)


def map_member(file: BufferedReader) -> Array:
    """Return the array whose npy file begins where ``file`` stands, mapped.

    Raises ValueError as `read_array_header`, and when the file is shorter.
    """
    shape, fortran, dtype = read_array_header(file)
    begin = file.tell()
    rest = _size_of(file) - begin
    if math.prod(shape) * dtype.itemsize > rest:
        text = f"its header says {dtype} of shape {shape}"
        raise ValueError(f"{text}, and {rest} bytes follow")

    order: Any = "F" if fortran else "C"
    array = np.memmap(
        file,
        dtype=dtype,
        mode="r",
        offset=begin,
        shape=shape,
        order=order,
    )
    return np.asarray(array)


def _member(
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    path: Path,
) -> Array:
    name = info.filename.removesuffix(".npy")
    try:
        with archive.open(info) as member:
            shape, _, dtype = read_array_header(member)
            header_bytes = int(member.tell())
            claim = header_bytes + math.prod(shape) * dtype.itemsize
    except ValueError as error:
        raise DataError(f"{name} cannot be read: {error}", path=path) from error
    if claim != info.file_size:
        problem = f"{name} claims {claim} bytes of {info.file_size}"
        raise DataError(problem, path=path)
    with archive.open(info) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def read_array_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether columns come first, and type of an npy file's array.

    Raises ValueError when it is damaged, or values are no numbers or texts; nothing is
    unpickled.
    """
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    read_header = readers.get(version)
    if read_header is None:
        raise ValueError(f"it is of version {version} of npy, 1.0 and 2.0 are read")
    try:
        shape, fortran, dtype = read_header(file)
    except (tokenize.TokenError, SyntaxError, RecursionError) as error:
        raise ValueError(f"its header is damaged: {error}") from error

    if dtype.hasobject:
        problem = "it holds Python objects, which are never unpickled; save numbers"
        raise ValueError(f"{problem} or texts, one array each")
    if dtype.kind not in _ARRAY_KINDS or min(shape, default=0) < 0:
        raise ValueError(f"it holds values of type {dtype} in shape {shape}")
    return shape, fortran, dtype


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    """Return what checks a type: to make it takes a hundred times a check."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - 0.1 s

    return TypeAdapter(shape)


def check_shape(content: Any, shape: Any, path: Path, at: str = "") -> None:
    """Hold what a JSON file says to a type: a TypedDict, a list of them.

    Whole numbers and truth values are distinguished, keys beyond those of a TypedDict
    are let be. The content stands ``at`` a place in the file.

    Raises DataError when a value is missing or of another type; says which.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - 0.1 s

    try:
        _adapter(shape).validate_python(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        steps = [printable(str(step), 40) for step in first["loc"]]
        place = ".".join(steps) or "its content"
        shown_value = ""
        if first["type"] != "missing":
            shown_value = printable(f", found {first['input']!r:.40}", 60)
        problem = f"{at}{place}: {first['msg']}{shown_value}"
        raise DataError(problem, path=path) from error
