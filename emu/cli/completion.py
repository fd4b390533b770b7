"""Words that a shell offers; no scenario is read for them, no code of others runs."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

# Imports within functions: scenarios take half a second, commands are named without.
# ruff: noqa: PLC0415
_INDEX = re.compile(r"\[\d+\]")


def offer_words(command: str, parameter: Any) -> None:
    """Have a shell offer words for a parameter of a command, where there are some."""
    name = str(parameter.name)
    # Names such as ``what`` mean other things in other commands.
    list_words = _WORDS.get(f"{command} {name}")
    if list_words is None:
        list_words = _WORDS.get(name)
    if list_words is None:
        return

    def complete(
        _ctx: object,
        _parameter: object,
        incomplete: str,
    ) -> list[str]:
        words = dict.fromkeys(list_words(incomplete))
        return [word for word in words if word.startswith(incomplete)]

    parameter._custom_shell_complete = complete  # noqa: SLF001 - typer has no other


def _shipped(_: str) -> Iterable[str]:
    from emu.scenario import scenario_file

    return scenario_file.list_scenarios() | scenario_file.list_labs()


def _scenarios(incomplete: str) -> Iterable[str]:
    """Return the names of what is shipped, and files and folders beside the word."""
    folder = Path(incomplete)
    # A name without a slash may be half of one: its siblings are looked at.
    if not incomplete.endswith("/"):
        folder = folder.parent
    words = [*_shipped(incomplete)]
    if not folder.is_dir():
        return words
    for path in sorted(folder.iterdir()):
        if path.suffix in {".yaml", ".yml", ".json"}:
            words.append(str(path))
        if path.is_dir():
            words.append(f"{path}/")
    return words


def _list_names(place: str, incomplete: str) -> Iterable[str]:
    """Return names that ``module:name`` lists, after the words that are there."""
    module_name, _, attribute = place.partition(":")
    module = importlib.import_module(module_name)
    names = getattr(module, attribute)
    if callable(names):
        names = names()
    # A list with commas is one word to the shell: what stands is offered again.
    first_words, comma, _ = incomplete.rpartition(",")
    prefix = first_words + comma
    return (prefix + name for name in names)


def _keys(incomplete: str) -> Iterable[str]:
    """Return the keys of a scenario, or the words that one may have after ``=``."""
    from emu.scenario.schema import json_schema

    key, equals, _ = incomplete.partition("=")
    path = _INDEX.sub("[0]", key)
    schema = json_schema()
    places = _list_below(schema, schema["$defs"], path)
    words_of = dict(places)
    if equals:
        words = words_of.get(path, ())
        return (f"{key}={word}" for word in words)
    # What was written stays, its positions in lists among it.
    known_keys = [place for place in words_of if place.startswith(path)]
    return (key + known_key.removeprefix(path) for known_key in known_keys)


def _list_below(
    node: Mapping[str, Any],
    named: Mapping[str, Any],
    wanted: str,
    path: str = "",
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the keys below a node of the schema that ``wanted`` leads to, and words."""
    if "$ref" in node:
        _, _, name = node["$ref"].rpartition("/")
        node = named[name]
    # Sections of several systems have other keys: those of all are offered.
    choices = [*node.get("anyOf", ()), *node.get("oneOf", ())]
    for choice in choices:
        yield from _list_below(choice, named, wanted, path)

    if "enum" in node and path:
        words = map(str, node["enum"])
        yield path, tuple(words)
    items = node.get("items")
    if isinstance(items, dict):
        first_item = f"{path}[0]"
        yield from _list_below(items, named, wanted, first_item)

    properties = node.get("properties", {})
    for name, child in properties.items():
        key = f"{path}.{name}" if path else name
        if key.startswith(wanted):
            yield key, ()
        leads_below = wanted.startswith((f"{key}.", f"{key}["))
        if wanted == key or leads_below:
            yield from _list_below(child, named, wanted, key)


_RULES = partial(_list_names, "emu.scenario.own_rules:list_policies")
_PLACEMENTS = partial(_list_names, "emu.prediction.placement.place:PLACEMENT_POLICIES")
_DOCUMENTS = partial(_list_names, "emu.scenario.scenario_file:list_documents")
#: Parameter -> words for it; of one command alone after its name.
_WORDS: dict[str, Callable[[str], Iterable[str]]] = {
    "file": _scenarios,
    "files": _scenarios,
    "explain what": _scenarios,
    "compare what": _scenarios,
    "overrides": _keys,
    "crossover key": _keys,
    "vary": _keys,
    "policies": _RULES,
    "placements": _PLACEMENTS,
    "contest near": _scenarios,
    "init name": _shipped,
    "docs name": _DOCUMENTS,
}
