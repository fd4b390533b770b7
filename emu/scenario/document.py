"""Scenario files as plain data that remembers where everything stands.

ruamel.yaml rather than PyYAML: its loader keeps the line of every key, refuses a key
that occurs twice, and reads YAML 1.2, where ``none`` and ``on`` are words.
"""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.scalarbool import ScalarBoolean

from emu.errors import DataError, ScenarioError
from emu.host.input_file import RepeatedKeyError, parse_json, read_packed_text
from emu.host.limits import limit, say_memory
from emu.problem.fields.section import Trail
from emu.scenario.yaml_slips import what_to_write

#: Mapping of a file: mappings, lists, text, numbers, truth values, None.
Data: TypeAlias = dict[str, Any]
#: Keys of scenarios, labs and workload files; a file without any is another's.
_OUTERMOST = {"cluster", "job", "jobs", "lab", "machines"}
# A file of aliases to aliases grows without bound when written out. A custom job of
# 42,000 flows has 320,000 values and is checked in 3 s.
MOST_VALUES = 400_000
#: Levels of mappings and lists in a file.
_DEEPEST = 40
#: What begins as JSON is read as such from here on: of YAML 0.2 s, then more.
_LONG_JSON = 20_000
_TOO_DEEP = f"has more than {_DEEPEST} levels of mappings and lists, write fewer"
_TOO_MANY = "has too many values or levels; of a file of your own --large takes them"
#: Bytes of a file, JSON included.
_MOST_BYTES = 1 << 25
#: YAML is parsed at some 100 kB per second.
MOST_YAML = 300_000
#: What to write into a file's data: ``key=value``, or keys and values.
Overrides: TypeAlias = Sequence[str] | Mapping[str, object]
#: New objects from one collection of garbage to the next, Python's own is 700.
_NEW_OBJECTS = 10_000


@contextlib.contextmanager
def collect_seldom() -> Iterator[None]:
    """Look for garbage after more new objects than usual; nothing else changes.

    Python does so after every 700, often through all there are. What makes millions and
    keeps them spends a sixth of its time there: compiling, reading 300,000 values.
    """
    usual, *older = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *older)
    try:
        yield
    finally:
        gc.set_threshold(usual, *older)


@dataclass(frozen=True)
class Source:
    """A scenario as it was stated: enough to read it again."""

    text: str
    """Content of the file."""
    file: str
    """As the user called it: it decides the format, and the name if none is stated."""
    folder: str
    """Folder that paths of the text are relative to."""
    overrides: Overrides = ()
    """As `apply_overrides` takes them."""
    large: bool = False
    """True where limits against files of strangers were lifted for it."""


@dataclass
class Document:
    """The data of a scenario file and where each value was written."""

    file: str
    """As the user called it."""
    data: Data
    """Mappings, lists, text, numbers, truth values, None."""
    lines: dict[Trail, int] = field(default_factory=dict)
    """Trail -> line, from 1."""
    options: dict[Trail, str] = field(default_factory=dict)
    """Trail -> the ``--set`` option that wrote it."""
    text: str = ""
    """As it was written; empty where it was no text."""
    source: Source | None = None
    """Text, overrides and folder, once the document is complete."""

    def where(self, trail: Trail) -> tuple[str, int]:
        """Return file (or option) and line (or 0) of ``trail`` or what contains it."""
        # From the place itself up to the whole file.
        lengths = range(len(trail) + 1)
        for length in reversed(lengths):
            part = trail[:length]
            if part in self.options:
                return self.options[part], 0
            if part in self.lines:
                return self.file, self.lines[part]
        return self.file, 0

    def resolve_path(self, trail: Trail, folder: Path) -> None:
        """Make a path of the file one from here; one of ``--set`` is that already."""
        *above, key = trail
        place = value_in(self.data, above)
        if not isinstance(place, dict):
            return
        entry = place.get(key)
        if isinstance(entry, str) and entry:
            path = Path(entry).expanduser()
            if not self.is_option(trail):
                path = folder / path
            place[key] = str(path)

    def states(self, trail: Trail) -> bool:
        """Return True where the file, or an option for just that, wrote a value."""
        return trail in self.lines or trail in self.options

    def is_option(self, trail: Trail) -> bool:
        """Return True where a ``--set`` option wrote a value, or what contains it."""
        lengths = range(len(trail) + 1)
        return any(trail[:length] in self.options for length in lengths)

    def error(self, trail: Trail, problem: str) -> ScenarioError:
        """Return the error that ``problem`` is at ``trail``."""
        file, line = self.where(trail)
        return ScenarioError(
            problem,
            file=file,
            line=line,
            key=join_trail(trail),
        )


