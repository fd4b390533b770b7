"""Notice shown while code is compiled that is not on disk yet."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import Any

from numba.core import event
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from typing_extensions import override

#: Event of numba around each function that it compiles, none where it is on disk.
_COMPILE = "numba:compile"
#: Seconds of compiling before the notice: a few functions take no longer.
_SILENT = 1.0
_NOTICE = "compiling once, up to 70 s of CPU time"


class CompileNotice(event.Listener):
    """Shows a bar from the first function that is compiled to the last.

    Compiling one function compiles those that it calls: the bar goes when the
    outermost is done, and comes again with the next. A log gets one line, once:
    where other programs take the cores, 54 s of CPU took six minutes.

    Parameters
    ----------
    silent
        Seconds of compiling before it shows.
    """

    def __init__(self, console: Console, silent: float = _SILENT) -> None:
        self._console, self._silent = console, silent
        self._depth, self._begun, self._spent = 0, 0.0, 0.0
        self._bar: Progress | None = None
        self._told = False

    @override
    def on_start(self, event: event.Event) -> None:
        """Begin the bar, once enough time went by."""
        if not self._depth:
            self._begun = time.monotonic()
        self._depth += 1
        spent = self._spent + time.monotonic() - self._begun
        if self._told or spent <= self._silent:
            return
        if not self._console.is_terminal:
            self._told = True
            # Raised here, an error would be one of what is compiled.
            with contextlib.suppress(OSError, ValueError):
                self._console.print(f"{_NOTICE} (emu warm does it ahead)")
        elif self._bar is None:
            self._bar = Progress(
                TextColumn(_NOTICE),
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


@functools.cache
def tell_of_compiling() -> None:
    """Say on standard error that something is compiled, if anything is."""
    register: Any = event.register  # numba types nothing
    # Standard error as it is then: it may be another one, or closed.
    register(_COMPILE, CompileNotice(Console(stderr=True)))
