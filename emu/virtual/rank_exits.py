"""Exits of ranks, noted by their parent for who keeps the clocks: a file for each."""

from __future__ import annotations

import signal
import time
from pathlib import Path

#: Seconds until the parent of a rank whose connection is closed has noted its exit.
_PATIENCE = 5.0
_PAUSE = 0.01


def note_exit(folder: Path, rank: int, code: int) -> None:
    """Note the exit code of a rank, negative where a signal killed it."""
    file = _file_of(folder, rank)
    written = file.with_suffix(".new")
    written.write_text(str(code))
    written.rename(file)


def describe_exit(folder: Path, rank: int) -> str:
    """Return how a rank exited; empty where its parent notes nothing in time."""
    file = _file_of(folder, rank)
    patience_ends = time.monotonic() + _PATIENCE
    while not file.exists():
        if time.monotonic() > patience_ends:
            return ""
        time.sleep(_PAUSE)

    text = file.read_text()
    code = int(text)
    if code >= 0:
        return f"with exit status {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:  # real-time signals have no names
        return f"by signal {-code}"


def _file_of(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.exit"
