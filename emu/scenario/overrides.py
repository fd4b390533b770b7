"""``--set job.iterations=5``: keys of a scenario from the command line."""

from __future__ import annotations

import copy
import re
from io import StringIO
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from emu.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from emu.scenario.document import Document, Trail

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def _trail(keys: str) -> Trail:
    return tuple(name or int(position) for name, position in _STEP.findall(keys))


def _value(text: str, option: str) -> Any:
    try:
        return YAML(typ="safe", pure=True).load(StringIO(text))
    except (YAMLError, ValueError) as error:
        raise ScenarioError("what follows = is not YAML", file=option) from error


def apply_overrides(
    document: Document, overrides: Sequence[str] | Mapping[str, object]
) -> None:
    """Write every override into ``document``.

    Sections that are missing are made, items of lists are named ``tasks[2]``.

    Parameters
    ----------
    overrides
        ``key.key=value`` with values to be read as YAML, or keys and values.

    Raises
    ------
    ScenarioError
        When an override has no ``=``, or leads through something without keys. Unknown
        keys are found later, as those of the file; the error then names the option.
    """
    for trail, value, option in _told(overrides):
        _write(document.data, trail, value, option)
        document.options[trail] = option
        for known in [
            known for known in document.lines if known[: len(trail)] == trail
        ]:
            del document.lines[known]


def _told(
    overrides: Sequence[str] | Mapping[str, object],
) -> Iterator[tuple[Trail, Any, str]]:
    """Yield where to write, what, and how the writer stated it."""
    if not isinstance(overrides, str) and hasattr(overrides, "items"):
        for keys, value in overrides.items():
            trail = _trail(keys)
            if not trail:
                raise ScenarioError("an override without a key", file=repr(keys))
            yield trail, copy.deepcopy(value), f"{keys}={value!r}"
        return
    for override in [overrides] if isinstance(overrides, str) else overrides:
        option = f"--set {override}"
        keys, equals, text = override.partition("=")
        trail = _trail(keys.strip())
        if not (equals and trail):
            raise ScenarioError("write --set key.key=value", file=option)
        yield trail, _value(text, option), option


def _write(place: Any, trail: Trail, value: Any, option: str) -> None:
    for depth, step in enumerate(trail):
        last = depth == len(trail) - 1
        if isinstance(place, dict) and isinstance(step, str):
            if last:
                place[step] = value
            elif place.get(step) is None:
                place[step] = {}
        elif isinstance(place, list) and isinstance(step, int) and step < len(place):
            if last:
                place[step] = value
        else:
            above = ".".join(map(str, trail[:depth])) or "the scenario"
            raise ScenarioError(_missing(place, step, above), file=option)
        if not last:
            place = place[step]


def _missing(place: Any, step: str | int, above: str) -> str:
    """Say that a value has no such place, and which it has."""
    if not isinstance(place, list):
        return f"{above} is {place!r}, it has no {step}"
    places = f"{above}[0] to {above}[{len(place) - 1}]" if place else "none"
    return f"{above} is a list of {len(place)}, it has no {step}; its places: {places}"