@dataclass(frozen=True)
class Origin:
    """The document that a scenario was read from: of no account to what it states."""

    # pydantic compares private attributes, too: two files of one content are equal.
    document: Document | None = field(default=None, compare=False)

    def error(self, trail: Trail, problem: str) -> ScenarioError:
        """Return the error that ``problem`` is at ``trail``, where that is known."""
        document = self.document or Document("", {})
        return document.error(trail, problem)

    def locate(self, key: str, problem: str) -> str:
        """Return ``file:line: key: problem``, without what is not known."""
        trail: Trail = ()
        # Errors have the positions of jobs as text: ``jobs.0.job.times``.
        for name in key.split("."):
            step: str | int = name
            if name.isdigit():
                step = int(name)
            trail = (*trail, step)
        located = self.error(trail, problem)
        return str(located)


def value_in(data: Any, trail: Sequence[str | int]) -> Any:
    """Return the value at ``trail`` in mappings and lists, None where there is none."""
    for step in trail:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def values_in(content: Any) -> Iterable[Any]:
    """Return the values of a mapping or list; none of anything else."""
    if isinstance(content, dict):
        return content.values()
    if isinstance(content, list):
        return content
    return ()


def join_trail(trail: Trail) -> str:
    """Return ``job.tasks[2].time``."""
    text = ""
    for step in trail:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step_text(step)}"
    return text.removeprefix(".")


def read_document(path: str | Path) -> Document:
    """Read a YAML or JSON file.

    Raises ScenarioError when it cannot be read, is not YAML or JSON, or is not a
    mapping: of a file of a known format, with its name and the way.
    """
    try:
        document = _read_file(path)
    # A table or a trace fails as YAML somewhere: its format says more than the place.
    except ScenarioError:
        _refuse_other_formats(Path(path))
        raise
    # YAML of others parses, and only its keys show that it is no scenario.
    is_scenario = not _OUTERMOST.isdisjoint(document.data)
    # Files that emu wrote state one; a problem.json has machines as labs have.
    has_version = "version" in document.data
    if has_version or not is_scenario:
        path = Path(path)
        _refuse_other_formats(path)
    return document


def _refuse_other_formats(path: Path) -> None:
    """Raise ScenarioError where a file is of a format that is no scenario."""
    from emu.interchange import known_formats  # noqa: PLC0415 - of wrong files alone

    try:
        known_formats.check_scenario(path)
    except DataError as error:
        raise ScenarioError(error.problem, file=str(path)) from error


def _read_file(path: str | Path) -> Document:
    file = str(path)
    most_bytes = limit(_MOST_BYTES)
    try:
        # Before the text is read: it raises where so much is not free.
        path = Path(path)
        say_memory(path)
        text = read_packed_text(path, most_bytes)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ScenarioError(problem, file=file) from error
    except DataError as error:
        raise ScenarioError(error.problem, file=file) from error
    except UnicodeDecodeError as error:
        raise ScenarioError("is not text in UTF-8", file=file) from error
    return parse_document(text, file)


def parse_document(text: str, file: str) -> Document:
    """Parse the content of a YAML or JSON file.

    ``file``: what it is called in errors; JSON where it ends so. Raises ScenarioError
    when it is not YAML or JSON, has a key twice, or is not a mapping.
    """
    is_json = file.endswith(".json")

    # Short JSON is read as YAML, which it is as well: that keeps the lines for errors.
    if len(text) > _LONG_JSON:
        content = text.lstrip()
        is_json = is_json or content.startswith("{")
    if not is_json:
        return _read_yaml(file, text)
    try:
        data = parse_json(text)
    except RepeatedKeyError as error:
        raise ScenarioError(str(error), file=file) from error
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        message = getattr(error, "msg", error)
        problem = f"is not JSON: {message}"
        raise ScenarioError(problem, file=file, line=line) from error

    # Of YAML `_Plain` counts on its way.
    if _is_too_large(data):
        raise ScenarioError(_TOO_MANY, file=file)
    mapping = _as_mapping(file, data)
    return Document(file, mapping, text=text)


def _is_too_large(data: Any) -> bool:
    """Return True for data of more values or levels than are checked in good time."""
    # Level by level: recursion would end at a depth of Python's, not ours.
    level = [data]
    values = 0
    for _ in range(_DEEPEST):
        values += len(level)
        if values > limit(MOST_VALUES):
            return True

        next_level: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                next_level += value.values()
            elif isinstance(value, list):
                next_level += value
        level = next_level
    return bool(level)


def _read_yaml(file: str, text: str) -> Document:
    if len(text) > limit(MOST_YAML):
        problem = f"has {len(text)} characters of YAML, at most {MOST_YAML} are read"
        raise ScenarioError(f"{problem}; write it as JSON (.json)", file=file)
    try:
        data = _load_tree(text)
    except MaxDepthExceededError as error:
        line = error.problem_mark.line + 1
        raise ScenarioError(_TOO_DEEP, file=file, line=line) from error
    except MarkedYAMLError as error:
        line, slip = what_to_write(error, text)
        problem = f"is not YAML: {slip}"
        raise ScenarioError(problem, file=file, line=line) from error
    except TypeError:  # a mapping is the key of another
        raise ScenarioError("has a key that is no text", file=file) from None
    except (YAMLError, RecursionError, ValueError) as error:
        message = str(error) or "cannot be parsed"
        problem = message.splitlines()[0]
        raise ScenarioError(f"is not YAML: {problem}", file=file) from error

    document = Document(file, {}, text=text)
    # New objects: the tree is kept for the next reading, and overrides write into
    # these.
    reader = _Plain(document, text)
    plain = reader.of(data, ())
    document.data = _as_mapping(file, plain)
    return document


