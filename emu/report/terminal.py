"""The terminal that tables are printed to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from emu.names import for_terminal

#: Columns; wider tables wrap badly in logs and side-by-side editors.
WIDTH = 100
#: Characters that a column of words keeps in a narrow terminal: fewer are no names.
_NARROWEST = 6


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

    @override
    def print(self, *objects: Any, **options: Any) -> None:
        """Print whole lines: the terminal itself wraps those that are too long."""
        options.setdefault("crop", False)
        super().print(*objects, **options)


class _WholeTable(Table):
    """A table that is wider than a narrow terminal before it loses a figure."""

    @override
    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        least_width = self._least_width(console, options)
        width = max(options.max_width, least_width)
        yield from super().__rich_console__(console, options.update_width(width))

    def _least_width(self, console: Console, options: ConsoleOptions) -> int:
        """Return the columns that numbers in one piece take, beside folded names."""
        unlimited = options.update_width(1 << 16)
        _, right, _, left = self.padding
        total = (left + right) * (len(self.columns) - 1)
        for column in self.columns:
            cells = [column.header, *column.cells]
            widths = [
                Measurement.get(console, unlimited, cell).maximum for cell in cells
            ]
            whole_width = max(widths)
            folded_width = min(whole_width, _NARROWEST)
            total += whole_width if column.no_wrap else folded_width
        return total


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
    table = _WholeTable(
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
