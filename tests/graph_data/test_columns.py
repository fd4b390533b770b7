"""Kinds of columns: of one field by examples, of a column by a count of its rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.graph_data.readers.class_numbers import _are_one_hot, _begin_above_zero
from emu.graph_data.readers.columns import Column, kind_of
from emu.graph_data.readers.text_table import _narrow

EXAMPLES = {
    "integer": ("0", "7", "+12", "3.", "1.0", "007"),
    "number": ("-1", "1.5", "1e3", "nan", "-inf"),
    "decimal comma": ("1,5", "-0,25", ",5"),
    "boolean": ("true", "False", "TRUE"),
    "date": (
        *("2026-11-29", "2026-11", "2026-11-29T08:00:00", "2026-11-29 08:00"),
        *("29.11.2026", "1/2/2026", "29.11.2026 08:00"),
    ),
    "text": ("a", "1_0", "v12", "2026-1-2", "1,2,3", "29.11.26", "-"),
    "": ("",),
}
NUMERIC = ("integer", "number", "decimal comma")


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_field_has_the_narrowest_kind_that_it_fits(kind: str) -> None:
    assert {text: kind_of(text) for text in EXAMPLES[kind]} == dict.fromkeys(
        EXAMPLES[kind], kind
    )


def test_numbers_are_integers_where_all_of_them_are() -> None:
    """As pandas writes ids of which one is missing: 1.0 and 2.0."""
    for numbers in ([1.0, -2.0, 0.0], [2.0**53 - 1]):
        narrow = _narrow(np.array(numbers))
        assert narrow.dtype == np.int64
        assert narrow.tolist() == numbers
    for numbers in ([1.0, 2.5], [1.0, np.inf], [1.0, np.nan], [2.0**53]):
        assert _narrow(np.array(numbers)).dtype == np.float64
    small = np.array([1, 2], np.int8)
    assert _narrow(small) is small


def test_commas_may_part_thousands_where_all_of_them_stand_so() -> None:
    assert Column.of(["1,500", "7", "12,000"]).may_be_thousands
    assert not Column.of(["1,500", "7", "1,5"]).may_be_thousands
    assert not Column.of(["1", "7"]).may_be_thousands


FIELDS = st.sampled_from([(k, text) for k, texts in EXAMPLES.items() for text in texts])


@given(st.lists(FIELDS, min_size=1, max_size=12))
def test_a_column_has_the_kind_of_its_rows(rows: list[tuple[str, str]]) -> None:
    """Numbers of several kinds are those of the widest; else rows that differ are text.

    Its main kind is that of most rows that have a field.
    """
    column = Column.of(text for _, text in rows)
    counts = Counter(kind for kind, _ in rows)
    fields = [kind for kind, _ in rows if kind]
    numeric = [kind for kind in NUMERIC if counts[kind]]

    assert column.kinds == counts
    assert column.rows == len(rows)
    if all(kind in NUMERIC for kind in fields):
        expected = numeric[-1] if numeric else ""
    else:
        expected = fields[0] if len({*fields}) == 1 else "text"
    assert column.kind == expected

    if expected == "text" and 2 * sum(counts[k] for k in numeric) >= len(fields) > 0:
        main = numeric[-1] if numeric else "text"
    elif expected == "text":
        most = max(counts[kind] for kind in ("boolean", "date", "text"))
        others = [k for k in ("boolean", "date", "text") if counts[k] == most]
        main = others[0]
    else:
        main = expected
    assert column.main_kind == main
    # Words and whole numbers name vertices; dates and truth values do not.
    assert column.is_id == (main in {"integer", "text"})


@pytest.mark.parametrize(
    ("classes", "is_from_one"),
    [
        ([1.0, 2.0], True),
        ([3.0, 1.0, 2.0**53 - 1], True),
        ([1.0, 2.0**53], False),  # its neighbour is the same number
        ([0.0, 1.0], False),
        ([-1.0, 2.0], False),
        ([1.0, 1.5], False),
    ],
)
def test_classes_from_one_are_whole_numbers_that_are_told_apart(
    classes: list[float], *, is_from_one: bool
) -> None:
    assert _begin_above_zero(np.array(classes)) == is_from_one


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([[0, 1], [1, 0], [0, 0]], True),
        ([[0, 1], [1, 1]], False),
        ([[0, 2], [1, 0]], False),
        ([[0, -1], [1, 0]], False),
        ([[0.0, 1.0, 0.0]], True),
        ([[1], [0]], False),
        ([0, 1], False),
        ([["0", "1"]], False),
    ],
)
def test_a_column_per_class_has_one_1_at_most(
    labels: list[Any], *, expected: bool
) -> None:
    assert _are_one_hot(np.array(labels)) is expected
