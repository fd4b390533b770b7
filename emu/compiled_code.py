"""Where compiled code is kept: in the user's cache, by the content of its sources.

numba keeps it beside the sources and compares one file, that of the function: after an
edit to what was compiled into it, the old code would go on to run, and every checkout
and environment would compile for 40 s what another has compiled. Here equal sources
share folders (14 MB in all), and a changed one gets another. ``NUMBA_CACHE_DIR`` names
another place than the user's cache.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numba
from numba.core import caching, event
from typing_extensions import override

from emu.gc_tuning import collected_seldom
from emu.scratch import cache_home

if TYPE_CHECKING:
    from collections.abc import Callable

_PACKAGE = Path(__file__).parent
#: Packages whose functions may be compiled into those of the packages that follow.
_INLINED = ("scheduling", "simulation", "placement", "analysis")
#: Folders kept per package: the versions in use. A day of edits makes dozens.
_KEPT = 10

_Function = TypeVar("_Function", bound="Callable[..., Any]")

_locator: Any = caching._CacheLocator  # noqa: SLF001 - numba has no public one
_locators: Any = caching.FunctionCache._impl_class._locator_classes  # noqa: SLF001


class ByContent(_locator):  # type: ignore[misc] # numba types nothing
    """Tells numba where the code of a function of `emu` lies."""

    def __init__(self, folder: Path, line: int) -> None:
        self._folder, self._line = folder, line

    @classmethod
    @override
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Any:
        """Return a locator; None for a function of others.

        Raises
        ------
        RuntimeError
            When no folder can be written; numba's own places would keep stale code.
        """
        path = Path(py_file)
        if _PACKAGE not in path.parents:
            return None
        if (folder := folder_of(path)) is None:
            raise RuntimeError("compiled code cannot be kept")
        return cls(folder, py_func.__code__.co_firstlineno)

    @override
    def get_cache_path(self) -> str:
        """Return the folder."""
        return str(self._folder)

    @override
    def get_source_stamp(self) -> str:
        """Return the stamp of the source that compiled code must match."""
        return self._folder.name

    @override
    def get_disambiguator(self) -> str:
        """Return the line number, which distinguishes functions of one name."""
        return str(self._line)


_locators.insert(0, ByContent)  # whatever is not of `emu` is left to numba's own


class _Compiling(event.Listener):
    """Has garbage looked for seldom while something compiles: 8 s of 50."""

    def __init__(self) -> None:
        self._begun: list[contextlib.ExitStack] = []

    @override
    def on_start(self, event: event.Event) -> None:
        seldom = contextlib.ExitStack()
        seldom.enter_context(collected_seldom())
        self._begun.append(seldom)

    @override
    def on_end(self, event: event.Event) -> None:
        self._begun.pop().close()


_register: Any = event.register  # numba types nothing
_register("numba:compile", _Compiling())


def njit(**options: Any) -> Callable[[_Function], _Function]:
    """Return numba's decorator; the result is kept on disk."""
    return lambda function: kept(numba.njit(**options)(function))


def kept(dispatcher: Any) -> Any:
    """Have the code of a function that numba compiles kept, where that can be."""
    if hasattr(dispatcher, "enable_caching"):  # not with NUMBA_DISABLE_JIT=1
        with contextlib.suppress(RuntimeError):  # no folder can be written
            dispatcher.enable_caching()
    return dispatcher


def folder_of(path: Path) -> Path | None:
    """Return the folder for code of the file ``path``; None if none can be written."""
    files = sources(path)
    package = path.parent.name
    return _folder(package if len(files) > 1 else f"{package}.{path.stem}", files)


def sources(path: Path) -> tuple[Path, ...]:
    """Return the files that code of ``path`` may have been compiled from."""
    package, root = path.parent.name, path.parents[1]
    at = _INLINED.index(package) if package in _INLINED else None
    packages = (package,) if at is None else _INLINED[: at + 1]
    return tuple(itertools.chain(*(_files(root / one) for one in packages)))


@functools.cache
def _files(package: Path) -> tuple[Path, ...]:
    return tuple(sorted(package.glob("*.py")))


@functools.cache
def _folder(name: str, files: tuple[Path, ...]) -> Path | None:
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    chosen: Any = numba.config
    home = Path(chosen.CACHE_DIR) if chosen.CACHE_DIR else cache_home() / "compiled"
    for root in (home, _PACKAGE / "__pycache__"):
        folder = root / f"{name}-{digest.hexdigest()[:16]}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.utime(folder)
        except OSError:
            continue
        if folder.stat().st_uid != os.getuid():  # code of others does not run here
            continue
        _forget_old(root, name)
        return folder
    return None


def _forget_old(root: Path, name: str) -> None:
    found = root.glob(f"{name}-" + "[0-9a-f]" * 16)
    for folder in sorted(found, key=_used, reverse=True)[_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)


def _used(folder: Path) -> float:
    """Return when a folder was last used; another process may just have removed it."""
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0
