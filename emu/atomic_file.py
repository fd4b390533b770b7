"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from emu.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

_begun: set[Path] = set()


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a file to be written in the place of ``path``; it moves there at the end.

    A reader sees the old file or the whole new one. Whatever goes wrong, a signal
    included, nothing is left behind.

    Raises
    ------
    DataError
        When it cannot be written.
    """
    # Beside the target: a rename is atomic within one file system only.
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    _begun.add(partial)
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        why = error.strerror or str(error)
        raise DataError(f"cannot be written: {why}", path=str(path)) from error
    finally:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            partial.unlink(missing_ok=True)
        _begun.discard(partial)


def discard_begun_files() -> None:
    """Remove every file that is being written: the process ends now."""
    for partial in _begun:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def write_atomic(path: str | Path, text: str) -> None:
    """Write ``text`` to ``path``; a reader sees the old file or the whole new one.

    Raises
    ------
    DataError
        When it cannot be written; nothing is left behind then.
    """
    with whole_file(Path(path)) as partial:
        partial.write_text(text, encoding="utf-8")
