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
from emu.scenario.schema import json_schema
from emu.systems.job_section import TRANSLATED
from emu.systems.system import systems

if TYPE_CHECKING:
    Node = dict[str, Any]

MISSING = "this key is missing"

#: Types of pydantic's errors, by the word for what would be right.
_KINDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
}
#: Kinds of ``job.model``, by the sections that they are, and of ``at`` in ``events``.
_KINDS_OF_VALUES = ("ModelSection", "ModelProgramSection", "ProgressSection", "Moment")
#: Types of errors of bounds: their key in the context, and words for it.
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
_LATENCY_OF_EVENT = "an event changes no latency: state it in cluster"
#: Keys of a file that states no job, as `emu virtual` takes it beside a command.
_OF_CLUSTERS = {"cluster", "events", "name", "version"}
#: Keys that an error lists of a mapping, beside those that it needs.
_LISTED = 8
#: Types of JSON Schema, in our words.
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
    if not node:
        return ""
    return _words(node)


def list_keys(steps: Sequence[str | int]) -> list[str]:
    """Return the keys that the schema knows in the mapping at ``steps``."""
    node = _node_at(steps) or {}
    mapping = _mapping(node)
    return list(mapping.get("properties", {}))


@cache
def _schema() -> Node:
    # Made of all systems' sections, 0.2 s of CPU: only where there is an error.
    return json_schema()


def _follow(node: Node) -> Node:
    while "$ref" in node:
        _, name = node["$ref"].rsplit("/", 1)
        node = _schema()["$defs"][name]
    return node


def _mapping(node: Node) -> Node:
    """Return the mapping among the alternatives of ``node``, else ``node`` itself."""
    node = _follow(node)
    for alternative in node.get("anyOf", ()):
        option = _follow(alternative)
        if "properties" in option:
            return option
    return node


def _node_at(steps: Sequence[str | int]) -> Node | None:
    # A lab is no key of scenarios: its schema stands beside theirs.
    node = _schema()
    if steps[:1] == ("lab",):
        node = {"$ref": "#/$defs/LabFile"}
    for step in steps:
        inner = _item(node) if isinstance(step, int) else _value(node, step)
        if inner is None:
            return None
        node = inner
    return _follow(node) or None


def _item(node: Node) -> Node:
    """Return the node of the items of a list."""
    inner = _mapping(node)
    options = map(_follow, inner.get("anyOf", ()))
    for option in (inner, *options):
        if "items" in option:
            items: Node = option["items"]
            return items
    return {}


def _value(node: Node, key: str) -> Node | None:
    """Return the node of a key's value; None where there is no such key."""
    inner = _mapping(node)
    if key in inner.get("properties", {}):
        child: Node = inner["properties"][key]
        return child

    # `with_system` puts the system behind ``job``: it chooses among the schemas.
    if "discriminator" in inner:
        systems_by_tag = inner["discriminator"]["mapping"]
        system = systems_by_tag.get(key)
        return {"$ref": system} if system else None
    if key in _KINDS_OF_VALUES and key in _schema()["$defs"]:
        return {"$ref": f"#/$defs/{key}"}
    values = inner.get("additionalProperties")
    if isinstance(values, dict):
        return values
    if "properties" in inner or not inner:
        return None
    return node  # the name of one of several kinds that the value may be


def _words(node: Node) -> str:
    """Return words for the values that ``node`` allows; empty where there are none."""
    if "discriminator" in node:
        tags = node["discriminator"]["mapping"]
        return f"a mapping with system: {' or '.join(tags)}"
    inner = _mapping(node)
    if "properties" in inner:
        return _words_of_mapping(inner, node)
    alternatives = inner.get("anyOf") or inner.get("oneOf", ())
    options = map(_follow, alternatives)
    kinds = [_words(option) for option in options]
    if kinds:
        different = dict.fromkeys(kinds)
        return " or ".join(filter(None, different))
    if "enum" in inner:
        values = ", ".join(map(str, inner["enum"]))
        return f"one of {values}"
    if "const" in inner:
        return str(inner["const"])
    type_name = inner.get("type", "")
    word = _WORDS.get(type_name, "")
    if inner.get("examples") or "items" in inner:
        value = write_value(_example(inner))
        example = f"for example {value}"
        word = example if "pattern" in inner else f"{word}, {example}"
    return word


