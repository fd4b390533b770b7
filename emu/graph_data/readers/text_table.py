"""Tables in text files, plain or gz: edges, features, labels and splits alike.

numpy reads the numbers: 10 million lines take 3 s and 190 MB, where polars takes 2.3 s
and 490 MB, pandas 3.4 s and 410 MB. What it cannot read is looked through line by line,
for words as ids, and for the line to name.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
import time
import warnings
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.errors import DataError
from emu.host.input_file import open_gzip, open_input
from emu.names import printable

#: Takes a line for a person who waits.
Tell = Callable[[str], None]

COMMENTS = ("#", "%")
_NO_ROW = ("", *COMMENTS)
#: First of what networkx writes behind an edge, {'weight': 3}.
_ATTRIBUTES = "{"
#: Of these the first that stands outside of quotes; else blanks. "::" is MovieLens'.
_SEPARATORS = ("\t", ";", "|", ",", "::")
#: Names of columns that a line lists, of the many that it skips.
_SHOWN = 8
_WHOLE = re.compile(r"\+?(\d+)(\.0*)?")
#: Openings of files that are no tables, and what they are.
_OTHERS = {
    "graph [": "GML", "creator ": "GML", "<": "XML (GraphML, GEXF)",
    "*vertices": "Pajek", "nodedef>": "GDF", "{": "JSON", "[": "JSON",
    "digraph": "DOT", "graph {": "DOT", "c 9th": "DIMACS", "p edge": "DIMACS",
    "p sp": "DIMACS", "par1": "Parquet", "arrow1": "Arrow", "\x89hdf": "HDF5",
    "\x93numpy": "npy", "pk\x03\x04": "zip (npz, pt, xlsx)", "bzh": "bzip2",
    "\xfd7zxz": "xz", "(\xb5/\xfd": "zstd", "matlab": "MATLAB", "\x80": "pickle",
}  # fmt: skip


@dataclass(frozen=True)
class TableOptions:
    """Answers to what a text file may leave open; None where it is to say so itself."""

    columns: tuple[str, ...] | None = None
    """Both columns of an edge list with ends, by name or number from 1."""
    bipartite: bool | None = None
    """True where the two columns number vertices of two kinds."""
    header: bool | None = None
    """True where the first line of the edge list is no edge."""
    words: bool = False
    """Ids are words, also those that look like numbers."""
    ids: bool | None = None
    """True where tables beside name their vertices, False where rows are in order."""
    label_column: str | None = None
    """Column of the classes, by name or number from 1."""
    tell: Tell | None = None
    """Takes a line from time to time while a long text is read."""


class _Progress(io.BufferedIOBase):
    """A file that reports how much of it was read, at growing intervals."""

    def __init__(self, file: BinaryIO, tell: Tell, name: str) -> None:
        self._file, self._tell, self._name = cast("io.BufferedIOBase", file), tell, name
        self._count, self._pause, self._last = 0, 10.0, time.monotonic()

    @override
    def readable(self) -> bool:
        return True

    @override
    def read1(self, size: int = -1, /) -> bytes:
        data = self._file.read1(size)
        self._count += len(data)
        if time.monotonic() - self._last > self._pause:
            self._tell(f"{self._name}: {self._count / 1e6:,.0f} MB read")
            self._last, self._pause = time.monotonic(), 1.5 * self._pause
        return data


@contextlib.contextmanager
def open_lines(path: Path, tell: Tell | None = None) -> Iterator[TextIO]:
    """Open text: UTF-8, UTF-16 if it says so, else Latin-1; raises as `open_input`."""
    with open_input(path) as file:  # no pipe, no folder
        is_gzip = file.read(2) == b"\x1f\x8b"
    open_content = open_gzip if is_gzip else open_input
    with open_content(path) as content:
        start = content.read(1 << 20)
        content.seek(0)
        encoding = "utf-16"
        if start[:2] not in {b"\xff\xfe", b"\xfe\xff"}:
            try:
                start[: start.rfind(b"\n") + 1 or None].decode()
                encoding = "utf-8-sig"
            except UnicodeDecodeError:
                encoding = "latin-1"
        part = _Progress(cast("BinaryIO", content), tell or (lambda _: None), path.name)
        yield io.TextIOWrapper(cast("Any", part), encoding)


def first_lines(path: Path, count: int = 1) -> list[str]:
    """Return the first lines that are not empty, without what ends them."""
    with open_lines(path) as file:
        return [*islice((x.rstrip("\r\n") for x in file if x.strip()), count)]


def is_number(text: str) -> bool:
    """Return True where a field is a number, nan and infinity among them."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # Python takes 1_0 for 10


