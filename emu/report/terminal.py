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
#: Characters of a header above figures that are less wide, where there is room for
#: them: it may be a resource's name.
_WIDEST_HEADER = 16


def terminal(file: IO[str] | None = None, *, quiet: bool = False) -> Console:
    """Return a console of at most 100 columns; exactly 100 where it is no terminal.

    A table is wider where its figures take more, below headers folded at 16, or at
    less down to 6 where it has 100 columns then: none is cut. A ``quiet`` one prints
    nothing, as beside JSON on standard output.
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
        unlimited = options.update_width(1 << 16)
        whole_width = Measurement.get(console, unlimited, self).maximum
        width = options.max_width
        if whole_width > width:
            least_width = self._fold_columns(console, unlimited)
            width = max(width, least_width)
        yield from super().__rich_console__(console, options.update_width(width))

    def _fold_columns(self, console: Console, options: ConsoleOptions) -> int:
        """Fold headers of numbers; return the columns that the least table takes."""
        _, right, _, left = self.padding
        spaces = (left + right) * (len(self.columns) - 1)
        headers = []
        figures = []  # the widest of each column
        for column in self.columns:
            header, *cells = (
                Measurement.get(console, options, cell).maximum
                for cell in (column.header, *column.cells)
            )
            headers.append(header)
            figures.append(max(cells, default=0))

        widths: list[int] = []
        for widest_header in range(_WIDEST_HEADER, _NARROWEST - 1, -1):
            widths = []
            for column, header, figure in zip(
                self.columns, headers, figures, strict=True
            ):
                if column.no_wrap:
                    column.max_width = max(figure, min(header, widest_header))
                    widths.append(column.max_width)
                else:
                    widths.append(min(max(header, figure), _NARROWEST))
            if spaces + sum(widths) <= WIDTH:
                break
        return spaces + sum(widths)


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
        name = column.removeprefix(">")
        table.add_column(
            # Folded where figures are not.
            Text(for_terminal(name), no_wrap=False, overflow="fold"),
            justify="right" if right else "left",
            # A number broken in two reads as two. Names are folded, since what is cut
            # off could not be copied.
            no_wrap=right,
            overflow="fold",
        )

    return table