def _words_of_mapping(mapping: Node, node: Node) -> str:
    """Return which keys a mapping needs, with an example of ``node``, and may have."""
    required_keys = mapping.get("required", [])
    optional = [key for key in mapping["properties"] if key not in required_keys]
    words = "a mapping"
    if required_keys:
        words += f" with {', '.join(required_keys)}"
    if optional:
        words += " and" if required_keys else " with"
        words += f" any of {', '.join(optional[:_LISTED])}"
    if required_keys:
        example = write_value(_example(node))
        words += f"; for example {example}"
    return words


def _example(node: Node) -> Any:
    """Return a value that would be right there."""
    inner = _follow(node)
    examples = list(node.get("examples", ()))
    examples += inner.get("examples", ())
    if "const" in inner:
        examples.append(inner["const"])
    examples += inner.get("enum", ())
    if examples:
        return examples[0]

    choices = inner.get("anyOf") or inner.get("oneOf")
    if choices:
        return _example(choices[0])
    if "properties" in inner:
        properties = inner["properties"]
        keys = inner.get("required", list(properties))
        return {key: _example(properties[key]) for key in keys}
    if "items" in inner:
        item = _example(inner["items"])
        return [item]
    numbers = {"integer": 1, "number": 1.0}
    type_name = inner.get("type", "")
    return numbers.get(type_name, "name")


def write_value(value: Any) -> str:
    """Return a value as YAML writes it in one line."""
    if isinstance(value, dict):
        entries = [f"{key}: {write_value(entry)}" for key, entry in value.items()]
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, list):
        items = ", ".join(map(write_value, value))
        return f"[{items}]"
    if value is None:
        return "null"
    return str(value)


def show(found: object) -> str:
    """Return ``found`` as an error shows it, short."""
    text = repr(found)
    if len(text) <= 60:
        return text
    beginning = text[:57]
    return f"{beginning}..."


def with_system(location: Trail, data: Any) -> Trail:
    """Return a location in ``data`` with a job's system after ``job``.

    So the JSON Schema has it; who validates by one system alone leaves it out.
    """
    steps: list[str | int] = []
    for step in (*location, None):  # None: behind the last
        tag = data.get("system") if isinstance(data, dict) else None
        is_of_job = steps[-1:] == ["job"]
        if is_of_job and isinstance(tag, str) and tag in systems():
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
    no_steps = {"[key]", *_KINDS_OF_VALUES}
    steps = [step for step in error["loc"] if step not in no_steps]
    tags = systems()
    # From behind, as positions after a deleted one move.
    positions = range(1, len(steps))
    for position in reversed(positions):
        is_of_job = steps[position - 1] == "job"
        if is_of_job and steps[position] in tags:
            del steps[position]
    if not steps:
        steps = ["jobs"]  # beside job: the one error of the whole file
    # Of a system that is missing or unknown pydantic names the job.
    if error["type"].startswith("union_tag"):
        return (*steps, "system")

    is_missing = error["type"] == "missing"
    trail: list[str | int] = []
    for position, step in enumerate(steps):
        following = steps[position + 1 : position + 2]
        if _has_step(data, step) or is_missing:
            trail.append(step)
            data = value_in(data, (step,))
        # Of a value that may be of several types pydantic names each of these.
        elif not any(_has_step(data, key) for key in following):
            break
    return tuple(trail)


def _has_step(data: object, step: str | int) -> bool:
    """Return True where a mapping or list has what a step of a trail leads to."""
    if isinstance(data, list):
        return isinstance(step, int)
    return isinstance(data, dict) and step in data


