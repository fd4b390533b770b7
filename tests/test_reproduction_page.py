"""Rows of papers in documents are those of the checked file, and come out again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emu.reproduction.blocks import by_claim, markdown_table
from emu.reproduction.claims import Claim, find_claims, read_papers
from emu.reproduction.rows import Draw, Row, reproduce, rows_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reproduction.md"
#: Claims that take a second, from graphs of nobody and without a search.
QUICK = (
    "table-1",
    "table-3",
    "figure-2",
    "table-7",
    "figure-4",
    "figure-10",
    "section-3.2",
)


def block_of(page: Path, mark: str) -> str:
    """Return what a document has between the marks of a paper."""
    text = page.read_text("utf-8")
    found = re.search(
        rf"<!-- emu reproduce {mark} -->\n(.*?)<!-- end of emu reproduce -->",
        text,
        re.DOTALL,
    )
    assert found, f"{page.name} has no place for {mark}"
    return found[1]


def cells_of(table: str) -> list[list[str]]:
    """Return the cells of the rows of a table, without its heading."""
    lines = [line for line in table.splitlines() if " | " in line]
    return [line.split(" | ") for line in lines[1:]]


def made_up(claims: list[Claim]) -> list[Row]:
    """Return rows of claims without carrying anything out."""
    rows = list[Row]()
    for claim in claims:
        draw = Draw([1.0] * len(claim.points), "settings", 1.0)
        rows += reproduce([claim]) if claim.refused else rows_of(claim, [draw])
    return rows


@pytest.mark.parametrize("paper", read_papers().papers)
def test_a_page_has_every_row_of_the_file(paper: str) -> None:
    """Run `make reproduce` where this fails: the file was edited since."""
    shown = cells_of(block_of(PAGE, paper))
    expected = cells_of(markdown_table(made_up([*find_claims(paper)])))

    assert [row[:3] for row in shown] == [row[:3] for row in expected]
    for row in shown:
        assert len(row) >= 5


MEASUREMENTS = ROOT / "docs" / "measurements.md"
#: Papers of few numbers stand on the page of papers alone.
WITH_HEADLINES = re.findall(r"emu reproduce (\w+) headlines", MEASUREMENTS.read_text())


def test_papers_of_many_numbers_have_headlines() -> None:
    for paper in read_papers().papers:
        points = sum(len(claim.points) for claim in find_claims(paper))
        assert points <= 6 or paper in WITH_HEADLINES, paper


@pytest.mark.parametrize("paper", WITH_HEADLINES)
def test_headlines_are_rows_of_the_page(paper: str) -> None:
    headlines = cells_of(block_of(MEASUREMENTS, f"{paper} headlines"))
    rows = [row[:5] for row in cells_of(block_of(PAGE, paper))]

    assert headlines
    assert [row for row in headlines if row[:5] not in rows] == []


def first_digits(text: str) -> float:
    """Return the number that a cell begins with."""
    found = re.match(r"-?[\d,.]+", text)
    assert found, text
    return float(found[0].replace(",", ""))


@pytest.mark.nightly
@pytest.mark.parametrize("paper", ["p3", "dgcl"])
def test_quick_rows_come_out_again(paper: str) -> None:
    """With one seed where the page has several: within a tenth."""
    claims = [
        claim
        for claim in find_claims(paper)
        if claim.figure in QUICK and not claim.refused and claim.unit != "s"
    ]
    shown = {(row[0], row[1]): row[3] for row in cells_of(block_of(PAGE, paper))}
    rows = [*reproduce(claims, draws=1)]

    assert len(rows) >= len(claims) > 0
    for claim, group in by_claim(rows):
        for row in group:
            title = f"{claim.title}: {row.point}" if row.point else claim.title
            assert row.found, row.refused
            assert first_digits(shown[claim.place, title]) == pytest.approx(
                row.found.mean, rel=0.1, abs=0.5
            )
