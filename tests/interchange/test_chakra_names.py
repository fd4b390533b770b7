"""Collectives of Chakra's nodes, by number or by name in any spelling."""

from __future__ import annotations

import pytest

from emu.errors import DataError
from emu.interchange.chakra import _collective_of
from emu.interchange.chakra_nodes import COLLECTIVES, _rows


@pytest.mark.parametrize("number", range(len(COLLECTIVES)))
def test_a_collective_has_a_number_and_a_name_in_any_spelling(number: int) -> None:
    kind = COLLECTIVES[number]
    plain = kind.replace("_", "")
    for stated in (number, str(number), kind, kind.lower(), plain, plain.title()):
        assert _collective_of(stated, "a.et") == kind


@pytest.mark.parametrize("stated", [-1, len(COLLECTIVES), "", "ALL", "ALL_REDUCE2"])
def test_what_is_no_collective_is_refused(stated: object) -> None:
    with pytest.raises(DataError, match="is a collective of type"):
        _collective_of(stated, "a.et")


def test_of_a_field_that_comes_twice_the_last_counts() -> None:
    """A node of ids 1 and 2 and type 4, behind metadata without anything."""
    node = b"\x08\x01\x08\x02\x18\x04"
    metadata, row = _rows(b"\x00" + bytes([len(node)]) + node)

    assert metadata == {}
    assert row == {"id": 2, "type": 4, "name": 0, "durationmicros": 0}
