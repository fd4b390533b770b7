"""Bytecode of what tests import, made once where PYTHONDONTWRITEBYTECODE is set.

There each process of a test would compile emu anew, 0.3 of the 0.75 s of CPU that a
command takes to simulate a small job, and each worker all tests, half of the CPU of
collecting them. What tests write themselves is compiled as the environment says.
"""

from __future__ import annotations

import compileall
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def compile_product() -> None:
    """Compile modules that have changed; a tree that is read-only stays as it is."""
    for package in ("emu", "nodes"):
        compileall.compile_dir(_ROOT / package, quiet=2)


@contextlib.contextmanager
def kept_bytecode() -> Iterator[None]:
    """Keep what the block imports compiled, with assertions as pytest rewrites them."""
    as_it_was = sys.dont_write_bytecode
    sys.dont_write_bytecode = False
    try:
        yield
    finally:
        sys.dont_write_bytecode = as_it_was
