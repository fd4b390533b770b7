"""Arrays in pieces of 256 KB: counted by hand, put together, and refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.emulation.wire.array_parts import ArrayParts, parts_of, state_parts
from emu.emulation.wire.messages import ResultPart

PIECE = 262_144


def result_parts(arrays: dict[str, Any]) -> list[ResultPart]:
    return [ResultPart(task=4, **fields) for fields in parts_of(arrays)]


@pytest.mark.parametrize(
    ("size", "pieces"),
    [
        (0, [0]),
        (1, [1]),
        (PIECE - 1, [PIECE - 1]),
        (PIECE, [PIECE]),
        (PIECE + 1, [PIECE, 1]),
        (2 * PIECE + 3, [PIECE, PIECE, 3]),
    ],
)
def test_an_array_is_cut_into_pieces_and_put_together(
    size: int, pieces: list[int]
) -> None:
    array = np.arange(size).astype(np.uint8)
    parts = result_parts({"a": array, "b": np.array(2.5)})
    together = ArrayParts()
    for part in parts:
        together.add(part)

    assert [len(part.data) for part in parts] == [*pieces, 8]
    assert [part.total for part in parts] == [*[size] * len(pieces), 8]
    arrays = together.arrays()
    np.testing.assert_array_equal(arrays["a"], array)
    assert arrays["b"].shape == ()
    assert arrays["b"] == 2.5


def test_the_last_piece_of_a_state_is_that_of_its_last_array() -> None:
    arrays: dict[str, Any] = {
        "a": np.zeros(PIECE + 8, np.uint8),
        "b": np.zeros((0, 3)),
        "c": np.ones(2),
    }
    parts = state_parts("ps0", 6, arrays)

    assert [(part.name, part.last) for part in parts] == [
        ("a", False),
        ("a", False),
        ("b", False),
        ("c", True),
    ]
    assert {(part.task, part.iteration) for part in parts} == {("ps0", 6)}
    assert state_parts("ps0", 6, {}) == []


def test_pieces_that_make_no_array_are_refused() -> None:
    """One byte more or less than announced, and shapes and types that do not fit."""
    (part,) = result_parts({"a": np.arange(4)})

    short = ArrayParts()
    short.add(replace(part, data=part.data[:-1]))
    with pytest.raises(ValueError, match="a is cut short"):
        short.arrays()
    short.add(replace(part, data=part.data[-1:]))
    np.testing.assert_array_equal(short.arrays()["a"], np.arange(4))
    with pytest.raises(ValueError, match="a is longer than announced"):
        short.add(replace(part, data=b"1"))

    for odd in (replace(part, shape=[5]), replace(part, dtype="<f3")):
        parts = ArrayParts()
        parts.add(odd)
        with pytest.raises(ValueError, match="a is no array: "):
            parts.arrays()
