"""Code that a user brings along: text of a file, run and named in its errors."""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any

from emu.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable


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
