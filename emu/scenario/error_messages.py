"""Validation errors in the words of scenario files, and what their schema expects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic_core import ErrorDetails

from emu.problem.fields.section import Trail
from emu.problem.fields.suggestion import nearest
from emu.scenario.document import value_in
from emu.scenario.run_sections import SEVERAL
from emu.scenario.scenario import json_schema
from emu.systems.job_section import TRANSLATED
from emu.systems.system import systems

if TYPE_CHECKING:
    Node = dict[str, Any]

MISSING = "this key is missing"

_KINDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
}
#: Kinds of ``job.model``, by the sections that they are, and of ``at`` in ``events``.
_KINDS_OF_VALUES = ("ModelSection", "ModelProgramSection", "ProgressSection", "Moment")
_BOUNDS = {
    "greater_than": ("gt", "more than {}"),
    "greater_than_equal": ("ge", "{} or more"),
    "less_than": ("lt", "less than {}"),
    "less_than_equal": ("le", "{} or less"),
}
#: A machine may have any amount; this one would look as if it did something.
LATENCY_OF_NIC = (
    "a latency is one of a NIC, a link or a rack: write nic: {in: 10 Gbit/s, "
    "out: 10 Gbit/s, latency: 50 us}"
)
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


def _describe_value_at(steps: Sequence[str | int]) -> str:
    """Return words for the value expected at ``steps``, empty where there are none.

    ``a mapping with hidden, layers; for example {hidden: 256, layers: 3}``.
    """
    node = _node_at(steps)
    return _words(node) if node else ""


def list_keys(steps: Sequence[str | int]) -> list[str]:
    """Return the keys that the schema knows in the mapping at ``steps``."""
    return list(_mapping(_node_at(steps) or {}).get("properties", {}))


@cache
def _schema() -> Node:
    return json_schema()


def _follow(node: Node) -> Node:
    while "$ref" in node:
        node = _schema()["$defs"][node["$ref"].rsplit("/", 1)[1]]
    return node


def _mapping(node: Node) -> Node:
    """Return the mapping among the alternatives of ``node``, else ``node`` itself."""
    node = _follow(node)
    for option in node.get("anyOf", ()):
        if "properties" in _follow(option):
            return _follow(option)
    return node


def _node_at(steps: Sequence[str | int]) -> Node | None:
    node: Node = {"$ref": "#/$defs/LabFile"} if steps[:1] == ("lab",) else _schema()
    for step in steps:
        inner = _mapping(node)
        if isinstance(step, int):
            lists = [inner, *map(_follow, inner.get("anyOf", ()))]
            nodes = [option["items"] for option in lists if "items" in option]
            node = nodes[0] if nodes else {}
        elif step in inner.get("properties", {}):
            node = inner["properties"][step]
        elif "discriminator" in inner:
            node = {"$ref": inner["discriminator"]["mapping"].get(step, "")}
            if not node["$ref"]:
                return None
        elif step in _schema()["$defs"] and step in _KINDS_OF_VALUES:
            node = _schema()["$defs"][step]
        elif isinstance(inner.get("additionalProperties"), dict):
            node = inner["additionalProperties"]
        elif "properties" in inner or not inner:
            return None
        # else: the name of one of several kinds that the value may be
    return _follow(node) or None


def _words(node: Node) -> str:
    """Return words for the values that ``node`` allows; empty where there are none."""
    if "discriminator" in node:
        return f"a mapping with system: {' or '.join(node['discriminator']['mapping'])}"
    inner = _mapping(node)
    if "properties" in inner:
        needed = list(inner.get("required", ()))
        others = [key for key in inner["properties"] if key not in needed][:_LISTED]
        keys = f" with {', '.join(needed)}" if needed else ""
        more = f"{' and' if keys else ' with'} any of {', '.join(others)}"
        words = f"a mapping{keys}{more if others else ''}"
        example = f"; for example {write_value(_example(node))}"
        return words + (example if needed else "")
    kinds = [_words(_follow(option)) for option in inner.get("anyOf", ())]
    if kinds:
        return " or ".join(kind for kind in dict.fromkeys(kinds) if kind)
    if "enum" in inner:
        return f"one of {', '.join(map(str, inner['enum']))}"
    if "const" in inner:
        return str(inner["const"])
    word = _WORDS.get(inner.get("type", ""), "")
    if inner.get("examples") or "items" in inner:
        example = f"for example {write_value(_example(inner))}"
        word = example if "pattern" in inner else f"{word}, {example}"
    return word


def _example(node: Node) -> Any:
    """Return a value that would be right there."""
    inner = _follow(node)
    examples = [*node.get("examples", ()), *inner.get("examples", ())]
    examples += [inner["const"]] if "const" in inner else inner.get("enum", [])
    if examples:
        return examples[0]
    if "anyOf" in inner:
        return _example(inner["anyOf"][0])
    if "properties" in inner:
        keys = inner.get("required", [*inner["properties"]])
        return {key: _example(inner["properties"][key]) for key in keys}
    if "items" in inner:
        return [_example(inner["items"])]
    return {"integer": 1, "number": 1.0}.get(inner.get("type", ""), "name")


def write_value(value: Any) -> str:
    """Return a value as YAML writes it in one line."""
    if isinstance(value, dict):
        inside = (f"{key}: {write_value(one)}" for key, one in value.items())
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(write_value, value))}]"
    return "null" if value is None else str(value)


def show(found: object) -> str:
    """Return ``found`` as an error shows it, short."""
    text = repr(found)
    return text if len(text) <= 60 else f"{text[:57]}..."


def with_system(where: Trail, data: Any) -> Trail:
    """Return a location in ``data`` with a job's system after ``job``.

    So the JSON Schema has it; who validates by one system alone leaves it out.
    """
    steps: list[str | int] = []
    for step in (*where, None):  # None: behind the last
        tag = data.get("system") if isinstance(data, dict) else None
        if steps[-1:] == ["job"] and isinstance(tag, str) and tag in systems():
            steps.append(tag)
            if step == tag:
                continue
        if step is not None:
            steps.append(step)
            data = value_in(data, (step,))
    return tuple(steps)


def trail_of(error: ErrorDetails, data: object) -> Trail:
    """Return where in ``data`` an error is.

    pydantic adds the job's system and the kind of its model, and goes on below a
    shorthand such as ``nic: 50 Gbit/s``; neither is in the file.
    """
    steps = [step for step in error["loc"] if step not in {"[key]", *_KINDS_OF_VALUES}]
    tags = {*systems(), SEVERAL}
    for position in range(len(steps) - 1, 0, -1):
        if steps[position - 1] == "job" and steps[position] in tags:
            del steps[position]
    if not steps:
        steps = ["jobs"]  # beside job: the one error of the whole file
    if error["type"].startswith("union_tag"):
        steps.append("system")
    for depth, step in enumerate(steps):
        if not isinstance(data, dict | list):
            return tuple(steps[:depth])
        if isinstance(data, dict):
            data = data.get(step, {})
        elif isinstance(step, int):
            data = data[step]
    return tuple(steps)


def describe(error: ErrorDetails) -> str:
    """Return the found value and the right one, in words."""
    kind = error["type"]
    value = show(error.get("input"))
    where = error["loc"]
    of_machine = where[:2] == ("cluster", "machines") and len(where) == 4
    if where[-1:] == ("latency",) and (of_machine or kind == "extra_forbidden"):
        in_event = "an event changes no latency: state it in cluster"
        return in_event if where[0] == "events" else LATENCY_OF_NIC
    context: Mapping[str, Any] = error.get("ctx", {})
    if kind in _SPECIAL:
        return _SPECIAL[kind](error, context)
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"found {value}, write {words.format(context[key])}"
    if kind in _KINDS:
        words = _KINDS[kind]
        match = re.fullmatch(r"(\w+)\s*[:= ]\s*(\S.*)", str(error.get("input")))
        if match and words == "a mapping" and match[1] in list_keys(error["loc"]):
            # Text has the parts of an entry.
            return f"found {value}, write {f'{match[1]}: {match[2]}'!r}"
        if words in {"a mapping", "a list"}:
            words = _describe_value_at(error["loc"]) or words
        return f"found {value}, write {words}"
    return f"found {value}: {error['msg']}"


def either(one: str, other: str) -> str:
    """Return one error of a value that may be of two kinds.

    ``found 0, write 1 or more`` and ``found 0, write unlimited`` make one sentence.
    """
    if not one or f"{other} or ".startswith(f"{one} or "):
        return other
    head, write, kinds = other.partition(", write ")
    return f"{one} or {kinds}" if write and one.startswith(head) else one


def _unknown_key(error: ErrorDetails, _: Mapping[str, Any]) -> str:
    step = str(error["loc"][-1])
    system = systems().get(str(error["loc"][-2])) if len(error["loc"]) > 1 else None
    if system is not None and step in (foreign := system.section().foreign):
        return f"system {system.name} has no {step}, {foreign[step]}"
    return f"unknown key {step!r}, {nearest(step, list_keys(error['loc'][:-1]))}"


def _unknown_system(_: ErrorDetails, context: Mapping[str, Any]) -> str:
    known = context["expected_tags"].replace("'", "").split(", ")
    tag = context["tag"]
    if tag in (row for system in systems().values() for row in system.variants):
        return f"found system {tag!r}, a row of tables: {TRANSLATED}"
    return f"found system {tag!r}, {nearest(tag, known)}"


def _unknown_word(error: ErrorDetails, context: Mapping[str, Any]) -> str:
    names = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
    if len(names) == 1:
        return f"found {show(error['input'])}, write {names[0]}"
    return f"found {show(error['input'])}, {nearest(str(error['input']), names)}"


_SPECIAL: dict[str, Callable[[ErrorDetails, Mapping[str, Any]], str]] = {
    "extra_forbidden": _unknown_key,
    "missing": lambda error, _: (
        f"{MISSING}, write {words}"
        if (words := _describe_value_at(error["loc"]))
        else MISSING
    ),
    "value_error": lambda _, context: str(context["error"]),
    "union_tag_not_found": lambda *_: (
        "the key 'system' is missing, write system: "
        + " or ".join(", ".join(systems()).rsplit(", ", 1))
    ),
    "union_tag_invalid": _unknown_system,
    "literal_error": _unknown_word,
    "too_short": lambda error, context: (
        f"found {show(error['input'])}, write at least {context['min_length']}: "
        f"{_describe_value_at(error['loc'])}"
    ),
    "string_too_short": lambda *_: "found empty text",
    "string_pattern_mismatch": lambda error, _: (
        f"found {show(error['input'])}, write a name without spaces, slashes and >"
    ),
}
