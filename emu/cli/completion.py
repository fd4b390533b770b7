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
    words = _WORDS.get(f"{command} {name}", _WORDS.get(name))

    def complete(_ctx: object, _parameter: object, incomplete: str) -> list[str]:
        offers = dict.fromkeys(words(incomplete)) if words else ()
        return [word for word in offers if word.startswith(incomplete)]

    if words is not None:
        parameter._custom_shell_complete = complete  # noqa: SLF001 - typer has no other


def _shipped(_: str) -> Iterable[str]:
    from emu.scenario import scenario_file as files

    return files.list_scenarios() | files.list_labs()


def _scenarios(incomplete: str) -> Iterable[str]:
    folder = Path(incomplete) if incomplete[-1:] == "/" else Path(incomplete).parent
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    files = [str(p) for p in there if p.suffix in {".yaml", ".yml", ".json"}]
    folders = [f"{path}/" for path in there if path.is_dir()]
    return [*_shipped(incomplete), *files, *folders]


def _list_names(place: str, incomplete: str) -> Iterable[str]:
    """Return names that ``module:name`` lists, after the words that are there."""
    module, _, name = place.partition(":")
    names = getattr(importlib.import_module(module), name)
    before = incomplete[: incomplete.rfind(",") + 1]
    return (before + one for one in (names() if callable(names) else names))


def _keys(incomplete: str) -> Iterable[str]:
    from emu.scenario.scenario import json_schema

    key, equals, _ = incomplete.partition("=")
    schema = json_schema()
    path = _INDEX.sub("[0]", key)
    keys = dict(_below(schema, schema["$defs"], path))
    if equals:
        return (f"{key}={word}" for word in keys.get(path, ()))
    # What was written stays, its positions in lists among it.
    return (key + one[len(path) :] for one in keys if one.startswith(path))


def _below(
    node: Mapping[str, Any], named: Mapping[str, Any], wanted: str, at: str = ""
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the keys below a node of the schema that ``wanted`` leads to, and words."""
    if "$ref" in node:
        node = named[node["$ref"].rpartition("/")[2]]
    for each in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _below(each, named, wanted, at)
    if "enum" in node and at:
        yield at, tuple(map(str, node["enum"]))
    if isinstance(node.get("items"), dict):
        yield from _below(node["items"], named, wanted, f"{at}[0]")
    for name, inner in node.get("properties", {}).items():
        key = f"{at}.{name}" if at else name
        if key.startswith(wanted):
            yield key, ()
        if wanted == key or wanted.startswith((f"{key}.", f"{key}[")):
            yield from _below(inner, named, wanted, key)


#: Parameter -> words for it; of one command alone after its name.
_WORDS: dict[str, Callable[[str], Iterable[str]]] = {
    **dict.fromkeys(("file", "files", "explain what", "compare what"), _scenarios),
    **dict.fromkeys(("overrides", "crossover key", "vary"), _keys),
    "policies": partial(_list_names, "emu.scenario.own_rules:list_policies"),
    "placements": partial(
        _list_names, "emu.prediction.placement.place:PLACEMENT_POLICIES"
    ),
    "init name": _shipped,
    "docs name": partial(_list_names, "emu.scenario.scenario_file:list_documents"),
}
