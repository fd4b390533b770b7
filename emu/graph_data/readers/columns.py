"""Columns of tables: what kind of values each has, over all of its rows.

A kind is found per distinct text, not per row: columns of ten million rows have few.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from emu.array_types import Array, Floats, Ints
from emu.errors import DataError

#: Kinds of a field; text is what is none of the others.
INTEGER = "integer"
NUMBER = "number"
COMMA = "decimal comma"
BOOLEAN = "boolean"
DATE = "date"
TEXT = "text"
EMPTY = ""

#: Kinds that a row of numbers may mix; the later one takes the earlier ones in.
_NUMERIC = (INTEGER, NUMBER, COMMA)
#: A whole number from 0 as files have it: with a sign, or 1.0 as pandas writes it.
_INTEGER = re.compile(r"\+?(\d+)(\.0*)?")
_COMMA = re.compile(r"[+-]?\d*,\d+")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
#: Dates are told from words, so that no column of them is taken for ids.
_DATE = re.compile(r"\d{4}-\d\d(-\d\d)?([T ].*)?|\d\d?[./]\d\d?[./]\d{4}.*")
_TRUTH = {"true": 1.0, "false": 0.0}
#: Letters of distinct words that may be made of each letter of a file.
_MOST_WIDENING = 100
_ALWAYS_ALLOWED = 1 << 22


def is_number(text: str) -> bool:
    """Return True where a field is a number, nan and infinity among them."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # Python takes 1_0 for 10


