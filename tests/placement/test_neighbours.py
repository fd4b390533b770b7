"""What a placement near another one is called."""

from __future__ import annotations

import pytest

from emu.placement.neighbours import Move, Neighbour
from emu.problem import Placement


@pytest.mark.parametrize(
    ("moves", "text"),
    [
        ([("a", "m0", "m1")], "move a to m1"),
        ([("a", "m0", "m1"), ("b", "m1", "m0")], "swap a and b"),
        ([("a", "m0", "m1"), ("b", "m2", "m3")], "a: m0 -> m1; b: m2 -> m3"),
    ],
)
def test_only_an_exchange_is_a_swap(
    moves: list[tuple[str, str, str]], text: str
) -> None:
    found = Neighbour(Placement((0, 1)), tuple(Move(*move) for move in moves))

    assert str(found) == text
