"""Scenario files as plain data that remembers where everything stands.

ruamel.yaml rather than PyYAML: its loader keeps the line of every key, refuses a key
that occurs twice, and reads YAML 1.2, where ``none`` and ``on`` are words.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.scalarbool import ScalarBoolean

from emu.errors import DataError, ScenarioError
from emu.host.input_file import parse_json, read_text
from emu.host.limits import limit, say_memory
from emu.names import printable
from emu.problem.fields.cluster_section import names_of
from emu.problem.fields.section import Trail
from emu.problem.fields.suggestion import nearest
from emu.scenario.yaml_slips import what_to_write

#: Mapping of a file: mappings, lists, text, numbers, truth values, None.
Data: TypeAlias = dict[str, Any]
#: Keys of scenarios, labs and workload files; a file without any is another's.
_OUTERMOST = {"cluster", "job", "jobs", "lab", "machines"}
#: Where machines are, which may be several of a name.
_MACHINES: Trail = ("cluster", "machines")
#: A step of a key: in quotes, bare, or a position in brackets.
_STEP = re.compile(r'"((?:[^"\\]|\\.)*)"|([^.\[\]"]+)|\[(\d+)\]')
#: All before the first = that stands in no quotes.
_KEYS = re.compile(r'(?:[^="]|"(?:[^"\\]|\\.)*")*')
# A file of aliases to aliases grows without bound when written out. A custom job of
# 42,000 flows has 320,000 values and is checked in 3 s.
MOST_VALUES = 400_000
#: Levels of mappings and lists in a file.
_DEEPEST = 40
#: What begins as JSON is read as such from here on: of YAML 0.2 s, then more.
_LONG_JSON = 20_000
_TOO_MANY = "has too many values or levels; of a file of your own --large takes them"
#: Bytes of a file, JSON included.
_MOST_BYTES = 1 << 25
#: YAML is parsed at some 100 kB per second.
MOST_YAML = 300_000
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
    overrides: Sequence[str] | Mapping[str, object] = ()
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
        for length in range(len(trail), -1, -1):
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
        entry = place.get(key) if isinstance(place, dict) else None
        if isinstance(entry, str) and entry:
            path = Path(entry).expanduser()
            if not self.is_option(trail):
                path = folder / path
            place[key] = str(path)

    def is_option(self, trail: Trail) -> bool:
        """Return True where a ``--set`` option wrote a value, or what contains it."""
        return any(trail[: len(option)] == option for option in self.options)

    def error(self, trail: Trail, problem: str) -> ScenarioError:
        """Return the error that ``problem`` is at ``trail``."""
        file, line = self.where(trail)
        return ScenarioError(problem, file=file, line=line, key=join_trail(trail))


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
        for step in key.split("."):
            trail = (*trail, int(step) if step.isdigit() else step)
        return str(self.error(trail, problem))


def value_in(data: Any, trail: Sequence[str | int]) -> Any:
    """Return the value at ``trail`` in mappings and lists, None where there is none."""
    for step in trail:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def join_trail(trail: Trail) -> str:
    """Return ``job.tasks[2].time``."""
    text = ""
    for step in trail:
        text += f"[{step}]" if isinstance(step, int) else f".{step_text(step)}"
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
    if not document.data.keys() & _OUTERMOST:
        _refuse_other_formats(Path(path))
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
    try:
        # Before the text is read: it raises where so much is not free.
        say_memory(Path(path))
        text = read_text(Path(path), limit(_MOST_BYTES))
    except OSError as error:
        raise ScenarioError(f"cannot be read: {error.strerror}", file=file) from error
    except DataError as error:
        raise ScenarioError(error.problem, file=file) from error
    except UnicodeDecodeError as error:
        raise ScenarioError("is not text in UTF-8", file=file) from error
    return parse_document(text, file)


def parse_document(text: str, file: str) -> Document:
    """Parse the content of a YAML or JSON file.

    ``file``: what it is called in errors; JSON where it ends so. Raises ScenarioError
    when it is not YAML or JSON, or is not a mapping.
    """
    is_json = file.endswith(".json")
    # Short JSON is read as YAML, which it is as well: that keeps the lines for errors.
    if len(text) > _LONG_JSON and text.lstrip().startswith("{"):
        is_json = True
    if not is_json:
        return _read_yaml(file, text)
    try:
        data = parse_json(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        problem = f"is not JSON: {getattr(error, 'msg', error)}"
        raise ScenarioError(problem, file=file, line=line) from error
    # Of YAML `_Plain` counts on its way.
    if _is_too_large(data):
        raise ScenarioError(_TOO_MANY, file=file)
    return Document(file, _as_mapping(file, data), text=text)


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
    except MarkedYAMLError as error:
        line, problem = what_to_write(error, text)
        raise ScenarioError(f"is not YAML: {problem}", file=file, line=line) from error
    except TypeError:  # a mapping is the key of another
        raise ScenarioError("has a key that is no text", file=file) from None
    except (YAMLError, RecursionError, ValueError) as error:
        problem = (str(error) or "cannot be parsed").splitlines()[0]
        raise ScenarioError(f"is not YAML: {problem}", file=file) from error

    document = Document(file, {}, text=text)
    # New objects: the tree is kept for the next reading, and overrides write into
    # these.
    plain = _Plain(document, text).of(data, ())
    document.data = _as_mapping(file, plain)
    return document


@lru_cache(maxsize=4)
def _load_tree(text: str) -> Any:
    """Return the tree that ruamel.yaml reads, the same object each time.

    A scenario is read again for every value of a sweep and every replay: 35 ms of the
    37 that 740 values take.
    """
    return YAML(pure=True).load(StringIO(text))


def _as_mapping(file: str, data: Any) -> Data:
    if not isinstance(data, dict):
        kind = "nothing" if data is None else type(data).__name__
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
            return [self._item(node, n, (*trail, n)) for n in positions]
        # Scalars keep their quotes and signs in subclasses: only plain ones go on.
        if isinstance(node, bool | ScalarBoolean):
            return bool(node)
        # After truth values, which are whole numbers to Python.
        for plain in (str, int, float):
            if isinstance(node, plain):
                return plain(node)
        if node is None:
            return None
        problem = f"found {node!s}, which YAML reads as a {type(node).__name__}"
        raise self._document.error(trail, problem)

    def _item(self, node: CommentedSeq, position: int, trail: Trail) -> Any:
        line, column = node.lc.item(position)
        self._document.lines[trail] = line + 1
        if node[position] is None:
            self._check_nothing(self._rest_of(line, column), trail)
        return self.of(node[position], trail)

    def _entry(self, node: CommentedMap, key: Any, trail: Trail) -> Any:
        if not isinstance(key, str):
            problem = f"found the key {key!r}, keys are text; put it in quotes"
            raise self._document.error(trail, problem)
        value = node[key]
        # ``nic:50 Gbit/s`` without the space is a key without a value.
        if value is None and (match := re.fullmatch(r"([^\s:]+):([^\s:]+.*)", key)):
            problem = f"found {key!r}, write '{match[1]}: {match[2]}' with a space"
            raise self._document.error(trail, problem)

        trail = (*trail, key)
        if key in (node.lc.data or {}):  # merged keys (<<) have no line of their own
            key_line, key_column = node.lc.key(key)
            self._document.lines[trail] = key_line + 1
            if value is None:
                line, column = node.lc.value(key)
                rest = self._rest_of(line, column)
                if line != key_line:  # of what follows: none is here
                    rest = self._rest_of(key_line, key_column).partition(":")[2]
                self._check_nothing(rest.strip(), trail)
        return self.of(value, trail)

    def _rest_of(self, line: int, column: int) -> str:
        """Return the text from a place to the end of its line, or of the file."""
        if line >= len(self._text):
            return ""
        return self._text[line][column:].strip()

    def _check_nothing(self, rest: str, trail: Trail) -> None:
        """Refuse text that YAML takes for nothing: a name of a value, a comment.

        ``rest``: of the line, from where a value should be.
        """
        # Whoever writes null means it, with or without a name for it.
        if re.match(r"(&\S+\s+)?(null\b|~)", rest, re.IGNORECASE):
            return
        if slip := re.match(r"[&#]([^\s,}\]]+)", rest):
            problem = (
                f"found {slip[0]!r}, which YAML reads as nothing, write {slip[1]} or "
                f"'{slip[0]}' in quotes"
            )
            raise self._document.error(trail, problem)
        if re.match(r"[,}\]]", rest):
            raise self._document.error(trail, "found no value, write one, or null")


def _trail(keys: str) -> Trail:
    steps: list[str | int] = []
    for in_quotes, name, position in _STEP.findall(keys):
        if position:
            steps.append(int(position))
        else:
            steps.append(name or re.sub(r"\\(.)", r"\1", in_quotes))
    return tuple(steps)


def split_override(text: str) -> tuple[str, str]:
    """Return the key and the value of ``key=value``; no key where it is none.

    A step of the key in quotes may hold what separates steps: ``machines."gpu-01.x"``.
    """
    keys = _KEYS.match(text)[0]  # type: ignore[index] # matches everything
    rest = text[len(keys) :]
    if not rest.startswith("="):
        return "", text
    return keys.strip(), rest[1:]


def step_text(name: str) -> str:
    """Return a step of a key as `split_override` reads it: in quotes where it must."""
    if name and not re.search(r'[.\[\]"=]', name) and name == name.strip():
        return name
    return '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'


def apply_overrides(
    document: Document,
    overrides: Sequence[str] | Mapping[str, object],
    chosen: Callable[[Trail], bool] = lambda _: True,
) -> None:
    """Write every override into ``document``.

    They are ``key.key=value`` with values in YAML, or keys and values; ``chosen``
    returns True for the places that are written now. Sections that are missing are
    made. An item of a list is ``tasks[2]``, or by name ``tasks.w0``; one of several
    equal machines (``count``) is written out for that. ``tasks[3]`` appends to a list
    of three. Names with dots stand in double quotes.

    Raises ScenarioError when an override has no ``=``, or leads through something
    without keys. Unknown keys are found later, as those of the file.
    """
    for key, value, option in _read_overrides(overrides):
        if not chosen(key):
            continue
        trail = _number_trail(document, key)
        _write(document.data, trail, value, option)
        # Errors there name the option from now on.
        document.options[trail] = option
        for written in list(document.lines):
            if written[: len(trail)] == trail:  # no longer where the file has it
                del document.lines[written]


def value_at(content: Data, keys: str) -> Any:
    """Return the value that an override of ``keys`` would replace, None for none."""
    document = Document("", copy.deepcopy(content))
    return value_in(document.data, _number_trail(document, _trail(keys)))


def _read_overrides(
    overrides: Sequence[str] | Mapping[str, object],
) -> Iterator[tuple[Trail, Any, str]]:
    """Yield where to write, what, and how the writer stated it."""
    if not isinstance(overrides, str) and hasattr(overrides, "items"):
        for keys, value in overrides.items():
            trail = _trail(keys)
            if not trail:
                raise ScenarioError("an override without a key", file=repr(keys))
            excerpt = printable(repr(value), limit=60)  # a whole job, or placement
            # A copy: nulls are dropped from it and paths resolved in it, and the
            # caller's stays.
            yield trail, copy.deepcopy(value), f"{keys}={excerpt}"
        return

    for stated in [overrides] if isinstance(overrides, str) else overrides:
        # Where the locale is ASCII, Python keeps the bytes of an argument for later:
        # they are UTF-8, as those of the file are.
        override = stated.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        option = f"--set {override}"
        keys, text = split_override(override)
        trail = _trail(keys)
        if not trail:
            raise ScenarioError("write --set key.key=value", file=option)
        try:
            value = YAML(typ="safe", pure=True).load(StringIO(text))
        except (YAMLError, ValueError) as error:
            raise ScenarioError("what follows = is not YAML", file=option) from error
        # As in a file: ``key=#4`` is a comment to YAML.
        if value is None and text.strip().lower() not in ("", "~", "null"):
            problem = f"YAML reads {text!r} as nothing: put it in quotes, or write null"
            raise ScenarioError(problem, file=option)
        yield trail, value, option


def _number_trail(document: Document, trail: Trail) -> Trail:
    """Return ``trail`` with the positions of the items that it names."""
    place: Any = document.data
    for depth, step in enumerate(trail):
        if isinstance(place, list) and isinstance(step, str):
            if trail[:depth] == _MACHINES:
                _write_out(document, place, step)
            names = [_name(item) for item in place]
            # `_write` has the error, as it knows which places there are.
            if step not in names:
                break
            position = names.index(step)
            rest = trail[depth + 1 :]
            trail = (*trail[:depth], position, *rest)
        place = value_in(place, [trail[depth]])
        if place is None:
            break
    return trail


def _name(item: Any) -> Any:
    return item.get("name") if isinstance(item, dict) else None


def _names(machines: list[Any]) -> list[list[str]]:
    """Return the names of the machines of each item, up to one that is wrong."""
    names: list[list[str]] = []
    for item in machines:
        count = item.get("count", 1) if isinstance(item, dict) else 0
        if not isinstance(count, int) or not 0 < count <= MOST_VALUES:
            break  # an error of the file, which is found later
        first = sum(map(len, names))
        names.append(names_of(_name(item), count, first))
    return names


def _write_out(document: Document, machines: list[Any], name: str) -> None:
    """Write out the equal machines that ``name`` is one of, each with its own name."""
    for position, names in enumerate(_names(machines)):
        if name in names:
            item = dict(machines[position])
            item.pop("count", None)
            # Copies of all below: an override of one must not change the others.
            copies = [{**copy.deepcopy(item), "name": machine} for machine in names]
            machines[position : position + 1] = copies
            count = len(names)
            document.lines = _move_machines(document.lines, position, count)
            document.options = _move_machines(document.options, position, count)
            return


def _move_machines(
    kept: Mapping[Trail, Any],
    position: int,
    count: int,
) -> dict[Trail, Any]:
    """Return the kept values of machines where one at ``position`` became ``count``."""
    values: dict[Trail, Any] = {}
    for trail, value in kept.items():
        is_machine = trail[:2] == _MACHINES and len(trail) > 2
        number = trail[2] if is_machine else -1
        if not isinstance(number, int) or number < position:
            values[trail] = value
            continue

        # Those behind move; of the one itself every copy has its line.
        numbers = [number + count - 1]
        if number == position:
            numbers = list(range(position, position + count))
        for moved_number in numbers:
            values[(*_MACHINES, moved_number, *trail[3:])] = value
    return values


def _write(place: Any, trail: Trail, value: Any, option: str) -> None:
    last = len(trail) - 1
    for depth, step in enumerate(trail):
        if isinstance(place, dict) and isinstance(step, str):
            if depth < last and place.get(step) is None:
                place[step] = {}
        # The place behind the last appends; one further on would leave a gap.
        elif isinstance(place, list) and depth == last and step == len(place):
            place.append(None)
        elif not (isinstance(place, list) and _is_position(step, place)):
            owner = ".".join(map(str, trail[:depth])) or "the scenario"
            raise ScenarioError(_missing(place, step, owner), file=option)

        if depth == last:
            place[step] = value
        else:
            place = place[step]


def _is_position(step: str | int, items: Sequence[Any]) -> bool:
    return isinstance(step, int) and step < len(items)


def _missing(place: Any, step: str | int, owner: str) -> str:
    """Return that a value has no such place, and which it has."""
    if not isinstance(place, list):
        return f"{owner} is {place!r}, it has no {step}"

    names = [str(name) for name in map(_name, place) if name]
    # Equal machines have names that no item states.
    if owner == join_trail(_MACHINES):
        names = list(chain.from_iterable(_names(place)))
    if isinstance(step, str) and names and not step.isdigit():
        return f"{owner} has no {step!r}, {nearest(step, map(step_text, names))}"
    places = "none"
    if place:
        last = len(place) - 1
        places = f"{owner}[0] to {owner}[{last}]"
    return f"{owner} is a list of {len(place)}, it has no {step}; its places: {places}"