def whole(text: str) -> str:
    """Return a whole number from 0 in its shortest form, 1.0 as 1; "" of others."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return ""
    digits = match[1].lstrip("0")
    return digits or "0"


def is_padded(text: str) -> bool:
    """Return True for a whole number with zeros in front, as 007."""
    return text[:1] == "0" and text[1:].isdecimal()


def kind_of(text: str) -> str:
    """Return the kind of one field."""
    if not text:
        return EMPTY
    # The narrowest kind first: every integer is a number, too.
    if _INTEGER.fullmatch(text):
        return INTEGER
    if is_number(text):
        return NUMBER
    if _COMMA.fullmatch(text):
        return COMMA
    if text.lower() in _TRUTH:
        return BOOLEAN
    return DATE if _DATE.fullmatch(text) else TEXT


def real(text: str) -> float:
    """Return a field as a number, truth values as 1 and 0; nan of others."""
    word = text.lower()
    if word in _TRUTH:
        return _TRUTH[word]
    if _COMMA.fullmatch(text):
        with_dot = text.replace(",", ".")
        return float(with_dot)
    if is_number(text):
        return float(text)
    return np.nan


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table."""

    values: Array
    """A number per row, or the place of its text in ``words``."""
    words: tuple[str, ...] | None = None
    """Distinct texts; None where every row has a number."""

    @classmethod
    def of(cls, fields: Iterable[str]) -> Column:
        """Return the column of some texts."""
        places: dict[str, int] = {}
        values = [places.setdefault(text, len(places)) for text in fields]
        numbers = np.array(values, np.int64)
        return cls(values=numbers, words=tuple(places))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.values)

    @cached_property
    def kinds(self) -> Counter[str]:
        """Kinds of fields, and how many rows have each."""
        if self.words is None:
            kind = NUMBER
            if _are_whole(self.values):
                kind = INTEGER
            return Counter({kind: self.rows})

        kinds = Counter[str]()
        # Rows count, not words: one odd word among a million numbers is an error.
        distinct = len(self.words)
        counts = np.bincount(self.values, minlength=distinct)
        rows_of_words = zip(self.words, counts.tolist(), strict=True)
        for word, count in rows_of_words:
            kind = kind_of(word)
            kinds[kind] += count
        return kinds

    @cached_property
    def kind(self) -> str:
        """Kind of all fields that are not empty, text where they differ."""
        kinds = set(self.kinds) - {EMPTY}
        # 1 and 1.5 in one column are numbers.
        if kinds.issubset(_NUMERIC):
            return max(kinds, key=_NUMERIC.index, default=EMPTY)
        if len(kinds) > 1:
            return TEXT
        (kind,) = kinds
        return kind

    @cached_property
    def main_kind(self) -> str:
        """Kind of most fields; `kind`, where all are numbers."""
        if self.kind != TEXT:
            return self.kind

        counts = self.kinds
        numeric = [kind for kind in _NUMERIC if counts[kind]]
        numbers = sum(counts[kind] for kind in numeric)
        fields = counts.total() - counts[EMPTY]
        # Words may look like numbers, numbers never like words.
        if numeric and 2 * numbers >= fields:
            return numeric[-1]
        other_kinds = (BOOLEAN, DATE, TEXT)
        return max(other_kinds, key=counts.__getitem__)

    @property
    def is_id(self) -> bool:
        """True where its fields may name vertices: whole numbers from 0, or words."""
        return self.main_kind in {INTEGER, TEXT}

    @cached_property
    def is_padded(self) -> bool:
        """True where whole numbers among its words begin with zeros."""
        words = self.words or ()
        return any(is_padded(word) for word in words)

    def names_words(self, *, stated: bool | None) -> bool:
        """Return whether its ids are words, as an option states or its fields show."""
        if stated is not None:
            return stated
        return self.main_kind == TEXT or self.is_padded

    @cached_property
    def grows(self) -> bool:
        """True where it has numbers, each larger than the one above."""
        if self.main_kind not in _NUMERIC:
            return False
        steps = np.diff(self.real)
        return bool((steps > 0).all())

    @cached_property
    def distinct(self) -> Ints | set[str]:
        """Distinct fields, sorted numbers or a set of texts."""
        if self.words is None:
            return _distinct_numbers(self.values)
        # 1 and 1.0 are one id, 7 and 007 may be two.
        if self.kind == INTEGER and not self.is_padded:
            return {whole(word) for word in self.words if word}
        texts = set(self.words)
        return texts - {EMPTY}

    @cached_property
    def real(self) -> Floats:
        """Fields as numbers, nan where they are none."""
        if self.words is None:
            return self.values.astype(np.float64)

        reals = [real(word) for word in self.words]
        number_of_word = np.array(reals)
        numbers = number_of_word[self.values]
        return np.asarray(numbers)

    @cached_property
    def may_be_thousands(self) -> bool:
        """True where its commas may part thousands as well as decimals."""
        # Only if all may be: one 1,5 shows that a comma is decimal.
        words = self.words or ()
        commas = [word for word in words if "," in word]
        return bool(commas) and all(map(_THOUSANDS.fullmatch, commas))

    def fields(self) -> list[str]:
        """Return the text of every row."""
        places = self.values.tolist()
        if self.words is None:
            return [str(number) for number in places]
        return [self.words[place] for place in places]

    def below(self, first: str) -> Column:
        """Return the column with one more field on top."""
        # The row on top may have a word where all others have numbers.
        column = self.as_words()
        words = column.words or ()
        if first not in words:
            words = (*words, first)

        place = words.index(first)
        values = np.insert(column.values, 0, place)
        return Column(values, words)

    def as_words(self) -> Column:
        """Return the column with its numbers as texts."""
        if self.words is not None:
            return self
        numbers, places = np.unique(self.values, return_inverse=True)
        words = map(str, numbers.tolist())
        return Column(places, tuple(words))


def column_of_ids(ids: Array) -> Column:
    """Return the column of distinct ids, numbers or words."""
    if ids.dtype.kind == "U":
        places = np.arange(len(ids))
        words = tuple(ids.tolist())
        return Column(places, words=words)
    return Column(ids)


@dataclass(frozen=True, eq=False)
class Keys:
    """Ids in some columns of a table."""

    ids: Array
    """Distinct ones, sorted: int64, or words."""
    codes: Ints
    """Place in ``ids``, shape (columns, rows)."""


