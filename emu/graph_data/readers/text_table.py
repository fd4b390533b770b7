"""Text files of numbers, plain or gz: an edge list, features, labels.

numpy reads them (10 million lines in seconds); what it cannot read is looked through
once more, line by line, for the line to name.
"""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from emu.errors import DataError
from emu.input_file import open_gzip, open_input
from emu.names import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO, TextIO

    from numpy.typing import NDArray

    Parse = Callable[[str], object]

_COMMENTS = ("#", "%")


@contextlib.contextmanager
def _opened_bytes(path: Path) -> Iterator[BinaryIO]:
    with open_input(path) as file:  # no pipe, no folder
        packed = file.read(2) == b"\x1f\x8b"
    with open_gzip(path) if packed else open_input(path) as content:
        yield cast("BinaryIO", content)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    with _opened_bytes(path) as content:
        yield io.TextIOWrapper(content, encoding="utf-8-sig")


@dataclass(frozen=True)
class _Layout:
    """Layout of a table, as its first lines show it."""

    comment: str
    separator: str | None
    header: int
    columns: int

    def fields(self, line: str) -> list[str]:
        """Return the fields of a line, none of a comment or an empty one."""
        text = line.split(self.comment, 1)[0].strip()
        if not text:
            return []
        return [field.strip(' "') for field in text.split(self.separator)]


def _layout(path: Path, used: int) -> _Layout:
    with _opened(path) as lines:
        for number, line in enumerate(lines, 1):
            comment = next((c for c in _COMMENTS if c in line), _COMMENTS[0])
            text = line.split(comment, 1)[0].strip()
            if line.strip()[:1] in _COMMENTS or not text:
                continue
            separator = next((s for s in "\t,;" if s in text), None)
            found = _Layout(comment, separator, 0, 0)
            fields = found.fields(line)
            # A number of another kind, 0.5 or nan, is a bad line and not a name.
            header = 0 if _parses(fields[:used], float) else number
            # The comments before it may be of another kind than those that follow.
            return _Layout(_comment(path), separator, header, len(fields))
    raise DataError("holds no line", path=str(path))


def _comment(path: Path) -> str:
    with _opened(path) as lines:
        for line in lines:
            if line.strip():
                first = line.strip()[0]
                return first if first in _COMMENTS else _COMMENTS[0]
    return _COMMENTS[0]


def _parses(fields: list[str], parse: Parse) -> bool:
    try:
        return all(parse(field) is not None for field in fields)
    except ValueError:
        return False


def read_edges(path: Path, vertices: int | None) -> NDArray[np.int64]:
    """Return the ends of every edge of a list, shape (2, edges).

    One edge per line, source and destination first; what follows them (a weight) is
    left out. Lines of ``#`` or ``%``, empty lines and a header are too.

    Parameters
    ----------
    vertices
        Ids are below it; None for any.

    Raises
    ------
    DataError
        When a line is no edge; names the line.
    """
    most = vertices if vertices is not None else np.iinfo(np.int64).max

    def parse(field: str) -> int:
        number = int(field)
        if not 0 <= number < most:
            raise ValueError(field)
        return number

    layout = _layout(path, 2)
    below = (
        f" below {most}, the rows of features or labels" if vertices is not None else ""
    )
    expected = f"two vertex ids, whole numbers from 0{below}"
    if layout.columns < 2:
        raise _bad_line(path, layout, parse, 2, expected)
    try:
        table = _read(path, layout, np.int64, 2)
        if len(table) and not (table.min() >= 0 and table.max() < most):
            raise ValueError  # noqa: TRY301 - as for what numpy cannot read
    except (ValueError, OverflowError) as error:
        raise _bad_line(path, layout, parse, 2, expected) from error
    return np.ascontiguousarray(table.T)


def read_numbers(path: Path) -> NDArray[np.float32]:
    """Return a row of numbers per line, shape (lines, columns).

    Raises
    ------
    DataError
        When a line is something else, or of another length; names the line.
    """
    layout = _layout(path, 1)
    try:
        table = _read(path, layout, np.float32, layout.columns)
        if not np.isfinite(table).all():
            raise ValueError  # noqa: TRY301
    except (ValueError, OverflowError) as error:
        expected = f"{layout.columns} numbers"
        raise _bad_line(path, layout, _finite, layout.columns, expected) from error
    return np.asarray(table, np.float32)


def read_words(path: Path) -> NDArray[Any]:
    """Return the last field of every line, as numbers if they all are.

    A first line that is followed by numbers and is none itself is a header.
    """
    with _opened(path) as lines:
        words = [
            line.rstrip("\n")
            .replace(";", ",")
            .replace("\t", ",")
            .split(",")[-1]
            .strip()
            for line in lines
            if not line.startswith(_COMMENTS)
        ]
    while words and not words[-1]:
        words.pop()
    for part in (words, words[1:]):
        if part and _parses([word for word in part if word], float):
            return np.array([float(word or "nan") for word in part])
    return np.array(words)


def _finite(field: str) -> float:
    number = float(field)
    if not math.isfinite(number):
        raise ValueError(field)
    return number


def _read(path: Path, layout: _Layout, dtype: Any, used: int) -> NDArray[Any]:
    with _opened(path) as lines, warnings.catch_warnings():
        warnings.simplefilter("error")  # of an integer by way of a float, of no rows
        table = np.loadtxt(
            lines,
            dtype,
            comments=layout.comment,
            delimiter=layout.separator,
            skiprows=layout.header,
            usecols=range(used) if layout.columns > used else None,
            quotechar='"',
            ndmin=2,
        )
    return np.asarray(table)


def _numbered(path: Path, layout: _Layout) -> Iterator[tuple[int, list[str]]]:
    with _opened(path) as lines:
        for number, line in enumerate(lines, 1):
            fields = layout.fields(line)
            if fields and number != layout.header:
                yield number, fields


def _bad_line(
    path: Path, layout: _Layout, parse: Parse, used: int, expected: str
) -> DataError:
    for number, fields in _numbered(path, layout):
        short = len(fields) != layout.columns or len(fields) < used
        if short or not _parses(fields[:used], parse):
            found = printable(" ".join(fields), limit=60)
            problem = f"line {number} is {found!r}, it needs {expected}"
            if len(fields) > layout.columns:
                problem += f" and {layout.columns} columns as in the lines before"
            return DataError(problem, path=str(path))
    return DataError("is not a table of numbers", path=str(path))
