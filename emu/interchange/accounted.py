"""Structured files, read so that what no reader asked for is counted.

A reader takes keys, attributes and elements out of a `Reading`. Each of them that it
never asked for is left out, and `Reading.left_out` says so by name and number, in the
order of the file. A reader cannot forget to say it: it would have to ask first.
"""

from __future__ import annotations

import contextlib
import math
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard
from xml.etree import ElementTree as ET

from emu.errors import DataError
from emu.host.input_file import one_error
from emu.units import read_number


@dataclass
class Account:
    """An account of what a reader makes of a file, beside what that states."""

    origin: str
    """Path of the file."""
    notes: list[str] = field(default_factory=list, kw_only=True)
    """Sentences on how the file was read, and what was assumed."""
    left_out: Counter[str] = field(default_factory=Counter, kw_only=True)
    """Name of what has no form here -> how often it was there."""

    def error(self, problem: str) -> DataError:
        """Return the error with which the file is refused."""
        return DataError(problem, path=self.origin)

    def leave_out(self, name: str, count: int = 1) -> None:
        """Count something that has no form here."""
        self.left_out[name] += count


class NotRead(ValueError):
    """A file is right, and says something that has no form here."""


@contextlib.contextmanager
def reading_errors(path: Path | str) -> Iterator[None]:
    """Turn what reading a file raises into a DataError of it, as `one_error`.

    Only of what is no `NotRead` it says that the file is damaged.
    """
    with one_error(path):
        # `one_error` calls a file damaged, which one that says something unread is not.
        try:
            yield
        except NotRead as error:
            problem = str(error)
            raise DataError(problem, path=path) from error


#: Stands for no default: a key has to be there.
_REQUIRED: Any = object()
#: Prolog in which a file of a few bytes may define text of gigabytes.
_ENTITY = "<!ENTITY"


