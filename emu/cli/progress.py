"""The progress bar of commands that work off a number of things."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)


def progress_bar(console: Console, *more: ProgressColumn) -> Progress:
    """Return a bar of what is done of how much; nothing is drawn off a terminal."""
    counts: list[ProgressColumn] = [MofNCompleteColumn(), TimeElapsedColumn(), *more]
    columns = TextColumn("{task.description}"), BarColumn(bar_width=24), *counts
    quiet = not console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=quiet)
