"""Small pieces of HTML, every text escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

    from emu.report.terminal import Fact


#: Columns that fit the screen of a telephone.
_NARROW = 4


def table(shown: Table) -> str:
    """Return a terminal's table, without the columns of bars, which have no name."""
    columns = [column for column in shown.columns if column.header]
    tags = ["", " class=number"]
    # A narrow screen shows the name of the column in every cell of a wide table.
    kinds = [
        f'{tags[column.justify == "right"]} data-column="{escape(str(column.header))}"'
        for column in columns
    ]
    wide = " class=wide" if len(columns) > _NARROW else ""

    def cells(tag: str, row: Iterable[object]) -> str:
        return "".join(
            f"<{tag}{kind}>{escape(str(text))}</{tag}>"
            for text, kind in zip(row, kinds, strict=True)
        )

    head = cells("th", [column.header for column in columns])
    rows = zip(*(column.cells for column in columns), strict=True)
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f"<div class=scroll><table{wide}><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def figures(facts: Iterable[Fact]) -> str:
    """Return the numbers of a headline, each with the key of result.json it is of."""
    shown = []
    for label, value, note, name, _ in facts:
        key = f' data-key="{escape(name)}"' if name else ""
        shown.append(
            f"<div class=figure><span class=label>{escape(label)}</span>"
            f"<span class=value{key}>{escape(value)}</span>"
            f"<span class=note>{escape(note)}</span></div>"
        )
    return f"<div class=figures>{''.join(shown)}</div>"


def meter(label: str, fraction: float, text: str) -> str:
    """Return a bar that is filled to ``fraction``; over-full ones look different."""
    full = " over" if fraction > 1 else ""
    width = 100 * min(max(fraction, 0.0), 1.0)
    return (
        f"<div class=meter><span class=label>{escape(label)}</span>"
        f'<span class="track{full}"><span style="width:{width:.1f}%"></span></span>'
        f"<span class=note>{escape(text)}</span></div>"
    )


def section(identifier: str, title: str, *parts: str, note: str = "") -> str:
    """Return a titled part of the page, nothing when there is nothing in it."""
    inside = "".join(parts)
    if not inside:
        return ""
    remark = f"<p class=remark>{escape(note)}</p>" if note else ""
    return (
        f'<section id="{escape(identifier)}"><h2>{escape(title)}</h2>'
        f"{remark}{inside}</section>"
    )


def chart(identifier: str, title: str, note: str) -> str:
    """Return a titled place that the page's script draws a chart in."""
    place = f"<div class=chart data-chart={escape(identifier)}></div>"
    return section(identifier, title, place, note=note)
