"""Small pieces of HTML, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from emu.report.terminal import Fact

#: Columns that fit the screen of a telephone.
_NARROW = 4


def table(shown: Table) -> str:
    """Return a terminal's table with what stands below it.

    Columns of bars, which have no name, are left out.
    """
    # Bars are drawn with letters, which on a page would be noise beside the figures.
    columns = [column for column in shown.columns if column.header]
    attributes = []
    for column in columns:
        number = " class=number" if column.justify == "right" else ""
        # A narrow screen shows the name of the column in every cell of a wide table.
        name = escape(str(column.header))
        attributes.append(f'{number} data-column="{name}"')

    def cells(tag: str, texts: Iterable[object]) -> str:
        return "".join(
            f"<{tag}{attribute}>{escape(str(text))}</{tag}>"
            for text, attribute in zip(texts, attributes, strict=True)
        )

    header = cells("th", [column.header for column in columns])
    rows = zip(*(column.cells for column in columns), strict=True)
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    wide = " class=wide" if len(columns) > _NARROW else ""
    caption = ""
    if shown.caption:
        caption = f"<p class=remark>{escape(str(shown.caption))}</p>"
    return (
        f"<div class=scroll><table{wide}><thead><tr>{header}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>{caption}"
    )


def figures(facts: Iterable[Fact]) -> str:
    """Return the numbers of a headline, each with the key of result.json it is of."""
    cells = []
    for fact in facts:
        key = f' data-key="{escape(fact.key)}"' if fact.key else ""
        cells.append(
            f"<div class=figure><span class=label>{escape(fact.label)}</span>"
            f"<span class=value{key}>{escape(fact.value)}</span>"
            f"<span class=note>{escape(fact.note)}</span></div>"
        )
    return f"<div class=figures>{''.join(cells)}</div>"


def meter(label: str, fraction: float, text: str) -> str:
    """Return a bar that is filled to ``fraction``; over-full ones look different."""
    full = " over" if fraction > 1 else ""
    # A resource may be demanded beyond its capacity; the bar stays within its track.
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


def page_title(name: str, text: str) -> str:
    """Return the head of a page: its name, and what it is of."""
    return f"<header><h1>{escape(name)}</h1><p>{escape(text)}</p></header>"


def bullets(texts: Iterable[object]) -> str:
    """Return a list of texts; nothing where there are none."""
    items = "".join(f"<li>{escape(str(text))}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def chart(identifier: str, title: str, note: str) -> str:
    """Return a titled place that the page's script draws a chart in."""
    place = f"<div class=chart data-chart={escape(identifier)}></div>"
    return section(identifier, title, place, note=note)
