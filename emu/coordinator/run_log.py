"""The log of a run: what agents and processes print, and what happened at our port."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class RunLog:
    """A file that agents and their processes write as well."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, line: str) -> None:
        """Write what happened here."""
        with contextlib.suppress(OSError), self.path.open("a") as log:
            log.write(f"emu run: {line}\n")

    def last_words(self) -> str:
        """Return the last line of all, for a message about who died."""
        try:
            lines = self.path.read_text(errors="replace").strip().splitlines()
        except OSError as error:
            return f"its output is lost: {error}"
        said = f"it said: {lines[-1]}" if lines else "it said nothing"
        return f"{said} (the log is {self.path})"
