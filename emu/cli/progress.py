"""The progress bar of commands that work off a number of things."""

from __future__ import annotations

from typing import Any

from rich import progress
from rich.console import Console


def progress_bar(console: Console, *more: progress.ProgressColumn) -> progress.Progress:
    """Return a bar of what is done of how much; nothing is drawn off a terminal."""
    bar = progress.BarColumn(bar_width=24)
    counts = progress.MofNCompleteColumn(), progress.TimeElapsedColumn(), *more
    how: Any = {"console": console, "disable": not console.is_terminal}
    return progress.Progress("{task.description}", bar, *counts, transient=True, **how)
