"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from emu.errors import DataError


def write_whole(path: str | Path, text: str) -> None:
    """Write ``text`` to ``path``; a reader sees the old file or the whole new one.

    Raises
    ------
    DataError
        When it cannot be written; nothing is left behind then.
    """
    path = Path(path)
    partial: Path | None = None
    try:
        # Beside the target: a rename is atomic within one file system only.
        with NamedTemporaryFile(
            "w",
            encoding="utf-8",
            dir=path.parent,
            prefix=f".{path.name}.",
            delete=False,
        ) as part:
            partial = Path(part.name)
            part.write(text)
            part.flush()
            os.fsync(part.fileno())
        partial.replace(path)
    except OSError as error:
        if partial is not None:
            partial.unlink(missing_ok=True)
        problem = f"cannot be written: {error.strerror}"
        raise DataError(problem, path=str(path)) from error