def describe(error: ErrorDetails) -> str:
    """Return the found value and the right one, in words."""
    kind = error["type"]
    value = show(error.get("input"))
    location = error["loc"]
    is_below_machines = location[:2] == ("cluster", "machines")
    is_of_machine = is_below_machines and len(location) == 4
    # To a machine it is the amount of a further resource, to an event an unknown key:
    # errors of these would not say what to write.
    is_latency = location[-1:] == ("latency",)
    if is_latency and (is_of_machine or kind == "extra_forbidden"):
        is_of_event = location[0] == "events"
        return _LATENCY_OF_EVENT if is_of_event else LATENCY_OF_NIC

    context: Mapping[str, Any] = error.get("ctx", {})
    if kind in _SPECIAL:
        return _SPECIAL[kind](error, context)
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        right = words.format(context[key])
        return f"found {value}, write {right}"
    if kind in _KINDS:
        words = _KINDS[kind]
        stated = str(error.get("input"))
        match = re.fullmatch(r"(\w+)\s*[:= ]\s*(\S.*)", stated)
        if match and words == "a mapping" and match[1] in list_keys(location):
            # Text has the parts of an entry.
            entry = f"{match[1]}: {match[2]}"
            return f"found {value}, write {entry!r}"
        if words in {"a mapping", "a list", "text"}:
            words = _describe_value_at(location) or words
        # YAML takes 4 for a number, and on a command line it needs two pairs of quotes.
        # Without the value: 1.10 in the file is 1.1 by now, and true is True.
        is_bare = isinstance(error.get("input"), bool | int | float)
        if kind == "string_type" and is_bare:
            words = "text: put it in quotes"
        return f"found {value}, write {words}"
    return f"found {value}: {error['msg']}"


def either(first: str, second: str) -> str:
    """Return one error of a value that may be of two kinds.

    ``found 0, write 1 or more`` and ``found 0, write unlimited`` make one sentence.
    """
    # The second may say all of the first already, and more.
    if not first or f"{second} or ".startswith(f"{first} or "):
        return second
    head, write, kinds = second.partition(", write ")
    if write and first.startswith(head):
        return f"{first} or {kinds}"
    return first


def _unknown_key(error: ErrorDetails, _: Mapping[str, Any]) -> str:
    *above, step = error["loc"]
    key = str(step)
    system = systems().get(str(above[-1])) if above else None
    if system is not None:
        foreign = system.section().foreign
        if key in foreign:
            return f"system {system.name} has no {key}, {foreign[key]}"
    keys = list_keys(tuple(above))
    if not keys and above[-1:] == ["times"]:
        return f"unknown key {key!r}: times follow from job.rates, write these instead"
    return f"unknown key {key!r}, {nearest(key, keys)}"


def _missing_key(error: ErrorDetails, _: Mapping[str, Any]) -> str:
    location = error["loc"]
    words = _describe_value_at(location)
    if location == ("job",) and _OF_CLUSTERS.issuperset(error["input"]):
        words += "; machines alone are for emu virtual FILE -- torchrun ..."
    if not words:
        return MISSING
    return f"{MISSING}, write {words}"


def _missing_system(_: ErrorDetails, _context: Mapping[str, Any]) -> str:
    *names, last_name = systems()
    first_names = ", ".join(names)
    return f"the key 'system' is missing, write system: {first_names} or {last_name}"


def _unknown_system(_: ErrorDetails, context: Mapping[str, Any]) -> str:
    tag = context["tag"]
    variants = {tag for system in systems().values() for tag in system.variants}
    if tag in variants:
        return f"found system {tag!r}, a row of tables: {TRANSLATED}"
    # pydantic has one text for all names, each in quotes.
    expected = context["expected_tags"].replace("'", "")
    names = expected.split(", ")
    return f"found system {tag!r}, {nearest(tag, names)}"


def _unknown_word(error: ErrorDetails, context: Mapping[str, Any]) -> str:
    # pydantic writes 'a', 'b' or 'c'.
    words = context["expected"].replace("'", "")
    names = words.replace(" or ", ", ").split(", ")
    word = error["input"]
    # A hint at the nearest of one word would be a question without need.
    if len(names) == 1:
        return f"found {show(word)}, write {names[0]}"
    return f"found {show(word)}, {nearest(str(word), names)}"


_SPECIAL: dict[str, Callable[[ErrorDetails, Mapping[str, Any]], str]] = {
    "extra_forbidden": _unknown_key,
    "missing": _missing_key,
    "value_error": lambda _, context: str(context["error"]),
    "union_tag_not_found": _missing_system,
    "union_tag_invalid": _unknown_system,
    "literal_error": _unknown_word,
    "too_short": lambda error, context: (
        f"found {show(error['input'])}, write at least {context['min_length']}: "
        f"{_describe_value_at(error['loc'])}"
    ),
    "string_too_short": lambda *_: "found empty text",
    "string_pattern_mismatch": lambda error, _: (
        f"found {show(error['input'])}, write a name without spaces, slashes, # and >"
    ),
}
