"""Build backend: scikit-build-core, with a C compiler from PyPI where there is none."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from scikit_build_core import build as made
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def _has_compiler() -> bool:
    named = os.environ.get("CC")
    return bool(named) or any(map(shutil.which, ("cc", "gcc", "clang")))


def _choose_compiler() -> None:
    if not _has_compiler():
        os.environ["CC"] = f"{sys.executable} -m ziglang cc"


def get_requires_for_build_wheel(settings: Any = None) -> list[str]:
    """Return what building needs beyond what is declared: zig without a compiler."""
    more = [] if _has_compiler() else ["ziglang>=0.14"]
    return [*made.get_requires_for_build_wheel(settings), *more]


def get_requires_for_build_editable(settings: Any = None) -> list[str]:
    """Return the same for an editable installation."""
    more = [] if _has_compiler() else ["ziglang>=0.14"]
    return [*made.get_requires_for_build_editable(settings), *more]


def build_wheel(*arguments: Any, **named: Any) -> str:
    """Build the wheel, see PEP 517."""
    _choose_compiler()
    return made.build_wheel(*arguments, **named)


def build_editable(*arguments: Any, **named: Any) -> str:
    """Build the core beside its sources and a wheel that points there, see PEP 660."""
    _choose_compiler()
    return made.build_editable(*arguments, **named)
