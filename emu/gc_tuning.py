"""When Python looks for objects that nothing holds any more.

It does so after every 700 new objects, and often through all there are. What makes
millions of objects and keeps them spends a sixth of its time there: compiling, reading
a scenario of 300,000 values.
"""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NEW_OBJECTS = 10_000


@contextlib.contextmanager
def collected_seldom() -> Iterator[None]:
    """Look for garbage after more new objects than usual; nothing else changes."""
    before = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
