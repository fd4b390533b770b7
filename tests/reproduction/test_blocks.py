"""Rows in text, in documents and on a page."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from emu.errors import DataError
from emu.reproduction.blocks import (
    format_number,
    summarise,
    text_lines,
    write_blocks,
)
from emu.reproduction.claims import read_papers
from emu.reproduction.page import Axis, reproduction_page
from emu.reproduction.rows import Draw, Row, reproduce, rows_of

CLAIMS = read_papers().claims


def all_rows() -> list[Row]:
    """Return rows of every claim as if 2 seeds had found them, the refused ones too."""
    rows = list[Row]()
    for claim in CLAIMS:
        if claim.refused:
            rows += reproduce([claim])
            continue
        values = [1.0 + number for number in range(len(claim.points))]
        draws = [Draw(values, "walk local", 1.0), Draw([2.0] * len(values), "", 1.0)]
        rows += rows_of(claim, draws)
    return rows


def test_text_fits_100_columns_and_says_all() -> None:
    rows = all_rows()
    text = "\n".join(text_lines(rows))
    joined = " ".join(text.split())

    assert max(map(len, text.splitlines())) <= 100
    for claim in CLAIMS:
        assert claim.title in joined
        assert " ".join((claim.refused or claim.why).split()) in joined
    assert text.endswith(summarise(rows))


def test_counts_of_one_have_a_noun_of_one() -> None:
    refused = next(claim for claim in CLAIMS if claim.refused)
    stated = next(claim for claim in CLAIMS if len(claim.points) == 1 and claim.each)
    (found,) = rows_of(stated, [Draw([1.0], "", 1.0)])
    assert found.stated is not None
    rows = [*reproduce([refused]), *rows_of(stated, [Draw([found.stated], "", 1.0)])]

    assert summarise(rows) == (
        "1 number compared: 1 within a fifth of the paper's, 0 not; "
        "1 claim without a number"
    )


DOCUMENT = """\
# Page
<!-- emu reproduce p3 -->
old
<!-- end of emu reproduce -->
between
<!-- emu reproduce dgcl -->
kept
<!-- end of emu reproduce -->
<!-- emu reproduce p3 headlines -->
<!-- end of emu reproduce -->
"""


def test_rows_are_written_where_their_paper_has_a_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(DOCUMENT)
    rows = [row for row in all_rows() if row.claim.paper == "p3"]
    write_blocks(page, rows)
    first = page.read_text()
    write_blocks(page, rows)

    assert page.read_text() == first  # once more changes nothing
    assert "kept" in first
    assert "between" in first
    assert "old" not in first
    whole, headlines = first.split("kept")
    assert whole.count("\nfigure 13 | ") == 4
    assert "figure 13" not in headlines
    assert headlines.count("\nfigure 8 | ") == 2


def test_a_document_without_a_place_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    with pytest.raises(DataError, match="cannot be read"):
        write_blocks(page, [])
    page.write_text("# Page\n")
    with pytest.raises(DataError, match="has no place for rows"):
        write_blocks(page, [])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1430.4, "1,430"),
        (0.01234, "0.0123"),
        (-3.456, "-3.46"),
        (31.75, "31.8"),
        (0, "0"),
    ],
)
def test_three_digits_count(value: float, text: str) -> None:
    assert format_number(value) == text


@given(st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)), min_size=1))
def test_an_axis_holds_all_values_and_few_marks(values: list[float]) -> None:
    axis = Axis.around(values)
    room = axis.high - axis.low

    assert axis.low <= min(0, *values) + 1e-9 * room
    assert axis.high >= max(0, *values) - 1e-9 * room
    assert 2 <= len(axis.marks) <= 8
    assert any(math.isclose(mark, 0, abs_tol=1e-6 * room) for mark in axis.marks)
    assert axis.y(axis.low) > axis.y(axis.high)


class _Counter(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


def test_a_page_draws_every_claim_that_was_carried_out() -> None:
    rows = all_rows()
    page = reproduction_page(rows)
    counter = _Counter()
    counter.feed(page)

    assert counter.tags.count("svg") == sum(not claim.refused for claim in CLAIMS)
    assert counter.tags.count("h3") == counter.tags.count("svg")
    quotes = sum(len(claim.quote) for claim in CLAIMS if not claim.refused)
    refused = sum(bool(claim.refused) for claim in CLAIMS)
    assert counter.tags.count("li") == quotes + refused
    assert not re.search(r"(?:src|href)=\"http", page)
    assert "nan" not in re.findall(r"<svg.*?</svg>", page)[0]
