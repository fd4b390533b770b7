"""The progress of a command: a bar of what is done of how much, or a line."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TimeElapsedColumn,
)

from emu.cli.signs_of_life import note_stage
from emu.report.terminal import terminal


def progress_bar(console: Console, *columns: ProgressColumn) -> Progress:
    """Return a bar of what is done of how much; nothing is drawn off a terminal."""
    return Progress(
        "{task.description}",
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        *columns,
        console=console,
        # A log has no line to draw again: `signs_of_life` writes there.
        disable=not console.is_terminal,
        # The result follows, beside which a full bar says nothing.
        transient=True,
    )


@contextlib.contextmanager
def status_line(
    title: str, prefix: str = "", console: Console | None = None
) -> Iterator[Callable[[str], None]]:
    """Show a line on standard error; give what says in it how far the command is.

    What is said has the ``prefix`` there, and is noted for the lines of a log, too.
    What else is printed meanwhile goes to the same ``console``, or breaks the line.
    """
    with (console or terminal(sys.stderr)).status(title) as status:

        def say(text: str) -> None:
            note_stage(text)
            status.update(f"{prefix}{text}")

        yield say
