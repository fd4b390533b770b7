"""Code that is not emu's: optional libraries, and what users bring along.

Torch is needed to train, dgl to read what is its own. A user's code is the text of a
file, run and named in its errors.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from emu.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Said where pandas or matplotlib is missing.
INSTALL_FIGURES = "pip install 'dgtp-emulator[figures]'"
#: Said where torch is missing.
INSTALL_TORCH = "pip install 'dgtp-emulator[train]'"


def is_installed(name: str) -> bool:
    """Return True where a library of compiled code is there, without importing it.

    A module of that name without any is none of it: importing torch takes seconds.
    """
    try:
        found = importlib.util.find_spec(name)
    except ImportError:
        return False
    folders = (found and found.submodule_search_locations) or ()
    return any(any(Path(folder).glob("_C*")) for folder in folders)


def import_library(name: str, purpose: str, remedy: str) -> Any:
    """Return the module of a library.

    Parameters
    ----------
    purpose
        What needs it: a file, a key with its value.
    remedy
        What installs it, or does without it.

    Raises
    ------
    DataError
        When it is not installed, or is but does not import.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        problem = f"needs {name}, which is not installed here: {remedy}"
        raise DataError(problem, path=purpose) from error
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        problem = f"needs {name}, which is installed but does not import: {cause}"
        raise DataError(problem, path=purpose) from error


def imported(program: str, source: str) -> Callable[..., Any]:
    """Run the text of ``FILE.py:NAME`` and return what it is to be called by.

    Raises
    ------
    DataError
        When it defines nothing to call by that name. What its code raises goes on.
    """
    file, _, name = program.rpartition(":")
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    module = ModuleType(f"emu_own_{digest}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # where dataclasses and pickle look
    code = compile(source, file, "exec", dont_inherit=True)
    exec(code, vars(module))  # noqa: S102 - the author's own code, see THREAT_MODEL
    return called(module, name, program)


def called(module: ModuleType, name: str, program: str) -> Callable[..., Any]:
    """Return what ``module`` has to call by ``name``.

    Raises
    ------
    DataError
        When there is nothing; ``program`` is named in it.
    """
    found = getattr(module, name, None)
    if found is None or not callable(found):
        own = [n for n, v in vars(module).items() if inspect.isclass(v)
               and v.__module__ == module.__name__]  # fmt: skip
        problem = f"holds nothing to call by the name {name!r}"
        raise DataError(f"{problem}; it defines {', '.join(own) or 'no class'}",
                        path=program)  # fmt: skip
    factory: Callable[..., Any] = found
    return factory


def line_of(error: BaseException, file: str) -> str:
    """Return where in a file of a user an error was raised, in brackets."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return ""  # its text has it
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f" (line {lines[-1]} of {file})" if lines else ""
