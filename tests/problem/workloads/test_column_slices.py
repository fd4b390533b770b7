"""Slices of columns by hand, of parts that divide the classes and others."""

from __future__ import annotations

import pytest

from emu.problem.workloads.column_slices import STAGES, Slices


@pytest.mark.parametrize(
    ("classes", "parts", "padded", "width"), [(7, 3, 9, 3), (6, 3, 9, 3), (2, 4, 4, 1)]
)
def test_slices_are_of_one_width(
    classes: int, parts: int, padded: int, width: int
) -> None:
    """Where three parts divide six classes, each has a column more."""
    slices = Slices(classes, parts)
    assert (slices.padded, slices.width) == (padded, width)
    assert slices.bounds(0) == (0, width)
    assert slices.bounds(parts - 1) == (padded - width, padded)


def test_columns_are_of_the_rows_that_a_part_has_and_rows_of_those_that_it_gets() -> (
    None
):
    """Slices are two columns wide; the sender has five rows and the receiver seven."""
    slices = Slices(5, 3)
    found = {stage: slices.piece(stage, 5, 7) for stage in STAGES}
    assert found == {
        "dense": 10,
        "aggregate": 14,
        "score": 10,
        "aggregate_gradient": 14,
        "dense_gradient": 14,
    }
