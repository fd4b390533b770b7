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
    list_words = _WORDS.get(f"{command} {name}", _WORDS.get(name))
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
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    for path in paths:
        if path.suffix in {".yaml", ".yml", ".json"}:
            words.append(str(path))
        if path.is_dir():
            words.append(f"{path}/")
    return words


def _list_names(place: str, incomplete: str) -> Iterable[str]:
    """Return names that ``module:name`` lists, after the words that are there."""
    module, _, attribute = place.partition(":")
    names = getattr(importlib.import_module(module), attribute)
    if callable(names):
        names = names()
    # A list with commas is one word to the shell: what stands is offered again.
    prefix = incomplete[: incomplete.rfind(",") + 1]
    return (prefix + name for name in names)


def _keys(incomplete: str) -> Iterable[str]:
    """Return the keys of a scenario, or the words that one may have after ``=``."""
    from emu.scenario.schema import json_schema

    key, equals, _ = incomplete.partition("=")
    path = _INDEX.sub("[0]", key)
    schema = json_schema()
    words_of = dict(_list_below(schema, schema["$defs"], path))
    if equals:
        return (f"{key}={word}" for word in words_of.get(path, ()))
    # What was written stays, its positions in lists among it.
    return (key + place[len(path) :] for place in words_of if place.startswith(path))


def _list_below(
    node: Mapping[str, Any],
    named: Mapping[str, Any],
    wanted: str,
    path: str = "",
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the keys below a node of the schema that ``wanted`` leads to, and words."""
    if "$ref" in node:
        node = named[node["$ref"].rpartition("/")[2]]
    # Sections of several systems have other keys: those of all are offered.
    choices = [*node.get("anyOf", ()), *node.get("oneOf", ())]
    for choice in choices:
        yield from _list_below(choice, named, wanted, path)

    if "enum" in node and path:
        yield path, tuple(map(str, node["enum"]))
    if isinstance(node.get("items"), dict):
        yield from _list_below(node["items"], named, wanted, f"{path}[0]")
    for name, child in node.get("properties", {}).items():
        key = f"{path}.{name}" if path else name
        if key.startswith(wanted):
            yield key, ()
        if wanted == key or wanted.startswith((f"{key}.", f"{key}[")):
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
