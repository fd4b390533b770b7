"""Validation errors of pydantic in the words of scenario files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from emu.scenario.expected import expected_at, known_keys
from emu.scenario.suggestion import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic_core import ErrorDetails

    from emu.scenario.document import Trail

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
#: Keys of earlier versions.
_RENAMED = {
    "expect.fidelity": "replay_error",
    "expect.prediction": "makespan_error",
}
_SYSTEMS = ("dgtp", "p3", "data_parallel", "custom", "several")
_BOUNDS = {
    "greater_than": ("gt", "more than {}"),
    "greater_than_equal": ("ge", "{} or more"),
    "less_than": ("lt", "less than {}"),
    "less_than_equal": ("le", "{} or less"),
}


def shown(found: object) -> str:
    """Return ``found`` as an error shows it, short."""
    text = repr(found)
    return text if len(text) <= 60 else f"{text[:57]}..."


def trail_of(error: ErrorDetails, data: object) -> Trail:
    """Return where in ``data`` an error is.

    pydantic adds the tag of the job's system, and goes on below a shorthand such as
    ``nic: 50 Gbit/s``; neither is in the file.
    """
    steps = [step for step in error["loc"] if step != "[key]"]
    for position in range(len(steps) - 1, 0, -1):
        if steps[position - 1] == "job" and steps[position] in _SYSTEMS:
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
    """Return what was found and what would be right."""
    kind, found = error["type"], shown(error.get("input"))
    context: Mapping[str, Any] = error.get("ctx", {})
    if kind in _SPECIAL:
        return _SPECIAL[kind](error, context)
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"found {found}, write {words.format(context[key])}"
    if kind in _KINDS:
        words = _KINDS[kind]
        if words in {"a mapping", "a list"}:
            words = expected_at(error["loc"]) or words
        return f"found {found}, write {words}"
    return f"found {found}: {error['msg']}"


def either(one: str, other: str) -> str:
    """Return what is wrong with a value that may be of two kinds.

    ``found 0, write 1 or more`` and ``found 0, write unlimited`` make one sentence.
    """
    if not one or one == other:
        return other
    head, write, kinds = other.partition(", write ")
    return f"{one} or {kinds}" if write and one.startswith(head) else one


def meant_key(problem: str) -> str:
    """Return the key that an unknown one was taken for, empty for none."""
    match = re.fullmatch(r"unknown key .*, did you mean '(.*)'\?", problem)
    return match[1] if match else ""


def _missing(error: ErrorDetails) -> str:
    expected = expected_at(error["loc"])
    return f"{MISSING}, write {expected}" if expected else MISSING


def _unknown_key(error: ErrorDetails, _: Mapping[str, Any]) -> str:
    step = str(error["loc"][-1])
    if renamed := _RENAMED.get(".".join(map(str, error["loc"]))):
        return f"{step!r} is called {renamed!r} now"
    return f"unknown key {step!r}, {nearest(step, known_keys(error['loc'][:-1]))}"


def _unknown_system(_: ErrorDetails, context: Mapping[str, Any]) -> str:
    known = context["expected_tags"].replace("'", "").split(", ")
    return f"found system {context['tag']!r}, {nearest(str(context['tag']), known)}"


def _unknown_word(error: ErrorDetails, context: Mapping[str, Any]) -> str:
    known = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
    if len(known) == 1:
        return f"found {shown(error['input'])}, write {known[0]}"
    return f"found {shown(error['input'])}, {nearest(str(error['input']), known)}"


_SPECIAL: dict[str, Callable[[ErrorDetails, Mapping[str, Any]], str]] = {
    "extra_forbidden": _unknown_key,
    "missing": lambda error, _: _missing(error),
    "value_error": lambda _, context: str(context["error"]),
    "union_tag_not_found": lambda *_: (
        "the key 'system' is missing, write system: dgtp, p3, data_parallel or custom"
    ),
    "union_tag_invalid": _unknown_system,
    "literal_error": _unknown_word,
    "too_short": lambda error, context: (
        f"found {shown(error['input'])}, write at least {context['min_length']}: "
        f"{expected_at(error['loc'])}"
    ),
    "string_too_short": lambda *_: "found empty text",
    "string_pattern_mismatch": lambda error, _: (
        f"found {shown(error['input'])}, write a name without spaces, slashes and >"
    ),
}
