"""Limits against files of strangers, which users lift for files of their own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

from emu.errors import DataError

#: Takes a line on the memory that a file needs, where limits are lifted.
_LARGE: ContextVar[Callable[[str], None] | None] = ContextVar("large", default=None)
#: Bytes of memory per byte of a large scenario, and so of what is made of it.
_MEMORY = 40
_SMALL = 1 << 22


@contextlib.contextmanager
def large_files(tell: Callable[[str], None] | None) -> Iterator[None]:
    """Lift, in a block, the limits that hold for files of strangers.

    ``tell`` gets a line on the memory that a file will take before it is read; None
    leaves all as it is.
    """
    token = _LARGE.set(tell or _LARGE.get())
    try:
        yield
    finally:
        _LARGE.reset(token)


def are_large() -> bool:
    """Return True within `large_files`."""
    return _LARGE.get() is not None


def limit(most: int) -> int:
    """Return a limit against files of strangers; none within `large_files`."""
    return sys.maxsize if are_large() else most


def say_memory(path: Path) -> None:
    """Say, within `large_files`, how much memory a scenario will take.

    Raises DataError when that much is not free.
    """
    tell = _LARGE.get()
    size = path.stat().st_size
    if tell is None or size < _SMALL:
        return
    import psutil  # noqa: PLC0415 - emu --help does without

    memory = _MEMORY * size
    free = psutil.virtual_memory().available
    text = f"takes about {memory / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free"
    if memory > free:
        raise DataError(text, path=path)
    tell(f"{path}: {text}")