@lru_cache(maxsize=4)
def _load_tree(text: str) -> Any:
    """Return the tree that ruamel.yaml reads, the same object each time.

    A scenario is read again for every value of a sweep and every replay: 35 ms of the
    37 that 740 values take.
    """
    parser = YAML(pure=True)
    # What is not closed is looked through at each level: 2,000 of them took 4 s. The
    # outermost mapping is a level to it.
    parser.max_depth = _DEEPEST + 1
    return parser.load(StringIO(text))


def _as_mapping(file: str, data: Any) -> Data:
    if not isinstance(data, dict):
        kind = "nothing"
        if data is not None:
            kind = type(data).__name__
        problem = f"found {kind}, write a mapping with the keys cluster and job"
        raise ScenarioError(problem, file=file)
    return data


class _Plain:
    """Turns what ruamel.yaml loads into plain data, noting lines in ``document``."""

    def __init__(self, document: Document, text: str) -> None:
        self._document = document
        self._text = text.split("\n")
        self._values = 0

    def of(self, node: Any, trail: Trail) -> Any:
        self._values += 1
        if self._values > limit(MOST_VALUES) or len(trail) > _DEEPEST:
            raise self._document.error(trail, _TOO_MANY)

        if isinstance(node, CommentedMap):
            return {key: self._entry(node, key, trail) for key in node}
        if isinstance(node, CommentedSeq):
            positions = range(len(node))
            return [self._item(node, position, trail) for position in positions]
        # Scalars keep their quotes and signs in subclasses: only plain ones go on.
        if isinstance(node, bool | ScalarBoolean):
            return bool(node)
        # After truth values, which are whole numbers to Python.
        for plain in (str, int, float):
            if isinstance(node, plain):
                return plain(node)
        if node is None:
            return None
        kind = type(node).__name__
        problem = f"found {node!s}, which YAML reads as a {kind}"
        raise self._document.error(trail, problem)

    def _item(self, node: CommentedSeq, position: int, trail: Trail) -> Any:
        item = node[position]
        trail = (*trail, position)
        line, column = node.lc.item(position)
        self._document.lines[trail] = line + 1
        if item is None:
            rest = self._rest_of(line, column)
            self._check_nothing(rest, trail)
        return self.of(item, trail)

    def _entry(self, node: CommentedMap, key: Any, trail: Trail) -> Any:
        if not isinstance(key, str):
            problem = f"found the key {key!r}, keys are text; put it in quotes"
            raise self._document.error(trail, problem)
        value = node[key]
        # ``nic:50 Gbit/s`` without the space is a key without a value.
        slip = re.fullmatch(r"([^\s:]+):([^\s:]+.*)", key)
        if value is None and slip:
            problem = f"found {key!r}, write '{slip[1]}: {slip[2]}' with a space"
            raise self._document.error(trail, problem)

        trail = (*trail, key)
        places = node.lc.data or {}
        if key not in places:  # merged keys (<<) have no line of their own
            return self.of(value, trail)

        key_line, key_column = node.lc.key(key)
        self._document.lines[trail] = key_line + 1
        if value is None:
            line, column = node.lc.value(key)
            rest = self._rest_of(line, column)
            if line != key_line:  # of what follows: none is here
                text = self._rest_of(key_line, key_column)
                _, _, rest = text.partition(":")
            self._check_nothing(rest.strip(), trail)
        return self.of(value, trail)

    def _rest_of(self, line: int, column: int) -> str:
        """Return the text from a place to the end of its line, or of the file."""
        if line >= len(self._text):
            return ""
        rest = self._text[line][column:]
        return rest.strip()

    def _check_nothing(self, rest: str, trail: Trail) -> None:
        """Refuse text that YAML takes for nothing: a name of a value, a comment.

        ``rest``: of the line, from where a value should be.
        """
        # Whoever writes null means it, with or without a name for it.
        if re.match(r"(&\S+\s+)?(null\b|~)", rest, re.IGNORECASE):
            return
        slip = re.match(r"[&#]([^\s,}\]]+)", rest)
        if slip:
            problem = (
                f"found {slip[0]!r}, which YAML reads as nothing, write {slip[1]} or "
                f"'{slip[0]}' in quotes"
            )
            raise self._document.error(trail, problem)
        if re.match(r"[,}\]]", rest):
            raise self._document.error(trail, "found no value, write one, or null")


def step_text(name: str) -> str:
    """Return a step of a key as `split_override` reads it: in quotes where it must."""
    separates = re.search(r'[.\[\]"=]', name)
    if name and not separates and name == name.strip():
        return name
    escaped = re.sub(r'(["\\])', r"\\\1", name)
    return f'"{escaped}"'