class Reading:
    """One mapping of JSON or YAML, or one element of XML.

    Attributes of an element are its keys. What is asked for is taken to be used.

    Parameters
    ----------
    values
        Keys, or attributes, and what they have.
    kind
        What the mapping is, as in "latency of a link": ``link``.
    elements
        Elements of XML within, in their order.
    """

    # A trace of torch.profiler has one of these per event: slots keep them small.
    __slots__ = ("_asked", "_elements", "_inner", "_values", "kind")

    def __init__(
        self,
        values: Mapping[str, Any],
        kind: str,
        elements: list[Reading] | None = None,
    ) -> None:
        self.kind = kind
        self._values = values
        self._elements = elements or []
        self._asked = set[str]()
        self._inner = dict[str, list[Reading]]()

    def __contains__(self, key: str) -> bool:
        """Return True where the key is there. That alone does not use it."""
        return key in self._values

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key; ValueError without one."""
        return self.get(key, _REQUIRED)

    def keys(self) -> list[str]:
        """Return the keys in their order. None counts as asked for by that."""
        return [*self._values]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, which is used thereby.

        Raises ValueError when the key is missing and there is no default.
        """
        # Asked for counts as used: a reader has no reason to ask for anything else.
        self._asked.add(key)
        value = self._values.get(key, default)
        if value is _REQUIRED:
            raise ValueError(f"{self._one} has no {key!r}")
        return value

    def text(self, key: str, default: str = _REQUIRED) -> str:
        """Return a text, or a number as text.

        Raises ValueError when it is missing without a default, or of another kind.
        """
        value = self.get(key, default)
        if isinstance(value, str):
            return value
        if _is_number(value):
            # To YAML a name such as 0 or a version such as 4.1 is a number.
            return str(value)
        raise self._wrong(key, value, "a word")

    def texts(self, key: str) -> list[str]:
        """Return the texts or numbers that a key lists; none where it is missing.

        Raises ValueError when it is no list of these.
        """
        values = self.get(key, [])
        # A text would be taken for the list of its letters.
        if not isinstance(values, list):
            raise self._wrong(key, values, "a list")
        for value in values:
            if not isinstance(value, str) and not _is_number(value):
                raise self._wrong(key, value, "texts in the list")
        return [str(value) for value in values]

    def number(self, key: str, default: float = _REQUIRED) -> float:
        """Return a finite number, or the one that a text states.

        Raises ValueError when it is missing without a default, or is none.
        """
        value = self.get(key, default)
        # XML has nothing but texts, and PyYAML takes 1e9, without a dot, for one.
        if isinstance(value, str):
            try:
                value = read_number(value)
            except ValueError:
                raise self._wrong(key, value, "a number") from None
        # float() and Python's JSON both take nan, which passes every comparison.
        is_finite = _is_number(value) and math.isfinite(value)
        if not is_finite:
            raise self._wrong(key, value, "a number")
        return float(value)

    def count(self, key: str, default: int = _REQUIRED) -> int:
        """Return a whole number from 0 on.

        Raises ValueError when it is missing without a default, or is none.
        """
        number = self.number(key, default)
        is_count = number >= 0 and number.is_integer()
        if not is_count:
            raise self._wrong(key, number, "a whole number from 0 on")
        return int(number)

    def part(self, key: str, kind: str = "") -> Reading:
        """Return the mapping that a key has; an empty one where the key is missing.

        Raises ValueError when it is no mapping.
        """
        # The same reading each time: it remembers what was asked of it.
        if key not in self._inner:
            value = self.get(key, {})
            if not isinstance(value, Mapping):
                raise self._wrong(key, value, "a mapping")
            name = kind or key
            self._inner[key] = [Reading(value, name)]
        (inner,) = self._inner[key]
        return inner

    def parts(self, key: str, kind: str = "") -> list[Reading]:
        """Return the mappings that a key lists; none where the key is missing.

        Raises ValueError when it is no list of mappings.
        """
        if key not in self._inner:
            values = self.get(key, [])
            if not isinstance(values, list):
                raise self._wrong(key, values, "a list")
            for value in values:
                if not isinstance(value, Mapping):
                    raise self._wrong(key, value, "a mapping in the list")
            name = kind or key
            self._inner[key] = [Reading(value, name) for value in values]
        return self._inner[key]

    def elements(self, *tags: str) -> list[Reading]:
        """Return the elements of these tags, in the order of the file."""
        asked_tags = [f"<{tag}>" for tag in tags]
        self._asked.update(asked_tags)
        return [element for element in self._elements if element.kind in tags]

    def tags(self) -> list[str]:
        """Return the tags of the elements in their order. None is asked for thereby."""
        return [element.kind for element in self._elements]

    def ignore(self, *keys: str) -> None:
        """Take keys as known that change no number: descriptions, colours."""
        self._asked.update(keys)

    def left_out(self) -> Counter[str]:
        """Return what no reader asked for: ``color of a link`` and how often.

        What is within something that nobody asked for is not counted beside it.
        """
        counts = Counter[str]()
        for key in self._values:
            if key not in self._asked:
                counts[f"{key} of {self._one}"] += 1
            inner_readings = self._inner.get(key, ())
            for inner in inner_readings:
                counts.update(inner.left_out())

        for element in self._elements:
            tag = f"<{element.kind}>"
            if tag in self._asked:
                counts.update(element.left_out())
            else:
                counts[f"{tag} of {self._one}"] += 1
        return counts

    @property
    def _one(self) -> str:
        """Its kind with the article: ``a link``, ``an edge``."""
        has_vowel = self.kind[:1] in "aeiouAEIOU"
        article = "an" if has_vowel else "a"
        return f"{article} {self.kind}"

    def _wrong(self, key: str, value: Any, right: str) -> ValueError:
        text = reprlib.repr(value)  # of aliases of aliases the whole has no end
        return ValueError(f"{key} of {self._one} is {text:.40}, write {right}")


def read_mapping(content: Any, kind: str) -> Reading:
    """Return what a file of JSON or YAML says.

    Raises TypeError when it is no mapping.
    """
    if not isinstance(content, Mapping):
        found_type = type(content).__name__
        raise TypeError(f"it is no mapping but {found_type}")
    return Reading(content, kind)


def read_xml(text: str) -> Reading:
    """Return the root element of XML.

    Raises ValueError when it is not well formed, or defines entities.
    """
    if _ENTITY in text:
        raise ValueError("it defines entities, which are not read")
    try:
        root = ET.fromstring(text)  # noqa: S314 - without entities
    except ET.ParseError as error:
        raise ValueError(f"it is no XML: {error}") from None
    return _wrap(root)


def _wrap(element: ET.Element) -> Reading:
    elements = [_wrap(inner) for inner in element]
    return Reading(element.attrib, element.tag, elements)


def _is_number(value: Any) -> TypeGuard[float]:
    # True is an int of Python: a switch would be read as a rate of 1.
    is_truth = isinstance(value, bool)
    return isinstance(value, int | float) and not is_truth
