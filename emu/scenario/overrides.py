"""Keys of a scenario file that are written anew: ``--set key.key=value``."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import chain
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from emu.errors import ScenarioError
from emu.names import printable
from emu.problem.fields.cluster_section import names_of
from emu.problem.fields.section import Trail
from emu.problem.fields.suggestion import nearest
from emu.scenario.document import (
    MOST_VALUES,
    Data,
    Document,
    Overrides,
    join_trail,
    step_text,
    value_in,
)

#: Where machines are, which may be several of a name.
_MACHINES: Trail = ("cluster", "machines")
#: A step of a key: in quotes, bare, or a position in brackets.
_STEP = re.compile(r'"((?:[^"\\]|\\.)*)"|([^.\[\]"]+)|\[(\d+)\]')
#: All before the first = that stands in no quotes.
_KEYS = re.compile(r'(?:[^="]|"(?:[^"\\]|\\.)*")*')


def _trail(keys: str) -> Trail:
    steps: list[str | int] = []
    for in_quotes, name, position in _STEP.findall(keys):
        if position:
            steps.append(int(position))
            continue
        without_backslashes = re.sub(r"\\(.)", r"\1", in_quotes)
        steps.append(name or without_backslashes)
    return tuple(steps)


def split_override(text: str) -> tuple[str, str]:
    """Return the key and the value of ``key=value``; no key where it is none.

    A step of the key in quotes may hold what separates steps: ``machines."gpu-01.x"``.
    """
    keys = _KEYS.match(text)[0]  # type: ignore[index] # matches everything
    rest = text[len(keys) :]
    if not rest.startswith("="):
        return "", text
    value = rest[1:]
    return keys.strip(), value


def apply_overrides(
    document: Document,
    overrides: Overrides,
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
        _write(
            place=document.data,
            trail=trail,
            value=value,
            option=option,
        )
        # Errors there name the option from now on.
        document.options[trail] = option
        depth = len(trail)
        for written in list(document.lines):
            # The value is no longer where the file has it.
            if written[:depth] == trail:
                del document.lines[written]


def value_at(content: Data, keys: str) -> Any:
    """Return the value that an override of ``keys`` would replace, None for none."""
    own_content = copy.deepcopy(content)
    document = Document("", own_content)
    trail = _number_trail(document, _trail(keys))
    return value_in(document.data, trail)


def _read_overrides(overrides: Overrides) -> Iterator[tuple[Trail, Any, str]]:
    """Yield where to write, what, and how the writer stated it.

    Raises ScenarioError when overrides are neither texts nor keys with their values.
    """
    if isinstance(overrides, str):
        overrides = [overrides]
    elif not isinstance(overrides, Iterable):
        raise _no_overrides(overrides)
    elif isinstance(overrides, Mapping):
        for keys, value in overrides.items():
            if not isinstance(keys, str):
                raise _no_overrides(keys)
            trail = _trail(keys)
            if not trail:
                raise ScenarioError("an override without a key", file=repr(keys))
            words = repr(value)
            excerpt = printable(words, limit=60)  # a whole job, or placement
            option = f"{keys}={excerpt}"
            # A copy: nulls are dropped from it and paths resolved in it, and the
            # caller's stays.
            own_value = copy.deepcopy(value)
            yield trail, own_value, option
        return

    for stated in overrides:
        if not isinstance(stated, str):
            raise _no_overrides(stated)
        yield _read_option(stated)


def _no_overrides(found: object) -> ScenarioError:
    excerpt = printable(repr(found), limit=60)
    return ScenarioError(
        f'overrides: found {excerpt}, write {{"job.iterations": 5}}, '
        '["job.iterations=5"], or {} for none'
    )


def _read_option(stated: str) -> tuple[Trail, Any, str]:
    """Return where ``key.key=value`` writes, what, and the option that it is."""
    # Where the locale is ASCII, Python keeps the bytes of an argument for later: they
    # are UTF-8, as those of the file are.
    as_bytes = stated.encode("utf-8", "surrogateescape")
    override = as_bytes.decode("utf-8", "replace")
    option = f"--set {override}"
    keys, text = split_override(override)
    trail = _trail(keys)
    if not trail:
        raise ScenarioError("write --set key.key=value", file=option)

    parser = YAML(typ="safe", pure=True)
    try:
        value = parser.load(StringIO(text))
    except (YAMLError, ValueError) as error:
        raise ScenarioError("what follows = is not YAML", file=option) from error
    # As in a file: ``key=#4`` is a comment to YAML.
    word = text.strip().lower()
    means_nothing = word in ("", "~", "null")
    if value is None and not means_nothing:
        problem = f"YAML reads {text!r} as nothing: put it in quotes, or write null"
        raise ScenarioError(problem, file=option)
    return trail, value, option


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
            head = trail[:depth]
            rest = trail[depth + 1 :]
            trail = (*head, position, *rest)
        place = value_in(place, [trail[depth]])
        if place is None:
            break
    return trail


def _name(item: Any) -> Any:
    if isinstance(item, dict):
        return item.get("name")
    return None


def _names(machines: list[Any]) -> list[list[str]]:
    """Return the names of the machines of each item, up to one that is wrong."""
    names: list[list[str]] = []
    for item in machines:
        count: Any = 0
        if isinstance(item, dict):
            count = item.get("count", 1)
        if not isinstance(count, int) or not 0 < count <= MOST_VALUES:
            break  # an error of the file, which is found later
        first = sum(map(len, names))
        name = _name(item)
        names_of_item = names_of(name, count, first)
        names.append(names_of_item)
    return names


def _write_out(document: Document, machines: list[Any], name: str) -> None:
    """Write out the equal machines that ``name`` is one of, each with its own name."""
    for position, names in enumerate(_names(machines)):
        if name not in names:
            continue
        item = dict(machines[position])
        item.pop("count", None)
        copies = []
        for machine_name in names:
            # A copy of all below: an override of one must not change the others.
            machine = copy.deepcopy(item)
            machine["name"] = machine_name
            copies.append(machine)
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
        number: str | int = -1
        if trail[:2] == _MACHINES and len(trail) > 2:
            number = trail[2]
        if not isinstance(number, int) or number < position:
            values[trail] = value
            continue

        # Those behind move; of the one itself every copy has its line.
        numbers = [number + count - 1]
        if number == position:
            end = position + count
            numbers = list(range(position, end))
        rest = trail[3:]
        for moved_number in numbers:
            moved = (*_MACHINES, moved_number, *rest)
            values[moved] = value
    return values


def _write(
    place: Any,
    trail: Trail,
    value: Any,
    option: str,
) -> None:
    last = len(trail) - 1
    for depth, step in enumerate(trail):
        is_last = depth == last
        if isinstance(place, dict) and isinstance(step, str):
            if not is_last and place.get(step) is None:
                place[step] = {}
        # The place behind the last appends; one further on would leave a gap.
        elif isinstance(place, list) and is_last and step == len(place):
            place.append(None)
        elif not isinstance(place, list) or not _is_position(step, place):
            steps = map(str, trail[:depth])
            owner = ".".join(steps)
            problem = _missing(place, step, owner or "the scenario")
            raise ScenarioError(problem, file=option)

        if is_last:
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
        names_of_items = _names(place)
        names = list(chain.from_iterable(names_of_items))
    is_name = isinstance(step, str) and not step.isdigit()
    if is_name and names:
        known_steps = map(step_text, names)
        suggestion = nearest(str(step), known_steps)
        return f"{owner} has no {step!r}, {suggestion}"

    places = "none"
    count = len(place)
    if count:
        last = count - 1
        places = f"{owner}[0] to {owner}[{last}]"
    return f"{owner} is a list of {count}, it has no {step}; its places: {places}"
