"""Libraries that only some jobs need: torch to train, dgl to read what is its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from emu.errors import DataError

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
