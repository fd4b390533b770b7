"""Comparison of what a file says with what it should say."""

from __future__ import annotations

from typing import Any

import pytest

from emu.trust.violation import agreement, differences

STATED: dict[str, Any] = {"a": [1, 2.0, {"b": None}], "c": "x", "d": True, "e": 0.0}


def test_what_is_alike_has_no_differences() -> None:
    said = {"a": (1.0, 2, {"b": None}), "c": "x", "d": True, "e": 0}
    assert not [*differences(said, STATED, "it")]
    assert agreement("file", STATED, STATED, "it") == (6, [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": [1, 2.0001, {"b": None}]}, "a[1] is 2.0001, it says 2.0"),
        ({"a": [1, float("nan"), {"b": None}]}, "a[1] is nan, it says 2.0"),
        ({"a": [1, 2.0]}, "a has 2 items, it says 3"),
        ({"a": [1, 2.0, {}]}, "a[2].b is missing, it says None"),
        ({"c": 1}, "c is 1, it says 'x'"),
        ({"d": 1}, "d is 1, it says True"),
        ({"e": 1e-300}, "e is 1e-300, it says 0.0"),
        ({"f": 1}, "f is 1, it has no such key"),
    ],
)
def test_every_difference_is_named(change: dict[str, Any], words: str) -> None:
    assert [*differences({**STATED, **change}, STATED, "it")] == [words]