@dataclass(frozen=True)
class TextTable:
    """A table in a text file, as its first lines show it."""

    path: Path
    comment: str
    separator: str | None
    lines_before: int
    names: tuple[str, ...]
    """Lines above the first row, names of the columns; none without a header."""
    first_row: tuple[str, ...]
    options: TableOptions
    open_header: bool = False
    """True where the first row may as well be a header: words above words."""
    comment_names: tuple[str, ...] = ()
    """Words of the comment above the first row, as many as there are columns."""
    sizes: tuple[str, ...] = ()
    """Numbers of the line above the first row, where they stand for a header."""

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.first_row)

    def name(self, column: int) -> str:
        """Return the name of a column for people, its number without a header."""
        return (self.names[column] if self.names else "") or f"column {column + 1}"

    def skipped(self, used: Sequence[int | None]) -> str:
        """Return the names of the other columns, as the end of a sentence."""
        names = [self.name(c) for c in range(self.width) if c not in used]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"; skipped: {', '.join(names[:_SHOWN])}{more}" if names else ""

    def column(self, stated: str, option: str) -> int:
        """Return the place of a column that an option states; DataError without one."""
        stated = stated.strip()
        if stated in self.names:
            return self.names.index(stated)
        if stated.isdecimal() and 1 <= int(stated) <= self.width:
            return int(stated) - 1
        names = f": {', '.join(self.names)}" if self.names else ""
        problem = f"{option} names {stated!r}, there are {self.width} columns{names}"
        raise self.error(problem)

    def error(self, problem: str) -> DataError:
        """Return an error about this file."""
        return DataError(printable(problem, limit=600), path=str(self.path))

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of every line with a row, and its fields."""
        with open_lines(self.path, self.options.tell) as lines:
            for number, line in enumerate(lines, 1):
                if number > self.lines_before:
                    fields = split_line(line, self.separator, self.comment)
                    if fields:
                        yield number, fields

    def read(self, columns: Sequence[int], dtype: Any) -> NDArray[Any]:
        """Return some columns as numbers, shape (columns, rows).

        Raises ValueError, OverflowError when a field is none, or a row of another
        length.
        """
        # Of the others a letter is read, so that rows of other lengths are seen.
        kinds = [(f"f{c}", dtype if c in columns else "U1") for c in range(self.width)]
        are_all = len({*columns}) == self.width
        source = open_lines(self.path, self.options.tell)
        with source as lines, warnings.catch_warnings():
            warnings.simplefilter("error")  # of 1.0 as an integer, of no rows
            for _ in range(self.lines_before):
                lines.readline()
            long = self.separator == "::"  # numpy takes one character
            table = np.loadtxt(
                (line.replace("::", "\t") for line in lines) if long else lines,
                dtype if are_all else np.dtype(kinds),
                comments=self.comment,
                delimiter="\t" if long else self.separator,
                quotechar='"',
                ndmin=2 if are_all else 1,
            )
        if are_all:
            return np.ascontiguousarray(table.T[[*columns]])
        return np.stack([table[f"f{column}"] for column in columns])

    def bad_line(
        self, columns: Sequence[int], fits: Callable[[list[str]], bool], need: str
    ) -> DataError:
        """Return an error that names the first line whose columns do not fit."""
        for number, fields in self.rows():
            apart = len(fields) != self.width
            if apart or not fits([fields[column] for column in columns]):
                line = printable(" ".join(fields), limit=60)
                problem = f"line {number} is {line!r}, it needs {need}"
                more = f" and {self.width} columns as in the lines before"
                problem += more * (len(fields) > self.width)
                return DataError(problem, path=str(self.path))
        return self.error("is not a table of numbers")


def split_line(line: str, separator: str | None, comment: str) -> list[str]:
    """Return the fields of a line, none of a comment or an empty one."""
    text = line.rstrip("\r\n")
    if text.lstrip()[:1] in _NO_ROW:
        return []
    if comment in text or _ATTRIBUTES in text:
        text = re.sub(rf'("[^"]*")|[ \t]{comment}.*|{_ATTRIBUTES}.*', r"\1", text)
    # A reader of csv takes 4 us per line, and one character between fields.
    if '"' not in text or separator == "::":
        fields = text.split(separator)
        return fields if separator is None else [field.strip() for field in fields]
    reader = csv.reader(
        [text.strip() if separator is None else text],
        delimiter=separator or " ",
        skipinitialspace=True,
    )
    return [field.strip() for field in next(reader)]


def open_table(
    path: Path,
    options: TableOptions,
    *,
    header: bool | None = None,
    names_columns: Callable[[Sequence[str]], bool] = lambda _: False,
) -> TextTable:
    """Return the table of a file, by its first lines.

    ``header`` says whether it has one; None to see: words above numbers, or names that
    are known, by ``names_columns``. Raises DataError when it holds no row, or is a file
    of another kind.
    """
    start = "".join(first_lines(path)).lower()
    other = next(
        (kind for begin, kind in _OTHERS.items() if start.startswith(begin)),
        "tar, to be unpacked, or another binary file" if "\0" in start else "",
    )
    if other:
        problem = f"is {other}, which is not read here: write a table (csv); features "
        problem += "and labels may be npy"
        raise DataError(problem, path=str(path))
    (at, first), (_, below), separator, comment, above = _first_rows(path)
    if not first:
        raise DataError("holds no line", path=str(path))
    shift = len(below) == len(first) + 1
    over = zip(first, below[shift:], strict=False)
    above_numbers = any(not is_number(a) and a and is_number(b) for a, b in over)
    above_numbers |= first == ("", *map(str, range(len(first) - 1)))  # of pandas
    unclear = header is None and not above_numbers and not any(map(is_number, first))
    if header is None:
        header = above_numbers or (unclear and names_columns(first))
    if not header:
        above = above if len(above) == len(first) else ()
        return TextTable(
            path, comment, separator, at - 1, (), first, options, unclear, above
        )
    if not below:
        raise DataError("holds no line below its header", path=str(path))
    # Tables with names of rows have one more column than names (R, pandas); a last name
    # may stand for a list of any length (JODIE's comma_separated_list_of_features).
    if len(first) < len(below) and "list" in first[-1]:
        first, shift = (*first, *[""] * (len(below) - len(first))), False
    names = ("", *first) if shift else first
    if all(map(is_number, first)):
        return TextTable(path, comment, separator, at, (), below, options, sizes=first)
    if len(names) != len(below):
        problem = f"has {len(first)} names of columns and {len(below)} columns"
        raise DataError(problem, path=str(path))
    return TextTable(path, comment, separator, at, names, below, options)


_Row = tuple[int, tuple[str, ...]]


def _first_rows(path: Path) -> tuple[_Row, _Row, str | None, str, tuple[str, ...]]:
    """Return two rows, their separator, comments, and the words of one above them."""
    rows: list[_Row] = []
    comment, above = "", ""
    separator: str | None = None
    with open_lines(path) as lines:
        for number, line in enumerate(lines, 1):
            text = line.strip()
            comment = comment or (text[:1] if text[:1] in COMMENTS else "")
            if text.startswith(COMMENTS) and not rows:
                above = text.lstrip("#% ")
            if not text or text.startswith(COMMENTS):
                continue
            comment = comment or COMMENTS[0]
            if not rows:
                bare = re.sub(r'"[^"]*"|\{.*', "", line.rstrip("\r\n"))
                separator = next((s for s in _SEPARATORS if s in bare), None)
            # The first comment says which character begins them.
            rows.append((number, tuple(split_line(line, separator, comment))))
            if len(rows) == 2:
                break
    words = tuple(split_line(above, separator, "#")) if above else ()
    first, second, *_ = (*rows, (0, ()), (0, ()))
    return first, second, separator, comment, words


@dataclass(frozen=True, eq=False)
class Keys:
    """Ids in some columns of a table."""

    ids: NDArray[Any]
    """Distinct ones, sorted: int64, or words."""
    codes: NDArray[np.int64]
    """Place in ``ids``, shape (columns, rows)."""


def read_keys(table: TextTable, columns: Sequence[int]) -> Keys:
    """Return the ids in some columns: whole numbers from 0, or words.

    Ids are words if those of the first row are, or where they are asked to be. Numbers
    that int64 cannot hold are kept as words too, ``1.0`` is 1. Raises DataError when a
    line has no such ids; names it.
    """
    words = table.options.words
    if not words and all(is_number(table.first_row[c]) for c in columns):
        try:
            numbers = table.read(columns, np.int64)
            most = int(numbers.max(initial=-1))
            # A mark per id, where they are about as many as numbers: 10 million edges
            # take 0.2 s and not the 3 s of a sort.
            if 0 <= numbers.min(initial=0) <= most < 4 * numbers.size + 1000:
                marks = np.zeros(most + 1, bool)
                marks[numbers.reshape(-1)] = True
                return Keys(np.flatnonzero(marks), (np.cumsum(marks) - 1)[numbers])
            if numbers.min(initial=0) >= 0:
                ids, codes = np.unique(numbers, return_inverse=True)
                return Keys(ids, codes.reshape(numbers.shape))
        except (ValueError, OverflowError, UserWarning, DeprecationWarning):
            pass  # 1.0, beyond int64, or a line to name
        return _read_words(table, columns, whole)
    return _read_words(table, columns, str)


def whole(text: str) -> str:
    """Return a whole number from 0 in its shortest form, 1.0 as 1; "" of others."""
    match = _WHOLE.fullmatch(text)
    return match[1].lstrip("0") or "0" if match else ""


def _read_words(table: TextTable, columns: Sequence[int], form: Any) -> Keys:
    places: dict[str, int] = {}
    codes = array("q")
    for _, fields in table.rows():
        if len(fields) != table.width:
            del codes[:]
            break
        for column in columns:
            codes.append(places.setdefault(form(fields[column]), len(places)))
    if not codes or "" in places:
        count = ("a vertex id", "two vertex ids")[len(columns) - 1]
        kind = ", whole numbers from 0 (or --words)" if form is whole else ""
        kind += ", by --columns" if len(columns) == 2 < table.width else ""
        raise table.bad_line(
            columns, lambda fields: all(map(form, fields)), count + kind
        )
    names = np.array([*places])
    if form is whole and max(map(len, places)) < 19:
        names = names.astype(np.int64)
    ids, rank = np.unique(names, return_inverse=True)
    # Columns are side by side in codes.
    of_row = rank[np.frombuffer(codes, np.int64)].reshape(-1, len(columns))
    return Keys(ids, of_row.T.copy())
