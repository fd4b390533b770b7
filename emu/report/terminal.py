"""The terminal that tables are printed to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from typing import IO

#: Columns; wider tables wrap badly in logs and side-by-side editors.
WIDTH = 100


def terminal(file: IO[str] | None = None, *, quiet: bool = False) -> Console:
    """Return a console of at most 100 columns; exactly 100 where nobody watches.

    Parameters
    ----------
    quiet
        Whether nothing is to be printed, as beside JSON on standard output.
    """
    console = Console(file=file, highlight=False, soft_wrap=False)
    width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return Console(file=file, width=width, highlight=False, quiet=quiet)


def plain_table(title: str, *columns: str) -> Table:
    """Return an empty table; columns that start with ``>`` are aligned to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    table.pad_edge = False
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",
        )
    return table
