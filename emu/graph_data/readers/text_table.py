"""Tables in text files, plain or gz: their lines, fields and columns.

numpy reads the numbers: 10 million lines take 3 s and 190 MB, where polars takes 2.3 s
and 490 MB, pandas 3.4 s and 410 MB. What it cannot read is read line by line, each
distinct text once.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
import time
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import numpy as np
from typing_extensions import override

from emu.array_types import Array
from emu.errors import DataError
from emu.graph_data.readers.columns import Column, is_number, whole
from emu.graph_data.readers.questions import name_some
from emu.host.input_file import open_gzip, open_input
from emu.interchange.known_formats import FORMATS, OTHER_FORMATS
from emu.interchange.recognise import IMPORT, refuse_other_formats
from emu.names import printable
from emu.units import format_count

#: Takes a line for a person who waits.
Tell = Callable[[str], None]

COMMENTS = ("#", "%")
#: First of what networkx writes behind an edge, {'weight': 3}.
_ATTRIBUTES = "{"
#: Of these the first that stands outside of quotes; else blanks. "::" is MovieLens'.
_SEPARATORS = ("\t", ";", "|", ",", "::")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
#: Bytes that decide on the encoding of a text.
_START = 1 << 20
#: Name of the last column that stands for several, as that of JODIE.
_LIST = re.compile(r"list[ _]of", re.IGNORECASE)
#: A number that begins with a zero: an id of words, or the number without it?
_PADDED = re.compile(rb"[\s,;|:\"]0\d")


@dataclass(frozen=True)
class TableOptions:
    """Answers to what a text file may leave open; None where it is to say so itself."""

    columns: tuple[str, ...] | None = None
    """Both columns of an edge list with ends, by name or number from 1."""
    bipartite: bool | None = None
    """True where the two columns number vertices of two kinds."""
    header: bool | None = None
    """True where the first line of the edge list is no edge."""
    words: bool | None = None
    """True where ids are words, also those that look like numbers."""
    neighbours: bool = False
    """Each line has a vertex and its neighbours."""
    ids: bool | None = None
    """True where tables beside name their vertices, False where rows are in order."""
    id_column: str | None = None
    """Column of tables beside with the vertices, by name or number from 1."""
    order: str = ""
    """Vertices that rows in order belong to: ``rows``, ``ids`` or ``labels``."""
    label_column: str | None = None
    """Column of the classes, by name or number from 1."""
    split_codes: tuple[str, ...] = ()
    """Codes of train, valid and test."""
    tell: Tell | None = None
    """Takes a line from time to time while a long text is read."""

    @property
    def states_ids(self) -> bool:
        """True where ids of tables beside are those of the graph."""
        return bool(self.ids) or self.id_column is not None


class _Content(io.BufferedIOBase):
    """Bytes of a text; reports how much was read, and sees numbers as 007."""

    def __init__(
        self,
        file: BinaryIO,
        tell: Tell | None,
        name: str,
    ) -> None:
        self._file = cast("io.BufferedIOBase", file)
        self._tell = tell
        self._name = name
        self._count = 0
        # Seconds between two lines for a person, longer each time.
        self._pause = 10.0
        self._last = time.monotonic()
        # As if a line had ended: a padded number may stand first in the file.
        self._end = b"\n"
        self.has_padded = False

    @override
    def readable(self) -> bool:
        return True

    @override
    def read1(self, size: int = -1, /) -> bytes:
        data = self._file.read1(size)
        self._count += len(data)
        # A number may be cut in two by the end of a piece.
        recent = self._end + data
        if _PADDED.search(recent):
            self.has_padded = True
        self._end = recent[-2:]

        now = time.monotonic()
        is_due = now - self._last > self._pause
        if self._tell and is_due:
            megabytes = self._count / 1e6
            self._tell(f"{self._name}: {megabytes:,.0f} MB read")
            self._last = now
            self._pause *= 1.5
        return data


@contextlib.contextmanager
def open_lines(path: Path, tell: Tell | None = None) -> Iterator[TextIO]:
    """Open text: UTF-8, UTF-16 if it says so, else Latin-1; raises as `open_input`."""
    with open_input(path) as file:  # no pipe, no folder
        is_gzip = file.read(2) == b"\x1f\x8b"
    # By the content: names do not always say it.
    open_content = open_gzip if is_gzip else open_input

    with open_content(path) as content:
        # A later byte that is not UTF-8 raises.
        start = content.read(_START)
        content.seek(0)
        stream = cast("BinaryIO", content)
        part = _Content(stream, tell, path.name)
        encoding = _encoding_of(start)
        buffer = cast("Any", part)
        yield io.TextIOWrapper(buffer, encoding)


def _encoding_of(start: bytes) -> str:
    """Return the encoding of a text by its first bytes."""
    if start.startswith(_UTF_16):
        return "utf-16"

    decoder = codecs.getincrementaldecoder("utf-8")()
    # What goes on behind the start may be cut within a letter.
    is_whole = len(start) < _START
    try:
        decoder.decode(start, is_whole)
    except UnicodeDecodeError:
        # Every byte is a letter of it: no file fails here.
        return "latin-1"
    # With or without the mark that Windows writes first.
    return "utf-8-sig"


def first_lines(path: Path, count: int = 1) -> list[str]:
    """Return the first lines that are not empty, without what ends them."""
    with open_lines(path) as file:
        lines = (line.rstrip("\r\n") for line in file if line.strip())
        return list(islice(lines, count))


@dataclass(frozen=True)
class TextTable:
    """A table in a text file."""

    path: Path
    options: TableOptions
    separator: str | None
    comment: str
    lines_before: int
    """Lines above the first row."""
    first_row: tuple[str, ...] = ()
    """Fields of the first line that is no comment: a row, or names of columns."""
    second_row: tuple[str, ...] = ()
    words_above: tuple[str, ...] = ()
    """Words of the comment above the first row."""
    names: tuple[str, ...] = ()
    """Names of the columns; none without a header."""
    row: tuple[str, ...] = ()
    """The first row that is none of names: the second, while that is open."""
    columns: Mapping[int, Column] = field(default_factory=dict)
    """Those that were read, by their place."""
    has_attributes: bool = False
    """True where braces with what networkx keeps of an edge stand behind a row."""
    hint: str = ""
    """Clause on what a file may be whose lines differ in length."""

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.row)

    @property
    def header(self) -> tuple[str, ...]:
        """Names of all columns, if the first row has names.

        Tables with names of rows have one more column than names (R, pandas).
        """
        names = self.first_row
        missing = self.width - len(names)
        is_list = _LIST.search(names[-1]) is not None
        if missing > 0 and is_list:
            empty_names = ("",) * missing
            return names + empty_names
        if missing == 1:
            return ("", *names)
        return names

    def decide(self, *, header: bool) -> TextTable:
        """Return the table with its first row as names, or as a row.

        Numbers are no names: they may be sizes. Raises DataError where no row is left,
        or rows have another number of columns.
        """
        if not header:
            return replace(self, names=(), row=self.first_row)
        if not self.second_row:
            raise self.error("holds no line below its header")

        lines_before = self.lines_before + 1
        below = replace(self, lines_before=lines_before, row=self.second_row)
        # Sizes are above a table, and no names.
        if all(map(is_number, self.first_row)):
            return below
        if len(self.header) != self.width:
            problem = f"has {len(self.first_row)} names of columns and {self.width}"
            raise self.error(f"{problem} columns")
        return replace(below, names=self.header, hint="")

    def name(self, column: int) -> str:
        """Return the name of a column for people, its number without a header."""
        name = ""
        if self.names:
            name = self.names[column]
        return name or f"column {column + 1}"

    def option(self, column: int) -> str:
        """Return what an option calls a column: its name, if that is clear."""
        number = str(column + 1)
        if not self.names:
            return number

        name = self.names[column]
        # An option with this name would be split at the comma, or name two columns.
        is_clear = self.names.count(name) == 1 and "," not in name
        if not is_clear or name != name.strip("*"):
            return number
        return name or number

    def left_out(self, used: Sequence[int | None]) -> tuple[str, ...]:
        """Return the names of the columns that nobody asked for."""
        rest = [place for place in range(self.width) if place not in used]
        names = [self.name(place) for place in rest]
        return tuple(names)

    def column(self, stated: str, option: str) -> int:
        """Return the place of a column that an option states; DataError without one."""
        stated = stated.strip()
        # A name goes before a number: a column may be called 2.
        if stated in self.names:
            return self.names.index(stated)
        number = 0
        if stated.isdecimal():
            number = int(stated)
        if 1 <= number <= self.width:
            return number - 1

        columns = format_count(self.width, "column")
        problem = f"{option} names {stated!r}, of {columns}"
        if self.names:
            problem += f": {name_some(self.names)}"
        raise self.error(problem)

    def error(self, problem: str) -> DataError:
        """Return an error about this file."""
        text = printable(problem, limit=600)
        return DataError(text, path=self.path)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of every line with a row, and its fields."""
        with open_lines(self.path, self.options.tell) as lines:
            for number, line in enumerate(lines, 1):
                if number <= self.lines_before:
                    continue
                fields = self.split(line, number)
                if fields:
                    yield number, fields

    def split(self, line: str, number: int) -> list[str]:
        """Return the fields of a line; DataError where its quotes do not end."""
        try:
            return split_line(line, self.separator, self.comment)
        except csv.Error as error:
            raise self.error(f"line {number} has a quote that does not end") from error

    def with_columns(self, wanted: Iterable[int]) -> TextTable:
        """Return the table with some columns, over all of its rows.

        Raises DataError as `read` does.
        """
        columns = self.read(list(wanted))
        return replace(self, columns=columns)

    def read_ids(self, wanted: Sequence[int]) -> dict[int, Column]:
        """Return columns as `read` does; ids that are stated to be words as they stand.

        As numbers 1.10 and 1.1 would be one. Raises DataError as `read` does.
        """
        if self.options.words:
            return self._read_words(wanted)
        return self.read(wanted)

    def read(self, wanted: Sequence[int]) -> dict[int, Column]:
        """Return columns by their place, over all rows.

        Raises DataError with the line that has more or fewer columns.
        """
        # By the first row alone: what a later row has, numpy finds and refuses.
        numeric = [column for column in wanted if is_number(self.row[column])]
        columns: dict[int, Column] = {}
        if numeric:
            columns = self._read_numbers(numeric)
        rest = [column for column in wanted if column not in columns]
        if rest:
            columns |= self._read_words(rest)

        row_counts = {column.rows for column in columns.values()}
        if len(row_counts) > 1:
            return self._read_words(wanted)  # numpy knows fewer comments
        return {place: columns[place] for place in wanted}

    def _read_numbers(self, wanted: Sequence[int]) -> dict[int, Column]:
        """Return columns if all are of numbers, and none begins with a zero."""
        all_columns = range(self.width)
        kinds = dict.fromkeys(all_columns, "U1")  # so that lengths are seen
        for column in wanted:
            is_whole = whole(self.row[column])
            kinds[column] = "i8" if is_whole else "f8"
        fields = [(f"f{column}", kind) for column, kind in kinds.items()]
        dtype: np.dtype[Any] = np.dtype(fields)
        distinct_kinds = set(kinds.values())
        are_alike = distinct_kinds == {"i8"}
        if are_alike:
            dtype = np.dtype("i8")

        try:
            numbers, has_padded = self._load(dtype)
        except (ValueError, OverflowError, UserWarning, DeprecationWarning):
            return {}  # words, 1.0, beyond int64, or a line to name
        # As a number 007 would be 7: the words are read, and may be asked about.
        if has_padded and "i8" in distinct_kinds:
            return {}

        columns = {}
        for column in wanted:
            values = numbers[:, column] if are_alike else numbers[f"f{column}"]
            columns[column] = Column(_narrow(values))
        return columns

    def _load(self, dtype: np.dtype[Any]) -> tuple[Array, bool]:
        """Return all rows, and whether a number in the file begins with a zero."""
        source = open_lines(self.path, self.options.tell)
        with source as lines, warnings.catch_warnings():
            warnings.simplefilter("error")  # of 1.0 as an integer, of no rows
            for _ in range(self.lines_before):
                lines.readline()

            rows_of_text: Iterable[str] = lines
            separator = self.separator
            if separator == "::":  # numpy takes one character
                rows_of_text = (line.replace("::", "\t") for line in lines)
                separator = "\t"
            rows = np.loadtxt(
                rows_of_text,
                dtype,
                comments=self.comment,
                delimiter=separator,
                quotechar='"',
                ndmin=1 if dtype.names else 2,
            )
            content = cast("_Content", lines.buffer)
            # The search for zeros looks at single bytes, which UTF-16 has two of per
            # letter.
            is_wide = lines.encoding == "utf-16"
            return rows, content.has_padded or is_wide

    def _read_words(self, wanted: Sequence[int]) -> dict[int, Column]:
        # Numbers for distinct texts: a string per row would take far more memory.
        codes = {column: array("q") for column in wanted}
        places: dict[int, dict[str, int]] = {column: {} for column in wanted}
        for number, fields in self.rows():
            if len(fields) != self.width:
                raise self.wrong_line(number, fields, f"{self.width} columns")
            for column in wanted:
                code_of_word = places[column]
                code = code_of_word.setdefault(fields[column], len(code_of_word))
                codes[column].append(code)

        columns = {}
        for column in wanted:
            values = np.array(codes[column], np.int64)
            words = tuple(places[column])
            columns[column] = Column(values, words)
        return columns

    def bad_line(
        self,
        columns: Sequence[int],
        fits: Callable[[list[str]], bool],
        need: str,
    ) -> DataError:
        """Return an error that names the first line whose columns do not fit."""
        # Read once more, line by line: numpy does not say what was wrong with which
        # line.
        for number, fields in self.rows():
            if len(fields) != self.width:
                return self.wrong_line(number, fields, need)
            texts = [fields[column] for column in columns]
            if not fits(texts):
                return self.wrong_line(number, fields, need)
        return self.error("is not a table of numbers")

    def wrong_line(
        self,
        number: int,
        fields: Sequence[str],
        need: str,
    ) -> DataError:
        """Return an error that names a line, and what it needs to have."""
        text = " ".join(fields)
        line = printable(text, limit=60)
        problem = f"line {number} is {line!r}, it needs {need}"
        if len(fields) != self.width:
            problem += f", as in the lines before{self.hint}"
        return DataError(problem, path=self.path)