def join_columns(columns: Sequence[Column], *, as_words: bool) -> Keys:
    """Return the ids of columns, numbered together: numbers, or else words.

    Numbers that int64 cannot hold are words too; ``1.0`` is 1. Raises DataError where
    the words would take far more memory than the file has bytes.
    """
    are_numbers = all(column.words is None for column in columns)
    if are_numbers and not as_words:
        return _join_numbers(columns)

    places: dict[str, int] = {}
    rows = []
    for column in columns:
        word_column = column.as_words()
        codes = []
        for word in word_column.words or ():
            name = word if as_words else whole(word)
            code = places.setdefault(name, len(places))
            codes.append(code)
        code_of_word = np.array(codes, np.int64)
        row = code_of_word[word_column.values]
        rows.append(row)

    names = word_array(list(places))
    # A number of 19 digits may be beyond int64.
    are_short = names.dtype.itemsize < 4 * 19
    if not as_words and are_short:
        names = names.astype(np.int64)
    ids, ranks = np.unique(names, return_inverse=True)
    codes_by_column = np.stack(rows)
    return Keys(ids, ranks[codes_by_column])


def _join_numbers(columns: Sequence[Column]) -> Keys:
    # Distinct ones of each column first: these are few where rows are many.
    numbers = np.concatenate([column.distinct for column in columns])
    ids = _distinct_numbers(numbers)
    shape = (len(columns), columns[0].rows)
    codes = np.empty(shape, np.int64)
    highest = int(ids.max(initial=-1))
    rows = zip(codes, columns, strict=True)
    # A table by number spares the searches, and is as long as the largest number.
    if highest >= _mark_limit(codes):
        for row, column in rows:
            row[...] = np.searchsorted(ids, column.values)
        return Keys(ids, codes)

    places = np.zeros(highest + 1, np.int64)
    places[ids] = np.arange(len(ids))
    for row, column in rows:
        row[...] = places[column.values]
    return Keys(ids, codes)


def _mark_limit(numbers: Array) -> int:
    """Return below which numbers a mark for each is cheaper than to sort them."""
    # Ids with large gaps would need a table that is mostly empty.
    return 4 * numbers.size + 1000


def _are_whole(numbers: Array) -> bool:
    """Return True for whole numbers from 0."""
    if numbers.dtype.kind != "i":
        return False
    least = numbers.min(initial=0)
    return bool(least >= 0)


def _distinct_numbers(numbers: Array) -> Array:
    """Return distinct numbers, sorted; 10 million take 0.2 s, by a sort 3 s."""
    if not _are_whole(numbers):
        return np.unique(numbers)
    highest = int(numbers.max(initial=-1))
    if highest >= _mark_limit(numbers):
        return np.unique(numbers)

    marks = np.zeros(highest + 1, bool)
    marks[numbers] = True
    return np.flatnonzero(marks)


def count_common(left: Column, right: Column) -> int:
    """Return how many distinct fields two columns have in common."""
    ours = left.distinct
    theirs = right.distinct
    if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
        common = np.intersect1d(ours, theirs, assume_unique=True)
        return len(common)

    # Numbers of one and words of the other meet as texts.
    our_words = set(map(str, ours))
    their_words = set(map(str, theirs))
    return len(our_words & their_words)


def word_array(words: Sequence[str]) -> NDArray[np.str_]:
    """Return words as an array, which is as wide as the longest for each of them.

    Raises DataError where one long word among many short ones makes that very large.
    """
    longest = max(words, key=len, default="")
    # numpy pads every word to the longest one, four bytes for each letter.
    letters = sum(map(len, words))
    room = len(longest) * len(words)
    allowed = max(_MOST_WIDENING * letters, _ALWAYS_ALLOWED)
    if room > allowed:
        raise DataError(
            f"an id of {len(longest)} letters stands among {len(words)} short ones",
            path=f"{longest[:40]}...",
        )
    return np.array(words, dtype=np.str_)
