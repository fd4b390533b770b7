"""A table for notebooks, every text escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def html_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> str:
    """Return a title and a table below it."""

    def line(tag: str, cells: Sequence[object]) -> str:
        inside = "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells)
        return f"<tr>{inside}</tr>"

    body = "".join(line("td", row) for row in rows)
    head = f"<thead>{line('th', columns)}</thead>" if columns else ""
    return f"<p>{escape(title)}</p><table>{head}<tbody>{body}</tbody></table>"
