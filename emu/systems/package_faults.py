"""Errors in code of packages that bring systems: they say which package it is."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from importlib.metadata import entry_points
from types import ModuleType

from emu.errors import EmulatorError
from emu.names import printable
from emu.systems.system import GROUP


@contextlib.contextmanager
def name_package() -> Iterator[None]:
    """Turn what code of another package raises into an error that names it.

    Errors of ours, and all others that arise in ours alone, are left as they are.
    """
    try:
        yield
    except EmulatorError:
        raise
    except (Exception, SystemExit) as error:  # of another package: anything
        problem = blame_package(error)
        if problem:
            raise EmulatorError(problem) from error
        raise


def blame_package(error: BaseException) -> str:
    """Return the error of another package in words; empty where it is ours alone."""
    packages = _packages()
    for module, place in _list_places(error):
        root, _, _ = module.partition(".")
        if root in packages:
            kind = type(error).__name__
            text = printable(f"{kind}: {error}", limit=300)
            return f"system {packages[root]} has an error{place}: {text}"
    return ""


def _packages() -> dict[str, str]:
    """Return the packages of other people's systems: root of modules -> its words."""
    packages = {}
    for point in entry_points(group=GROUP):
        root, _, _ = point.module.partition(".")
        brought = f", which {point.dist.name} brings," if point.dist else ""
        packages[root] = f"{point.name}{brought}"
    packages.pop("emu", None)
    return packages


def _list_places(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield module and place of all that took part in an error, the innermost first."""
    # A section that lacks a key, and a module a record, may be read by our code alone.
    if isinstance(error, AttributeError):
        obj = error.obj
        yield obj.__name__ if isinstance(obj, ModuleType) else type(obj).__module__, ""
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        name = frame.f_globals.get("__name__", "")
        file = frame.f_code.co_filename.rpartition("/")[2]
        yield name, f" ({file}, line {line})"
