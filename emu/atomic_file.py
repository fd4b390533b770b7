"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from emu.errors import DataError


def write_atomic(path: str | Path, text: str) -> None:
    """Write ``text`` to ``path``; a reader sees the old file or the whole new one.

    Raises
    ------
    DataError
        When it cannot be written; nothing is left behind then.
    """
    path = Path(path)
    # Beside the target: a rename is atomic within one file system only.
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        problem = f"cannot be written: {error.strerror}"
        raise DataError(problem, path=str(path)) from error
