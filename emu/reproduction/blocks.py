"""Rows as lines of text, and as tables of Markdown that stand in documents."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from emu.errors import DataError
from emu.host.files import write_atomic
from emu.report.terminal import WIDTH
from emu.reproduction.claims import Claim
from emu.reproduction.rows import Row
from emu.units import format_count

#: Place of a document that rows are written into, with the paper that they are of.
_BLOCK = re.compile(
    # Lazy in the middle: a greedy match would run to the last end mark of the document.
    r"(<!-- emu reproduce (\w+)( headlines)? -->\n).*?(<!-- end of emu reproduce -->)",
    re.DOTALL,
)
_INDENT = "    "


def format_number(value: float, digits: int = 3) -> str:
    """Return a number with the digits that count, ``1,430`` or ``0.0123``."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def format_stated(row: Row) -> str:
    """Return the paper's number with its unit, ``-`` where it has none."""
    if row.stated is None:
        return "-"
    bounds = {
        "most": "up to ",
        "least": "from ",
        "mean": "mean ",
    }
    bound = bounds.get(row.point, "")
    # Papers print up to four digits, as 31.75 %; what is found is less sure.
    number = format_number(row.stated, digits=4)
    return f"{bound}{number} {row.claim.unit}"


def format_found(row: Row) -> str:
    """Return what was found, with its interval where several seeds were tried."""
    found = row.found
    if found is None:
        return "-"
    number = format_number(found.mean)
    if found.count > 1:
        half = format_number(found.half)
        number = f"{number} ± {half}"
    return f"{number} {row.claim.unit}"


def format_ratio(row: Row) -> str:
    """Return found over stated, ``-`` where one is missing."""
    if row.ratio is None:
        return "-"
    return format_number(row.ratio)


def by_claim(rows: Sequence[Row]) -> Iterator[tuple[Claim, list[Row]]]:
    """Yield every claim with its rows."""
    # `groupby` joins neighbours alone: `reproduce` yields the rows of a claim in a row.
    for _, group in groupby(rows, key=lambda row: id(row.claim)):
        of_claim = list(group)
        yield of_claim[0].claim, of_claim


def _explain(row: Row) -> str:
    return row.refused or row.claim.why


def text_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield rows as text of at most `WIDTH` columns, the claims one after the other."""
    for claim, group in by_claim(rows):
        heading = f"{claim.paper} {claim.place}: {claim.title}"
        yield from textwrap.wrap(heading, WIDTH, subsequent_indent=_INDENT)
        for row in group:
            # A refused claim without numbers has a row for its reason alone.
            if row.stated is None and row.found is None:
                continue
            point = f"{row.point:20}" if row.point else ""
            stated = format_stated(row)
            found = format_found(row)
            ratio = format_ratio(row)
            numbers = f"paper {stated:16} here {found:20} ratio {ratio}"
            yield f"{_INDENT}{point}{numbers}"

        first = group[0]
        # What was refused was not carried out: it has no settings, and took no time.
        cost = f"; {first.seconds:.1f} s of CPU" if first.settings else ""
        sentences = [first.settings + cost, _explain(first), claim.reading]
        for sentence in sentences:
            lines = textwrap.wrap(sentence, WIDTH - len(_INDENT))
            for line in lines:
                yield _INDENT + line
        yield ""
    yield summarise(rows)


def summarise(rows: Sequence[Row]) -> str:
    """Return one sentence: how many numbers are reproduced, and how many are not."""
    comparisons = [row for row in rows if row.ratio is not None]
    matches = sum(row.is_reproduced for row in comparisons)
    misses = len(comparisons) - matches
    # A refused claim has a row for each of its numbers, and counts once.
    refused_claims = {id(row.claim) for row in rows if row.refused}
    numbers = format_count(len(comparisons), "number")
    claims = format_count(len(refused_claims), "claim")
    return (
        f"{numbers} compared: {matches} within a fifth of the paper's, "
        f"{misses} not; {claims} without a number"
    )


def _cells(row: Row) -> list[str]:
    title = row.claim.title
    if row.point:
        title = f"{title}: {row.point}"
    return [
        row.claim.place,
        title,
        format_stated(row),
        format_found(row),
        format_ratio(row),
    ]


def markdown_table(rows: Sequence[Row]) -> str:
    """Return rows as a table; what a claim says stands in its first row alone."""
    lines = [
        "figure | compared | paper | here | ratio | walk, settings | why | CPU, s",
        "---|---|---|---|---|---|---|---",
    ]
    for _, group in by_claim(rows):
        for row in group:
            remarks = ["", "", ""]
            if row is group[0]:
                seconds = f"{row.seconds:.1f}" if row.settings else ""
                remarks = [row.settings, _explain(row), seconds]
            line = " | ".join([*_cells(row), *remarks])
            # Empty cells at the end would leave blanks at the end of the line.
            lines.append(line.rstrip())
    return "\n".join(lines)


def headline_table(rows: Sequence[Row]) -> str:
    """Return the rows of claims that are marked as headlines, a figure per cell."""
    lines = [
        "figure | compared | paper | here | ratio",
        "---|---|---|---|---",
    ]
    for row in rows:
        if row.claim.headline:
            cells = _cells(row)
            lines.append(" | ".join(cells))
    return "\n".join(lines)


def write_blocks(path: Path, rows: Sequence[Row]) -> None:
    """Write rows into the marked places of a document.

    A place whose paper was not carried out stays as it is. Raises DataError when the
    document has no such place, or cannot be read or written.
    """
    carried_out = {row.claim.paper for row in rows}

    def replace_block(match: re.Match[str]) -> str:
        begin, paper, headlines, end = match.groups()
        if paper not in carried_out:
            return match[0]
        of_paper = [row for row in rows if row.claim.paper == paper]
        write_table = headline_table if headlines else markdown_table
        table = write_table(of_paper)
        summary = summarise(of_paper)
        return f"{begin}\n{table}\n\n{summary}.\n\n{end}"

    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise DataError(f"cannot be read: {error}", path=path) from error
    document, count = _BLOCK.subn(replace_block, text)
    if not count:
        problem = (
            "has no place for rows, write <!-- emu reproduce PAPER --> and "
            "<!-- end of emu reproduce -->"
        )
        raise DataError(problem, path=path)
    write_atomic(path, document)
