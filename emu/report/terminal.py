"""The terminal that tables are printed to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from emu.names import for_terminal

#: Columns; wider tables wrap badly in logs and side-by-side editors.
WIDTH = 100


def terminal(file: IO[str] | None = None, *, quiet: bool = False) -> Console:
    """Return a console of at most 100 columns; exactly 100 where it is no terminal.

    A ``quiet`` one prints nothing, as beside JSON on standard output.
    """
    console = _Literal(
        file=file,
        highlight=False,
        markup=False,
        quiet=quiet,
    )
    # Off a terminal rich takes the width of whichever stream is one, or COLUMNS: the
    # same output would differ by where it goes.
    if console.is_terminal:
        console.width = min(console.width, WIDTH)
    else:
        console.width = WIDTH
    return console


class _Literal(Console):
    """Shows every text as it is: names are input, and may look like markup."""

    @override
    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text without what a terminal would take for orders."""
        options["markup"] = options["emoji"] = False
        return super().render_str(for_terminal(text), **options)


class Fact(NamedTuple):
    """A figure with its label and a remark."""

    label: str
    value: str
    note: str = ""
    key: str = ""
    """The key of result.json that holds it, if one does."""
    style: str = ""
    """Colour of the value on a terminal."""


def facts_table(facts: Iterable[Fact]) -> Table:
    """Return a table of facts: what, how much, and a remark."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    table.add_column()
    for fact in facts:
        value = Text(fact.value, fact.style)
        table.add_row(fact.label, value, fact.note)
    return table


def plain_table(title: str, *columns: str) -> Table:
    """Return an empty table; columns that start with ``>`` are aligned to the right."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
    )
    table.pad_edge = False
    table.caption_justify = "left"
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            # A number broken in two reads as two. Names are folded, since what is cut
            # off could not be copied.
            no_wrap=right,
            overflow="fold",
        )

    return table