def _narrow(numbers: Array) -> Array:
    """Return numbers as integers where all are, as pandas' 1.0 and 2.0 are."""
    if numbers.dtype.kind != "f":
        return numbers
    # Not by the remainder, of which numpy warns where a number is infinite.
    is_whole = np.floor(numbers) == numbers
    if not is_whole.all():
        return numbers
    largest = np.abs(numbers).max(initial=0)
    # Beyond 2^53 float64 has lost the last digits already.
    if largest >= 1 << 53:
        return numbers
    return numbers.astype(np.int64)


def is_comment(line: str) -> bool:
    """Return True for a line that is a comment as a whole."""
    bare = line.lstrip()
    return bare.startswith(COMMENTS)


def strip_comment(line: str, comment: str) -> str:
    """Return a line without a comment, or braces, behind its fields."""
    text = line.rstrip("\r\n")
    if comment not in text and _ATTRIBUTES not in text:
        return text
    # Only behind a blank, and never within quotes: a#b is a word.
    not_text = rf'("[^"]*")|[ \t]{comment}.*|{_ATTRIBUTES}.*'
    return re.sub(not_text, r"\1", text)


def split_line(
    line: str,
    separator: str | None,
    comment: str,
) -> list[str]:
    """Return the fields of a line, none of a comment or an empty one.

    Raises csv.Error where a quote does not end.
    """
    if is_comment(line) or not line.strip():
        return []
    text = strip_comment(line, comment)

    # A reader of csv takes 4 us per line, and one character between fields.
    if '"' not in text or separator == "::":
        fields = text.split(separator)
        if separator is None:
            return fields
        return [field.strip() for field in fields]

    content = text.strip() if separator is None else text
    reader = csv.reader(
        [content],
        delimiter=separator or " ",
        skipinitialspace=True,
        strict=True,
    )
    fields = next(reader)
    return [field.strip() for field in fields]


