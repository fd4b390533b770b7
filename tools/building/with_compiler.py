"""Build backend: scikit-build-core, with a C compiler from PyPI where there is none."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

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
    name = made.build_editable(*arguments, **named)
    _without_finder(Path(arguments[0], name))
    return name


def _without_finder(wheel: Path) -> None:
    """Take the finder out of an editable wheel, so that only ``sys.path`` decides.

    It would come before PYTHONPATH, and import these sources where a copy of them, a
    fault planted in it, is to be tried.
    """
    with ZipFile(wheel) as file:
        entries = {name: file.read(name) for name in file.namelist()}
    (finder,) = (name for name in entries if re.fullmatch(r"_editable_\w+\.py", name))
    del entries[finder]
    with ZipFile(wheel, "w") as file:
        for name, content in entries.items():
            kept = content.decode()
            if name.endswith(".pth"):
                kept = re.sub(r"^import .*\n", "", kept, flags=re.MULTILINE)
            elif name.endswith("/RECORD"):
                path = re.escape(finder.removesuffix("py"))
                kept = re.sub(f"^{path}py,.*\n", "", kept, flags=re.MULTILINE)
                kept = re.sub(f"^({path}pth),.*$", r"\1,,", kept, flags=re.MULTILINE)
            file.writestr(name, kept)
