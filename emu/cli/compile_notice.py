"""What a terminal shows while code is compiled that is not on disk yet."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from numba.core import event
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from typing_extensions import override

from emu.report.terminal import terminal

if TYPE_CHECKING:
    from rich.console import Console

#: Of numba: around what it compiles, and not around what it finds on disk.
_COMPILE = "numba:compile"
#: Seconds of compiling before anything is said: a few functions take no longer.
_SILENT = 1.0


class CompileNotice(event.Listener):
    """Shows a bar from the first function that is compiled to the last.

    Compiling one function compiles those that it calls: the bar goes when the
    outermost is done, and comes again with the next.

    Parameters
    ----------
    silent
        Seconds of compiling before it shows.
    """

    def __init__(self, console: Console, silent: float = _SILENT) -> None:
        self._console, self._silent = console, silent
        self._depth, self._begun, self._spent = 0, 0.0, 0.0
        self._bar: Progress | None = None

    @override
    def on_start(self, event: event.Event) -> None:
        """Begin the bar, once enough time went by."""
        if not self._depth:
            self._begun = time.monotonic()
        self._depth += 1
        spent = self._spent + time.monotonic() - self._begun
        if self._bar is None and spent > self._silent:
            self._bar = Progress(
                TextColumn("compiling once, about 30 s"),
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.add_task("", total=None)
            self._bar.start()

    @override
    def on_end(self, event: event.Event) -> None:
        """Take the bar away with the end of the outermost function."""
        self._depth -= 1
        if not self._depth:
            self._spent += time.monotonic() - self._begun
            if self._bar is not None:
                self._bar.stop()
                self._bar = None


def tell_of_compiling() -> None:
    """Show what is compiled from now on, if a terminal watches standard error."""
    console = terminal(sys.stderr)
    if console.is_terminal:
        register: Any = event.register  # numba types nothing
        register(_COMPILE, CompileNotice(console))
