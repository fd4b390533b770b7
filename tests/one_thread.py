"""One thread for the matrices of tests, as in processes that emu starts.

Matrices of tests are small: a second thread spins while it waits for the first, which
was half of the CPU of trainings and four times their wall time on a busy host. Numpy
and torch read their numbers of threads when they are imported. What tests start has the
environment as it was.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_NUMBERS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Give libraries that the block imports one thread, where no number is stated."""
    unset = [name for name in _NUMBERS if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, "1"))
    try:
        yield
    finally:
        for name in unset:
            del os.environ[name]


with one_thread():
    import numpy as np  # noqa: F401
