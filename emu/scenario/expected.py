"""What the schema of scenario files expects at a key, in words and by example."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from emu.scenario.scenario import json_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    Node = dict[str, Any]

#: Keys that an error lists of a mapping, beside those that it needs.
_LISTED = 8
_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def expected_at(steps: Sequence[str | int]) -> str:
    """Return what is expected at ``steps``, empty where the schema does not know.

    ``a mapping with hidden, layers; for example {hidden: 256, layers: 3}``.

    Parameters
    ----------
    steps
        As pydantic locates an error: with the tag of the job's system.
    """
    node = _node_at(steps)
    return _words(node) if node else ""


def known_keys(steps: Sequence[str | int]) -> list[str]:
    """Return the keys that the schema knows in the mapping at ``steps``."""
    return list(_mapping(_node_at(steps) or {}).get("properties", {}))


@cache
def _schema() -> Node:
    return json_schema()


def _followed(node: Node) -> Node:
    while "$ref" in node:
        node = _schema()["$defs"][node["$ref"].rsplit("/", 1)[1]]
    return node


def _mapping(node: Node) -> Node:
    """Return the mapping among the alternatives of ``node``, else ``node`` itself."""
    node = _followed(node)
    for option in node.get("anyOf", ()):
        if "properties" in _followed(option):
            return _followed(option)
    return node


def _node_at(steps: Sequence[str | int]) -> Node | None:
    node: Node = _schema()
    for step in steps:
        inner = _mapping(node)
        if isinstance(step, int):
            lists = [inner, *map(_followed, inner.get("anyOf", ()))]
            found = [option["items"] for option in lists if "items" in option]
            node = found[0] if found else {}
        elif step in inner.get("properties", {}):
            node = inner["properties"][step]
        elif "discriminator" in inner:
            node = {"$ref": inner["discriminator"]["mapping"].get(step, "")}
            if not node["$ref"]:
                return None
        elif isinstance(inner.get("additionalProperties"), dict):
            node = inner["additionalProperties"]
        elif "properties" in inner or not inner:
            return None
        # else: the name of one of several kinds that the value may be
    return _followed(node) or None


def _words(node: Node) -> str:
    """Return what ``node`` describes; empty where there are no words for it."""
    if "discriminator" in node:
        return f"a mapping with system: {' or '.join(node['discriminator']['mapping'])}"
    inner = _mapping(node)
    if "properties" in inner:
        return _mapping_words(node, inner)
    kinds = [_words(_followed(option)) for option in inner.get("anyOf", ())]
    if kinds:
        return " or ".join(kind for kind in dict.fromkeys(kinds) if kind)
    if "enum" in inner:
        return f"one of {', '.join(map(str, inner['enum']))}"
    if "const" in inner:
        return str(inner["const"])
    return _plain_words(inner)


def _plain_words(node: Node) -> str:
    word = _WORDS.get(node.get("type", ""), "")
    if node.get("examples") or "items" in node:
        example = f"for example {_written(_example(node))}"
        return example if "pattern" in node else f"{word}, {example}"
    return word


def _mapping_words(node: Node, mapping: Node) -> str:
    needed = list(mapping.get("required", ()))
    others = [key for key in mapping["properties"] if key not in needed][:_LISTED]
    keys = f" with {', '.join(needed)}" if needed else ""
    more = f"{' and' if keys else ' with'} any of {', '.join(others)}"
    said = f"a mapping{keys}{more if others else ''}"
    return f"{said}; for example {_written(_example(node))}" if needed else said


def _example(node: Node) -> Any:
    """Return a value that would be right there."""
    inner = _followed(node)
    stated = [*node.get("examples", ()), *inner.get("examples", ())]
    stated += [inner["const"]] if "const" in inner else inner.get("enum", [])
    if stated:
        return stated[0]
    if "anyOf" in inner:
        return _example(inner["anyOf"][0])
    if "properties" in inner:
        return {key: _example(inner["properties"][key]) for key in inner["required"]}
    if "items" in inner:
        return [_example(inner["items"])]
    return {"integer": 1, "number": 1.0}.get(inner.get("type", ""), "name")


def _written(value: Any) -> str:
    """Return ``value`` as YAML on one line."""
    if isinstance(value, dict):
        inside = (f"{key}: {_written(one)}" for key, one in value.items())
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return str(value)