def _begin_of(path: Path) -> tuple[list[tuple[int, str]], str, str]:
    """Return the first two rows by their lines, how comments begin, and one above."""
    rows: list[tuple[int, str]] = []
    comment = ""
    above = ""
    with open_lines(path) as lines:
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if text.startswith(COMMENTS):
                # The first comment says which character begins them.
                comment = comment or text[0]
                # The last comment before the rows may name the columns, as SNAP's lists
                # do.
                if not rows:
                    above = text.lstrip("#% ")
            elif text:
                rows.append((number, line))
            if len(rows) == 2:
                break

    return rows, comment, above


def open_table(path: Path, options: TableOptions) -> TextTable:
    """Return the table of a file; what its first row is, is open.

    Raises DataError when it holds no row or one without a column, or is a file of
    another kind.
    """
    # First of all: a file of another program may well pass for a table.
    formats = (*FORMATS, *OTHER_FORMATS)
    refuse_other_formats(path, IMPORT, formats)
    rows, comment, above = _begin_of(path)
    if not rows:
        raise DataError("holds no line", path=path)

    first_number, first = rows[0]
    comment = comment or COMMENTS[0]
    # A comma in quotes is text, one in a comment behind the row is none of it.
    plain_line = re.sub(r'"[^"]*"', "", first)
    bare = strip_comment(plain_line, comment)
    behind = plain_line.removeprefix(bare)
    separators = [mark for mark in _SEPARATORS if mark in bare]
    separator = separators[0] if separators else None
    table = TextTable(
        path=path,
        options=options,
        separator=separator,
        comment=comment,
        lines_before=first_number - 1,
        has_attributes=behind.startswith(_ATTRIBUTES),
    )
    rows_of_fields = [tuple(table.split(line, number)) for number, line in rows]
    for (number, line), fields in zip(rows, rows_of_fields, strict=True):
        if not fields:  # braces, as of JSON, are what networkx keeps beside an edge
            text = printable(line.strip(), limit=60)
            raise table.error(f"line {number} is {text!r}, which has no column")
    first_row, *below = rows_of_fields
    second_row = below[0] if below else ()
    words_above = above.split(separator)
    return replace(
        table,
        first_row=first_row,
        second_row=second_row,
        row=second_row if below else first_row,
        words_above=tuple(words_above),
    )


def put_on_top(table: TextTable) -> TextTable:
    """Return a table that was read below its first row with that row on top."""
    columns = {}
    for place, column in table.columns.items():
        field_on_top = table.first_row[place]
        columns[place] = column.below(field_on_top)
    return replace(table, columns=columns)


def starts_with_words(table: TextTable) -> bool:
    """Return True where some field of the first row is no number."""
    fields = table.first_row
    # An empty first field is where pandas has its index, whose name is empty.
    if fields[0] == "":
        return True
    filled_fields = filter(None, fields)
    return not all(map(is_number, filled_fields))
