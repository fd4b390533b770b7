"""The progress bar of commands that work off a number of things."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TimeElapsedColumn,
)


def progress_bar(console: Console, *more: ProgressColumn) -> Progress:
    """Return a bar of what is done of how much; nothing is drawn off a terminal."""
    return Progress(
        "{task.description}",
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        *more,
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
