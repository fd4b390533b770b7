"""Why a row of a table, or a choice of an advice, was refused."""

from __future__ import annotations

from emu.errors import EmulatorError
from emu.names import printable


def reason(error: EmulatorError) -> str:
    """Return why something was refused, in one line."""
    # Without the file and the key, which `str` puts in front of it.
    problem = getattr(error, "problem", str(error))
    first_line, *_ = problem.split("\n", 1)
    key = getattr(error, "key", "")
    # What was found says nothing without its key. Others name what they are about, and
    # may have a key that the user did not write, as ``until.accuracy`` of ``--to``.
    is_of_value = first_line.startswith("found ") or key.startswith("systems.")
    if key and is_of_value:
        first_line = f"{key}: {first_line}"
    return printable(first_line)
