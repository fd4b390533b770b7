"""A runtime that does what the name of its process says."""

from __future__ import annotations

import sys
import time
from typing import Any

#: Processes that were prepared in this one, or before it was forked.
PREPARED: list[str] = []


def prepare(descriptions: list[dict[str, Any]]) -> None:
    """Note that these are to be forked."""
    PREPARED.extend(fields["process"] for fields in descriptions)


def main(descriptions: list[dict[str, Any]]) -> int:
    """Exit with a status, how many were prepared, or if it is there; raise; sleep."""
    what, _, status = descriptions[0]["process"].partition(" ")
    if what == "raise":
        raise ArithmeticError(what)
    if what == "sleep":
        time.sleep(60)
    if what == "count":
        return len(PREPARED)
    if what == "imported":
        return int(status in sys.modules)
    return int(status)
