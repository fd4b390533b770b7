"""Libraries that only some jobs need: torch to train, dgl to read what is its own."""

from __future__ import annotations

import importlib
from typing import Any

from emu.errors import DataError

#: Said where pandas or matplotlib is missing.
INSTALL_FIGURES = "pip install 'dgtp-emulator[figures]'"
#: Said where torch is missing.
INSTALL_TORCH = "pip install 'dgtp-emulator[train]'"


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
        When it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        problem = f"needs {name}, which is not installed here: {remedy}"
        raise DataError(problem, path=purpose) from error
